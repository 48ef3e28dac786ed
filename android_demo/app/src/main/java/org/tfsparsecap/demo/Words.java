package org.tfsparsecap.demo;

import android.content.Context;
import java.text.NumberFormat;
import java.util.Locale;
import org.tfsparsecap.captioner.Caption;

/** Captions, and how sure the model is of them, for people. */
final class Words {
  private Words() {}

  /** The best caption of a photo, as {@link #of(Caption)} has it; empty where there is none. */
  static String of(Photo photo) {
    return photo.captions().isEmpty() ? "" : of(photo.captions().get(0));
  }

  /** A caption as one writes it: models learn from text without capitals. */
  static String of(Caption caption) {
    String text = caption.text();
    if (text.isEmpty()) {
      return text;
    }
    int first = text.offsetByCodePoints(0, 1);
    return text.substring(0, first).toUpperCase(Locale.ROOT) + text.substring(first);
  }

  /** How sure the model is in words and per cent, such as "Fairly sure · 62 %". */
  static String sureness(Context context, Caption caption) {
    String words = context.getString(sureness(caption.confidence()));
    return context.getString(R.string.sure, words, percent(context, caption.confidence()));
  }

  /** A share of one in per cent, as the phone's language writes them. */
  static String percent(Context context, double share) {
    Locale locale = context.getResources().getConfiguration().getLocales().get(0);
    return NumberFormat.getPercentInstance(locale).format(share);
  }

  /**
   * A string resource for a confidence of 0 to 1, the mean probability of a word. Of 200 Flickr8k photos that the
   * sparse model had not seen, people too used three in four of its nouns, verbs and colours where the confidence
   * was above 0.4, half of them between 0.3 and 0.4, and two in five below.
   */
  private static int sureness(float confidence) {
    if (confidence >= 0.5f) {
      return R.string.sure_4;
    }
    if (confidence >= 0.4f) {
      return R.string.sure_3;
    }
    return confidence >= 0.3f ? R.string.sure_2 : R.string.sure_1;
  }
}
