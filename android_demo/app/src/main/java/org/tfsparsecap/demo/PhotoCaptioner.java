package org.tfsparsecap.demo;

import android.graphics.Bitmap;
import java.io.IOException;
import org.tfsparsecap.captioner.BundleException;
import org.tfsparsecap.captioner.CaptioningResult;
import org.tfsparsecap.captioner.PhotoException;

/**
 * Reads and captions photos; caches the last photo and the open model. Used on one background
 * thread.
 */
final class PhotoCaptioner {
  private final Engine engine;
  private final ModelStore models;

  private Engine.Model model;
  private String modelKey;
  private Bitmap lastImage;
  private long lastImageId = -1;
  private int lastImageSide;

  PhotoCaptioner(Engine engine, ModelStore models) {
    this.engine = engine;
    this.models = models;
  }

  /**
   * Reads a photo, unless it was the last one read.
   *
   * @param side see {@link Engine#read}.
   * @throws PhotoException the photo cannot be read.
   */
  Bitmap read(Photo photo, int side) throws PhotoException {
    if (lastImage == null || lastImageId != photo.id() || lastImageSide != side) {
      lastImage = null; // freed first: two large bitmaps may not fit into memory
      lastImage = engine.read(photo.uri(), side);
      lastImageId = photo.id();
      lastImageSide = side;
    }
    return lastImage;
  }

  /**
   * Captions a photo.
   *
   * @param key identifies the model, which is opened again if the key has changed.
   * @return the captions, best first, and the likely objects.
   * @throws PhotoException the photo cannot be read.
   * @throws BundleException the model cannot be used.
   * @throws IOException the model cannot be read.
   */
  CaptioningResult caption(Photo photo, ModelChoice choice, String key)
      throws PhotoException, BundleException, IOException {
    if (model == null || !key.equals(modelKey)) {
      close();
      model = models.open(choice);
      modelKey = key;
    }
    return model.caption(read(photo, model.info().imageSize()));
  }

  /** Frees the model's memory. */
  void close() {
    if (model != null) {
      model.close();
      model = null;
    }
  }
}
