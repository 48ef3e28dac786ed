package org.tfsparsecap.captioner;

import java.util.Objects;

/**
 * Why a photo cannot be shown. The message is for developers, in English; what a person reads is chosen by
 * {@link #reason()}.
 */
public final class PhotoException extends Exception {
  /** What is wrong with a photo. */
  public enum Reason {
    /** It is not there (any more), or whoever offered it does not answer. */
    GONE,
    /** It may not be read (any more). */
    DENIED,
    /** It has no content: 0 bytes. */
    EMPTY,
    /** It is no picture, none that this version of Android decodes, or a broken one. */
    NOT_A_PICTURE,
    /** There is not enough memory for it, even made small. */
    OUT_OF_MEMORY
  }

  private static final long serialVersionUID = 1;

  private final Reason reason;

  /**
   * @param reason what is wrong.
   * @param message what was found, for developers.
   * @param cause what was thrown by what found it, or null.
   */
  public PhotoException(Reason reason, String message, Throwable cause) {
    super(message, cause);
    this.reason = Objects.requireNonNull(reason);
  }

  /** What is wrong. */
  public Reason reason() {
    return reason;
  }
}
