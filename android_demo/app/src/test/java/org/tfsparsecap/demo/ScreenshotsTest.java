package org.tfsparsecap.demo;

import static org.junit.Assert.assertEquals;
import static org.junit.Assert.assertTrue;

import android.app.Activity;
import android.content.Intent;
import android.graphics.Bitmap;
import android.graphics.Canvas;
import android.net.Uri;
import android.view.View;
import java.io.File;
import java.io.IOException;
import java.io.OutputStream;
import java.nio.file.Files;
import java.util.HashSet;
import java.util.Set;
import org.junit.Test;
import org.robolectric.RuntimeEnvironment;
import org.robolectric.android.controller.ActivityController;

/** Draws the screens into target/screenshots/, for people to look at; that they are not blank is checked here. */
public final class ScreenshotsTest extends ScreenTest {
  private static final String LANDSCAPE = "w891dp-h411dp-land-xhdpi";

  @Test
  public void portrait() throws IOException {
    draw(openWith(Samples.HEART_STAR).get(), "portrait");
  }

  @Test
  public void landscape() throws IOException {
    RuntimeEnvironment.setQualifiers(LANDSCAPE);
    draw(openWith(Samples.HEART_STAR, Samples.CROSS_HEART, Samples.TRIANGLE).get(), "landscape");
  }

  @Test
  public void landscapeWithOne() throws IOException {
    RuntimeEnvironment.setQualifiers(LANDSCAPE);
    draw(openWith(Samples.HEART_STAR).get(), "landscape_one");
  }

  @Test
  public void dark() throws IOException {
    RuntimeEnvironment.setQualifiers("+night");
    draw(openWith(Samples.CROSS_HEART).get(), "dark");
  }

  @Test
  public void several() throws IOException {
    draw(
        openWith(
                Samples.CIRCLE_STAR,
                Samples.HEART_STAR,
                Samples.CROSS_HEART,
                Samples.TRIANGLE,
                Samples.HEART_CROSS)
            .get(),
        "several");
  }

  @Test
  public void largeFont() throws IOException {
    RuntimeEnvironment.setFontScale(1.7f);
    draw(openWith(Samples.HEART_STAR).get(), "large_font");
  }

  @Test
  public void largestFontOnASmallPhone() throws IOException {
    RuntimeEnvironment.setQualifiers("w320dp-h533dp-hdpi");
    RuntimeEnvironment.setFontScale(2);
    draw(openWith(Samples.HEART_STAR).get(), "largest_font_small");
  }

  @Test
  public void largeFontLandscape() throws IOException {
    RuntimeEnvironment.setQualifiers("w640dp-h360dp-land-xhdpi");
    RuntimeEnvironment.setFontScale(1.7f);
    draw(openWith(Samples.HEART_STAR).get(), "large_font_landscape");
  }

  @Test
  public void rightToLeft() throws IOException {
    RuntimeEnvironment.setQualifiers("ar-ldrtl-w411dp-h891dp-xhdpi");
    draw(openWith(Samples.CIRCLE_STAR, Samples.HEART_STAR, Samples.CROSS_HEART).get(), "rtl");
  }

  @Test
  public void welcome() throws IOException {
    draw(open().get(), "welcome");
  }

  @Test
  public void welcomeLandscapeDark() throws IOException {
    RuntimeEnvironment.setQualifiers(LANDSCAPE);
    RuntimeEnvironment.setQualifiers("+night");
    draw(open().get(), "welcome_landscape_dark");
  }

  @Test
  public void german() throws IOException {
    RuntimeEnvironment.setQualifiers("de-rDE-w411dp-h891dp-xhdpi");
    draw(openWith(Samples.HEART_CROSS).get(), "german");
  }

  @Test
  public void error() throws IOException {
    Uri photo = album.add("holiday.jpg", new byte[0]);
    MainActivity screen = open(MainActivity.class, share(photo)).get();
    awaitCaptions(screen);
    draw(screen, "error");
  }

  @Test
  public void notice() throws IOException {
    MainActivity screen = openWith(Samples.HEART_STAR).get();
    viewModel(screen).notice(Problem.NO_SPEECH_ENGINE);
    draw(screen, "notice");
  }

  @Test
  public void compare() throws IOException {
    draw(compared().get(), "compare");
  }

  @Test
  public void compareDarkGerman() throws IOException {
    RuntimeEnvironment.setQualifiers("de-rDE-w411dp-h891dp-xhdpi");
    RuntimeEnvironment.setQualifiers("+night");
    draw(compared().get(), "compare_dark_german");
  }

  @Test
  public void compareLargeFont() throws IOException {
    RuntimeEnvironment.setFontScale(1.7f);
    draw(compared().get(), "compare_large_font");
  }

  @Test
  public void compareLandscape() throws IOException {
    RuntimeEnvironment.setQualifiers(LANDSCAPE);
    draw(compared().get(), "compare_landscape");
  }

  @Test
  public void about() throws IOException {
    AboutActivity screen = open(AboutActivity.class, new Intent()).get();
    await(() -> text(screen, R.id.section_text).length() > 0 && app.engine.closed > 0, "facts");
    settle();
    draw(screen, "about");
  }

  private ActivityController<ModelsActivity> compared() {
    app.engine.timed = false; // a desktop's times are no phone's
    return openModels(album.photo(Samples.CROSS_HEART));
  }

  private static void draw(Activity screen, String name) throws IOException {
    settle();
    View window = screen.getWindow().getDecorView();
    Bitmap picture =
        Bitmap.createBitmap(window.getWidth(), window.getHeight(), Bitmap.Config.ARGB_8888);
    window.draw(new Canvas(picture));
    File folder = new File("target/screenshots");
    folder.mkdirs();
    try (OutputStream out = Files.newOutputStream(new File(folder, name + ".png").toPath())) {
      assertTrue(picture.compress(Bitmap.CompressFormat.PNG, 100, out));
    }
    Set<Integer> colours = new HashSet<>();
    for (int y = 0; y < picture.getHeight(); y += 7) {
      for (int x = 0; x < picture.getWidth(); x += 7) {
        colours.add(picture.getPixel(x, y));
      }
    }
    assertTrue("has colours: " + colours.size(), colours.size() > 20);
    int ground = screen.getColor(R.color.ground);
    int corner = picture.getPixel(1, picture.getHeight() - 2);
    assertEquals("ground", Integer.toHexString(ground), Integer.toHexString(corner));
  }
}
