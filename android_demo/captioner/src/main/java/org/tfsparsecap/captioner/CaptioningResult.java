package org.tfsparsecap.captioner;

import java.util.ArrayList;
import java.util.Collections;
import java.util.List;

/** The captions and objects of one image, with timings. Immutable. */
public final class CaptioningResult {
  private final List<Caption> captions;
  private final List<String> objects;
  private final float runMilliseconds;
  private final float totalMilliseconds;

  /**
   * @param captions best first; copied.
   * @param objects likeliest first; copied.
   * @param runMilliseconds time in the interpreter.
   * @param totalMilliseconds total time.
   */
  public CaptioningResult(
      List<Caption> captions, List<String> objects, float runMilliseconds, float totalMilliseconds) {
    this.captions = Collections.unmodifiableList(new ArrayList<>(captions));
    this.objects = Collections.unmodifiableList(new ArrayList<>(objects));
    this.runMilliseconds = runMilliseconds;
    this.totalMilliseconds = totalMilliseconds;
  }

  /** The captions, best first; unmodifiable. Empty only if the model found none. */
  public List<Caption> captions() {
    return captions;
  }

  /**
   * The objects that are in the image with a probability of at least {@link Captioner#LIKELY},
   * likeliest first; unmodifiable. Empty for models that predict none.
   */
  public List<String> objects() {
    return objects;
  }

  /** Milliseconds in the interpreter. */
  public float runMilliseconds() {
    return runMilliseconds;
  }

  /** Milliseconds in total: resizing, interpreter, decoding. */
  public float totalMilliseconds() {
    return totalMilliseconds;
  }
}
