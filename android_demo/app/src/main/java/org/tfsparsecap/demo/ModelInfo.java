package org.tfsparsecap.demo;

import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.OptionalDouble;
import org.tfsparsecap.captioner.BundleDescription;
import org.tfsparsecap.captioner.CaptionerBundle;

/** What a bundle contains about its model, for display. Immutable. */
final class ModelInfo {
  private final String name;
  private final String trainedOn;
  private final OptionalDouble sparsity;
  private final boolean zerosStored;
  private final Map<String, Double> scores;
  private final long bytes;
  private final int imageSize;
  private final int words;

  private ModelInfo(CaptionerBundle bundle) {
    BundleDescription description = bundle.description();
    name = description.name().orElse(description.model().orElse(""));
    trainedOn = description.trainedOn().orElse("");
    sparsity = description.sparsity();
    zerosStored = description.exportFormat().orElse("").startsWith("dense");
    scores = Collections.unmodifiableMap(new LinkedHashMap<>(description.scores()));
    bytes = bundle.bytes();
    imageSize = description.imageSize();
    words = bundle.vocabulary().size();
  }

  static ModelInfo of(CaptionerBundle bundle) {
    return new ModelInfo(bundle);
  }

  /** Name of the training run; empty if unknown. */
  String name() {
    return name;
  }

  /** Training data; empty if unknown. */
  String trainedOn() {
    return trainedOn;
  }

  /** Fraction of the weights that are zero, 0 to 1. */
  OptionalDouble sparsity() {
    return sparsity;
  }

  /** Whether zero weights are stored. */
  boolean zerosStored() {
    return zerosStored;
  }

  /** Test scores of the trained model by metric, before rounding. */
  Map<String, Double> scores() {
    return scores;
  }

  /** Size of the file in bytes. */
  long bytes() {
    return bytes;
  }

  /** Side length of the model's input images, in pixels. */
  int imageSize() {
    return imageSize;
  }

  /** Size of the vocabulary. */
  int words() {
    return words;
  }
}
