package org.tfsparsecap.captioner;

import java.util.Objects;

/** A caption and how likely the model finds it. Immutable. */
public final class Caption {
  private final String text;
  private final float logProbability;
  private final float confidence;

  /**
   * @param text the words.
   * @param logProbability natural logarithm, the sum over its tokens.
   * @param confidence 0 to 1, see {@link #confidence()}.
   */
  public Caption(String text, float logProbability, float confidence) {
    this.text = Objects.requireNonNull(text);
    this.logProbability = logProbability;
    this.confidence = confidence;
  }

  /** The words; empty where the model said nothing but its end token. */
  public String text() {
    return text;
  }

  /** Natural logarithm of the caption's probability: the sum over its tokens, as the graph gives it. */
  public float logProbability() {
    return logProbability;
  }

  /** 0 to 1: the geometric mean of the probabilities of its tokens, which are its words and its end. */
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
