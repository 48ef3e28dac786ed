package org.tfsparsecap.demo;

import static org.junit.Assert.assertEquals;
import static org.junit.Assert.assertTrue;

import android.content.Intent;
import android.net.Uri;
import org.junit.Test;
import org.junit.runner.RunWith;
import org.robolectric.Robolectric;
import org.robolectric.RobolectricTestRunner;
import org.robolectric.RuntimeEnvironment;

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
}
