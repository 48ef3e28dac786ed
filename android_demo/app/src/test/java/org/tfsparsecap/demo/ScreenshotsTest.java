package org.tfsparsecap.demo;

import static org.junit.Assert.assertEquals;
import static org.junit.Assert.assertTrue;

import android.app.Activity;
import android.content.Intent;
import android.graphics.Bitmap;
import android.graphics.BitmapFactory;
import android.graphics.Canvas;
import android.net.Uri;
import android.view.View;
import java.io.File;
import java.io.IOException;
import java.io.OutputStream;
import java.nio.file.Files;
import java.util.EnumSet;
import java.util.HashSet;
import java.util.Set;
import org.junit.Before;
import org.junit.Test;
import org.robolectric.RuntimeEnvironment;

/**
 * Draws the screens of the README into target/screenshots/: the built-in captioners, and the free
 * photographs in docs/images.
 */
public final class ScreenshotsTest extends ScreenTest {
  private static final String LANDSCAPE = "w891dp-h411dp-land-xhdpi";
  private static final File PHOTOGRAPHS = new File("../../docs/images/photographs");

  @Before
  public void useBuiltInCaptioners() {
    app.builtIn = EnumSet.of(ModelChoice.SPARSE, ModelChoice.SMALL, ModelChoice.DENSE);
    for (ModelChoice choice : app.builtIn) {
      app.engine.builtIn.put(choice, new File("target/assets", choice.fileName()));
    }
  }

  @Test
  public void portrait() throws IOException {
    draw(openPhotographs("photographer.jpg"), "portrait");
  }

  @Test
  public void landscape() throws IOException {
    RuntimeEnvironment.setQualifiers(LANDSCAPE);
    draw(openPhotographs("photographer.jpg", "astronaut.jpg", "cat.jpg"), "landscape");
  }

  @Test
  public void dark() throws IOException {
    RuntimeEnvironment.setQualifiers("+night");
    draw(openPhotographs("astronaut.jpg"), "dark");
  }

  @Test
  public void live() throws IOException {
    draw(pointAt("photographer.jpg"), "live");
  }

  @Test
  public void liveDarkRightToLeftWithLargeText() throws IOException {
    RuntimeEnvironment.setQualifiers("ar-ldrtl-w411dp-h891dp-night-xhdpi");
    RuntimeEnvironment.setFontScale(2);
    draw(pointAt("photographer.jpg"), "live_dark_rtl_200");
  }

  private LiveActivity pointAt(String photograph) {
    LiveActivity screen = open(LiveActivity.class, new Intent()).get();
    await(() -> app.camera.listener.wantsFrame(), "the model");
    app.camera.listener.onFrame(BitmapFactory.decodeFile(new File(PHOTOGRAPHS, photograph).getPath()));
    await(() -> isShown(screen, R.id.confidence), "the caption");
    return screen;
  }

  @Test
  public void compare() throws IOException {
    app.engine.reportTimes = false; // latencies of a desktop are not those of a phone
    draw(openModels(photograph("photographer.jpg")).get(), "compare");
  }

  private MainActivity openPhotographs(String... names) throws IOException {
    Uri[] photos = new Uri[names.length];
    for (int i = 0; i < names.length; i++) {
      photos[i] = photograph(names[i]);
    }
    MainActivity screen = open(MainActivity.class, share(photos)).get();
    awaitCaptions(screen);
    return screen;
  }

  private Uri photograph(String name) throws IOException {
    return album.add(name, Files.readAllBytes(new File(PHOTOGRAPHS, name).toPath()));
  }

  /** Draws a screen and checks that it is not blank. */
  static Bitmap draw(Activity screen) {
    idleMainLooper();
    View window = screen.getWindow().getDecorView();
    Bitmap image =
        Bitmap.createBitmap(window.getWidth(), window.getHeight(), Bitmap.Config.ARGB_8888);
    window.draw(new Canvas(image));
    Set<Integer> colours = new HashSet<>();
    int[] row = new int[image.getWidth()];
    for (int y = 0; y < image.getHeight(); y += 7) {
      image.getPixels(row, 0, row.length, 0, y, row.length, 1);
      for (int x = 0; x < row.length; x += 7) {
        colours.add(row[x]);
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
