package org.tfsparsecap.demo;

import android.graphics.Bitmap;
import android.net.Uri;
import android.os.Bundle;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import org.tfsparsecap.captioner.Caption;
import org.tfsparsecap.captioner.CaptioningResult;
import org.tfsparsecap.captioner.PhotoException;

/**
 * Compares the models one after another, so that they do not slow each other down; chooses, opens
 * and removes models.
 */
final class ModelsViewModel extends ViewModel<ModelsState> {
  private static final String OPENING = "opening";
  private static final String NOTICE = "notice";
  private static final int DISPLAY_SIDE = 128;
  private static final int WARM_UPS = 2;
  private static final int RUNS = 9;
  // Slow phones and large models get fewer runs.
  private static final long MAX_NANOSECONDS = 6_000_000_000L;

  private final Engine engine;
  private final ModelStore models;
  private final Uri photo;

  private Uri pendingDocument;

  /** @param photo the photo on which the models are compared; null for none. */
  ModelsViewModel(Engine engine, ModelStore models, Uri photo) {
    super("models", ModelsState.start(photo != null));
    this.engine = engine;
    this.models = models;
    this.photo = photo;
    refresh();
    startNextIfIdle();
  }

  /** Uses a model from now on. */
  void use(ModelChoice choice) {
    models.choose(choice);
    refresh();
  }

  /** Copies a bundle into the app, checks it, and uses it. */
  void open(Uri document) {
    pendingDocument = document;
    set(state().withOpening(true).withNotice(null));
    startNextIfIdle();
  }

  /** Asks the user to confirm that their bundle is removed. */
  void askToRemove() {
    set(state().withConfirmingRemoval(true));
  }

  /** Called with the user's answer. */
  void onRemovalAnswer(boolean remove) {
    if (remove) {
      models.removeUserModel();
    }
    refresh(state().withConfirmingRemoval(false));
  }

  @Override
  void save(Bundle to) {
    to.putBoolean(OPENING, state().opening());
    if (state().notice() != null) {
      to.putStringArrayList(NOTICE, state().notice().save());
    }
  }

  @Override
  void restore(Bundle from) {
    Message notice = Message.restore(from.getStringArrayList(NOTICE));
    boolean interrupted = from.getBoolean(OPENING);
    set(
        state().withNotice(
            interrupted
                ? Message.of(Problem.MODEL_INTERRUPTED).and(Problem.MODEL_KEPT)
                : notice));
  }

  @Override
  void close(boolean finishing) {
    shutDown(() -> {});
  }

  private void refresh() {
    refresh(state());
  }

  /** Updates the list of models; measurements are kept. */
  private void refresh(ModelsState known) {
    List<ModelRow> rows = new ArrayList<>();
    for (ModelChoice choice : models.available()) {
      ModelRow row = known.row(choice);
      rows.add(row == null ? ModelRow.waiting(choice) : row);
    }
    set(known.withRows(rows, models.chosen()));
  }

  @Override
  void startNext() {
    if (pendingDocument != null) {
      install();
      return;
    }
    if (state().hasPhoto() && state().photo() == null) {
      readPhoto();
      return;
    }
    for (ModelRow row : state().rows()) {
      if (row.stage() == ModelRow.Stage.WAITING) {
        measure(row);
        return;
      }
    }
  }

  private void install() {
    Uri document = pendingDocument;
    pendingDocument = null;
    run(
        () -> {
          models.install(document);
          return null;
        },
        nothing -> {
          ModelRow reset = ModelRow.waiting(ModelChoice.USER);
          Message opened = Message.of(Problem.MODEL_OPENED);
          refresh(state().withRow(reset).withOpening(pendingDocument != null).withNotice(opened));
        },
        thrown ->
            set(
                state()
                    .withOpening(pendingDocument != null)
                    .withNotice(Message.of(thrown).and(Problem.MODEL_KEPT))));
  }

  private void readPhoto() {
    run(
        () -> Bitmaps.thumbnail(engine.read(photo, DISPLAY_SIDE), 2 * DISPLAY_SIDE),
        small -> set(state().withPhoto(small)),
        thrown -> set(state().withPhoto(null).withNotice(Message.of(thrown))));
  }

  private void measure(ModelRow row) {
    set(state().withRow(row.measuring()));
    Uri measured = state().hasPhoto() ? photo : null;
    run(
        () -> measured(row, measured),
        done -> set(state().withRow(done)),
        thrown -> {
          if (thrown instanceof PhotoException) { // deleted since it was first read
            set(state().withPhoto(null).withNotice(Message.of(thrown)).withRow(row));
          } else {
            set(state().withRow(row.failed(Message.of(thrown))));
          }
        });
  }

  /** Runs on the background thread. */
  private ModelRow measured(ModelRow row, Uri measured) throws Exception {
    try (Engine.Model model = models.open(row.choice())) {
      if (measured == null) {
        return row.done(model.info(), null, Collections.emptyList(), Float.NaN);
      }
      Bitmap image = engine.read(measured, model.info().imageSize());
      long end = System.nanoTime() + MAX_NANOSECONDS;
      CaptioningResult captioning = null;
      for (int i = 0; i < WARM_UPS; i++) {
        captioning = model.caption(image);
      }
      float[] times = new float[RUNS];
      int runs = 0;
      while (runs == 0 || (runs < RUNS && System.nanoTime() < end)) {
        times[runs++] = model.caption(image).runMilliseconds();
      }
      List<Caption> captions = captioning.captions();
      return row.done(
          model.info(),
          captions.isEmpty() ? null : captions.get(0),
          captioning.objects(),
          median(times, runs));
    }
  }

  private static float median(float[] values, int count) {
    float[] sorted = Arrays.copyOf(values, count);
    Arrays.sort(sorted);
    return (sorted[(count - 1) / 2] + sorted[count / 2]) / 2;
  }
}
