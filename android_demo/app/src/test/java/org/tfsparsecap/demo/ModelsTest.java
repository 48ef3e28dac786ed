package org.tfsparsecap.demo;

import static org.junit.Assert.assertEquals;
import static org.junit.Assert.assertFalse;
import static org.junit.Assert.assertNull;
import static org.junit.Assert.assertTrue;
import static org.robolectric.Shadows.shadowOf;

import android.content.Intent;
import android.view.View;
import android.widget.LinearLayout;
import android.widget.TextView;
import java.io.File;
import java.util.EnumSet;
import java.util.Locale;
import org.junit.Test;
import org.robolectric.RuntimeEnvironment;
import org.robolectric.android.controller.ActivityController;

/** The comparison of models. */
public final class ModelsTest extends ScreenTest {
  @Test
  public void menuOpensTheScreenWithThePhoto() {
    MainActivity main = openWith(SamplePhotos.HEART_STAR).get();
    shadowOf(main).clickMenuItem(R.id.menu_models);
    Intent next = shadowOf(main).getNextStartedActivity();
    assertEquals(ModelsActivity.class.getName(), next.getComponent().getClassName());
    assertEquals(viewModel(main).state().selected().uri(), next.getData());
  }

  @Test
  public void showsSizeLatencyAndCaptionOfBothModels() {
    ModelsActivity screen = openModels(album.photo(SamplePhotos.HEART_CROSS)).get();
    LinearLayout cards = screen.findViewById(R.id.cards);
    assertEquals(2, cards.getChildCount());
    assertEquals("side by side", LinearLayout.HORIZONTAL, cards.getOrientation());
    View sparse = cards.getChildAt(0);
    View dense = cards.getChildAt(1);
    assertEquals(screen.getString(R.string.model_sparse), text(sparse, R.id.model_title));
    assertEquals(screen.getString(R.string.model_dense), text(dense, R.id.model_title));
    assertEquals("331 kB", text(sparse, R.id.model_size)); // 330 570 bytes
    assertEquals("840 kB", text(dense, R.id.model_size));
    assertEquals("80% of its weights are zero and not stored", text(sparse, R.id.model_sparsity));
    assertEquals("All of its weights are stored", text(dense, R.id.model_sparsity));
    assertTrue(text(sparse, R.id.model_time).matches("[0-9.]+ ms on this phone"));
    assertTrue(text(dense, R.id.model_time).matches("[0-9.]+ ms on this phone"));
    assertEquals(
        SamplePhotos.captions(SamplePhotos.HEART_CROSS, "sparse").get(0), lower(sparse, R.id.model_caption));
    assertEquals(
        SamplePhotos.captions(SamplePhotos.HEART_CROSS, "dense").get(0), lower(dense, R.id.model_caption));
    assertTrue(
        text(screen, R.id.summary),
        text(screen, R.id.summary)
            .matches("On this phone the sparse model is [0-9.]+ times as fast .* 2.5 times as large\\."));
  }

  @Test
  public void showsThatTheDenseModelStoresZeros() {
    app.engine.builtIn.put(ModelChoice.DENSE, new File("target/assets/dense.tflite"));
    ModelsActivity screen = openModels(null).get();
    String zeros = text(card(screen, 1), R.id.model_sparsity);
    assertEquals("95% of its weights are zero, but stored and computed", zeros);
  }

  @Test
  public void denseBuiltInModelIsNotCalledSparse() {
    app.builtIn = EnumSet.of(ModelChoice.SPARSE);
    app.engine.builtIn.put(ModelChoice.SPARSE, SamplePhotos.model("shapes_dense"));
    ModelsActivity screen = openModels(null).get();
    assertEquals("Built-in model", text(card(screen, 0), R.id.model_title));
  }

  @Test
  public void smallBuiltInModelComesSecond() {
    app.builtIn = EnumSet.allOf(ModelChoice.class);
    app.builtIn.remove(ModelChoice.USER);
    app.engine.builtIn.put(ModelChoice.SMALL, SamplePhotos.model("shapes_sparse"));
    ModelsActivity screen = openModels(null).get();
    assertEquals(3, children(screen, R.id.cards).size());
    assertEquals("Small model", text(card(screen, 1), R.id.model_title));
  }

  @Test
  public void measuresSeveralRunsAfterAWarmUp() {
    openModels(album.photo(SamplePhotos.TRIANGLE));
    assertEquals("two models, two warm-up runs and nine measured ones", 22, app.engine.captioned.size());
    assertEquals("not closed", app.engine.opened, app.engine.closed);
  }

  @Test
  public void modelsAreStackedWithLargeFonts() {
    RuntimeEnvironment.setFontScale(1.7f);
    ModelsActivity screen = openModels(album.photo(SamplePhotos.TRIANGLE)).get();
    LinearLayout cards = screen.findViewById(R.id.cards);
    assertEquals(LinearLayout.VERTICAL, cards.getOrientation());
  }

  @Test
  public void choosingAModelCaptionsThePhotosAgain() {
    ActivityController<MainActivity> main = openWith(SamplePhotos.HEART_CROSS);
    main.pause().stop();
    ModelsActivity screen =
        openModels(viewModel(main.get()).state().selected().uri()).get();
    View dense = card(screen, 1);
    assertTrue(isShown(card(screen, 0), R.id.model_in_use));
    assertFalse(isShown(card(screen, 0), R.id.model_use));
    dense.findViewById(R.id.model_use).performClick();
    assertTrue(isShown(dense, R.id.model_in_use));
    assertTrue(isShown(card(screen, 0), R.id.model_use));
    main.restart().start().resume();
    String dense1 = SamplePhotos.captions(SamplePhotos.HEART_CROSS, "dense").get(0);
    await(
        () -> viewModel(main.get()).state().selected().caption().equals(dense1),
        "the dense model's caption");
    assertEquals("not saved", "DENSE", app.settings().getString("model", ""));
  }

  @Test
  public void oneModelAloneIsMeasured() {
    app.builtIn = EnumSet.of(ModelChoice.SPARSE);
    ModelsActivity screen = openModels(album.photo(SamplePhotos.TRIANGLE)).get();
    assertEquals(screen.getString(R.string.summary_one_model), text(screen, R.id.summary));
    assertTrue(text(card(screen, 0), R.id.model_time).contains("ms on this phone"));
  }

  @Test
  public void asksForAPhotoAndMeasuresNothingWithoutOne() {
    ModelsActivity screen = openModels(null).get();
    assertEquals(screen.getString(R.string.summary_choose_photo), text(screen, R.id.summary));
    assertEquals("", text(card(screen, 0), R.id.model_time));
    assertTrue(text(card(screen, 0), R.id.model_size).endsWith("kB"));
    assertEquals(0, app.engine.captioned.size());
  }

  @Test
  public void reportsMissingPhotoAndShowsTheModels() {
    android.net.Uri photo = album.photo(SamplePhotos.TRIANGLE);
    album.delete(photo);
    ModelsActivity screen = openModels(photo).get();
    assertEquals(screen.getString(R.string.problem_photo_gone), notice(screen));
    assertTrue(text(card(screen, 1), R.id.model_size).endsWith("kB"));
  }

  @Test
  public void unusableModelIsReportedAndCannotBeChosen() {
    app.engine.builtIn.put(ModelChoice.DENSE, SamplePhotos.captionerFixture("future_operator.tflite"));
    ModelsActivity screen = openModels(album.photo(SamplePhotos.TRIANGLE)).get();
    assertEquals(
        screen.getString(R.string.problem_model_not_runnable),
        text(card(screen, 1), R.id.model_time));
    assertFalse(isShown(card(screen, 1), R.id.model_use));
  }

  @Test
  public void rotationDoesNotMeasureAgain() {
    ActivityController<ModelsActivity> controller = openModels(album.photo(SamplePhotos.TRIANGLE));
    String time = text(card(controller.get(), 0), R.id.model_time);
    int runs = app.engine.captioned.size();
    RuntimeEnvironment.setQualifiers("w891dp-h411dp-land-xhdpi");
    controller.configurationChange();
    controller.visible();
    idleMainLooper();
    assertEquals(time, text(card(controller.get(), 0), R.id.model_time));
    assertEquals(runs, app.engine.captioned.size());
  }

  @Test
  public void backArrowFinishesTheScreen() {
    ModelsActivity screen = openModels(null).get();
    android.widget.Toolbar bar = screen.findViewById(R.id.toolbar);
    assertEquals(screen.getString(R.string.back), bar.getNavigationContentDescription());
    assertNull(shadowOf(screen).getNextStartedActivity());
    for (int i = 0; i < bar.getChildCount(); i++) {
      if (bar.getChildAt(i) instanceof android.widget.ImageButton) {
        bar.getChildAt(i).performClick();
      }
    }
    assertTrue(screen.isFinishing());
  }

  private static String lower(View card, int view) {
    return text(card, view).toLowerCase(Locale.ROOT);
  }

  private static String text(View card, int view) {
    return ((TextView) card.findViewById(view)).getText().toString();
  }

  private static boolean isShown(View card, int view) {
    return card.findViewById(view).isShown();
  }

  private static View card(ModelsActivity screen, int index) {
    return children(screen, R.id.cards).get(index);
  }
}
