package org.tfsparsecap.demo;

import android.net.Uri;
import android.os.Bundle;
import android.os.Parcelable;
import java.util.ArrayList;
import java.util.List;
import org.tfsparsecap.captioner.Caption;

/** Photos (their addresses only) and captions, in a form that outlives the process. */
final class SavedState {
  private static final String PHOTOS = "photos";
  private static final String SELECTED = "selected";
  private static final String NOTICE = "notice";
  private static final String URI = "uri";
  private static final String FROM_CAMERA = "from_camera";
  private static final String TEXTS = "texts";
  private static final String NUMBERS = "numbers";
  private static final String TRIED_WITH = "tried_with";

  private SavedState() {}

  /** Writes what the screen shows. */
  static void save(UiState state, Bundle to) {
    ArrayList<Bundle> photos = new ArrayList<>();
    for (Photo photo : state.photos()) {
      photos.add(save(photo));
    }
    to.putParcelableArrayList(PHOTOS, photos);
    to.putInt(SELECTED, state.selectedIndex());
    if (state.notice() != null) {
      to.putStringArrayList(NOTICE, state.notice().save());
    }
  }

  /** What was saved; photos get ids from 0. Pictures are not saved: they are read again. */
  @SuppressWarnings("deprecation") // what replaces it is new in Android 13
  static UiState restore(Bundle from) {
    List<Photo> photos = new ArrayList<>();
    ArrayList<Parcelable> saved = from.getParcelableArrayList(PHOTOS);
    if (saved != null) {
      for (Parcelable photo : saved) {
        photos.add(restore(photos.size(), (Bundle) photo));
      }
    }
    int selected = Math.max(0, Math.min(from.getInt(SELECTED), photos.size() - 1));
    return UiState.EMPTY
        .withPhotos(photos, selected)
        .withNotice(Sentence.restore(from.getStringArrayList(NOTICE)));
  }

  private static Bundle save(Photo photo) {
    Bundle saved = new Bundle();
    ArrayList<String> texts = new ArrayList<>();
    float[] numbers = new float[2 * photo.captions().size()];
    for (Caption caption : photo.captions()) {
      numbers[2 * texts.size()] = caption.logProbability();
      numbers[2 * texts.size() + 1] = caption.confidence();
      texts.add(caption.text());
    }
    saved.putParcelable(URI, photo.uri());
    saved.putBoolean(FROM_CAMERA, photo.fromCamera());
    saved.putStringArrayList(TEXTS, texts);
    saved.putFloatArray(NUMBERS, numbers);
    saved.putString(TRIED_WITH, photo.triedWith());
    return saved;
  }

  @SuppressWarnings("deprecation") // what replaces it is new in Android 13
  private static Photo restore(long id, Bundle saved) {
    List<Caption> captions = new ArrayList<>();
    List<String> texts = saved.getStringArrayList(TEXTS);
    float[] numbers = saved.getFloatArray(NUMBERS);
    for (int i = 0; i < texts.size(); i++) {
      captions.add(new Caption(texts.get(i), numbers[2 * i], numbers[2 * i + 1]));
    }
    Uri uri = saved.getParcelable(URI);
    Photo photo = Photo.unseen(id, uri, saved.getBoolean(FROM_CAMERA));
    // What had failed is tried again; what was captioned is not.
    return captions.isEmpty()
        ? photo
        : photo.captioned(captions, null, saved.getString(TRIED_WITH));
  }
}
