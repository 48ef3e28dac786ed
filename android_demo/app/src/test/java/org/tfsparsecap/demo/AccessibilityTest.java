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

/** Every view of every screen can be found, read and hit, whatever the phone's settings. */
public final class AccessibilityTest extends ScreenTest {
  @Test
  public void onAnOrdinaryPhone() throws IOException {
    checkScreens();
  }

  @Test
  public void inTheDark() throws IOException {
    RuntimeEnvironment.setQualifiers("+night");
    checkScreens();
  }

  @Test
  public void inGerman() throws IOException {
    RuntimeEnvironment.setQualifiers("de-rDE-w411dp-h891dp-xhdpi");
    checkScreens();
  }

  @Test
  public void fromRightToLeft() throws IOException {
    RuntimeEnvironment.setQualifiers("ar-ldrtl-w411dp-h891dp-xhdpi");
    checkScreens();
  }

  @Test
  public void withTheLargestFontOnASmallPhone() throws IOException {
    RuntimeEnvironment.setQualifiers("de-rDE-w320dp-h533dp-hdpi");
    RuntimeEnvironment.setFontScale(2);
    checkScreens();
  }

  @Test
  public void inLandscapeWithLargeFonts() throws IOException {
    RuntimeEnvironment.setQualifiers("w640dp-h360dp-land-xhdpi");
    RuntimeEnvironment.setFontScale(1.5f);
    checkScreens();
  }

  @Test
  public void onATablet() throws IOException {
    RuntimeEnvironment.setQualifiers("w1280dp-h800dp-land-mdpi");
    checkScreens();
  }

  @Test
  public void aNewCaptionIsAnnounced() {
    AccessibilityManager manager = app.getSystemService(AccessibilityManager.class);
    ShadowAccessibilityManager talkBack = shadowOf(manager);
    talkBack.setEnabled(true);
    talkBack.setTouchExplorationEnabled(true);
    app.engine.holdBack();
    MainActivity screen = open(MainActivity.class, share(album.photo(Samples.TRIANGLE))).get();
    await(() -> viewModel(screen).state().picture() != null, "the photo");
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
    app.engine.letThrough(1);
    awaitCaptions(screen);
    await(() -> !changes.isEmpty(), "the announcement");
    int before = changes.size();
    viewModel(screen).notice(Problem.NO_CAMERA); // something else changes
    shadowOf(android.os.Looper.getMainLooper()).idleFor(1, java.util.concurrent.TimeUnit.SECONDS);
    assertEquals("said once", before, changes.size());
    View notice = screen.findViewById(R.id.notice_text);
    assertEquals(View.ACCESSIBILITY_LIVE_REGION_ASSERTIVE, notice.getAccessibilityLiveRegion());
  }

  @Test
  public void captionsAreMarkedAsEnglish() {
    RuntimeEnvironment.setQualifiers("de-rDE-w411dp-h891dp-xhdpi");
    MainActivity screen = openWith(Samples.TRIANGLE).get();
    Spanned caption = (Spanned) ((TextView) screen.findViewById(R.id.caption)).getText();
    LocaleSpan[] marks = caption.getSpans(0, caption.length(), LocaleSpan.class);
    assertEquals(1, marks.length);
    assertEquals("en", marks[0].getLocale().getLanguage());
  }

  /** Each screen with as much on it as there can be, and each with a problem. */
  private void checkScreens() throws IOException {
    Checks checks = new Checks();
    checks.check("welcome", open().get());
    MainActivity several = openWith(Samples.HEART_STAR, Samples.CROSS_HEART).get();
    checks.check("several", several);
    viewModel(several).notice(Problem.NO_SPEECH_ENGINE);
    settle();
    checks.check("notice", several);
    Uri empty = album.add("empty.jpg", new byte[0]);
    MainActivity trouble = open(MainActivity.class, share(empty)).get();
    awaitCaptions(trouble);
    checks.check("trouble", trouble);
    ModelsActivity models = openModels(album.photo(Samples.TRIANGLE)).get();
    models(models).open(
        album.add(
            "a bundle with a long name of my own.tflite",
            Files.readAllBytes(Samples.model("shapes_dense").toPath())));
    awaitMeasured(models);
    checks.check("models", models);
    AboutActivity about = open(AboutActivity.class, new Intent()).get();
    await(() -> app.engine.closed == app.engine.opened - 1, "the model's section");
    settle();
    checks.check("about", about);
    assertTrue(String.join("\n", checks.found), checks.found.isEmpty());
    assertTrue("views were looked at: " + checks.clickable, checks.clickable >= 20);
  }

  /** Looks at views and writes down what is wrong with them. */
  private static final class Checks {
    final List<String> found = new ArrayList<>();
    int clickable;

    void check(String name, Activity screen) {
      new ViewChecks(name, screen, found).check(screen.getWindow().getDecorView());
      clickable += ViewChecks.clickable(screen.getWindow().getDecorView());
    }
  }
}
