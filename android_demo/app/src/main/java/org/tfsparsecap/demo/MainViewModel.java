package org.tfsparsecap.demo;

import android.content.Context;
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
import org.tfsparsecap.captioner.CaptioningResult;
import org.tfsparsecap.captioner.PhotoException;

/**
 * Reads and captions photos, and reads captions aloud. Results for photos that are no longer shown
 * are discarded.
 */
final class MainViewModel extends ViewModel<MainState> {
  /** Limited by the memory of a small phone. */
  static final int MAX_PHOTOS = 50;

  private static final String TAG = "MainViewModel";
  private static final String READ_ALOUD = "read_aloud";
  private static final String PENDING_PHOTO = "pending_camera_photo";
  // Passed to PhotoReader: displayed images have at least 896 pixels on the shorter side.
  private static final int DISPLAY_SIDE = 448;
  private static final int THUMBNAIL_SIDE = 192;

  private final Context context;
  private final ModelStore models;
  private final SharedPreferences settings;
  private final Speaker speaker;
  private final CameraFiles camera;
  private final PhotoCaptioner photoCaptioner;

  private Uri pendingCameraPhoto;
  private long nextId;

  MainViewModel(
      Context context,
      Engine engine,
      ModelStore models,
      SharedPreferences settings,
      Speaker speaker,
      CameraFiles camera) {
    super("captions", MainState.EMPTY.withReadAloud(settings.getBoolean(READ_ALOUD, false)));
    this.context = context;
    this.models = models;
    this.settings = settings;
    this.speaker = speaker;
    this.camera = camera;
    photoCaptioner = new PhotoCaptioner(engine, models);
  }

  /** Replaces the photos that are shown. */
  void show(List<Uri> uris) {
    Message notice = null;
    if (uris.size() > MAX_PHOTOS) {
      notice =
          Message.of(Problem.TOO_MANY_PHOTOS, "" + MAX_PHOTOS, Integer.toString(uris.size()));
    }
    List<Photo> photos = new ArrayList<>();
    for (Uri uri : uris.subList(0, Math.min(uris.size(), MAX_PHOTOS))) {
      photos.add(Photo.pending(nextId++, uri, false));
    }
    replace(photos, notice);
  }

  /** Selects another photo. */
  void select(int index) {
    if (index == state().selectedIndex()) {
      return;
    }
    set(state().withSelected(index));
    if (state().readAloud()) {
      speak();
    }
    startNextIfIdle();
  }

  /** Processes the selected photo again. */
  void retry() {
    change(state().selected().id(), Photo::reset);
    startNextIfIdle();
  }

  /** Turns reading aloud on or off, persistently. */
  void setReadAloud(boolean readAloud) {
    if (readAloud == state().readAloud()) {
      return;
    }
    settings.edit().putBoolean(READ_ALOUD, readAloud).apply();
    set(state().withReadAloud(readAloud));
    if (readAloud) {
      speak();
    } else {
      speaker.stop();
    }
  }

  /** Reads the caption or the likely objects of the selected photo aloud. */
  void speak() {
    speaker.stop();
    Photo selected = state().selected();
    if (selected != null && !selected.caption().isEmpty()) {
      speaker.speak(CaptionFormat.spoken(context, selected), this::onSpeechProblem);
    }
  }

  /** Stops reading aloud. */
  void stopSpeaking() {
    speaker.stop();
  }

  /**
   * Creates a file for the camera app; returns null and shows a notice if there is not enough
   * storage.
   */
  Uri prepareCamera() {
    deletePendingPhoto();
    try {
      pendingCameraPhoto = camera.create();
    } catch (IOException insufficientStorage) {
      Log.w(TAG, insufficientStorage);
      notice(Problem.CAMERA_NO_STORAGE);
    }
    return pendingCameraPhoto;
  }

  /** Called when the camera app returns, or could not be started. */
  void onCameraResult(boolean successful) {
    Uri photo = pendingCameraPhoto;
    if (successful && photo != null && camera.hasContent(photo)) {
      pendingCameraPhoto = null;
      replace(Collections.singletonList(Photo.pending(nextId++, photo, true)), null);
      return;
    }
    deletePendingPhoto();
    if (successful) {
      notice(Problem.CAMERA_NO_PHOTO);
    }
  }

  /** Captions the photos again if another model is in use now. */
  void refreshModel() {
    startNextIfIdle();
  }

  @Override
  void save(Bundle to) {
    SavedState.save(state(), to);
    to.putParcelable(PENDING_PHOTO, pendingCameraPhoto);
  }

  @Override
  @SuppressWarnings("deprecation") // the replacement requires Android 13
  void restore(Bundle from) {
    MainState restored = SavedState.restore(from);
    nextId = restored.photos().size();
    pendingCameraPhoto = from.getParcelable(PENDING_PHOTO);
    set(restored.withReadAloud(state().readAloud()));
    startNextIfIdle();
  }

  /** Deletes files left by a process that was killed. */
  void deleteLeftovers() {
    runInBackground(
        () -> {
          camera.deleteLeftovers();
          models.deleteLeftovers();
        });
  }

  @Override
  void close(boolean finishing) {
    speaker.close();
    if (finishing) {
      deletePendingPhoto();
      deleteCameraPhotos(state().photos());
    }
    shutDown(photoCaptioner::close);
  }

  private void replace(List<Photo> photos, Message notice) {
    speaker.stop();
    deleteCameraPhotos(state().photos());
    set(state().withPhotos(photos, 0).withNotice(notice));
    startNextIfIdle();
  }

  private void deleteCameraPhotos(List<Photo> photos) {
    for (Photo photo : photos) {
      if (photo.fromCamera()) {
        camera.delete(photo.uri());
      }
    }
  }

  private void deletePendingPhoto() {
    if (pendingCameraPhoto != null) {
      camera.delete(pendingCameraPhoto);
      pendingCameraPhoto = null;
    }
  }

  private void onSpeechProblem(Problem problem) {
    // Turned off, because speech does not work.
    settings.edit().putBoolean(READ_ALOUD, false).apply();
    set(state().withReadAloud(false).withNotice(Message.of(problem)));
  }

  private void change(long id, UnaryOperator<Photo> change) {
    set(state().change(id, change));
  }

  /** Starts with the selected photo. */
  @Override
  void startNext() {
    String key = models.key();
    Photo selected = state().selected();
    if (selected != null && state().image() == null && selected.readable()) {
      read(selected, key);
      return;
    }
    if (selected != null && !key.equals(selected.modelKey())) {
      caption(selected, key);
      return;
    }
    for (Photo photo : state().photos()) {
      if (photo.thumbnail() == null && photo.readable()) {
        read(photo, key);
        return;
      }
      if (!key.equals(photo.modelKey())) {
        caption(photo, key);
        return;
      }
    }
  }

  private void read(Photo photo, String key) {
    run(
        () -> {
          Bitmap image = photoCaptioner.read(photo, DISPLAY_SIDE);
          return new Bitmap[] {Bitmaps.drawable(image), Bitmaps.thumbnail(image, THUMBNAIL_SIDE)};
        },
        read -> {
          MainState shown = state().isSelected(photo.id()) ? state().withImage(read[0]) : state();
          set(shown.change(photo.id(), now -> now.withThumbnail(read[1])));
        },
        thrown -> change(photo.id(), now -> unreadable(now, thrown, key)));
  }

  private void caption(Photo photo, String key) {
    ModelChoice choice = models.chosen();
    if (choice == null) {
      Message missing = Message.of(Problem.MODEL_MISSING);
      change(photo.id(), now -> now.failed(missing, now.readable(), key));
      startNextIfIdle();
      return;
    }
    run(
        () -> photoCaptioner.caption(photo, choice, key),
        captioning -> captioned(photo, captioning, key),
        thrown -> notCaptioned(photo, thrown, choice, key));
  }

  private void captioned(Photo photo, CaptioningResult captioning, String key) {
    List<Caption> captions = captioning.captions();
    boolean noCaptions = captions.isEmpty() || captions.get(0).text().isEmpty();
    change(
        photo.id(),
        now ->
            noCaptions
                ? now.captioned(
                    Collections.emptyList(), Collections.emptyList(), Message.of(Problem.NO_CAPTION), key)
                : now.captioned(captions, captioning.objects(), null, key));
    if (state().readAloud() && isShown() && state().isSelected(photo.id())) {
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
      return; // another model is in use now
    }
    Message problem = Message.of(thrown);
    // If TensorFlow Lite itself does not run, no other model does either.
    if (modelFailed && !problem.contains(Problem.NO_RUNTIME) && models.fallBack(choice)) {
      set(state().withNotice(problem.and(Problem.MODEL_FALLBACK)));
    } else {
      Message shownNotice = state().notice();
      if (modelFailed && shownNotice != null && shownNotice.contains(Problem.MODEL_FALLBACK)) {
        dismissNotice(); // the fallback model fails as well
      }
      change(photo.id(), now -> now.failed(problem, now.readable(), key));
    }
  }

  /** If the photo has a caption, it is kept. */
  private static Photo unreadable(Photo photo, Throwable thrown, String key) {
    Message problem = Message.of(thrown);
    return photo.failed(
        photo.captions().isEmpty() ? problem : problem.and(Problem.EARLIER_CAPTION), false, key);
  }
}
