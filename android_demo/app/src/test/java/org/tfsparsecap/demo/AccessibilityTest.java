package org.tfsparsecap.demo;

import static org.junit.Assert.assertEquals;
import static org.junit.Assert.assertTrue;
import static org.robolectric.Shadows.shadowOf;

import android.app.Activity;
import android.content.Intent;
import android.net.Uri;
import android.text.Spanned;
import android.text.style.LocaleSpan;
import android.view.View;
import android.view.accessibility.AccessibilityEvent;
import android.view.accessibility.AccessibilityManager;
import android.widget.TextView;
import java.io.IOException;
import java.nio.file.Files;
import java.util.ArrayList;
import java.util.List;
import org.junit.Test;
import org.robolectric.RuntimeEnvironment;
import org.robolectric.shadows.ShadowAccessibilityManager;

/**
 * Checks the accessibility of all views on all screens with different phone settings, and that they
 * are drawn.
 */
public final class AccessibilityTest extends ScreenTest {
  @Test
  public void phone() throws IOException {
    checkScreens();
  }

  @Test
  public void darkThemeRightToLeft() throws IOException {
    RuntimeEnvironment.setQualifiers("ar-ldrtl-w411dp-h891dp-night-xhdpi");
    checkScreens();
  }

  @Test
  public void germanWithLargestFontOnASmallPhone() throws IOException {
    RuntimeEnvironment.setQualifiers("de-rDE-w320dp-h533dp-hdpi");
    RuntimeEnvironment.setFontScale(2);
    checkScreens();
  }

  @Test
  public void landscapeWithLargeFonts() throws IOException {
    RuntimeEnvironment.setQualifiers("w640dp-h360dp-land-xhdpi");
    RuntimeEnvironment.setFontScale(1.5f);
    checkScreens();
  }

  @Test
  public void tablet() throws IOException {
    RuntimeEnvironment.setQualifiers("w1280dp-h800dp-land-mdpi");
    checkScreens();
  }

  @Test
  public void newCaptionIsAnnouncedOnce() {
    AccessibilityManager manager = app.getSystemService(AccessibilityManager.class);
    ShadowAccessibilityManager talkBack = shadowOf(manager);
    talkBack.setEnabled(true);
    talkBack.setTouchExplorationEnabled(true);
    app.engine.block();
    MainActivity screen = open(MainActivity.class, share(album.photo(SamplePhotos.TRIANGLE))).get();
    await(() -> viewModel(screen).state().image() != null, "the photo");
    View caption = screen.findViewById(R.id.caption);
    assertEquals(View.ACCESSIBILITY_LIVE_REGION_POLITE, caption.getAccessibilityLiveRegion());
    List<Integer> changes = new ArrayList<>();
    caption.setAccessibilityDelegate(
        new View.AccessibilityDelegate() {
          @Override
          public void sendAccessibilityEventUnchecked(View host, AccessibilityEvent event) {
            if (event.getEventType() == AccessibilityEvent.TYPE_WINDOW_CONTENT_CHANGED) {
              changes.add(event.getContentChangeTypes());
            }
            super.sendAccessibilityEventUnchecked(host, event);
          }
        });
    app.engine.release(1);
    awaitCaptions(screen);
    await(() -> !changes.isEmpty(), "the announcement");
    int before = changes.size();
    viewModel(screen).notice(Problem.NO_CAMERA); // an unrelated change
    shadowOf(android.os.Looper.getMainLooper()).idleFor(1, java.util.concurrent.TimeUnit.SECONDS);
    assertEquals("announced once", before, changes.size());
    View notice = screen.findViewById(R.id.notice_text);
    assertEquals(View.ACCESSIBILITY_LIVE_REGION_ASSERTIVE, notice.getAccessibilityLiveRegion());
  }

  @Test
  public void captionsAreMarkedAsEnglish() {
    RuntimeEnvironment.setQualifiers("de-rDE-w411dp-h891dp-xhdpi");
    MainActivity screen = openWith(SamplePhotos.TRIANGLE).get();
    Spanned caption = (Spanned) ((TextView) screen.findViewById(R.id.caption)).getText();
    LocaleSpan[] marks = caption.getSpans(0, caption.length(), LocaleSpan.class);
    assertEquals(1, marks.length);
    assertEquals("en", marks[0].getLocale().getLanguage());
  }

  /** Opens each screen with as much content as possible, and with a problem. */
  private void checkScreens() throws IOException {
    Checks checks = new Checks();
    checks.check("welcome", open().get());
    MainActivity several = openWith(SamplePhotos.HEART_STAR, SamplePhotos.CROSS_HEART).get();
    checks.check("several", several);
    viewModel(several).notice(Problem.NO_SPEECH_ENGINE);
    idleMainLooper();
    checks.check("notice", several);
    Uri empty = album.add("empty.jpg", new byte[0]);
    MainActivity problem = open(MainActivity.class, share(empty)).get();
    awaitCaptions(problem);
    checks.check("problem", problem);
    ModelsActivity models = openModels(album.photo(SamplePhotos.TRIANGLE)).get();
    models(models).open(
        album.add(
            "a bundle with a long name of my own.tflite",
            Files.readAllBytes(SamplePhotos.model("shapes_dense").toPath())));
    awaitMeasured(models);
    checks.check("models", models);
    LiveActivity live = open(LiveActivity.class, new Intent()).get();
    await(() -> app.camera.listener.wantsFrame(), "the model");
    app.camera.listener.onFrame(LiveTest.photo(SamplePhotos.HEART_STAR));
    await(() -> text(live, R.id.caption).length() > 0, "the caption");
    checks.check("live", live);
    app.camera.listener.onProblem(Problem.CAMERA_REFUSED);
    idleMainLooper();
    checks.check("refused", live);
    AboutActivity about = open(AboutActivity.class, new Intent()).get();
    await(() -> app.engine.closed == app.engine.opened - 2, "the model section");
    idleMainLooper();
    checks.check("about", about);
    assertTrue(String.join("\n", checks.found), checks.found.isEmpty());
    assertTrue("clickable views: " + checks.clickable, checks.clickable >= 25);
  }

  /** Collects the violations of all screens. */
  private static final class Checks {
    final List<String> found = new ArrayList<>();
    int clickable;

    void check(String name, Activity screen) {
      new ViewChecks(name, screen, found).check(screen.getWindow().getDecorView());
      ScreenshotsTest.draw(screen);
      clickable += ViewChecks.clickable(screen.getWindow().getDecorView());
    }
  }
}
