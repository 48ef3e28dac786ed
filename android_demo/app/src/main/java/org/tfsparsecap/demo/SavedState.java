package org.tfsparsecap.demo;

import android.net.Uri;
import android.os.Bundle;
import android.os.Parcelable;
import java.util.ArrayList;
import java.util.List;
import org.tfsparsecap.captioner.Caption;

/** Saves the URIs, captions and objects of photos, so that they survive the process. */
final class SavedState {
  private static final String PHOTOS = "photos";
  private static final String SELECTED = "selected";
  private static final String NOTICE = "notice";
  private static final String URI = "uri";
  private static final String FROM_CAMERA = "from_camera";
  private static final String TEXTS = "texts";
  private static final String NUMBERS = "numbers";
  private static final String OBJECTS = "objects";
  private static final String MODEL_KEY = "model_key";

  private SavedState() {}

  /** Saves the state of the main screen. */
  static void save(MainState state, Bundle to) {
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

  /** Restores a saved state; photo ids start from 0. Images are not saved, but read again. */
  @SuppressWarnings("deprecation") // the replacement requires Android 13
  static MainState restore(Bundle from) {
    List<Photo> photos = new ArrayList<>();
    ArrayList<Parcelable> saved = from.getParcelableArrayList(PHOTOS);
    if (saved != null) {
      for (Parcelable photo : saved) {
        photos.add(restore(photos.size(), (Bundle) photo));
      }
    }
    int selected = Math.max(0, Math.min(from.getInt(SELECTED), photos.size() - 1));
    return MainState.EMPTY
        .withPhotos(photos, selected)
        .withNotice(Message.restore(from.getStringArrayList(NOTICE)));
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
    saved.putStringArrayList(OBJECTS, new ArrayList<>(photo.objects()));
    saved.putString(MODEL_KEY, photo.modelKey());
    return saved;
  }

  @SuppressWarnings("deprecation") // the replacement requires Android 13
  private static Photo restore(long id, Bundle saved) {
    List<Caption> captions = new ArrayList<>();
    List<String> texts = saved.getStringArrayList(TEXTS);
    float[] numbers = saved.getFloatArray(NUMBERS);
    for (int i = 0; i < texts.size(); i++) {
      captions.add(new Caption(texts.get(i), numbers[2 * i], numbers[2 * i + 1]));
    }
    Uri uri = saved.getParcelable(URI);
    Photo photo = Photo.pending(id, uri, saved.getBoolean(FROM_CAMERA));
    // Photos without a caption are processed again.
    return captions.isEmpty()
        ? photo
        : photo.captioned(
            captions, saved.getStringArrayList(OBJECTS), null, saved.getString(MODEL_KEY));
  }
}
