package org.tfsparsecap.demo;

import static org.junit.Assert.assertEquals;
import static org.junit.Assert.assertFalse;
import static org.junit.Assert.assertNull;
import static org.junit.Assert.assertTrue;
import static org.robolectric.Shadows.shadowOf;

import android.app.Activity;
import android.content.ClipData;
import android.content.ComponentName;
import android.content.Intent;
import android.content.IntentFilter;
import android.graphics.Bitmap;
import android.graphics.Color;
import android.net.Uri;
import android.provider.MediaStore;
import java.io.ByteArrayOutputStream;
import java.util.Arrays;
import org.junit.Test;
import org.robolectric.shadows.ShadowActivity.IntentForResult;
import org.robolectric.shadows.ShadowPackageManager;

/** Photos chosen with the system's pickers. */
public final class ChoosePhotosTest extends ScreenTest {
  @Test
  public void usesThePhotoPickerForImagesUpToItsLimit() {
    MainActivity screen = open().get();
    click(screen, R.id.choose_photos);
    Intent asked = shadowOf(screen).getNextStartedActivityForResult().intent;
    assertEquals(MediaStore.ACTION_PICK_IMAGES, asked.getAction());
    assertEquals("image/*", asked.getType());
    int max = asked.getIntExtra(MediaStore.EXTRA_PICK_IMAGES_MAX, 0);
    assertTrue("" + max, max > 1 && max <= MediaStore.getPickImagesMaxLimit());
  }

  @Test
  public void usesTheDocumentPickerWithoutAPhotoPicker() {
    installOnly(Intent.ACTION_OPEN_DOCUMENT, "image/*");
    MainActivity screen = open().get();
    click(screen, R.id.choose_photos);
    Intent asked = shadowOf(screen).getNextStartedActivityForResult().intent;
    assertEquals(Intent.ACTION_OPEN_DOCUMENT, asked.getAction());
    assertTrue(asked.getBooleanExtra(Intent.EXTRA_ALLOW_MULTIPLE, false));
    assertTrue(asked.hasCategory(Intent.CATEGORY_OPENABLE));
  }

  @Test
  public void reportsMissingPicker() {
    shadowOf(app).checkActivities(true);
    MainActivity screen = open().get();
    click(screen, R.id.choose_photos);
    assertEquals(screen.getString(R.string.problem_no_picker), notice(screen));
    click(screen, R.id.notice_done);
    assertFalse(isShown(screen, R.id.notice));
  }

  @Test
  public void captionOfOnePhotoEqualsPythons() {
    MainActivity screen = open().get();
    assertTrue(isShown(screen, R.id.welcome));
    click(screen, R.id.choose_photos);
    answer(screen, Activity.RESULT_OK, new Intent().setData(album.photo(SamplePhotos.HEART_STAR)));
    awaitCaptions(screen);
    assertFalse(isShown(screen, R.id.welcome));
    assertEquals(expectedCaption(SamplePhotos.HEART_STAR), text(screen, R.id.caption));
    String percent = Math.round(100 * SamplePhotos.confidence(SamplePhotos.HEART_STAR)) + "%";
    assertEquals("Quite sure · " + percent, text(screen, R.id.confidence));
    assertEquals(
        "Photo: " + expectedCaption(SamplePhotos.HEART_STAR),
        screen.findViewById(R.id.photo).getContentDescription());
  }

  @Test
  public void showsAlternativesWithConfidence() {
    MainActivity screen = openWith(SamplePhotos.HEART_STAR).get();
    java.util.List<String> python = SamplePhotos.captions(SamplePhotos.HEART_STAR);
    java.util.List<android.view.View> rows = children(screen, R.id.alternatives);
    assertEquals(python.size() - 1, rows.size());
    android.widget.TextView first = rows.get(0).findViewById(R.id.row_text);
    assertEquals(python.get(1), first.getText().toString().toLowerCase(java.util.Locale.ROOT));
    android.widget.TextView confidence = rows.get(0).findViewById(R.id.row_confidence);
    assertEquals("100%", confidence.getText().toString());
  }

  @Test
  public void photoIsShownBeforeItsCaption() {
    app.engine.block();
    MainActivity screen = open(MainActivity.class, share(album.photo(SamplePhotos.TRIANGLE))).get();
    assertEquals(screen.getString(R.string.describing), text(screen, R.id.caption));
    await(() -> viewModel(screen).state().image() != null, "the photo");
    assertTrue(isShown(screen, R.id.photo));
    assertEquals(screen.getString(R.string.describing), text(screen, R.id.caption));
    assertFalse(isShown(screen, R.id.actions));
    app.engine.release(1);
    awaitCaptions(screen);
    assertEquals(expectedCaption(SamplePhotos.TRIANGLE), text(screen, R.id.caption));
    assertTrue(isShown(screen, R.id.actions));
    assertEquals("not read aloud by default", 0, app.speaker.spoken.size());
  }

  @Test
  public void severalPhotosAreShownAsThumbnailsAndCaptioned() {
    MainActivity screen = open().get();
    click(screen, R.id.choose_photos);
    ClipData clip = ClipData.newRawUri("", album.photo(SamplePhotos.CROSS_HEART));
    clip.addItem(new ClipData.Item(album.photo(SamplePhotos.CIRCLE_STAR)));
    clip.addItem(new ClipData.Item(album.photo(SamplePhotos.TRIANGLE)));
    Intent answer = new Intent();
    answer.setClipData(clip);
    answer(screen, Activity.RESULT_OK, answer);
    awaitCaptions(screen);
    assertEquals(expectedCaption(SamplePhotos.CROSS_HEART), text(screen, R.id.caption));
    assertEquals(3, children(screen, R.id.thumbnails).size());
    assertEquals(
        "Photo 2 of 3: " + expectedCaption(SamplePhotos.CIRCLE_STAR),
        children(screen, R.id.thumbnails).get(1).getContentDescription());
  }

  @Test
  public void cancellingThePickerChangesNothing() {
    MainActivity screen = openWith(SamplePhotos.HEART_STAR).get();
    for (IntentForResult cancelled : new IntentForResult[2]) {
      click(screen, R.id.choose_photos);
      answer(screen, Activity.RESULT_CANCELED, null);
    }
    click(screen, R.id.choose_photos);
    answer(screen, Activity.RESULT_OK, null);
    assertEquals(expectedCaption(SamplePhotos.HEART_STAR), text(screen, R.id.caption));
    assertFalse(isShown(screen, R.id.notice));
  }

  @Test
  public void reportsTooManyPhotos() {
    app.engine.block();
    Uri photo = album.photo(SamplePhotos.TRIANGLE);
    Uri[] photos = new Uri[MainViewModel.MAX_PHOTOS + 7];
    Arrays.fill(photos, photo);
    MainActivity screen = open(MainActivity.class, share(photos)).get();
    assertEquals(MainViewModel.MAX_PHOTOS, viewModel(screen).state().photos().size());
    assertEquals(
        screen.getString(R.string.problem_too_many_photos, "50", "57"), notice(screen));
    app.engine.release(100);
  }

  @Test
  public void newPhotosReplaceOldOnesAndCancelTheirCaptions() {
    app.engine.block();
    MainActivity screen =
        open(
                MainActivity.class,
                share(album.photo(SamplePhotos.CROSS_HEART), album.photo(SamplePhotos.CIRCLE_STAR)))
            .get();
    await(() -> viewModel(screen).state().image() != null, "the first photo");
    click(screen, R.id.choose_photos);
    answer(screen, Activity.RESULT_OK, new Intent().setData(album.photo(SamplePhotos.TRIANGLE)));
    app.engine.release(100);
    awaitCaptions(screen);
    assertEquals(expectedCaption(SamplePhotos.TRIANGLE), text(screen, R.id.caption));
    assertFalse("cancelled caption", app.engine.captioned.contains(SamplePhotos.CIRCLE_STAR));
    assertNull(viewModel(screen).state().notice());
  }

  @Test
  public void veryTallImageIsReducedForDrawing() {
    Bitmap page = Bitmap.createBitmap(90, 9000, Bitmap.Config.ARGB_8888);
    page.eraseColor(Color.YELLOW);
    ByteArrayOutputStream file = new ByteArrayOutputStream();
    assertTrue(page.compress(Bitmap.CompressFormat.PNG, 100, file));
    Uri photo = album.add("page.png", file.toByteArray());
    MainActivity screen = open(MainActivity.class, share(photo)).get();
    awaitCaptions(screen);
    Bitmap shown = viewModel(screen).state().image();
    assertEquals(4096, shown.getHeight());
    assertEquals(41, shown.getWidth());
  }

  private void installOnly(String action, String type) {
    shadowOf(app).checkActivities(true);
    ShadowPackageManager packages = shadowOf(app.getPackageManager());
    ComponentName documents = new ComponentName("org.example.files", "org.example.files.Documents");
    packages.addActivityIfNotPresent(documents);
    IntentFilter filter = new IntentFilter(action);
    filter.addCategory(Intent.CATEGORY_DEFAULT);
    filter.addCategory(Intent.CATEGORY_OPENABLE);
    try {
      filter.addDataType(type);
      packages.addIntentFilterForActivity(documents, filter);
    } catch (Exception impossible) {
      throw new AssertionError(impossible);
    }
  }
}
