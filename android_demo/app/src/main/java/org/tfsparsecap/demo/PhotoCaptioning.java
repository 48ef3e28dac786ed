package org.tfsparsecap.demo;

import android.graphics.Bitmap;
import java.io.IOException;
import java.util.List;
import org.tfsparsecap.captioner.BundleException;
import org.tfsparsecap.captioner.Caption;
import org.tfsparsecap.captioner.PhotoException;

/** Reads and captions photos, and keeps open what is needed again. Used on one background thread. */
final class PhotoCaptioning {
  private final Engine engine;
  private final ModelStore models;

  private Engine.Model model;
  private String modelKey;
  private Bitmap lastRead;
  private long lastReadId = -1;
  private int lastReadSide;

  PhotoCaptioning(Engine engine, ModelStore models) {
    this.engine = engine;
    this.models = models;
  }

  /**
   * Reads a photo, unless it is the one that was read last.
   *
   * @param side as {@link Engine#read} takes it.
   * @throws PhotoException there is no picture to be had from it.
   */
  Bitmap read(Photo photo, int side) throws PhotoException {
    if (lastRead == null || lastReadId != photo.id() || lastReadSide != side) {
      lastRead = null; // before the next one is made: two large ones may not fit
      lastRead = engine.read(photo.uri(), side);
      lastReadId = photo.id();
      lastReadSide = side;
    }
    return lastRead;
  }

  /**
   * Captions a photo.
   *
   * @param key of the model, which is opened again where the key is another than before.
   * @return best first.
   * @throws PhotoException there is no picture to be had from it.
   * @throws BundleException the model cannot be used.
   * @throws IOException the model cannot be read.
   */
  List<Caption> caption(Photo photo, ModelChoice choice, String key)
      throws PhotoException, BundleException, IOException {
    if (model == null || !key.equals(modelKey)) {
      close();
      model = models.open(choice);
      modelKey = key;
    }
    return model.caption(read(photo, model.facts().imageSize())).captions();
  }

  /** Frees the model's memory. */
  void close() {
    if (model != null) {
      model.close();
      model = null;
    }
  }
}
