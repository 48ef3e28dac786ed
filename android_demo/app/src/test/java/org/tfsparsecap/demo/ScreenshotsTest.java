package org.tfsparsecap.demo;

import static org.junit.Assert.assertEquals;
import static org.junit.Assert.assertTrue;

import android.app.Activity;
import android.graphics.Bitmap;
import android.graphics.Canvas;
import android.view.View;
import java.io.File;
import java.io.IOException;
import java.io.OutputStream;
import java.nio.file.Files;
import java.util.HashSet;
import java.util.Set;
import org.junit.Test;
import org.robolectric.RuntimeEnvironment;

/** Draws the screens of the README into target/screenshots/. */
public final class ScreenshotsTest extends ScreenTest {
  private static final String LANDSCAPE = "w891dp-h411dp-land-xhdpi";

  @Test
  public void portrait() throws IOException {
    draw(openWith(SamplePhotos.HEART_STAR).get(), "portrait");
  }

  @Test
  public void landscape() throws IOException {
    RuntimeEnvironment.setQualifiers(LANDSCAPE);
    draw(openWith(SamplePhotos.HEART_STAR, SamplePhotos.CROSS_HEART, SamplePhotos.TRIANGLE).get(), "landscape");
  }

  @Test
  public void dark() throws IOException {
    RuntimeEnvironment.setQualifiers("+night");
    draw(openWith(SamplePhotos.CROSS_HEART).get(), "dark");
  }

  @Test
  public void compare() throws IOException {
    app.engine.reportTimes = false; // latencies of a desktop are not those of a phone
    draw(openModels(album.photo(SamplePhotos.CROSS_HEART)).get(), "compare");
  }

  /** Draws a screen and checks that it is not blank. */
  static Bitmap draw(Activity screen) {
    idleMainLooper();
    View window = screen.getWindow().getDecorView();
    Bitmap image =
        Bitmap.createBitmap(window.getWidth(), window.getHeight(), Bitmap.Config.ARGB_8888);
    window.draw(new Canvas(image));
    Set<Integer> colours = new HashSet<>();
    for (int y = 0; y < image.getHeight(); y += 7) {
      for (int x = 0; x < image.getWidth(); x += 7) {
        colours.add(image.getPixel(x, y));
      }
    }
    assertTrue("number of colours: " + colours.size(), colours.size() > 20);
    int background = screen.getColor(R.color.background);
    int corner = image.getPixel(1, image.getHeight() - 2);
    assertEquals("background", Integer.toHexString(background), Integer.toHexString(corner));
    return image;
  }

  private static void draw(Activity screen, String name) throws IOException {
    File folder = new File("target/screenshots");
    folder.mkdirs();
    try (OutputStream out = Files.newOutputStream(new File(folder, name + ".png").toPath())) {
      assertTrue(draw(screen).compress(Bitmap.CompressFormat.PNG, 100, out));
    }
  }
}
