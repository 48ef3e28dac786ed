package org.tfsparsecap.captioner;

import java.util.Map;
import java.util.Optional;
import java.util.OptionalDouble;
import java.util.OptionalInt;

/** What the file says of itself: a typed view of its {@code captioner.json}. Immutable. */
public final class BundleDescription {
  BundleDescription() {}

  /** Name of the training run, such as {@code soft_attention_lstm-smp-0.9-s1}. */
  public Optional<String> name() {
    return Optional.empty();
  }

  /** Class of the captioner, such as {@code SoftAttentionLSTM}. */
  public Optional<String> model() {
    return Optional.empty();
  }

  /** The data that it was trained on, such as {@code flickr8k: flickr8k}. */
  public Optional<String> trainedOn() {
    return Optional.empty();
  }

  /** Share of the weights that are zero, 0 to 1. */
  public OptionalDouble sparsity() {
    return OptionalDouble.empty();
  }

  /** How the weights are stored, such as {@code int8}. */
  public Optional<String> exportFormat() {
    return Optional.empty();
  }

  /** Scores on test pictures by name, in the order of the file; empty where it has none. */
  public Map<String, Double> scores() {
    return java.util.Collections.emptyMap();
  }

  /** Side of the square pictures that the graph takes, in pixels. */
  public int imageSize() {
    return 0;
  }

  /** How many captions the graph looks for. */
  public OptionalInt beam() {
    return OptionalInt.empty();
  }

  /** Most words of a caption. */
  public OptionalInt maxLength() {
    return OptionalInt.empty();
  }

  /** Id of the token that ends a caption. */
  public int endId() {
    return 0;
  }

  /** The whole of {@code captioner.json}, as it is in the file. */
  public String json() {
    return "";
  }
}
