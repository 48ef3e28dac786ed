package org.tfsparsecap.demo;

import android.content.SharedPreferences;
import android.graphics.Bitmap;
import android.os.Bundle;
import android.os.Handler;
import android.os.Looper;
import android.os.SystemClock;
import java.io.IOException;
import java.util.concurrent.CompletableFuture;
import java.util.function.BooleanSupplier;
import org.tfsparsecap.captioner.BundleException;
import org.tfsparsecap.captioner.Caption;
import org.tfsparsecap.captioner.CaptioningResult;

/**
 * Captions what the camera sees, at most once a second. Speaks when the caption changes, and after a
 * pause, if the model is sure of it; other changes are a vibration.
 */
final class LiveViewModel extends ViewModel<LiveState> implements FrameSource.Listener {
  /** From the start of one caption to the start of the next. */
  static final long INTERVAL_MS = 1000;

  private static final String VOICE = "live_voice";
  /** Mean brightness of a frame, 0 to 255: in less light, captioners describe noise. */
  private static final int DARK = 20;
  private static final int BRIGHTNESS_SIDE = 16;

  private final ModelStore models;
  private final SharedPreferences settings;
  private final Speaker speaker;
  private final FrameSource camera;
  private final BooleanSupplier screenReader;
  private final Handler main = new Handler(Looper.getMainLooper());

  /** Null while no model is open. */
  private Engine.Model model;

  private String modelKey;
  /** The same, on the background thread, which closes it. */
  private Engine.Model opened;

  private boolean allowed;
  private boolean flat;
  private boolean looking;
  private CompletableFuture<CaptioningResult> running;
  private String lastUnsure = "";
  /** Whether a frame can be captioned, and the earliest time; read by the camera's thread. */
  private volatile boolean ready;

  private volatile long earliest;

  /** @param screenReader whether a screen reader speaks, so that the app does not. */
  LiveViewModel(
      ModelStore models,
      SharedPreferences settings,
      Speaker speaker,
      FrameSource camera,
      BooleanSupplier screenReader) {
    super("live", LiveState.start(settings.getBoolean(VOICE, true)));
    this.models = models;
    this.settings = settings;
    this.speaker = speaker;
    this.camera = camera;
    this.screenReader = screenReader;
  }

  /** Sets whether the screen is visible and the camera may be used. */
  void setAllowed(boolean allowed) {
    if (this.allowed != allowed) {
      this.allowed = allowed;
      if (!allowed) {
        speaker.stop();
      }
      retry();
    }
  }

  /** Sets whether the phone lies flat. */
  void setFlat(boolean flat) {
    this.flat = flat;
    if (state().problem() == null) {
      update();
    }
  }

  /** Starts again after a problem. */
  void retry() {
    set(state().withStage(flat ? LiveState.Stage.FLAT : LiveState.Stage.STARTING));
    startNextIfIdle();
    update();
  }

  /** Turns the app's voice on or off, persistently. */
  void setVoice(boolean voice) {
    if (voice != state().voice()) {
      settings.edit().putBoolean(VOICE, voice).apply();
      set(state().withVoice(voice));
      if (!voice) {
        speaker.stop();
      }
    }
  }

  /** Starts or stops the camera. */
  private void update() {
    boolean look = allowed && !flat && state().problem() == null;
    if (look == looking) {
      return;
    }
    looking = look;
    lastUnsure = "";
    updateReady();
    if (look) {
      set(state().withStage(LiveState.Stage.STARTING));
      camera.start(this);
      return;
    }
    camera.stop();
    if (running != null) {
      running.cancel(true);
      running = null;
    }
    if (flat && state().problem() == null) {
      set(state().withStage(LiveState.Stage.FLAT));
    }
  }

  private void updateReady() {
    ready = looking && model != null && running == null;
  }

  @Override
  public boolean wantsFrame() {
    return ready && SystemClock.elapsedRealtime() >= earliest;
  }

  @Override
  public void onFrame(Bitmap frame) {
    if (!wantsFrame()) {
      return;
    }
    earliest = SystemClock.elapsedRealtime() + INTERVAL_MS;
    if (brightness(frame) < DARK) {
      lastUnsure = "";
      set(state().withStage(LiveState.Stage.DARK));
      return;
    }
    CompletableFuture<CaptioningResult> started = model.submit(frame);
    running = started;
    updateReady();
    started.whenComplete((found, thrown) -> main.post(() -> finish(started, frame, found, thrown)));
  }

  @Override
  public void onProblem(Problem problem) {
    stop(Message.of(problem));
  }

  private void stop(Message problem) {
    set(state().failed(problem));
    update();
  }

  /** The mean of the colours, 0 to 255. */
  static int brightness(Bitmap frame) {
    Bitmap small = Bitmap.createScaledBitmap(frame, BRIGHTNESS_SIDE, BRIGHTNESS_SIDE, true);
    int[] pixels = new int[BRIGHTNESS_SIDE * BRIGHTNESS_SIDE];
    small.getPixels(pixels, 0, BRIGHTNESS_SIDE, 0, 0, BRIGHTNESS_SIDE, BRIGHTNESS_SIDE);
    int sum = 0;
    for (int pixel : pixels) {
      sum += (pixel >> 16 & 255) + (pixel >> 8 & 255) + (pixel & 255);
    }
    return sum / (3 * pixels.length);
  }

  private void finish(
      CompletableFuture<CaptioningResult> started, Bitmap frame, CaptioningResult found, Throwable thrown) {
    if (started != running) {
      return; // cancelled
    }
    running = null;
    updateReady();
    if (thrown == null) {
      captioned(frame, found);
    } else {
      fail(thrown);
    }
  }

  private void captioned(Bitmap frame, CaptioningResult found) {
    Caption best = found.captions().isEmpty() ? null : found.captions().get(0);
    Caption before = state().said();
    if (CaptionFormat.isSure(best)) {
      lastUnsure = "";
      set(state().sure(frame, found));
      if (state().said() != before && state().voice() && !screenReader.getAsBoolean()) {
        speaker.speak(best.text(), this::onSpeechProblem);
      }
      return;
    }
    String text = best == null ? "" : best.text();
    set(state().unsure(frame, found, !text.equals(lastUnsure)));
    lastUnsure = text;
  }

  private void onSpeechProblem(Problem problem) {
    setVoice(false);
    notice(problem);
  }

  /** Opens the chosen model. */
  @Override
  void startNext() {
    String key = models.key();
    if (!allowed || state().problem() != null || model != null && key.equals(modelKey)) {
      return;
    }
    ModelChoice choice = models.chosen();
    if (choice == null) {
      stop(Message.of(Problem.MODEL_MISSING));
      return;
    }
    model = null;
    updateReady();
    run(
        () -> {
          closeOpened();
          opened = models.open(choice);
          return opened;
        },
        usable -> {
          model = usable;
          modelKey = key;
          updateReady();
        },
        this::fail);
  }

  /** Continues with another model if the one in use cannot be used. */
  private void fail(Throwable thrown) {
    Message problem = Message.of(thrown);
    boolean modelFailed = thrown instanceof BundleException || thrown instanceof IOException;
    ModelChoice choice = models.chosen();
    if (modelFailed && !problem.contains(Problem.NO_RUNTIME) && choice != null && models.fallBack(choice)) {
      set(state().withNotice(problem.and(Problem.MODEL_FALLBACK)));
      model = null;
      updateReady();
      startNextIfIdle();
    } else {
      stop(problem);
    }
  }

  private void closeOpened() {
    if (opened != null) {
      opened.close();
      opened = null;
    }
  }

  /** Nothing: the camera shows something else by the time the screen is restored. */
  @Override
  void save(Bundle to) {}

  @Override
  void restore(Bundle from) {}

  @Override
  void close(boolean finishing) {
    setAllowed(false);
    speaker.close();
    shutDown(this::closeOpened);
  }
}
