package org.tfsparsecap.captioner;

import java.util.Objects;

/**
 * Thrown if a photo cannot be read. The message is for developers; {@link #reason()} determines
 * what users read.
 */
public final class PhotoException extends Exception {
  /** The kinds of problems. */
  public enum Reason {
    /** The photo does not exist (any more), or its provider does not respond. */
    GONE,
    /** Access is denied. */
    DENIED,
    /** The file is empty. */
    EMPTY,
    /**
     * The file is not an image, is damaged, or has a format that this version of Android does not
     * decode.
     */
    NOT_AN_IMAGE,
    /** There is not enough memory, even for a reduced photo. */
    OUT_OF_MEMORY
  }

  private static final long serialVersionUID = 1;

  private final Reason reason;

  /**
   * @param reason the kind of problem.
   * @param message what was found, for developers.
   * @param cause the exception that revealed the problem, or null.
   */
  public PhotoException(Reason reason, String message, Throwable cause) {
    super(message, cause);
    this.reason = Objects.requireNonNull(reason);
  }

  /** The kind of problem. */
  public Reason reason() {
    return reason;
  }
}
