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

/** Turning the phone, and a process that is killed, lose nothing. */
public final class RotationTest extends ScreenTest {
  private static final String LANDSCAPE = "w891dp-h411dp-land-xhdpi";

  @Test
  public void turningThePhoneKeepsEverythingAndCaptionsNothingAgain() {
    ActivityController<MainActivity> controller =
        openWith(Samples.HEART_STAR, Samples.CROSS_HEART, Samples.TRIANGLE);
    children(controller.get(), R.id.strip).get(1).performClick();
    await(() -> viewModel(controller.get()).state().picture() != null, "the second photo");
    MainActivity before = controller.get();
    CaptionViewModel kept = viewModel(before);
    int captioned = app.engine.captioned.size();
    turn(controller);
    MainActivity after = controller.get();
    assertNotSame(before, after);
    assertSame(kept, viewModel(after));
    settle();
    assertEquals(sentence(Samples.CROSS_HEART), text(after, R.id.caption));
    assertEquals(3, children(after, R.id.strip).size());
    assertTrue(children(after, R.id.strip).get(1).isSelected());
    assertTrue(isShown(after, R.id.others));
    assertEquals(captioned, app.engine.captioned.size());
    assertEquals(1, app.engine.opened);
    assertEquals(0, app.engine.closed);
  }

  @Test
  public void aCaptionThatIsUnderWayArrivesAfterTheTurn() {
    app.engine.holdBack();
    ActivityController<MainActivity> controller =
        open(MainActivity.class, share(album.photo(Samples.TRIANGLE)));
    await(() -> viewModel(controller.get()).state().picture() != null, "the photo");
    turn(controller);
    assertEquals(app.getString(R.string.looking), text(controller.get(), R.id.caption));
    app.engine.letThrough(10);
    awaitCaptions(controller.get());
    assertEquals(sentence(Samples.TRIANGLE), text(controller.get(), R.id.caption));
    assertEquals(Collections.singletonList(Samples.TRIANGLE), app.engine.captioned);
  }

  @Test
  public void turningDoesNotTakeTheSharedPhotoASecondTime() {
    ActivityController<MainActivity> controller = openWith(Samples.TRIANGLE);
    long id = viewModel(controller.get()).state().selected().id();
    turn(controller);
    assertEquals(id, viewModel(controller.get()).state().selected().id());
  }

  @Test
  public void turningKeepsTheNotice() {
    ActivityController<MainActivity> controller = open();
    viewModel(controller.get()).notice(Problem.NO_CAMERA);
    turn(controller);
    assertEquals(app.getString(R.string.problem_no_camera), notice(controller.get()));
  }

  @Test
  public void leavingTheScreenClosesTheModel() {
    ActivityController<MainActivity> controller = openWith(Samples.TRIANGLE);
    controller.get().finish();
    controller.pause().stop().destroy();
    await(() -> app.engine.closed == app.engine.opened, "the model to be closed");
  }

  @Test
  public void afterTheProcessWasKilledPhotosAndCaptionsAreThereAndNotMadeAgain() {
    ActivityController<MainActivity> controller =
        openWith(Samples.HEART_STAR, Samples.CROSS_HEART);
    children(controller.get(), R.id.strip).get(1).performClick();
    settle();
    ArrayList<String> captioned = new ArrayList<>(app.engine.captioned);
    MainActivity next = killAndRestore(controller).get();
    assertEquals("at once", sentence(Samples.CROSS_HEART), text(next, R.id.caption));
    await(() -> viewModel(next).state().picture() != null, "the photo to be read again");
    await(() -> viewModel(next).state().photos().get(0).thumbnail() != null, "its neighbour");
    assertEquals(2, children(next, R.id.strip).size());
    assertTrue(children(next, R.id.strip).get(1).isSelected());
    String percent = Math.round(100 * Samples.confidence(Samples.CROSS_HEART)) + "%";
    assertEquals("Quite sure · " + percent, text(next, R.id.sure));
    assertTrue(isShown(next, R.id.others_card));
    assertEquals(captioned, app.engine.captioned);
  }

  @Test
  public void aPhotoThatCannotBeReadAfterTheKillKeepsItsCaption() {
    Uri photo = album.photo(Samples.HEART_STAR);
    ActivityController<MainActivity> controller = open(MainActivity.class, share(photo));
    awaitCaptions(controller.get());
    album.lock(photo); // what was granted ends with the process
    MainActivity next = killAndRestore(controller).get();
    await(() -> viewModel(next).state().selected().problem() != null, "the sentence");
    assertEquals(sentence(Samples.HEART_STAR), text(next, R.id.caption));
    assertEquals(
        next.getString(R.string.problem_photo_denied)
            + " "
            + next.getString(R.string.problem_photo_from_before),
        text(next, R.id.problem));
    assertTrue("can still be copied", isShown(next, R.id.copy));
    assertFalse(isShown(next, R.id.photo));
  }

  @Test
  public void whatWasNotCaptionedWhenTheProcessWasKilledIsCaptionedNow() {
    app.engine.holdBack();
    ActivityController<MainActivity> controller =
        open(MainActivity.class, share(album.photo(Samples.TRIANGLE)));
    await(() -> viewModel(controller.get()).state().picture() != null, "the photo");
    MainActivity next = killAndRestore(controller).get();
    app.engine.letThrough(10);
    awaitCaptions(next);
    assertEquals(sentence(Samples.TRIANGLE), text(next, R.id.caption));
  }

  private static void turn(ActivityController<MainActivity> controller) {
    RuntimeEnvironment.setQualifiers(LANDSCAPE);
    controller.configurationChange();
    controller.visible();
    settle();
  }
}
