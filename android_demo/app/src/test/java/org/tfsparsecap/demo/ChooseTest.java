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

/** Photos from the system's pickers. */
public final class ChooseTest extends ScreenTest {
  @Test
  public void asksThePhotoPickerForPicturesOnlyAndForNoMoreThanItGives() {
    MainActivity screen = open().get();
    click(screen, R.id.choose);
    Intent asked = shadowOf(screen).getNextStartedActivityForResult().intent;
    assertEquals(MediaStore.ACTION_PICK_IMAGES, asked.getAction());
    assertEquals("image/*", asked.getType());
    int most = asked.getIntExtra(MediaStore.EXTRA_PICK_IMAGES_MAX, 0);
    assertTrue("" + most, most > 1 && most <= MediaStore.getPickImagesMaxLimit());
  }

  @Test
  public void withoutAPhotoPickerDocumentsAreChosen() {
    onlyFor(Intent.ACTION_OPEN_DOCUMENT, "image/*");
    MainActivity screen = open().get();
    click(screen, R.id.choose);
    Intent asked = shadowOf(screen).getNextStartedActivityForResult().intent;
    assertEquals(Intent.ACTION_OPEN_DOCUMENT, asked.getAction());
    assertTrue(asked.getBooleanExtra(Intent.EXTRA_ALLOW_MULTIPLE, false));
    assertTrue(asked.hasCategory(Intent.CATEGORY_OPENABLE));
  }

  @Test
  public void withoutAnyPickerItSaysSo() {
    shadowOf(app).checkActivities(true);
    MainActivity screen = open().get();
    click(screen, R.id.choose);
    assertEquals(screen.getString(R.string.problem_no_picker), notice(screen));
    click(screen, R.id.notice_done);
    assertFalse(isShown(screen, R.id.notice));
  }

  @Test
  public void onePhotoIsCaptionedAsPythonDoes() {
    MainActivity screen = open().get();
    assertTrue(isShown(screen, R.id.welcome));
    click(screen, R.id.choose);
    answer(screen, Activity.RESULT_OK, new Intent().setData(album.photo(Samples.HEART_STAR)));
    awaitCaptions(screen);
    assertFalse(isShown(screen, R.id.welcome));
    assertEquals(sentence(Samples.HEART_STAR), text(screen, R.id.caption));
    String percent = Math.round(100 * Samples.confidence(Samples.HEART_STAR)) + "%";
    assertEquals("Quite sure · " + percent, text(screen, R.id.sure));
    assertEquals(
        "Photo: " + sentence(Samples.HEART_STAR),
        screen.findViewById(R.id.photo).getContentDescription());
  }

  @Test
  public void theOtherCaptionsFollowWithTheirPercentages() {
    MainActivity screen = openWith(Samples.HEART_STAR).get();
    java.util.List<String> python = Samples.captions(Samples.HEART_STAR);
    java.util.List<android.view.View> rows = children(screen, R.id.others);
    assertEquals(python.size() - 1, rows.size());
    android.widget.TextView first = rows.get(0).findViewById(R.id.row_text);
    assertEquals(python.get(1), first.getText().toString().toLowerCase(java.util.Locale.ROOT));
    android.widget.TextView sure = rows.get(0).findViewById(R.id.row_sure);
    assertEquals("65%", sure.getText().toString());
  }

  @Test
  public void thePhotoIsThereBeforeItsCaption() {
    app.engine.holdBack();
    MainActivity screen = open(MainActivity.class, share(album.photo(Samples.TRIANGLE))).get();
    assertEquals(screen.getString(R.string.looking), text(screen, R.id.caption));
    await(() -> viewModel(screen).state().picture() != null, "the photo");
    assertTrue(isShown(screen, R.id.photo));
    assertEquals(screen.getString(R.string.looking), text(screen, R.id.caption));
    assertFalse(isShown(screen, R.id.actions));
    app.engine.letThrough(1);
    awaitCaptions(screen);
    assertEquals(sentence(Samples.TRIANGLE), text(screen, R.id.caption));
    assertTrue(isShown(screen, R.id.actions));
    assertEquals("silent unless asked", 0, app.voice.said.size());
  }

  @Test
  public void severalPhotosComeAsAStripAndAreAllCaptioned() {
    MainActivity screen = open().get();
    click(screen, R.id.choose);
    ClipData clip = ClipData.newRawUri("", album.photo(Samples.CROSS_HEART));
    clip.addItem(new ClipData.Item(album.photo(Samples.CIRCLE_STAR)));
    clip.addItem(new ClipData.Item(album.photo(Samples.TRIANGLE)));
    Intent answer = new Intent();
    answer.setClipData(clip);
    answer(screen, Activity.RESULT_OK, answer);
    awaitCaptions(screen);
    assertEquals(sentence(Samples.CROSS_HEART), text(screen, R.id.caption));
    assertEquals(3, children(screen, R.id.strip).size());
    assertEquals(
        "Photo 2 of 3: " + sentence(Samples.CIRCLE_STAR),
        children(screen, R.id.strip).get(1).getContentDescription());
  }

  @Test
  public void whoChoosesNothingLosesNothing() {
    MainActivity screen = openWith(Samples.HEART_STAR).get();
    for (IntentForResult cancelled : new IntentForResult[2]) {
      click(screen, R.id.choose);
      answer(screen, Activity.RESULT_CANCELED, null);
    }
    click(screen, R.id.choose);
    answer(screen, Activity.RESULT_OK, null);
    assertEquals(sentence(Samples.HEART_STAR), text(screen, R.id.caption));
    assertFalse(isShown(screen, R.id.notice));
  }

  @Test
  public void moreThanFitAreCountedNotDroppedInSilence() {
    app.engine.holdBack();
    Uri photo = album.photo(Samples.TRIANGLE);
    Uri[] photos = new Uri[CaptionViewModel.MOST_PHOTOS + 7];
    Arrays.fill(photos, photo);
    MainActivity screen = open(MainActivity.class, share(photos)).get();
    assertEquals(CaptionViewModel.MOST_PHOTOS, viewModel(screen).state().photos().size());
    assertEquals(
        screen.getString(R.string.problem_too_many_photos, "50", "57"), notice(screen));
    app.engine.letThrough(100);
  }

  @Test
  public void newPhotosTakeThePlaceOfOldOnesAndStopTheirCaptions() {
    app.engine.holdBack();
    MainActivity screen =
        open(
                MainActivity.class,
                share(album.photo(Samples.CROSS_HEART), album.photo(Samples.CIRCLE_STAR)))
            .get();
    await(() -> viewModel(screen).state().picture() != null, "the first photo");
    click(screen, R.id.choose);
    answer(screen, Activity.RESULT_OK, new Intent().setData(album.photo(Samples.TRIANGLE)));
    app.engine.letThrough(100);
    awaitCaptions(screen);
    assertEquals(sentence(Samples.TRIANGLE), text(screen, R.id.caption));
    assertFalse("not wanted any more", app.engine.captioned.contains(Samples.CIRCLE_STAR));
    assertNull(viewModel(screen).state().notice());
  }

  @Test
  public void aVeryLongPictureIsShownAsLongAsPhonesDraw() {
    Bitmap page = Bitmap.createBitmap(90, 9000, Bitmap.Config.ARGB_8888);
    page.eraseColor(Color.YELLOW);
    ByteArrayOutputStream file = new ByteArrayOutputStream();
    assertTrue(page.compress(Bitmap.CompressFormat.PNG, 100, file));
    Uri photo = album.add("page.png", file.toByteArray());
    MainActivity screen = open(MainActivity.class, share(photo)).get();
    awaitCaptions(screen);
    Bitmap shown = viewModel(screen).state().picture();
    assertEquals(4096, shown.getHeight());
    assertEquals(41, shown.getWidth());
  }

  private void onlyFor(String action, String type) {
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
