package org.tfsparsecap.demo;

import static org.junit.Assert.assertEquals;
import static org.junit.Assert.assertFalse;
import static org.junit.Assert.assertNotNull;
import static org.junit.Assert.assertNotSame;
import static org.junit.Assert.assertNull;
import static org.junit.Assert.assertTrue;
import static org.robolectric.Shadows.shadowOf;

import android.speech.tts.TextToSpeech;
import android.widget.Switch;
import java.util.Collections;
import java.util.List;
import java.util.Locale;
import org.junit.Before;
import org.junit.Test;
import org.robolectric.android.controller.ActivityController;
import org.robolectric.annotation.Config;
import org.robolectric.shadows.ShadowTextToSpeech;

/** Reading captions aloud with the phone's text-to-speech engine. */
@Config(application = SpeechTest.SpeakingApplication.class)
public final class SpeechTest extends ScreenTest {
  /** Uses the real speaker. */
  public static final class SpeakingApplication extends TestApplication {
    @Override
    Speaker createSpeaker() {
      return new TtsSpeaker(this);
    }
  }

  @Before
  public void installAnEnglishVoice() {
    ShadowTextToSpeech.addLanguageAvailability(Locale.ENGLISH);
  }

  @Test
  public void buttonReadsTheCaptionInEnglish() {
    MainActivity screen = openWith(SamplePhotos.HEART_STAR).get();
    assertNull("engine started too early", lastEngine());
    click(screen, R.id.speak);
    start(TextToSpeech.SUCCESS);
    assertEquals(Collections.singletonList(SamplePhotos.caption(SamplePhotos.HEART_STAR)), spoken());
    assertEquals(Locale.ENGLISH, shadowOf(lastEngine()).getCurrentLanguage());
  }

  @Test
  public void switchReadsAllCaptionsAndPersists() {
    ActivityController<MainActivity> controller = openWith(SamplePhotos.HEART_STAR, SamplePhotos.TRIANGLE);
    MainActivity screen = controller.get();
    assertFalse(readAloud(screen).isChecked());
    click(screen, R.id.read_aloud);
    start(TextToSpeech.SUCCESS);
    children(screen, R.id.thumbnails).get(1).performClick();
    idleMainLooper();
    assertEquals(2, spoken().size());
    assertEquals(SamplePhotos.caption(SamplePhotos.TRIANGLE), spoken().get(1));
    controller.get().finish();
    controller.pause().stop().destroy();

    MainActivity next = open(MainActivity.class, share(album.photo(SamplePhotos.CROSS_HEART))).get();
    awaitCaptions(next);
    assertTrue(readAloud(next).isChecked());
    start(TextToSpeech.SUCCESS);
    assertEquals(SamplePhotos.caption(SamplePhotos.CROSS_HEART), spoken().get(0));
  }

  @Test
  public void switchingOffStopsReading() {
    MainActivity screen = openWith(SamplePhotos.HEART_STAR, SamplePhotos.TRIANGLE).get();
    click(screen, R.id.read_aloud);
    start(TextToSpeech.SUCCESS);
    click(screen, R.id.read_aloud);
    assertTrue(shadowOf(lastEngine()).isStopped());
    children(screen, R.id.thumbnails).get(1).performClick();
    idleMainLooper();
    assertEquals(1, spoken().size());
  }

  @Test
  public void rotationDoesNotInterruptReading() {
    ActivityController<MainActivity> controller = openWith(SamplePhotos.HEART_STAR);
    click(controller.get(), R.id.speak);
    start(TextToSpeech.SUCCESS);
    controller.recreate();
    idleMainLooper();
    assertFalse(shadowOf(lastEngine()).isShutdown());
    assertFalse(shadowOf(lastEngine()).isStopped());
    assertEquals(1, spoken().size());
  }

  @Test
  public void leavingTheAppStopsReading() {
    ActivityController<MainActivity> controller = openWith(SamplePhotos.HEART_STAR);
    click(controller.get(), R.id.speak);
    start(TextToSpeech.SUCCESS);
    controller.pause().stop();
    assertTrue(shadowOf(lastEngine()).isStopped());
    controller.get().finish();
    controller.destroy();
    assertTrue(shadowOf(lastEngine()).isShutdown());
  }

  @Test
  public void missingEngineIsReportedAndTheSwitchTurnedOff() {
    MainActivity screen = openWith(SamplePhotos.HEART_STAR).get();
    click(screen, R.id.read_aloud);
    assertTrue(readAloud(screen).isChecked());
    start(TextToSpeech.ERROR);
    assertEquals(screen.getString(R.string.problem_no_speech_engine), notice(screen));
    assertFalse(readAloud(screen).isChecked());
    assertFalse(app.settings().getBoolean("read_aloud", true));
    assertEquals(expectedCaption(SamplePhotos.HEART_STAR), text(screen, R.id.caption));
  }

  @Test
  public void engineInstalledLaterIsUsed() {
    MainActivity screen = openWith(SamplePhotos.HEART_STAR).get();
    click(screen, R.id.speak);
    start(TextToSpeech.ERROR);
    TextToSpeech first = lastEngine();
    click(screen, R.id.speak);
    assertNotSame(first, lastEngine());
    start(TextToSpeech.SUCCESS);
    assertEquals(1, spoken().size());
  }

  @Test
  public void reportsMissingEnglishVoice() {
    ShadowTextToSpeech.reset();
    MainActivity screen = openWith(SamplePhotos.HEART_STAR).get();
    click(screen, R.id.speak);
    start(TextToSpeech.SUCCESS);
    assertEquals(screen.getString(R.string.problem_no_voice), notice(screen));
  }

  @Test
  public void failedEngineIsReplaced() {
    MainActivity screen = openWith(SamplePhotos.HEART_STAR).get();
    click(screen, R.id.speak);
    start(TextToSpeech.SUCCESS);
    TextToSpeech first = lastEngine();
    shadowOf(first).getUtteranceProgressListener().onError("caption", TextToSpeech.ERROR_NETWORK);
    idleMainLooper();
    assertEquals(screen.getString(R.string.problem_speech_failed), notice(screen));
    assertTrue(shadowOf(first).isShutdown());
    click(screen, R.id.speak);
    assertNotSame(first, lastEngine());
    start(TextToSpeech.SUCCESS);
    // Callbacks of the previous engine are ignored.
    shadowOf(first).getUtteranceProgressListener().onError("caption", TextToSpeech.ERROR_NETWORK);
    idleMainLooper();
    assertFalse(shadowOf(lastEngine()).isShutdown());
  }

  private static void start(int status) {
    assertNotNull("no engine was requested", lastEngine());
    shadowOf(lastEngine()).getOnInitListener().onInit(status);
    idleMainLooper();
  }

  private static TextToSpeech lastEngine() {
    return ShadowTextToSpeech.getLastTextToSpeechInstance();
  }

  private static List<String> spoken() {
    return shadowOf(lastEngine()).getSpokenTextList();
  }

  private static Switch readAloud(MainActivity screen) {
    return screen.findViewById(R.id.read_aloud);
  }
}
