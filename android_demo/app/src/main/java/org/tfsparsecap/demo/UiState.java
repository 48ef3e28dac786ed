package org.tfsparsecap.demo;

import android.graphics.Bitmap;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.function.UnaryOperator;

/** All that the first screen shows. Immutable. */
final class UiState implements ViewModel.State<UiState> {
  /** Before anything was chosen. */
  static final UiState EMPTY = new UiState(Collections.emptyList(), 0, null, null, false);

  private final List<Photo> photos;
  private final int selected;
  private final Bitmap picture;
  private final Sentence notice;
  private final boolean aloud;

  private UiState(
      List<Photo> photos, int selected, Bitmap picture, Sentence notice, boolean aloud) {
    this.photos = Collections.unmodifiableList(new ArrayList<>(photos));
    this.selected = selected;
    this.picture = picture;
    this.notice = notice;
    this.aloud = aloud;
  }

  /** With other photos, of which one is shown large. */
  UiState withPhotos(List<Photo> photos, int selected) {
    return new UiState(photos, selected, null, notice, aloud);
  }

  /** With another of the photos shown large. */
  UiState withSelected(int selected) {
    return new UiState(photos, selected, null, notice, aloud);
  }

  /** With the photo that is shown large. */
  UiState withPicture(Bitmap picture) {
    return new UiState(photos, selected, picture, notice, aloud);
  }

  /** With a sentence that is not about one photo; null for none. */
  @Override
  public UiState withNotice(Sentence notice) {
    return new UiState(photos, selected, picture, notice, aloud);
  }

  /** With captions read aloud, or not. */
  UiState withAloud(boolean aloud) {
    return new UiState(photos, selected, picture, notice, aloud);
  }

  /** With a change to one photo, if it is still there. */
  UiState change(long id, UnaryOperator<Photo> change) {
    List<Photo> changed = new ArrayList<>();
    for (Photo photo : photos) {
      changed.add(photo.id() == id ? change.apply(photo) : photo);
    }
    return new UiState(changed, selected, picture, notice, aloud);
  }

  /** In the order in which they were given. */
  List<Photo> photos() {
    return photos;
  }

  /** Index of the photo that is shown large. */
  int selectedIndex() {
    return selected;
  }

  /** The photo that is shown large; null where there is none. */
  Photo selected() {
    return photos.isEmpty() ? null : photos.get(selected);
  }

  /** Whether a photo is the one that is shown large. */
  boolean isSelected(long id) {
    return selected() != null && selected().id() == id;
  }

  /** The selected photo, or null until it is read. */
  Bitmap picture() {
    return picture;
  }

  /** What has to be said apart from the photos; null for nothing. */
  Sentence notice() {
    return notice;
  }

  /** Whether captions are read aloud. */
  boolean aloud() {
    return aloud;
  }
}
