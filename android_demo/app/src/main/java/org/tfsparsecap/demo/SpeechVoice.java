package org.tfsparsecap.demo;

import android.content.Context;
import android.os.Handler;
import android.os.Looper;
import android.speech.tts.TextToSpeech;
import android.speech.tts.UtteranceProgressListener;
import java.util.function.Consumer;

/** The phone's own speech engine, started when there is first something to say. */
final class SpeechVoice implements Voice {
  private final Context context;
  private final Handler main = new Handler(Looper.getMainLooper());

  private TextToSpeech engine;
  private boolean ready;
  // What was asked for while the engine was starting: the last of it is what counts.
  private String waiting;
  private Consumer<Problem> trouble;

  SpeechVoice(Context context) {
    this.context = context.getApplicationContext();
  }

  @Override
  public void speak(String text, Consumer<Problem> trouble) {
    this.trouble = trouble;
    waiting = text;
    if (engine == null) {
      TextToSpeech[] started = new TextToSpeech[1];
      // Posted: a phone without any engine may answer from inside the constructor.
      started[0] =
          new TextToSpeech(context, status -> main.post(() -> onStarted(started[0], status)));
      engine = started[0];
    } else if (ready) {
      sayWaiting();
    }
  }

  @Override
  public void stop() {
    waiting = null;
    if (ready) {
      engine.stop();
    }
  }

  @Override
  public void close() {
    waiting = null;
    ready = false;
    if (engine != null) {
      engine.shutdown();
      engine = null;
    }
  }

  private void onStarted(TextToSpeech started, int status) {
    if (started != engine) {
      return; // closed since
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
          @SuppressWarnings("deprecation") // what replaces it calls it
          public void onError(String caption) {
            main.post(() -> onBrokenOff(started));
          }
        });
    ready = true;
    if (waiting != null) {
      sayWaiting();
    }
  }

  private void onBrokenOff(TextToSpeech speaking) {
    if (speaking == engine) {
      fail(Problem.SPEECH_FAILED);
    }
  }

  private void sayWaiting() {
    String text = waiting;
    waiting = null;
    if (engine.speak(text, TextToSpeech.QUEUE_FLUSH, null, "caption") != TextToSpeech.SUCCESS) {
      fail(Problem.SPEECH_FAILED);
    }
  }

  private void fail(Problem problem) {
    close();
    trouble.accept(problem);
  }
}
