package org.tfsparsecap.demo;

import android.graphics.Bitmap;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.function.UnaryOperator;

/** State of the main screen. Immutable. */
final class MainState implements ViewModel.State<MainState> {
  /** The state before photos are chosen. */
  static final MainState EMPTY = new MainState(Collections.emptyList(), 0, null, null, false);

  private final List<Photo> photos;
  private final int selected;
  private final Bitmap image;
  private final Message notice;
  private final boolean readAloud;

  private MainState(
      List<Photo> photos, int selected, Bitmap image, Message notice, boolean readAloud) {
    this.photos = Collections.unmodifiableList(new ArrayList<>(photos));
    this.selected = selected;
    this.image = image;
    this.notice = notice;
    this.readAloud = readAloud;
  }

  /** Replaces the photos and selects one. */
  MainState withPhotos(List<Photo> photos, int selected) {
    return new MainState(photos, selected, null, notice, readAloud);
  }

  /** Selects another photo. */
  MainState withSelected(int selected) {
    return new MainState(photos, selected, null, notice, readAloud);
  }

  /** Sets the image of the selected photo. */
  MainState withImage(Bitmap image) {
    return new MainState(photos, selected, image, notice, readAloud);
  }

  /** Sets the notice; null for none. */
  @Override
  public MainState withNotice(Message notice) {
    return new MainState(photos, selected, image, notice, readAloud);
  }

  /** Sets whether captions are read aloud. */
  MainState withReadAloud(boolean readAloud) {
    return new MainState(photos, selected, image, notice, readAloud);
  }

  /** Changes one photo, if it still exists. */
  MainState change(long id, UnaryOperator<Photo> change) {
    List<Photo> changed = new ArrayList<>();
    for (Photo photo : photos) {
      changed.add(photo.id() == id ? change.apply(photo) : photo);
    }
    return new MainState(changed, selected, image, notice, readAloud);
  }

  /** The photos in the order in which they were chosen. */
  List<Photo> photos() {
    return photos;
  }

  /** Index of the selected photo. */
  int selectedIndex() {
    return selected;
  }

  /** The selected photo, which is shown large; null if there is none. */
  Photo selected() {
    return photos.isEmpty() ? null : photos.get(selected);
  }

  /** Whether this photo is selected. */
  boolean isSelected(long id) {
    return selected() != null && selected().id() == id;
  }

  /** The image of the selected photo; null until it is read. */
  Bitmap image() {
    return image;
  }

  /** A message that does not concern a single photo; null for none. */
  Message notice() {
    return notice;
  }

  /** Whether captions are read aloud. */
  boolean readAloud() {
    return readAloud;
  }
}
