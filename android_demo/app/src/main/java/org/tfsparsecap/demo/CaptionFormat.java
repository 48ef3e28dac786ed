package org.tfsparsecap.demo;

import android.content.Context;
import android.content.res.Configuration;
import android.text.SpannableString;
import android.text.Spanned;
import android.text.style.LocaleSpan;
import java.text.NumberFormat;
import java.util.List;
import java.util.Locale;
import org.tfsparsecap.captioner.Caption;

/** Formats captions, objects and confidences. */
final class CaptionFormat {
  /** Below this confidence the app is not sure. */
  private static final float NOT_SURE = 0.5f;

  private CaptionFormat() {}

  /**
   * Whether the model is sure of a caption, which may be null. One of unknown confidence counts as
   * sure, as everywhere in the app.
   */
  static boolean isSure(Caption caption) {
    return caption != null
        && !caption.text().isEmpty()
        && !(caption.hasConfidence() && caption.confidence() < NOT_SURE);
  }

  /**
   * Whether the likely objects in a photo are shown instead of its caption, of which the model is not
   * sure.
   *
   * @param caption null for none.
   */
  static boolean namesObjects(Caption caption, List<String> objects) {
    return caption != null
        && caption.hasConfidence()
        && caption.confidence() < NOT_SURE
        && !objects.isEmpty();
  }

  /** The caption of a photo, with a capital letter, or its likely objects; empty if there is none. */
  static String sentence(Context context, Photo photo) {
    return sentence(context, photo.best(), photo.objects()).toString();
  }

  /**
   * The same, for a caption that may be null. Captions and objects are marked as English, so that
   * screen readers choose a suitable voice.
   */
  static CharSequence sentence(Context context, Caption caption, List<String> objects) {
    if (caption == null) {
      return "";
    }
    if (!namesObjects(caption, objects)) {
      return caption(caption);
    }
    String names = names(objects);
    String text = context.getString(R.string.perhaps, names);
    return markAsEnglish(text, text.lastIndexOf(names));
  }

  /** What is read aloud, in English: as above, without a capital letter. */
  static String spoken(Context context, Photo photo) {
    if (!namesObjects(photo.best(), photo.objects())) {
      return photo.caption();
    }
    Configuration english = new Configuration(context.getResources().getConfiguration());
    english.setLocale(Speaker.LANGUAGE);
    return context.createConfigurationContext(english).getString(R.string.perhaps, names(photo.objects()));
  }

  private static String names(List<String> objects) {
    return String.join(", ", objects);
  }

  private static CharSequence markAsEnglish(String text, int start) {
    SpannableString marked = new SpannableString(text);
    marked.setSpan(
        new LocaleSpan(Speaker.LANGUAGE), start, marked.length(), Spanned.SPAN_EXCLUSIVE_EXCLUSIVE);
    return marked;
  }

  /** A caption with a capital letter, marked as English. */
  static CharSequence caption(Caption caption) {
    return markAsEnglish(sentence(caption), 0);
  }

  /** With a capital letter: models are trained on lower-case text. */
  private static String sentence(Caption caption) {
    String text = caption.text();
    if (text.isEmpty()) {
      return text;
    }
    int first = text.offsetByCodePoints(0, 1);
    return text.substring(0, first).toUpperCase(Locale.ROOT) + text.substring(first);
  }

  /**
   * The confidence in words and as a percentage, such as "Probably · 62 %"; empty if it is unknown, or
   * if objects are shown instead of the caption, which may be null.
   */
  static String confidence(Context context, Caption caption, List<String> objects) {
    if (caption == null || !caption.hasConfidence() || namesObjects(caption, objects)) {
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
    if (probability < NOT_SURE) {
      return R.string.not_sure;
    }
    return probability < 0.75f ? R.string.probably : R.string.quite_sure;
  }
}
