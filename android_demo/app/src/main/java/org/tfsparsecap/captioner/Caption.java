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
   * @param confidence 0 to 1, see {@link #confidence()}.
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

  /** Geometric mean of the token probabilities (words and end token), 0 to 1. */
  public float confidence() {
    return confidence;
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
