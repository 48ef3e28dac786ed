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

/** Captions are read aloud by the phone's engine, or it is said why not. */
@Config(application = SpeechTest.SpeakingApplication.class)
public final class SpeechTest extends ScreenTest {
  /** With the app's own voice. */
  public static final class SpeakingApplication extends TestApplication {
    @Override
    Voice makeVoice() {
      return new SpeechVoice(this);
    }
  }

  @Before
  public void installAnEnglishVoice() {
    ShadowTextToSpeech.addLanguageAvailability(Locale.ENGLISH);
  }

  @Test
  public void theButtonSpeaksTheCaptionInEnglish() {
    MainActivity screen = openWith(Samples.HEART_STAR).get();
    assertNull("no engine is started before it is needed", lastEngine());
    click(screen, R.id.speak);
    start(TextToSpeech.SUCCESS);
    assertEquals(Collections.singletonList(Samples.caption(Samples.HEART_STAR)), spoken());
    assertEquals(Locale.ENGLISH, shadowOf(lastEngine()).getCurrentLanguage());
  }

  @Test
  public void theSwitchSpeaksNowAndEveryNewCaptionAndIsRemembered() {
    ActivityController<MainActivity> controller = openWith(Samples.HEART_STAR, Samples.TRIANGLE);
    MainActivity screen = controller.get();
    assertFalse(aloud(screen).isChecked());
    click(screen, R.id.aloud);
    start(TextToSpeech.SUCCESS);
    children(screen, R.id.strip).get(1).performClick();
    settle();
    assertEquals(2, spoken().size());
    assertEquals(Samples.caption(Samples.TRIANGLE), spoken().get(1));
    controller.get().finish();
    controller.pause().stop().destroy();

    MainActivity next = open(MainActivity.class, share(album.photo(Samples.CROSS_HEART))).get();
    awaitCaptions(next);
    assertTrue(aloud(next).isChecked());
    start(TextToSpeech.SUCCESS);
    assertEquals(Samples.caption(Samples.CROSS_HEART), spoken().get(0));
  }

  @Test
  public void switchedOffItIsSilent() {
    MainActivity screen = openWith(Samples.HEART_STAR, Samples.TRIANGLE).get();
    click(screen, R.id.aloud);
    start(TextToSpeech.SUCCESS);
    click(screen, R.id.aloud);
    assertTrue(shadowOf(lastEngine()).isStopped());
    children(screen, R.id.strip).get(1).performClick();
    settle();
    assertEquals(1, spoken().size());
  }

  @Test
  public void turningThePhoneDoesNotInterrupt() {
    ActivityController<MainActivity> controller = openWith(Samples.HEART_STAR);
    click(controller.get(), R.id.speak);
    start(TextToSpeech.SUCCESS);
    controller.recreate();
    settle();
    assertFalse(shadowOf(lastEngine()).isShutdown());
    assertFalse(shadowOf(lastEngine()).isStopped());
    assertEquals(1, spoken().size());
  }

  @Test
  public void leavingTheAppSilencesIt() {
    ActivityController<MainActivity> controller = openWith(Samples.HEART_STAR);
    click(controller.get(), R.id.speak);
    start(TextToSpeech.SUCCESS);
    controller.pause().stop();
    assertTrue(shadowOf(lastEngine()).isStopped());
    controller.get().finish();
    controller.destroy();
    assertTrue(shadowOf(lastEngine()).isShutdown());
  }

  @Test
  public void withoutAnEngineASentenceSaysSoAndTheSwitchGoesBack() {
    MainActivity screen = openWith(Samples.HEART_STAR).get();
    click(screen, R.id.aloud);
    assertTrue(aloud(screen).isChecked());
    start(TextToSpeech.ERROR);
    assertEquals(screen.getString(R.string.problem_no_speech_engine), notice(screen));
    assertFalse(aloud(screen).isChecked());
    assertFalse(app.settings().getBoolean("aloud", true));
    assertEquals(sentence(Samples.HEART_STAR), text(screen, R.id.caption));
  }

  @Test
  public void anEngineThatIsInstalledLaterIsUsed() {
    MainActivity screen = openWith(Samples.HEART_STAR).get();
    click(screen, R.id.speak);
    start(TextToSpeech.ERROR);
    TextToSpeech first = lastEngine();
    click(screen, R.id.speak);
    assertNotSame(first, lastEngine());
    start(TextToSpeech.SUCCESS);
    assertEquals(1, spoken().size());
  }

  @Test
  public void withoutAnEnglishVoiceASentenceSaysSo() {
    ShadowTextToSpeech.reset();
    MainActivity screen = openWith(Samples.HEART_STAR).get();
    click(screen, R.id.speak);
    start(TextToSpeech.SUCCESS);
    assertEquals(screen.getString(R.string.problem_no_voice), notice(screen));
  }

  @Test
  public void anEngineThatBreaksOffIsReplacedByANewOne() {
    MainActivity screen = openWith(Samples.HEART_STAR).get();
    click(screen, R.id.speak);
    start(TextToSpeech.SUCCESS);
    TextToSpeech first = lastEngine();
    shadowOf(first).getUtteranceProgressListener().onError("caption", TextToSpeech.ERROR_NETWORK);
    settle();
    assertEquals(screen.getString(R.string.problem_speech_failed), notice(screen));
    assertTrue(shadowOf(first).isShutdown());
    click(screen, R.id.speak);
    assertNotSame(first, lastEngine());
    start(TextToSpeech.SUCCESS);
    // What the engine of before says now concerns nobody.
    shadowOf(first).getUtteranceProgressListener().onError("caption", TextToSpeech.ERROR_NETWORK);
    settle();
    assertFalse(shadowOf(lastEngine()).isShutdown());
  }

  private static void start(int status) {
    assertNotNull("an engine was asked for", lastEngine());
    shadowOf(lastEngine()).getOnInitListener().onInit(status);
    settle();
  }

  private static TextToSpeech lastEngine() {
    return ShadowTextToSpeech.getLastTextToSpeechInstance();
  }

  private static List<String> spoken() {
    return shadowOf(lastEngine()).getSpokenTextList();
  }

  private static Switch aloud(MainActivity screen) {
    return screen.findViewById(R.id.aloud);
  }
}
