package org.tfsparsecap.demo;

import java.io.IOException;

/** Thrown if there is not enough storage on the phone. */
final class InsufficientStorageException extends IOException {
  private static final long serialVersionUID = 1;

  private final String needed;
  private final String free;

  /**
   * @param needed required storage, such as "4.2 MB"; null if unknown.
   * @param free available storage.
   * @param cause the system's exception, or null.
   */
  InsufficientStorageException(String needed, String free, Throwable cause) {
    super("needed: " + needed + ", free: " + free, cause);
    this.needed = needed;
    this.free = free;
  }

  /** Null if unknown. */
  String needed() {
    return needed;
  }

  String free() {
    return free;
  }
}
