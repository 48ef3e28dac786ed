package org.tfsparsecap.captioner;

import org.json.JSONObject;
import org.tfsparsecap.captioner.BundleException.Reason;

/**
 * The probability that a caption is good: a logistic function of its score and length, and of the
 * objects in the image, which the exporter fits to captions of validation images. Immutable.
 */
final class Confidence {
  private static final String ENTRY = "confidence";

  /** False for files without validation images. */
  private final boolean known;

  private final double slope;
  private final double intercept;
  private final double lengthPenalty;
  // 0 for files of earlier versions, the first two also for files without objects.
  private final double objects;
  private final double objectCount;
  private final double tokenWeight;

  /**
   * @param description the content of {@code captioner.json}.
   * @throws BundleException its entry is damaged.
   */
  Confidence(JSONObject description) throws BundleException {
    known = !description.isNull(ENTRY);
    JSONObject entry = description.optJSONObject(ENTRY);
    slope = known ? number(entry, "slope") : 0;
    intercept = known ? number(entry, "intercept") : 0;
    lengthPenalty = known ? number(entry, "length_penalty") : 0;
    objects = known && entry.has("objects") ? number(entry, "objects") : 0;
    objectCount = known && entry.has("object_count") ? number(entry, "object_count") : 0;
    tokenWeight = known && entry.has("tokens") ? number(entry, "tokens") : 0;
  }

  private static double number(JSONObject entry, String name) throws BundleException {
    Object value = entry == null ? null : entry.opt(name);
    double number = value instanceof Number ? ((Number) value).doubleValue() : Double.NaN;
    if (Double.isNaN(number) || Double.isInfinite(number)) {
      throw new BundleException(Reason.DAMAGED, "the confidence has no " + name);
    }
    return number;
  }

  /**
   * @param logProbability of the caption.
   * @param tokens its tokens, the end token included.
   * @param probabilities of the objects in the image.
   * @return 0 to 1, or NaN if the file has no calibration.
   */
  float of(float logProbability, int tokens, float[] probabilities) {
    double likeliest = 0;
    double count = 0;
    for (float probability : probabilities) {
      likeliest = Math.max(likeliest, probability);
      count += probability;
    }
    double odds = slope * logProbability / Math.pow(tokens, lengthPenalty) + tokenWeight * tokens + intercept
        + objects * likeliest + objectCount * count;
    return known ? (float) (1 / (1 + Math.exp(-odds))) : Float.NaN;
  }
}
