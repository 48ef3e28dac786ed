package org.tfsparsecap.demo;

import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.OptionalDouble;
import org.tfsparsecap.captioner.BundleDescription;
import org.tfsparsecap.captioner.CaptionerBundle;

/** What a bundle says of itself, as the screens show it. Immutable. */
final class ModelFacts {
  private final String name;
  private final String trainedOn;
  private final OptionalDouble sparsity;
  private final boolean zerosStored;
  private final Map<String, Double> scores;
  private final long bytes;
  private final int imageSize;
  private final int words;

  private ModelFacts(CaptionerBundle bundle) {
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

  static ModelFacts of(CaptionerBundle bundle) {
    return new ModelFacts(bundle);
  }

  /** Of the training run; empty where the bundle does not tell. */
  String name() {
    return name;
  }

  /** The data; empty where the bundle does not tell. */
  String trainedOn() {
    return trainedOn;
  }

  /** Share of weights that are zero, 0 to 1. */
  OptionalDouble sparsity() {
    return sparsity;
  }

  /** Whether the weights that are zero are in the file all the same. */
  boolean zerosStored() {
    return zerosStored;
  }

  /** By the names that the field has for them. */
  Map<String, Double> scores() {
    return scores;
  }

  /** Size of the file. */
  long bytes() {
    return bytes;
  }

  /** Side of the pictures that it looks at, in pixels. */
  int imageSize() {
    return imageSize;
  }

  /** Lines of its vocabulary. */
  int words() {
    return words;
  }
}
