package org.tfsparsecap.demo;

import java.util.Locale;
import java.util.function.Consumer;

/** Reads text aloud. Used on the main thread. */
interface Speaker {
  /** The language of the captions: captioners are trained on English data sets. */
  Locale LANGUAGE = Locale.ENGLISH;

  /**
   * Reads a text aloud and stops the previous one.
   *
   * @param onProblem called on the main thread if the text cannot be read aloud.
   */
  void speak(String text, Consumer<Problem> onProblem);

  /** Stops reading. */
  void stop();

  /** Releases the speech engine; it may be used again. */
  void close();
}
