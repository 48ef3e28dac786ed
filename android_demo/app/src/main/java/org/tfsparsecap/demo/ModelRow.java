package org.tfsparsecap.demo;

import org.tfsparsecap.captioner.Caption;

/** A model in the comparison, with its measurements so far. Immutable. */
final class ModelRow {
  /** The progress of the measurement. */
  enum Stage {
    WAITING,
    MEASURING,
    DONE,
    FAILED
  }

  private final ModelChoice choice;
  private final Stage stage;
  private final ModelInfo info;
  private final Caption caption;
  private final float milliseconds;
  private final Message problem;

  private ModelRow(
      ModelChoice choice,
      Stage stage,
      ModelInfo info,
      Caption caption,
      float milliseconds,
      Message problem) {
    this.choice = choice;
    this.stage = stage;
    this.info = info;
    this.caption = caption;
    this.milliseconds = milliseconds;
    this.problem = problem;
  }

  /** A model that has not been measured. */
  static ModelRow waiting(ModelChoice choice) {
    return new ModelRow(choice, Stage.WAITING, null, null, Float.NaN, null);
  }

  ModelRow measuring() {
    return new ModelRow(choice, Stage.MEASURING, null, null, Float.NaN, null);
  }

  /**
   * @param caption null without a photo, or if the model found no caption.
   * @param milliseconds NaN if not measured.
   */
  ModelRow done(ModelInfo info, Caption caption, float milliseconds) {
    return new ModelRow(choice, Stage.DONE, info, caption, milliseconds, null);
  }

  ModelRow failed(Message problem) {
    return new ModelRow(choice, Stage.FAILED, null, null, Float.NaN, problem);
  }

  ModelChoice choice() {
    return choice;
  }

  Stage stage() {
    return stage;
  }

  /** Null until the measurement is done. */
  ModelInfo info() {
    return info;
  }

  /** Caption of the compared photo; null if there is none. */
  Caption caption() {
    return caption;
  }

  /** Latency on this phone; NaN until measured. */
  float milliseconds() {
    return milliseconds;
  }

  /** Null unless the measurement failed. */
  Message problem() {
    return problem;
  }
}
