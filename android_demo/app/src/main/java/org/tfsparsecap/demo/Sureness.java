package org.tfsparsecap.demo;

import android.content.Context;
import java.text.NumberFormat;
import org.tfsparsecap.captioner.Caption;

/** How sure the model is of a caption, for people. */
final class Sureness {
  private Sureness() {}

  /** In words and per cent, such as "Fairly sure · 62 %". */
  static String text(Context context, Caption caption) {
    return context.getString(
        R.string.sure, context.getString(words(caption.confidence())), percent(context, caption));
  }

  /** In per cent, as the phone's language writes them. */
  static String percent(Context context, Caption caption) {
    return percent(context, caption.confidence());
  }

  /** A share of one in per cent, as the phone's language writes them. */
  static String percent(Context context, double share) {
    return NumberFormat.getPercentInstance(context.getResources().getConfiguration().getLocales().get(0))
        .format(share);
  }

  /** A string resource for a confidence of 0 to 1, the mean probability of a word. */
  private static int words(float confidence) {
    if (confidence >= 0.7f) {
      return R.string.sure_4;
    }
    if (confidence >= 0.5f) {
      return R.string.sure_3;
    }
    return confidence >= 0.3f ? R.string.sure_2 : R.string.sure_1;
  }
}
