package org.tfsparsecap.demo;

import android.graphics.Bitmap;
import java.util.Collections;
import java.util.List;
import org.tfsparsecap.captioner.Caption;
import org.tfsparsecap.captioner.CaptioningResult;

/** State of the live screen. Immutable. */
final class LiveState implements ViewModel.State<LiveState> {
  /** What the app does, unless there is a problem. */
  enum Stage {
    /** The camera or the model is being opened. */
    STARTING(R.string.live_starting),
    LOOKING(R.string.live_looking),
    DARK(R.string.live_dark),
    FLAT(R.string.live_flat);

    private final int text;

    Stage(int text) {
      this.text = text;
    }

    /** The string resource. */
    int text() {
      return text;
    }
  }

  private final Stage stage;
  private final Bitmap frame;
  private final CaptioningResult now;
  private final Caption said;
  private final int unsure;
  private final boolean voice;
  private final Message problem;
  private final Message notice;

  private LiveState(
      Stage stage,
      Bitmap frame,
      CaptioningResult now,
      Caption said,
      int unsure,
      boolean voice,
      Message problem,
      Message notice) {
    this.stage = stage;
    this.frame = frame;
    this.now = now;
    this.said = said;
    this.unsure = unsure;
    this.voice = voice;
    this.problem = problem;
    this.notice = notice;
  }

  /** The state before the camera is started. */
  static LiveState start(boolean voice) {
    return new LiveState(Stage.STARTING, null, null, null, 0, voice, null, null);
  }

  /** Pauses or starts: without a frame, and what was said before is said again. */
  LiveState withStage(Stage stage) {
    return new LiveState(stage, null, null, null, unsure, voice, null, notice);
  }

  /** Stops because of a problem. */
  LiveState failed(Message problem) {
    return new LiveState(Stage.STARTING, null, null, null, unsure, voice, problem, notice);
  }

  /** Adds a caption of which the app is sure: it is said if it differs from what was said last. */
  LiveState sure(Bitmap frame, CaptioningResult now) {
    Caption best = now.captions().get(0);
    Caption told = said != null && said.text().equals(best.text()) ? said : best;
    return new LiveState(Stage.LOOKING, frame, now, told, unsure, voice, null, notice);
  }

  /**
   * Adds a caption of which the app is not sure.
   *
   * @param isNew whether it differs from the one before.
   */
  LiveState unsure(Bitmap frame, CaptioningResult now, boolean isNew) {
    return new LiveState(Stage.LOOKING, frame, now, said, isNew ? unsure + 1 : unsure, voice, null, notice);
  }

  LiveState withVoice(boolean voice) {
    return new LiveState(stage, frame, now, said, unsure, voice, problem, notice);
  }

  @Override
  public LiveState withNotice(Message notice) {
    return new LiveState(stage, frame, now, said, unsure, voice, problem, notice);
  }

  Stage stage() {
    return stage;
  }

  /** The frame that was captioned last; null for none. */
  Bitmap frame() {
    return frame;
  }

  /** The best caption of that frame; null for none. */
  Caption best() {
    return now == null || now.captions().isEmpty() ? null : now.captions().get(0);
  }

  /** The likely objects in that frame. */
  List<String> objects() {
    return now == null ? Collections.emptyList() : now.objects();
  }

  /**
   * The caption that was read aloud last, of this frame or of an earlier one; null for none since the
   * last pause.
   */
  Caption said() {
    return said;
  }

  /** How many captions the app was not sure of, not counting repeated ones: each is one vibration. */
  int unsureCount() {
    return unsure;
  }

  /** Whether the app reads captions aloud. */
  boolean voice() {
    return voice;
  }

  /** Why the camera is stopped; null for no problem. */
  Message problem() {
    return problem;
  }

  /** A message that does not stop the camera; null for none. */
  Message notice() {
    return notice;
  }
}
