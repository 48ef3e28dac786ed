package org.tfsparsecap.captioner;

import java.util.Objects;

/**
 * Thrown if a bundle cannot be used. The message is for developers; {@link #reason()} determines
 * what users read.
 */
public final class BundleException extends Exception {
  /** The kinds of problems. */
  public enum Reason {
    /** The file is not a .tflite file. */
    NOT_A_MODEL,
    /** The end of the file is missing, for example after an interrupted download. */
    TRUNCATED,
    /** The model has no description or no vocabulary, so tfsparsecap-export did not write it. */
    NO_DESCRIPTION,
    /** The bundle has a newer format version. */
    NEWER_FORMAT,
    /** Part of the bundle is malformed or inconsistent. */
    DAMAGED,
    /** The graph or the vocabulary is not the one that was exported. */
    CHANGED,
    /** The model takes region features, computed by another program, instead of images. */
    TAKES_FEATURES,
    /**
     * The runtime rejects the model, usually because of an unsupported operation or operation
     * version.
     */
    NOT_RUNNABLE
  }

  private static final long serialVersionUID = 1;

  private final Reason reason;

  /**
   * @param reason the kind of problem.
   * @param message what was found and what was expected, for developers.
   */
  public BundleException(Reason reason, String message) {
    this(reason, message, null);
  }

  /**
   * @param reason the kind of problem.
   * @param message what was found and what was expected, for developers.
   * @param cause the exception that revealed the problem, or null.
   */
  public BundleException(Reason reason, String message, Throwable cause) {
    super(message, cause);
    this.reason = Objects.requireNonNull(reason);
  }

  /** The kind of problem. */
  public Reason reason() {
    return reason;
  }
}
