package org.tfsparsecap.demo;

import android.content.Context;
import android.os.Handler;
import android.os.Looper;
import android.speech.tts.TextToSpeech;
import android.speech.tts.UtteranceProgressListener;
import java.util.function.Consumer;

/** Uses the phone's text-to-speech engine, which is started on first use. */
final class TtsSpeaker implements Speaker {
  private final Context context;
  private final Handler main = new Handler(Looper.getMainLooper());

  private TextToSpeech engine;
  private boolean ready;
  // Text requested while the engine was starting; a later request replaces it.
  private String pendingText;
  private Consumer<Problem> onProblem;

  TtsSpeaker(Context context) {
    this.context = context.getApplicationContext();
  }

  @Override
  public void speak(String text, Consumer<Problem> onProblem) {
    this.onProblem = onProblem;
    pendingText = text;
    if (engine == null) {
      TextToSpeech[] started = new TextToSpeech[1];
      // Posted, because a phone without an engine may call back inside the constructor.
      started[0] =
          new TextToSpeech(context, status -> main.post(() -> onStarted(started[0], status)));
      engine = started[0];
    } else if (ready) {
      speakPending();
    }
  }

  @Override
  public void stop() {
    pendingText = null;
    if (ready) {
      engine.stop();
    }
  }

  @Override
  public void close() {
    pendingText = null;
    ready = false;
    if (engine != null) {
      engine.shutdown();
      engine = null;
    }
  }

  private void onStarted(TextToSpeech started, int status) {
    if (started != engine) {
      return; // closed in the meantime
    }
    if (status != TextToSpeech.SUCCESS) {
      fail(Problem.NO_SPEECH_ENGINE);
      return;
    }
    int answer = engine.setLanguage(LANGUAGE);
    if (answer == TextToSpeech.LANG_MISSING_DATA || answer == TextToSpeech.LANG_NOT_SUPPORTED) {
      fail(Problem.NO_VOICE);
      return;
    }
    engine.setOnUtteranceProgressListener(
        new UtteranceProgressListener() {
          @Override
          public void onStart(String caption) {}

          @Override
          public void onDone(String caption) {}

          @Override
          @SuppressWarnings("deprecation") // the replacement calls this method
          public void onError(String caption) {
            main.post(() -> onSpeechError(started));
          }
        });
    ready = true;
    if (pendingText != null) {
      speakPending();
    }
  }

  private void onSpeechError(TextToSpeech speaking) {
    if (speaking == engine) {
      fail(Problem.SPEECH_FAILED);
    }
  }

  private void speakPending() {
    String text = pendingText;
    pendingText = null;
    if (engine.speak(text, TextToSpeech.QUEUE_FLUSH, null, "caption") != TextToSpeech.SUCCESS) {
      fail(Problem.SPEECH_FAILED);
    }
  }

  private void fail(Problem problem) {
    close();
    onProblem.accept(problem);
  }
}
