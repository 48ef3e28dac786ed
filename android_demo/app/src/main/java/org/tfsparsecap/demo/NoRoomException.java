package org.tfsparsecap.demo;

import java.io.IOException;

/** There is not enough room in the phone's storage. */
final class NoRoomException extends IOException {
  private static final long serialVersionUID = 1;

  private final String needed;
  private final String free;

  /**
   * @param needed how much room is needed, in words such as "4.2 MB"; null where nobody tells.
   * @param free how much there is.
   * @param cause what the system threw, or null.
   */
  NoRoomException(String needed, String free, Throwable cause) {
    super("needs " + needed + ", free are " + free, cause);
    this.needed = needed;
    this.free = free;
  }

  /** Null where nobody tells. */
  String needed() {
    return needed;
  }

  String free() {
    return free;
  }
}
