package org.tfsparsecap.demo;

import org.tfsparsecap.captioner.Caption;

/** One of the models that are compared, with what is known of it so far. Immutable. */
final class ModelRow {
  /** How far it is. */
  enum Stage {
    WAITING,
    MEASURING,
    DONE,
    FAILED
  }

  private final ModelChoice choice;
  private final Stage stage;
  private final ModelFacts facts;
  private final Caption caption;
  private final float milliseconds;
  private final Sentence problem;

  private ModelRow(
      ModelChoice choice,
      Stage stage,
      ModelFacts facts,
      Caption caption,
      float milliseconds,
      Sentence problem) {
    this.choice = choice;
    this.stage = stage;
    this.facts = facts;
    this.caption = caption;
    this.milliseconds = milliseconds;
    this.problem = problem;
  }

  /** A model that nothing is known of yet. */
  static ModelRow waiting(ModelChoice choice) {
    return new ModelRow(choice, Stage.WAITING, null, null, Float.NaN, null);
  }

  ModelRow measuring() {
    return new ModelRow(choice, Stage.MEASURING, null, null, Float.NaN, null);
  }

  /**
   * @param caption null where there is no photo, or no words for it.
   * @param milliseconds NaN where nothing was measured.
   */
  ModelRow done(ModelFacts facts, Caption caption, float milliseconds) {
    return new ModelRow(choice, Stage.DONE, facts, caption, milliseconds, null);
  }

  ModelRow failed(Sentence problem) {
    return new ModelRow(choice, Stage.FAILED, null, null, Float.NaN, problem);
  }

  ModelChoice choice() {
    return choice;
  }

  Stage stage() {
    return stage;
  }

  /** Null until it is done. */
  ModelFacts facts() {
    return facts;
  }

  /** Of the photo that the models are compared on; null where there is none. */
  Caption caption() {
    return caption;
  }

  /** Of one run on this phone; NaN until there is a time. */
  float milliseconds() {
    return milliseconds;
  }

  /** Null unless it failed. */
  Sentence problem() {
    return problem;
  }
}
