package org.tfsparsecap.demo;

import static org.junit.Assert.assertEquals;
import static org.junit.Assert.assertTrue;

import android.content.Intent;
import android.content.res.Configuration;
import android.net.Uri;
import java.util.Locale;
import org.junit.Test;
import org.junit.runner.RunWith;
import org.robolectric.Robolectric;
import org.robolectric.RobolectricTestRunner;
import org.robolectric.RuntimeEnvironment;
import org.tfsparsecap.captioner.CaptionerBundle;

/** The app with the models that are packaged in the APK. */
@RunWith(RobolectricTestRunner.class)
public final class BuiltInModelTest {
  @Test
  public void defaultModelCaptionsAPhoto() {
    Uri photo = PhotoAlbum.install().photo(SamplePhotos.HEART_STAR);
    MainActivity screen =
        Robolectric.buildActivity(MainActivity.class, ScreenTest.share(photo)).setup().get();
    assertEquals(CaptionApplication.class, RuntimeEnvironment.getApplication().getClass());
    ScreenTest.await(
        () -> !ScreenTest.text(screen, R.id.caption).isEmpty(), "the default model's caption");
    String caption = ScreenTest.text(screen, R.id.caption);
    assertTrue(caption, caption.matches("[A-Z0-9].*"));
    assertTrue(ScreenTest.text(screen, R.id.problem).isEmpty());
    screen.finish();
  }

  @Test
  public void defaultModelIsTheSparseOne() {
    CaptionApplication app = (CaptionApplication) RuntimeEnvironment.getApplication();
    assertEquals(ModelChoice.SPARSE, app.models().chosen());
    assertTrue(new Intent(app, MainActivity.class).resolveActivity(app.getPackageManager()) != null);
  }

  @Test
  public void theAboutScreenCountsTheWordsOfTheBuiltInModels() throws Exception {
    CaptionApplication app = (CaptionApplication) RuntimeEnvironment.getApplication();
    for (ModelChoice choice : ModelChoice.values()) {
      if (choice.isBuiltIn()) {
        int words = CaptionerBundle.fromAsset(app.getAssets(), choice.fileName()).vocabulary().size();
        assertEquals(choice.fileName(), 16, Math.round(words / 100f));
      }
    }
    String english = app.getString(R.string.about_weaknesses);
    assertTrue(english, english.contains("about sixteen hundred English words"));
    Configuration german = new Configuration();
    german.setLocale(Locale.GERMAN);
    String text = app.createConfigurationContext(german).getString(R.string.about_weaknesses);
    assertTrue(text, text.contains("etwa sechzehnhundert englische Wörter"));
  }
}
