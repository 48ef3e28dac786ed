package org.tfsparsecap.demo;

import static org.junit.Assert.assertEquals;
import static org.junit.Assert.assertFalse;
import static org.junit.Assert.assertTrue;
import static org.robolectric.Shadows.shadowOf;

import android.content.Intent;
import android.view.View;
import android.widget.TextView;
import java.util.EnumSet;
import java.util.List;
import org.junit.Test;

/** The About screen. */
public final class AboutTest extends ScreenTest {
  @Test
  public void menuOpensTheScreen() {
    MainActivity main = open().get();
    shadowOf(main).clickMenuItem(R.id.menu_about);
    Intent next = shadowOf(main).getNextStartedActivity();
    assertEquals(AboutActivity.class.getName(), next.getComponent().getClassName());
  }

  @Test
  public void showsTheDescriptionOfTheModel() {
    String model = section(openAbout(), 1);
    assertTrue(model, model.startsWith("Sparse model, 331 kB, 40 words."));
    assertTrue(model, model.contains("48 × 48 pixels"));
    assertTrue(model, model.contains("Trained on: scenes"));
    assertTrue(model, model.contains("Sparsity: 80% of its weights are zero"));
    assertTrue(model, model.contains("\nScores of the trained model on test images: BLEU-1"));
    assertTrue(model, model.contains("BLEU-4 0.598, CIDEr 3.007"));
    assertFalse("counts are not scores", model.matches("(?s).*(images|beam) [0-9].*"));
    assertTrue(model, model.contains("Training run: standin"));
  }

  @Test
  public void showsPrivacyWeaknessesAndLicence() {
    AboutActivity screen = openAbout();
    assertTrue(section(screen, 0).contains("no permission to use the network"));
    assertTrue(section(screen, 2).contains("wrong about people"));
    assertTrue(section(screen, 2).contains("safety"));
    assertTrue(section(screen, 3).contains("TensorFlow Lite"));
    assertTrue(section(screen, 3).contains("Apache License 2.0"));
    assertTrue(section(screen, 3), section(screen, 3).matches("(?s).*version [0-9]+\\..*"));
  }

  @Test
  public void reportsUnusableModel() {
    app.engine.builtIn.put(ModelChoice.SPARSE, SamplePhotos.captionerFixture("future_operator.tflite"));
    AboutActivity screen = openAbout();
    assertEquals(screen.getString(R.string.problem_model_not_runnable), section(screen, 1));
  }

  @Test
  public void reportsMissingModel() {
    app.builtIn = EnumSet.noneOf(ModelChoice.class);
    AboutActivity screen = openAbout();
    assertEquals(screen.getString(R.string.problem_model_missing), section(screen, 1));
  }

  private AboutActivity openAbout() {
    AboutActivity screen = open(AboutActivity.class, new Intent()).get();
    await(() -> !section(screen, 1).isEmpty(), "the model section");
    return screen;
  }

  private static String section(AboutActivity screen, int index) {
    List<View> sections = children(screen, R.id.about_content);
    return ((TextView) sections.get(index).findViewById(R.id.section_text)).getText().toString();
  }
}
