package org.tfsparsecap.demo;

import android.graphics.Bitmap;
import android.net.Uri;
import android.os.Bundle;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import org.tfsparsecap.captioner.Caption;
import org.tfsparsecap.captioner.Captioning;
import org.tfsparsecap.captioner.PhotoException;

/** Compares the models, one after another so that none slows another down, chooses among them, opens others. */
final class ModelsViewModel extends ViewModel<ModelsState> {
  private static final String OPENING = "opening";
  private static final String NOTICE = "notice";
  private static final int SIDE_TO_SHOW = 128;
  private static final int WARM_UPS = 2;
  private static final int RUNS = 9;
  // A slow phone, or a large model, gets fewer runs.
  private static final long LONGEST_NANOSECONDS = 6_000_000_000L;

  private final Engine engine;
  private final ModelStore models;
  private final Uri photo;

  private Uri toOpen;

  /** @param photo that the models are compared on; null for none. */
  ModelsViewModel(Engine engine, ModelStore models, Uri photo) {
    super("models", ModelsState.start(photo != null));
    this.engine = engine;
    this.models = models;
    this.photo = photo;
    refresh();
    work();
  }

  /** Uses a model from now on. */
  void use(ModelChoice choice) {
    models.choose(choice);
    refresh();
  }

  /** Copies a bundle into the app, tries it and uses it. */
  void open(Uri document) {
    toOpen = document;
    set(state().withOpening(true).withNotice(null));
    work();
  }

  /** Asks whether the person's own bundle should really be forgotten. */
  void askToRemove() {
    set(state().withAsking(true));
  }

  /** What the person has answered. */
  void answerToRemove(boolean remove) {
    if (remove) {
      models.removeOwn();
    }
    refresh(state().withAsking(false));
  }

  /** Writes down what has to outlive the process. */
  void save(Bundle to) {
    to.putBoolean(OPENING, state().opening());
    if (state().notice() != null) {
      to.putStringArrayList(NOTICE, state().notice().save());
    }
  }

  /** Takes back what was written down, in a new process. */
  void restore(Bundle from) {
    Sentence notice = Sentence.restore(from.getStringArrayList(NOTICE));
    boolean interrupted = from.getBoolean(OPENING);
    set(
        state().withNotice(
            interrupted
                ? Sentence.of(Problem.MODEL_INTERRUPTED).and(Problem.MODEL_KEPT)
                : notice));
  }

  /** Lets go of everything; a bundle that is being copied is finished first. */
  void close() {
    close(() -> {});
  }

  private void refresh() {
    refresh(state());
  }

  /** Takes over which models there are; what is known of them stays. */
  private void refresh(ModelsState known) {
    List<ModelRow> rows = new ArrayList<>();
    for (ModelChoice choice : models.available()) {
      ModelRow row = known.row(choice);
      rows.add(row == null ? ModelRow.waiting(choice) : row);
    }
    set(known.withRows(rows, models.chosen()));
  }

  @Override
  void begin() {
    if (toOpen != null) {
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
    Uri document = toOpen;
    toOpen = null;
    run(
        () -> {
          models.install(document);
          return null;
        },
        nothing -> {
          ModelRow fresh = ModelRow.waiting(ModelChoice.OWN);
          Sentence opened = Sentence.of(Problem.MODEL_OPENED);
          refresh(state().withRow(fresh).withOpening(toOpen != null).withNotice(opened));
        },
        thrown ->
            set(
                state()
                    .withOpening(toOpen != null)
                    .withNotice(Sentence.of(thrown).and(Problem.MODEL_KEPT))));
  }

  private void readPhoto() {
    run(
        () -> Pictures.thumbnail(engine.read(photo, SIDE_TO_SHOW), 2 * SIDE_TO_SHOW),
        small -> set(state().withPhoto(small)),
        thrown -> set(state().withPhoto(null).withNotice(Sentence.of(thrown))));
  }

  private void measure(ModelRow row) {
    set(state().withRow(row.measuring()));
    Uri measured = state().hasPhoto() ? photo : null;
    run(
        () -> measured(row, measured),
        done -> set(state().withRow(done)),
        thrown -> {
          if (thrown instanceof PhotoException) { // it has gone since it was first read
            set(state().withPhoto(null).withNotice(Sentence.of(thrown)).withRow(row));
          } else {
            set(state().withRow(row.failed(Sentence.of(thrown))));
          }
        });
  }

  /** On the background thread. */
  private ModelRow measured(ModelRow row, Uri measured) throws Exception {
    try (Engine.Model model = models.open(row.choice())) {
      if (measured == null) {
        return row.done(model.facts(), null, Float.NaN);
      }
      Bitmap picture = engine.read(measured, model.facts().imageSize());
      long end = System.nanoTime() + LONGEST_NANOSECONDS;
      Captioning captioning = null;
      for (int i = 0; i < WARM_UPS; i++) {
        captioning = model.caption(picture);
      }
      float[] times = new float[RUNS];
      int runs = 0;
      while (runs == 0 || (runs < RUNS && System.nanoTime() < end)) {
        times[runs++] = model.caption(picture).runMilliseconds();
      }
      List<Caption> captions = captioning.captions();
      return row.done(
          model.facts(), captions.isEmpty() ? null : captions.get(0), median(times, runs));
    }
  }

  private static float median(float[] values, int count) {
    float[] sorted = Arrays.copyOf(values, count);
    Arrays.sort(sorted);
    return (sorted[(count - 1) / 2] + sorted[count / 2]) / 2;
  }
}
