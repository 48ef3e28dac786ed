package org.tfsparsecap.captioner;

import java.util.Objects;

/**
 * Why a bundle cannot be used. The message is for developers, in English; what a person reads is chosen by
 * {@link #reason()}.
 */
public final class BundleException extends Exception {
  /** What is wrong with a bundle. */
  public enum Reason {
    /** It is no .tflite file at all. */
    NOT_A_MODEL,
    /** Its end is missing: a download or a copy that stopped half-way. */
    CUT_SHORT,
    /** A model without description or words: one that tfsparsecap-export did not write. */
    NO_DESCRIPTION,
    /** It was written by a newer version than this one reads. */
    NEWER_FORMAT,
    /** Something in it is broken, or does not fit together. */
    DAMAGED,
    /** It takes features of regions that another program has to compute, not pictures. */
    TAKES_FEATURES,
    /** The runtime refuses it: mostly an operation, or a version of one, that the runtime lacks. */
    NOT_RUNNABLE
  }

  private static final long serialVersionUID = 1;

  private final Reason reason;

  /**
   * @param reason what is wrong.
   * @param message what was found and what was expected, for developers.
   */
  public BundleException(Reason reason, String message) {
    this(reason, message, null);
  }

  /**
   * @param reason what is wrong.
   * @param message what was found and what was expected, for developers.
   * @param cause what was thrown by what found it, or null.
   */
  public BundleException(Reason reason, String message, Throwable cause) {
    super(message, cause);
    this.reason = Objects.requireNonNull(reason);
  }

  /** What is wrong. */
  public Reason reason() {
    return reason;
  }
}
