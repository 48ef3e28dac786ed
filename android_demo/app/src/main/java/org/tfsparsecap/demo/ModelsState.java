package org.tfsparsecap.demo;

import android.graphics.Bitmap;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;

/** All that the screen of the models shows. Immutable. */
final class ModelsState implements ViewModel.State<ModelsState> {
  private final List<ModelRow> rows;
  private final ModelChoice chosen;
  private final boolean hasPhoto;
  private final Bitmap photo;
  private final boolean opening;
  private final boolean asking;
  private final Sentence notice;

  private ModelsState(
      List<ModelRow> rows,
      ModelChoice chosen,
      boolean hasPhoto,
      Bitmap photo,
      boolean opening,
      boolean asking,
      Sentence notice) {
    this.rows = Collections.unmodifiableList(new ArrayList<>(rows));
    this.chosen = chosen;
    this.hasPhoto = hasPhoto;
    this.photo = photo;
    this.opening = opening;
    this.asking = asking;
    this.notice = notice;
  }

  /** Before anything is known. */
  static ModelsState start(boolean hasPhoto) {
    return new ModelsState(Collections.emptyList(), null, hasPhoto, null, false, false, null);
  }

  ModelsState withRows(List<ModelRow> rows, ModelChoice chosen) {
    return new ModelsState(rows, chosen, hasPhoto, photo, opening, asking, notice);
  }

  /** With a small picture of the photo; null where it cannot be read. */
  ModelsState withPhoto(Bitmap photo) {
    return new ModelsState(rows, chosen, photo != null, photo, opening, asking, notice);
  }

  ModelsState withOpening(boolean opening) {
    return new ModelsState(rows, chosen, hasPhoto, photo, opening, asking, notice);
  }

  ModelsState withAsking(boolean asking) {
    return new ModelsState(rows, chosen, hasPhoto, photo, opening, asking, notice);
  }

  @Override
  public ModelsState withNotice(Sentence notice) {
    return new ModelsState(rows, chosen, hasPhoto, photo, opening, asking, notice);
  }

  /** In place of the row of the same model. */
  ModelsState withRow(ModelRow row) {
    List<ModelRow> changed = new ArrayList<>();
    for (ModelRow each : rows) {
      changed.add(each.choice() == row.choice() ? row : each);
    }
    return withRows(changed, chosen);
  }

  /** A model each. */
  List<ModelRow> rows() {
    return rows;
  }

  /** The row of a model; null where there is no such model. */
  ModelRow row(ModelChoice choice) {
    for (ModelRow each : rows) {
      if (each.choice() == choice) {
        return each;
      }
    }
    return null;
  }

  /** The model in use; null where there is none. */
  ModelChoice chosen() {
    return chosen;
  }

  /** Whether there is a photo to compare the models on. */
  boolean hasPhoto() {
    return hasPhoto;
  }

  /** The photo, small; null until it is read. */
  Bitmap photo() {
    return photo;
  }

  /** Whether a bundle is being copied and tried. */
  boolean opening() {
    return opening;
  }

  /** Whether the person is asked if their own bundle should really go. */
  boolean asking() {
    return asking;
  }

  /** What has to be said; null for nothing. */
  Sentence notice() {
    return notice;
  }
}
