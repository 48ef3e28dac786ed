package org.tfsparsecap.captioner;

import static org.junit.Assert.assertEquals;
import static org.junit.Assert.assertTrue;
import static org.junit.Assume.assumeTrue;

import android.graphics.Bitmap;
import android.net.Uri;
import java.io.File;
import java.nio.file.Files;
import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;
import org.json.JSONObject;
import org.junit.Test;
import org.junit.runner.RunWith;
import org.robolectric.RobolectricTestRunner;

/**
 * The app's captions of the first 100 test pictures of Flickr8k beside Python's, from the same files. The
 * pictures are no part of the repository: they lie in data/flickr8k_1k in the folder that the environment's
 * TFSPARSECAP_SHARED names. {@code mvn -f android_demo/pom.xml test -Dtest=CaptionsOf100Test} says how many are
 * equal; with {@code -Dpixels=FILE}, which pixels.py wrote, also how far the pixels are from Python's.
 */
@RunWith(RobolectricTestRunner.class)
public class CaptionsOf100Test {
  private static final int LEAST_EQUAL = 95;

  @Test
  public void atLeast95AreEqualToPythons() throws Exception {
    String shared = System.getenv("TFSPARSECAP_SHARED");
    assumeTrue("TFSPARSECAP_SHARED names no folder with pictures", shared != null);
    File photos = new File(shared, "data/flickr8k_1k/Images");
    assumeTrue("there is no " + photos, photos.isDirectory());
    JSONObject python = Fixtures.object("captions_of_100.json");
    File model = Fixtures.asset("sparse.tflite");
    assertEquals("run fixtures.py again", python.getString("sha256"), Fixtures.sha256(model));
    JSONObject expected = python.getJSONObject("captions");
    assertEquals(100, expected.length());

    CaptionerBundle bundle = CaptionerBundle.fromFile(model);
    int side = bundle.description().imageSize();
    PixelErrors errors = PixelErrors.fromProperty(3 * side * side);
    List<String> different = new ArrayList<>();
    try (Captioner captioner = new Captioner(bundle, 2)) {
      for (Iterator<String> names = expected.keys(); names.hasNext(); ) {
        String name = names.next();
        Bitmap photo = PhotoReader.read(Fixtures.resolver(), Uri.fromFile(new File(photos, name)), side);
        String caption = captioner.caption(photo).captions().get(0).text();
        if (!caption.equals(expected.getString(name))) {
          different.add(name + ": \"" + caption + "\", not \"" + expected.getString(name) + "\"");
        }
        errors.add(photo, side);
      }
    }
    int equal = expected.length() - different.size();
    System.out.printf("MEASURED captions equal to Python's: %d of %d%s%n", equal, expected.length(), errors);
    different.forEach(System.out::println);
    assertTrue("equal are " + equal + ": " + different, equal >= LEAST_EQUAL);
  }

  /** How far pixels are from those in a file: the pictures' bytes, one after the other. */
  private static final class PixelErrors {
    private final byte[] expected;
    private int at;
    private int largest;
    private long sum;
    private long different;

    private PixelErrors(byte[] expected) {
      this.expected = expected;
    }

    static PixelErrors fromProperty(int pictureSize) throws Exception {
      String path = System.getProperty("pixels");
      byte[] pixels = path == null ? null : Files.readAllBytes(new File(path).toPath());
      assertTrue("another number of pictures", pixels == null || pixels.length == 100 * pictureSize);
      return new PixelErrors(pixels);
    }

    void add(Bitmap photo, int side) {
      if (expected == null) {
        return;
      }
      for (byte pixel : Fixtures.scaled(photo, side)) {
        int error = Math.abs((pixel & 255) - (expected[at++] & 255));
        largest = Math.max(largest, error);
        sum += error;
        different += error > 0 ? 1 : 0;
      }
    }

    @Override
    public String toString() {
      return expected == null
          ? ""
          : String.format(
              "; bytes of pixels: %.2f %% differ, by %.4f on average over all, by %d at most",
              100.0 * different / at, (double) sum / at, largest);
    }
  }
}
