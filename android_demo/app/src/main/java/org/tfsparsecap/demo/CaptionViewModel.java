package org.tfsparsecap.demo;

import android.content.SharedPreferences;
import android.graphics.Bitmap;
import android.net.Uri;
import android.os.Bundle;
import android.util.Log;
import java.io.IOException;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.function.UnaryOperator;
import org.tfsparsecap.captioner.BundleException;
import org.tfsparsecap.captioner.Caption;
import org.tfsparsecap.captioner.PhotoException;

/**
 * Reads and captions photos, and says the captions. What comes out of work that was under way is dropped when
 * its photo is gone.
 */
final class CaptionViewModel extends ViewModel<UiState> {
  /** More photos than this would not fit the memory of a small phone. */
  static final int MOST_PHOTOS = 50;

  private static final String TAG = "CaptionViewModel";
  private static final String ALOUD = "aloud";
  private static final String PENDING = "pending_camera_photo";
  // Of PhotoReader: pictures to look at then have at least 896 pixels on the short side.
  private static final int SIDE_TO_SHOW = 448;
  private static final int THUMBNAIL = 192;

  private final ModelStore models;
  private final SharedPreferences settings;
  private final Voice voice;
  private final CameraFiles camera;
  private final PhotoCaptioning captioning;

  private Uri pendingCameraPhoto;
  private long nextId;

  CaptionViewModel(
      Engine engine,
      ModelStore models,
      SharedPreferences settings,
      Voice voice,
      CameraFiles camera) {
    super("captions", UiState.EMPTY.withAloud(settings.getBoolean(ALOUD, false)));
    this.models = models;
    this.settings = settings;
    this.voice = voice;
    this.camera = camera;
    captioning = new PhotoCaptioning(engine, models);
  }

  /** Shows photos in place of those shown before. */
  void show(List<Uri> uris) {
    Sentence notice = null;
    if (uris.size() > MOST_PHOTOS) {
      notice =
          Sentence.of(Problem.TOO_MANY_PHOTOS, "" + MOST_PHOTOS, Integer.toString(uris.size()));
    }
    List<Photo> photos = new ArrayList<>();
    for (Uri uri : uris.subList(0, Math.min(uris.size(), MOST_PHOTOS))) {
      photos.add(Photo.unseen(nextId++, uri, false));
    }
    replace(photos, notice);
  }

  /** Shows another one of the photos large. */
  void select(int index) {
    if (index == state().selectedIndex()) {
      return;
    }
    set(state().withSelected(index));
    if (state().aloud()) {
      speak();
    }
    work();
  }

  /** Tries the selected photo again. */
  void retry() {
    change(state().selected().id(), Photo::fresh);
    work();
  }

  /** Reads captions aloud from now on, or not. Remembered. */
  void setAloud(boolean aloud) {
    if (aloud == state().aloud()) {
      return;
    }
    settings.edit().putBoolean(ALOUD, aloud).apply();
    set(state().withAloud(aloud));
    if (aloud) {
      speak();
    } else {
      voice.stop();
    }
  }

  /** Says the caption of the selected photo. */
  void speak() {
    voice.stop();
    Photo selected = state().selected();
    if (selected != null && !selected.caption().isEmpty()) {
      voice.speak(selected.caption(), this::onVoiceTrouble);
    }
  }

  /** Says no more. */
  void stopSpeaking() {
    voice.stop();
  }

  /** Where the camera app is to put its photo; null where there is no room, which the notice then says. */
  Uri prepareCamera() {
    forgetPendingPhoto();
    try {
      pendingCameraPhoto = camera.create();
    } catch (IOException noRoom) {
      Log.w(TAG, noRoom);
      notice(Problem.CAMERA_NO_ROOM);
    }
    return pendingCameraPhoto;
  }

  /** The camera app is back, or was never there. */
  void cameraAnswered(boolean took) {
    Uri photo = pendingCameraPhoto;
    if (took && photo != null && camera.isFilled(photo)) {
      pendingCameraPhoto = null;
      replace(Collections.singletonList(Photo.unseen(nextId++, photo, true)), null);
      return;
    }
    forgetPendingPhoto();
    if (took) {
      notice(Problem.CAMERA_GAVE_NOTHING);
    }
  }

  /** Captions the photos again if another model is in use than the one that has captioned them. */
  void refreshModel() {
    work();
  }

  /** Writes down what has to outlive the process. */
  void save(Bundle to) {
    SavedState.save(state(), to);
    to.putParcelable(PENDING, pendingCameraPhoto);
  }

  /** Takes back what was written down. */
  @SuppressWarnings("deprecation") // what replaces it is new in Android 13
  void restore(Bundle from) {
    UiState restored = SavedState.restore(from);
    nextId = restored.photos().size();
    pendingCameraPhoto = from.getParcelable(PENDING);
    set(restored.withAloud(state().aloud()));
    work();
  }

  /** Deletes what was left behind by a process that was killed. */
  void sweep() {
    runAside(
        () -> {
          camera.sweep();
          models.sweep();
        });
  }

  /**
   * Lets go of everything.
   *
   * @param forGood whether nobody comes back to these photos: those that the camera took are then deleted.
   */
  void close(boolean forGood) {
    voice.close();
    if (forGood) {
      forgetPendingPhoto();
      deleteCameraPhotos(state().photos());
    }
    close(captioning::close);
  }

  private void replace(List<Photo> photos, Sentence notice) {
    voice.stop();
    deleteCameraPhotos(state().photos());
    set(state().withPhotos(photos, 0).withNotice(notice));
    work();
  }

  private void deleteCameraPhotos(List<Photo> photos) {
    for (Photo photo : photos) {
      if (photo.fromCamera()) {
        camera.delete(photo.uri());
      }
    }
  }

  private void forgetPendingPhoto() {
    if (pendingCameraPhoto != null) {
      camera.delete(pendingCameraPhoto);
      pendingCameraPhoto = null;
    }
  }

  private void onVoiceTrouble(Problem problem) {
    // The switch goes back, because it would promise what cannot be done.
    settings.edit().putBoolean(ALOUD, false).apply();
    set(state().withAloud(false).withNotice(Sentence.of(problem)));
  }

  private void change(long id, UnaryOperator<Photo> change) {
    set(state().change(id, change));
  }

  /** First the photo that is looked at. */
  @Override
  void begin() {
    String key = models.key();
    Photo selected = state().selected();
    if (selected != null && state().picture() == null && selected.readable()) {
      read(selected, key);
      return;
    }
    if (selected != null && !key.equals(selected.triedWith())) {
      caption(selected, key);
      return;
    }
    for (Photo photo : state().photos()) {
      if (photo.thumbnail() == null && photo.readable()) {
        read(photo, key);
        return;
      }
      if (!key.equals(photo.triedWith())) {
        caption(photo, key);
        return;
      }
    }
  }

  private void read(Photo photo, String key) {
    run(
        () -> {
          Bitmap picture = captioning.read(photo, SIDE_TO_SHOW);
          return new Bitmap[] {Pictures.drawable(picture), Pictures.thumbnail(picture, THUMBNAIL)};
        },
        read -> {
          UiState shown = state().isSelected(photo.id()) ? state().withPicture(read[0]) : state();
          set(shown.change(photo.id(), now -> now.withThumbnail(read[1])));
        },
        thrown -> change(photo.id(), now -> unreadable(now, thrown, key)));
  }

  private void caption(Photo photo, String key) {
    ModelChoice choice = models.chosen();
    if (choice == null) {
      Sentence missing = Sentence.of(Problem.MODEL_MISSING);
      change(photo.id(), now -> now.failed(missing, now.readable(), key));
      work();
      return;
    }
    run(
        () -> captioning.caption(photo, choice, key),
        captions -> captioned(photo, captions, key),
        thrown -> notCaptioned(photo, thrown, choice, key));
  }

  private void captioned(Photo photo, List<Caption> captions, String key) {
    boolean silent = captions.isEmpty() || captions.get(0).text().isEmpty();
    change(
        photo.id(),
        now ->
            silent
                ? now.captioned(Collections.emptyList(), Sentence.of(Problem.NO_WORDS), key)
                : now.captioned(captions, null, key));
    if (state().aloud() && isShown() && state().isSelected(photo.id())) {
      speak();
    }
  }

  private void notCaptioned(Photo photo, Throwable thrown, ModelChoice choice, String key) {
    if (thrown instanceof PhotoException) {
      change(photo.id(), now -> unreadable(now, thrown, key));
      return;
    }
    boolean modelFailed =
        thrown instanceof BundleException
            || thrown instanceof IOException
            || thrown instanceof LinkageError;
    if (modelFailed && !key.equals(models.key())) {
      return; // another model is in use by now
    }
    Sentence problem = Sentence.of(thrown);
    // Where TensorFlow Lite itself is missing, no other model runs either.
    if (modelFailed && !problem.says(Problem.NO_RUNTIME) && models.fallBack(choice)) {
      set(state().withNotice(problem.and(Problem.MODEL_FALLBACK)));
    } else {
      Sentence told = state().notice();
      if (modelFailed && told != null && told.says(Problem.MODEL_FALLBACK)) {
        dismissNotice(); // the model that was fallen back to fails, too
      }
      change(photo.id(), now -> now.failed(problem, now.readable(), key));
    }
  }

  /** A photo that has its caption keeps it. */
  private static Photo unreadable(Photo photo, Throwable thrown, String key) {
    Sentence problem = Sentence.of(thrown);
    return photo.failed(
        photo.captions().isEmpty() ? problem : problem.and(Problem.PHOTO_FROM_BEFORE), false, key);
  }
}
