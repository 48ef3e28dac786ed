package org.tfsparsecap.demo;

import android.graphics.Bitmap;
import android.net.Uri;
import java.io.File;
import java.io.IOException;
import java.util.concurrent.CompletableFuture;
import org.tfsparsecap.captioner.AsyncCaptioner;
import org.tfsparsecap.captioner.BundleException;
import org.tfsparsecap.captioner.CaptioningResult;
import org.tfsparsecap.captioner.PhotoException;

/**
 * The captioning functions that the screens use. All methods but {@link Model#submit} are slow: call
 * them off the main thread.
 */
interface Engine {
  /**
   * Opens a built-in model.
   *
   * @throws BundleException it cannot be used.
   * @throws IOException it cannot be read.
   */
  Model openBuiltIn(ModelChoice choice) throws BundleException, IOException;

  /**
   * Opens a bundle.
   *
   * @throws BundleException it cannot be used.
   * @throws IOException it cannot be read.
   */
  Model open(File bundle) throws BundleException, IOException;

  /**
   * Reads a photo.
   *
   * @param side side length of the captioner's input, in pixels.
   * @throws PhotoException the photo cannot be read.
   */
  Bitmap read(Uri photo, int side) throws PhotoException;

  /** A model that is ready to caption images. */
  interface Model extends AutoCloseable {
    /** Information about the model. */
    ModelInfo info();

    /**
     * Captions an image of any size.
     *
     * @throws BundleException the model fails on this image.
     */
    CaptioningResult caption(Bitmap image) throws BundleException;

    /** Captions an image in the background, see {@link AsyncCaptioner#caption(Bitmap)}. */
    CompletableFuture<CaptioningResult> submit(Bitmap image);

    @Override
    void close();
  }
}
