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

  /** The confidence in words and as a percentage, such as "Fairly sure · 62 %". */
  static String confidence(Context context, Caption caption) {
    String captionPanel = context.getString(confidence(caption.confidence()));
    return context.getString(R.string.confidence, captionPanel, percent(context, caption.confidence()));
  }

  /** Formats a fraction of 1 as a percentage in the phone's language. */
  static String percent(Context context, double share) {
    Locale locale = context.getResources().getConfiguration().getLocales().get(0);
    return NumberFormat.getPercentInstance(locale).format(share);
  }

  /**
   * The string resource for a confidence of 0 to 1. On 200 Flickr8k test photos, human captions
   * also contained three quarters of the sparse model's nouns, verbs and colours where the
   * confidence was above 0.4, half of them between 0.3 and 0.4, and two fifths below.
   */
  private static int confidence(float confidence) {
    if (confidence >= 0.5f) {
      return R.string.confidence_4;
    }
    if (confidence >= 0.4f) {
      return R.string.confidence_3;
    }
    return confidence >= 0.3f ? R.string.confidence_2 : R.string.confidence_1;
  }
}
