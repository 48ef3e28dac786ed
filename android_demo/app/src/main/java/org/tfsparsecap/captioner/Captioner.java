package org.tfsparsecap.captioner;

import android.graphics.Bitmap;

/**
 * Captions pictures.
 *
 * <p>Use it off the main thread: a picture takes from milliseconds to seconds. It does one thing at a time:
 * a second caller, and {@link #close()}, wait until the first is done.
 */
public final class Captioner implements AutoCloseable {
  /**
   * @param bundle what to run.
   * @param threads CPU threads that the runtime may use, at least 1.
   * @throws BundleException the runtime cannot run the bundle, or it does not fit its description.
   */
  public Captioner(CaptionerBundle bundle, int threads) throws BundleException {
    throw new UnsupportedOperationException();
  }

  /**
   * Captions a picture.
   *
   * @param upright any size, any config; resized as the pictures of the training were.
   * @throws BundleException the bundle fails on this picture, or gives tokens that it has no words for.
   * @throws IllegalStateException it is closed.
   */
  public Captioning caption(Bitmap upright) throws BundleException {
    throw new UnsupportedOperationException();
  }

  /** What is run. */
  public CaptionerBundle bundle() {
    throw new UnsupportedOperationException();
  }

  /** Frees the native memory; waits for a picture that is being captioned. May be called again. */
  @Override
  public void close() {}
}
