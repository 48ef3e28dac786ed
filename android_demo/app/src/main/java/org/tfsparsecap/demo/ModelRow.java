package org.tfsparsecap.demo;

import java.util.Collections;
import java.util.List;
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
  private final List<String> objects;
  private final float milliseconds;
  private final Message problem;

  private ModelRow(
      ModelChoice choice,
      Stage stage,
      ModelInfo info,
      Caption caption,
      List<String> objects,
      float milliseconds,
      Message problem) {
    this.choice = choice;
    this.stage = stage;
    this.info = info;
    this.caption = caption;
    this.objects = objects;
    this.milliseconds = milliseconds;
    this.problem = problem;
  }

  /** A model that has not been measured. */
  static ModelRow waiting(ModelChoice choice) {
    return new ModelRow(choice, Stage.WAITING, null, null, Collections.emptyList(), Float.NaN, null);
  }

  ModelRow measuring() {
    return new ModelRow(choice, Stage.MEASURING, null, null, Collections.emptyList(), Float.NaN, null);
  }

  /**
   * @param caption null without a photo, or if the model found no caption.
   * @param objects that are probably in the photo, likeliest first.
   * @param milliseconds NaN if not measured.
   */
  ModelRow done(ModelInfo info, Caption caption, List<String> objects, float milliseconds) {
    return new ModelRow(choice, Stage.DONE, info, caption, objects, milliseconds, null);
  }

  ModelRow failed(Message problem) {
    return new ModelRow(choice, Stage.FAILED, null, null, Collections.emptyList(), Float.NaN, problem);
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

  /** Objects that are probably in the compared photo, likeliest first. */
  List<String> objects() {
    return objects;
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
