package org.tfsparsecap.captioner;

import org.json.JSONObject;
import org.tfsparsecap.captioner.BundleException.Reason;

/**
 * The probability that a caption is good: a logistic function of its score and of the largest
 * probability of an object, which the exporter fits to captions of validation images. Immutable.
 */
final class Confidence {
  private static final String ENTRY = "confidence";

  /** False for files without validation images. */
  private final boolean known;

  private final double slope;
  private final double intercept;
  private final double lengthPenalty;
  /** 0 for files without objects, and for files of earlier versions. */
  private final double objects;

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
   * @param likeliest the largest probability of an object, 0 without objects.
   * @return 0 to 1, or NaN if the file has no calibration.
   */
  float of(float logProbability, int tokens, float likeliest) {
    double odds = slope * logProbability / Math.pow(tokens, lengthPenalty) + objects * likeliest + intercept;
    return known ? (float) (1 / (1 + Math.exp(-odds))) : Float.NaN;
  }
}
