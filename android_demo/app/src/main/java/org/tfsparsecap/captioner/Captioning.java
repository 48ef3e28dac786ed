package org.tfsparsecap.captioner;

import java.util.ArrayList;
import java.util.Collections;
import java.util.List;

/** What came out for one picture. Immutable. */
public final class Captioning {
  private final List<Caption> captions;
  private final float runMilliseconds;
  private final float totalMilliseconds;

  /**
   * @param captions best first; copied.
   * @param runMilliseconds time inside the interpreter.
   * @param totalMilliseconds time for all of it.
   */
  public Captioning(List<Caption> captions, float runMilliseconds, float totalMilliseconds) {
    this.captions = Collections.unmodifiableList(new ArrayList<>(captions));
    this.runMilliseconds = runMilliseconds;
    this.totalMilliseconds = totalMilliseconds;
  }

  /** Best first; cannot be changed. Empty only where the model found none. */
  public List<Caption> captions() {
    return captions;
  }

  /** Milliseconds inside the interpreter. */
  public float runMilliseconds() {
    return runMilliseconds;
  }

  /** Milliseconds for all of it: resizing the picture, the interpreter, making words of its numbers. */
  public float totalMilliseconds() {
    return totalMilliseconds;
  }
}
