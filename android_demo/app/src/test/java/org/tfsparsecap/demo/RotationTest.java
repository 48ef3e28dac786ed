package org.tfsparsecap.demo;

import static org.junit.Assert.assertEquals;
import static org.junit.Assert.assertFalse;
import static org.junit.Assert.assertNotSame;
import static org.junit.Assert.assertSame;
import static org.junit.Assert.assertTrue;

import android.net.Uri;
import java.util.ArrayList;
import java.util.Collections;
import org.junit.Test;
import org.robolectric.RuntimeEnvironment;
import org.robolectric.android.controller.ActivityController;

/** Nothing is lost when the phone is rotated or the process is killed. */
public final class RotationTest extends ScreenTest {
  private static final String LANDSCAPE = "w891dp-h411dp-land-xhdpi";

  @Test
  public void rotationKeepsPhotosAndCaptions() {
    ActivityController<MainActivity> controller =
        openWith(SamplePhotos.HEART_STAR, SamplePhotos.CROSS_HEART, SamplePhotos.TRIANGLE);
    children(controller.get(), R.id.thumbnails).get(1).performClick();
    await(() -> viewModel(controller.get()).state().image() != null, "the second photo");
    MainActivity before = controller.get();
    MainViewModel cameraFiles = viewModel(before);
    int captioned = app.engine.captioned.size();
    rotate(controller);
    MainActivity after = controller.get();
    assertNotSame(before, after);
    assertSame(cameraFiles, viewModel(after));
    idleMainLooper();
    assertEquals(expectedCaption(SamplePhotos.CROSS_HEART), text(after, R.id.caption));
    assertEquals(3, children(after, R.id.thumbnails).size());
    assertTrue(children(after, R.id.thumbnails).get(1).isSelected());
    assertTrue(isShown(after, R.id.alternatives));
    assertEquals(captioned, app.engine.captioned.size());
    assertEquals(1, app.engine.opened);
    assertEquals(0, app.engine.closed);
  }

  @Test
  public void captionInProgressArrivesAfterRotation() {
    app.engine.block();
    ActivityController<MainActivity> controller =
        open(MainActivity.class, share(album.photo(SamplePhotos.TRIANGLE)));
    await(() -> viewModel(controller.get()).state().image() != null, "the photo");
    rotate(controller);
    assertEquals(app.getString(R.string.describing), text(controller.get(), R.id.caption));
    app.engine.release(10);
    awaitCaptions(controller.get());
    assertEquals(expectedCaption(SamplePhotos.TRIANGLE), text(controller.get(), R.id.caption));
    assertEquals(Collections.singletonList(SamplePhotos.TRIANGLE), app.engine.captioned);
  }

  @Test
  public void rotationDoesNotReceiveTheSharedPhotoAgain() {
    ActivityController<MainActivity> controller = openWith(SamplePhotos.TRIANGLE);
    long id = viewModel(controller.get()).state().selected().id();
    rotate(controller);
    assertEquals(id, viewModel(controller.get()).state().selected().id());
  }

  @Test
  public void rotationKeepsTheNotice() {
    ActivityController<MainActivity> controller = open();
    viewModel(controller.get()).notice(Problem.NO_CAMERA);
    rotate(controller);
    assertEquals(app.getString(R.string.problem_no_camera), notice(controller.get()));
  }

  @Test
  public void finishingClosesTheModel() {
    ActivityController<MainActivity> controller = openWith(SamplePhotos.TRIANGLE);
    controller.get().finish();
    controller.pause().stop().destroy();
    await(() -> app.engine.closed == app.engine.opened, "the model to be closed");
  }

  @Test
  public void photosAndCaptionsAreRestoredInANewProcess() {
    ActivityController<MainActivity> controller =
        openWith(SamplePhotos.HEART_STAR, SamplePhotos.CROSS_HEART);
    children(controller.get(), R.id.thumbnails).get(1).performClick();
    idleMainLooper();
    ArrayList<String> captioned = new ArrayList<>(app.engine.captioned);
    MainActivity next = killAndRestore(controller).get();
    assertEquals("immediately", expectedCaption(SamplePhotos.CROSS_HEART), text(next, R.id.caption));
    await(() -> viewModel(next).state().image() != null, "the photo to be read again");
    await(() -> viewModel(next).state().photos().get(0).thumbnail() != null, "the other photo");
    assertEquals(2, children(next, R.id.thumbnails).size());
    assertTrue(children(next, R.id.thumbnails).get(1).isSelected());
    String percent = Math.round(100 * SamplePhotos.confidence(SamplePhotos.CROSS_HEART)) + "%";
    assertEquals("Quite sure · " + percent, text(next, R.id.confidence));
    assertTrue(isShown(next, R.id.alternatives_card));
    assertEquals(captioned, app.engine.captioned);
  }

  @Test
  public void unreadablePhotoKeepsItsCaptionInANewProcess() {
    Uri photo = album.photo(SamplePhotos.HEART_STAR);
    ActivityController<MainActivity> controller = open(MainActivity.class, share(photo));
    awaitCaptions(controller.get());
    album.denyAccess(photo); // grants end with the process
    MainActivity next = killAndRestore(controller).get();
    await(() -> viewModel(next).state().selected().problem() != null, "the message");
    assertEquals(expectedCaption(SamplePhotos.HEART_STAR), text(next, R.id.caption));
    assertEquals(
        next.getString(R.string.problem_photo_denied)
            + " "
            + next.getString(R.string.problem_earlier_caption),
        text(next, R.id.problem));
    assertTrue("copy button", isShown(next, R.id.copy));
    assertFalse(isShown(next, R.id.photo));
  }

  @Test
  public void uncaptionedPhotosAreCaptionedInANewProcess() {
    app.engine.block();
    ActivityController<MainActivity> controller =
        open(MainActivity.class, share(album.photo(SamplePhotos.TRIANGLE)));
    await(() -> viewModel(controller.get()).state().image() != null, "the photo");
    MainActivity next = killAndRestore(controller).get();
    app.engine.release(10);
    awaitCaptions(next);
    assertEquals(expectedCaption(SamplePhotos.TRIANGLE), text(next, R.id.caption));
  }

  private static void rotate(ActivityController<MainActivity> controller) {
    RuntimeEnvironment.setQualifiers(LANDSCAPE);
    controller.configurationChange();
    controller.visible();
    idleMainLooper();
  }
}
