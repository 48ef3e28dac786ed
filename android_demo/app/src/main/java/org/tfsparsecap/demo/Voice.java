package org.tfsparsecap.demo;

import java.util.Locale;
import java.util.function.Consumer;

/** Says things aloud. Used on the main thread. */
interface Voice {
  /** Of the captions: the data sets that captioners are trained on are English. */
  Locale LANGUAGE = Locale.ENGLISH;

  /**
   * Says something, and stops what is being said.
   *
   * @param trouble gets, on the main thread, why it cannot be said.
   */
  void speak(String text, Consumer<Problem> trouble);

  /** Says no more. */
  void stop();

  /** Lets go of the speech engine; it may be used again. */
  void close();
}
