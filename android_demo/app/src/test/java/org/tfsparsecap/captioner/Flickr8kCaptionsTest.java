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
 * Compares the app's captions of Flickr8k test photographs with Python's: the first 20, or up to 100
 * with {@code -Dphotos=100}. The photographs are not in the repository: they are expected in
 * data/flickr8k_1k in the folder TFSPARSECAP_SHARED. {@code mvn -f android_demo/pom.xml test
 * -Dtest=Flickr8kCaptionsTest} prints how many captions are equal and, with {@code -Dpixels=FILE}
 * from pixels.py, the pixel differences to Python. Some differ, because the runtimes round the int8
 * activations of the encoder differently.
 */
@RunWith(RobolectricTestRunner.class)
public class Flickr8kCaptionsTest {
  private static final int PHOTOS = Integer.getInteger("photos", 20);

  @Test
  public void mostCaptionsEqualPythons() throws Exception {
    String shared = System.getenv("TFSPARSECAP_SHARED");
    assumeTrue("TFSPARSECAP_SHARED is not set", shared != null);
    File photos = new File(shared, "data/flickr8k_1k/Images");
    assumeTrue("missing: " + photos, photos.isDirectory());
    JSONObject python = Fixtures.object("captions_of_100.json");
    for (String model : new String[] {"sparse.tflite", "small.tflite"}) {
      compare(model, python.getJSONObject(model), photos);
    }
  }

  private static void compare(String model, JSONObject python, File photos) throws Exception {
    File file = Fixtures.asset(model);
    assertEquals("run fixtures.py again", python.getString("sha256"), Fixtures.sha256(file));
    JSONObject expected = python.getJSONObject("captions");
    assertEquals(100, expected.length());

    CaptionerBundle bundle = CaptionerBundle.fromFile(file);
    int side = bundle.description().imageSize();
    PixelErrors errors = PixelErrors.fromProperty(3 * side * side);
    List<String> different = new ArrayList<>();
    // One thread, because two wait for each other actively, which doubles the CPU time.
    try (Captioner captioner = new Captioner(bundle, 1)) {
      Iterator<String> names = expected.keys();
      for (int i = 0; i < PHOTOS; i++) {
        String name = names.next();
        Bitmap photo = PhotoReader.read(Fixtures.resolver(), Uri.fromFile(new File(photos, name)), side);
        String caption = captioner.caption(photo).captions().get(0).text();
        if (!caption.equals(expected.getString(name))) {
          different.add(name + ": \"" + caption + "\", not \"" + expected.getString(name) + "\"");
        }
        errors.add(photo, side);
      }
    }
    int equal = PHOTOS - different.size();
    System.out.printf("MEASURED captions of %s equal to Python's: %d of %d%s%n", model, equal, PHOTOS, errors);
    different.forEach(System.out::println);
    assertTrue(model + ", equal: " + equal + ": " + different, 5 * equal >= 4 * PHOTOS);
  }

  /** Compares pixels with a file that contains the bytes of all images in order. */
  private static final class PixelErrors {
    private final byte[] expected;
    private int pos;
    private int largest;
    private long sum;
    private long different;

    private PixelErrors(byte[] expected) {
      this.expected = expected;
    }

    static PixelErrors fromProperty(int pictureSize) throws Exception {
      String path = System.getProperty("pixels");
      byte[] pixels = path == null ? null : Files.readAllBytes(new File(path).toPath());
      assertTrue("different number of images", pixels == null || pixels.length == PHOTOS * pictureSize);
      return new PixelErrors(pixels);
    }

    void add(Bitmap photo, int side) {
      if (expected == null) {
        return;
      }
      for (byte pixel : Fixtures.scaled(photo, side)) {
        int error = Math.abs((pixel & 255) - (expected[pos++] & 255));
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
              100.0 * different / pos, (double) sum / pos, largest);
    }
  }
}
