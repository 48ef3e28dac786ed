package org.tfsparsecap.demo;

import android.graphics.Bitmap;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;

/** State of the models screen. Immutable. */
final class ModelsState implements ViewModel.State<ModelsState> {
  private final List<ModelRow> rows;
  private final ModelChoice chosen;
  private final boolean hasPhoto;
  private final Bitmap photo;
  private final boolean opening;
  private final boolean confirmingRemoval;
  private final Message notice;

  private ModelsState(
      List<ModelRow> rows,
      ModelChoice chosen,
      boolean hasPhoto,
      Bitmap photo,
      boolean opening,
      boolean confirmingRemoval,
      Message notice) {
    this.rows = Collections.unmodifiableList(new ArrayList<>(rows));
    this.chosen = chosen;
    this.hasPhoto = hasPhoto;
    this.photo = photo;
    this.opening = opening;
    this.confirmingRemoval = confirmingRemoval;
    this.notice = notice;
  }

  /** The initial state. */
  static ModelsState start(boolean hasPhoto) {
    return new ModelsState(Collections.emptyList(), null, hasPhoto, null, false, false, null);
  }

  ModelsState withRows(List<ModelRow> rows, ModelChoice chosen) {
    return new ModelsState(rows, chosen, hasPhoto, photo, opening, confirmingRemoval, notice);
  }

  /** Sets the thumbnail of the photo; null if it cannot be read. */
  ModelsState withPhoto(Bitmap photo) {
    return new ModelsState(rows, chosen, photo != null, photo, opening, confirmingRemoval, notice);
  }

  ModelsState withOpening(boolean opening) {
    return new ModelsState(rows, chosen, hasPhoto, photo, opening, confirmingRemoval, notice);
  }

  ModelsState withConfirmingRemoval(boolean confirmingRemoval) {
    return new ModelsState(rows, chosen, hasPhoto, photo, opening, confirmingRemoval, notice);
  }

  @Override
  public ModelsState withNotice(Message notice) {
    return new ModelsState(rows, chosen, hasPhoto, photo, opening, confirmingRemoval, notice);
  }

  /** Replaces the row of the same model. */
  ModelsState withRow(ModelRow row) {
    List<ModelRow> changed = new ArrayList<>();
    for (ModelRow each : rows) {
      changed.add(each.choice() == row.choice() ? row : each);
    }
    return withRows(changed, chosen);
  }

  /** One row per model. */
  List<ModelRow> rows() {
    return rows;
  }

  /** The row of a model; null if there is none. */
  ModelRow row(ModelChoice choice) {
    for (ModelRow each : rows) {
      if (each.choice() == choice) {
        return each;
      }
    }
    return null;
  }

  /** The model in use; null if there is none. */
  ModelChoice chosen() {
    return chosen;
  }

  /** Whether there is a photo on which the models are compared. */
  boolean hasPhoto() {
    return hasPhoto;
  }

  /** Thumbnail of the photo; null until it is read. */
  Bitmap photo() {
    return photo;
  }

  /** Whether a bundle is being copied and checked. */
  boolean opening() {
    return opening;
  }

  /** Whether the user is asked to confirm that their bundle is removed. */
  boolean confirmingRemoval() {
    return confirmingRemoval;
  }

  /** The current notice; null for none. */
  Message notice() {
    return notice;
  }
}
