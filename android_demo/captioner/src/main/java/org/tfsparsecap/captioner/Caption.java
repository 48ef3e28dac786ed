package org.tfsparsecap.captioner;

import java.util.Objects;

/** A caption and its probability. Immutable. */
public final class Caption {
  private final String text;
  private final float logProbability;
  private final float confidence;

  /**
   * @param text the words.
   * @param logProbability natural logarithm, the sum over the tokens.
   * @param confidence 0 to 1 or NaN, see {@link #confidence()}.
   */
  public Caption(String text, float logProbability, float confidence) {
    this.text = Objects.requireNonNull(text);
    this.logProbability = logProbability;
    this.confidence = confidence;
  }

  /** The words; empty if the model generated only the end token. */
  public String text() {
    return text;
  }

  /**
   * Natural logarithm of the caption's probability: the sum over its tokens, as the graph returns
   * it.
   */
  public float logProbability() {
    return logProbability;
  }

  /**
   * The probability that the caption is good, 0 to 1: that at least half of its nouns, verbs and
   * other content words are also in one of five descriptions by people. The exporter calibrates it
   * on validation images; NaN if it had none.
   */
  public float confidence() {
    return confidence;
  }

  /** Whether {@link #confidence()} is known. */
  public boolean hasConfidence() {
    return !Float.isNaN(confidence);
  }

  @Override
  public boolean equals(Object other) {
    if (!(other instanceof Caption)) {
      return false;
    }
    Caption that = (Caption) other;
    return text.equals(that.text)
        && Float.compare(logProbability, that.logProbability) == 0
        && Float.compare(confidence, that.confidence) == 0;
  }

  @Override
  public int hashCode() {
    return Objects.hash(text, logProbability, confidence);
  }

  @Override
  public String toString() {
    return text + " (" + logProbability + ", " + confidence + ")";
  }
}
