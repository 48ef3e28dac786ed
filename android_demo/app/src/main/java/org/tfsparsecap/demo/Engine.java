package org.tfsparsecap.demo;

import android.graphics.Bitmap;
import android.net.Uri;
import java.io.File;
import java.io.IOException;
import org.tfsparsecap.captioner.BundleException;
import org.tfsparsecap.captioner.Captioning;
import org.tfsparsecap.captioner.PhotoException;

/** What the screens need of the captioner. Everything here takes time: call it off the main thread. */
interface Engine {
  /**
   * Opens a model that comes with the app.
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
   * @param side of the square that it will be captioned at, in pixels.
   * @throws PhotoException there is no picture to be had from it.
   */
  Bitmap read(Uri photo, int side) throws PhotoException;

  /** A model that is ready to caption. */
  interface Model extends AutoCloseable {
    /** What is known of it. */
    ModelFacts facts();

    /**
     * Captions a picture of any size.
     *
     * @throws BundleException the model fails on it.
     */
    Captioning caption(Bitmap picture) throws BundleException;

    @Override
    void close();
  }
}
