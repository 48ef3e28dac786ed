package org.tfsparsecap.demo;

import android.content.Context;
import java.text.NumberFormat;
import java.util.Locale;
import org.tfsparsecap.captioner.Caption;

/** Formats captions and confidences for display. */
final class CaptionFormat {
  private CaptionFormat() {}

  /** The best caption of a photo, with a capital letter; empty if there is none. */
  static String sentence(Photo photo) {
    return photo.captions().isEmpty() ? "" : sentence(photo.captions().get(0));
  }

  /** A caption with a capital letter: models are trained on lower-case text. */
  static String sentence(Caption caption) {
    String text = caption.text();
    if (text.isEmpty()) {
      return text;
    }
    int first = text.offsetByCodePoints(0, 1);
    return text.substring(0, first).toUpperCase(Locale.ROOT) + text.substring(first);
  }

  /** The confidence in words and as a percentage, such as "Probably · 62 %"; empty if unknown. */
  static String confidence(Context context, Caption caption) {
    if (!caption.hasConfidence()) {
      return "";
    }
    String words = context.getString(confidence(caption.confidence()));
    return context.getString(R.string.confidence, words, percent(context, caption.confidence()));
  }

  /** The confidence as a percentage; empty if unknown. */
  static String percent(Context context, Caption caption) {
    return caption.hasConfidence() ? percent(context, caption.confidence()) : "";
  }

  /** Formats a fraction of 1 as a percentage in the phone's language. */
  static String percent(Context context, double share) {
    Locale locale = context.getResources().getConfiguration().getLocales().get(0);
    return NumberFormat.getPercentInstance(locale).format(share);
  }

  /** The string resource for a probability that the caption is good. */
  private static int confidence(float probability) {
    if (probability < 0.5f) {
      return R.string.not_sure;
    }
    return probability < 0.75f ? R.string.probably : R.string.quite_sure;
  }
}
