package org.tfsparsecap.demo;

import static org.junit.Assert.assertArrayEquals;
import static org.junit.Assert.assertEquals;
import static org.junit.Assert.assertFalse;
import static org.junit.Assert.assertNotSame;
import static org.junit.Assert.assertTrue;
import static org.robolectric.Shadows.shadowOf;

import android.app.Activity;
import android.app.AlertDialog;
import android.content.Intent;
import android.net.Uri;
import android.os.Bundle;
import android.view.View;
import android.widget.TextView;
import java.io.ByteArrayInputStream;
import java.io.File;
import java.io.IOException;
import java.io.InputStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.util.Arrays;
import java.util.concurrent.atomic.AtomicLong;
import org.junit.Test;
import org.robolectric.android.controller.ActivityController;
import org.robolectric.shadows.ShadowAlertDialog;

/** Bundles from the phone's storage: good ones are used from then on, bad ones change nothing. */
public final class OpenModelTest extends ScreenTest {
  @Test
  public void documentsOfEveryTypeAreOffered() {
    ModelsActivity screen = openModels(null).get();
    click(screen, R.id.open_model);
    Intent asked = shadowOf(screen).getNextStartedActivityForResult().intent;
    assertEquals(Intent.ACTION_OPEN_DOCUMENT, asked.getAction());
    assertEquals("*/*", asked.getType());
    assertTrue(asked.hasCategory(Intent.CATEGORY_OPENABLE));
  }

  @Test
  public void withoutAnAppForFilesItSaysSo() {
    ModelsActivity screen = openModels(null).get();
    shadowOf(app).checkActivities(true);
    click(screen, R.id.open_model);
    assertEquals(screen.getString(R.string.problem_no_file_picker), notice(screen));
  }

  @Test
  public void aGoodBundleIsCopiedMeasuredAndUsedFromThenOn() throws IOException {
    ModelsActivity screen = openModels(album.photo(Samples.HEART_CROSS)).get();
    open(screen, album.add("mine.tflite", dense()));
    assertEquals(screen.getString(R.string.problem_model_opened), notice(screen));
    assertEquals(ModelChoice.OWN, app.models().chosen());
    assertArrayEquals(dense(), Files.readAllBytes(own().toPath()));
    assertEquals(3, children(screen, R.id.cards).size());
    TextView title = children(screen, R.id.cards).get(2).findViewById(R.id.model_title);
    assertEquals("Your model: mine.tflite", title.getText().toString());

    // Another process, later: the file that was opened is gone, the copy is not.
    ModelStore later =
        new ModelStore(app, app.engine, app.builtIn, app.settings(), folder -> Long.MAX_VALUE);
    assertEquals(ModelChoice.OWN, later.chosen());
    MainActivity main = openWith(Samples.HEART_CROSS).get();
    String expected = Samples.captions(Samples.HEART_CROSS, "dense").get(0);
    assertEquals(expected, viewModel(main).state().selected().caption());
  }

  @Test
  public void anotherBundleTakesItsPlaceAndCaptionsAreMadeAgain() throws IOException {
    ActivityController<MainActivity> main = openWith(Samples.HEART_CROSS);
    ModelsActivity screen = openModels(null).get();
    open(screen, album.add("first.tflite", dense()));
    main.pause().stop().restart().start().resume();
    awaitCaption(main.get(), Samples.captions(Samples.HEART_CROSS, "dense").get(0));
    click(screen, R.id.notice_done);
    open(screen, album.add("second.tflite", sparse()));
    assertEquals("second.tflite", app.models().ownName());
    main.pause().stop().restart().start().resume();
    awaitCaption(main.get(), Samples.captions(Samples.HEART_CROSS, "sparse").get(0));
    assertEquals("one of the person's own", 1, own().getParentFile().list().length);
  }

  @Test
  public void theWayBackToTheModelOfTheApp() {
    ModelsActivity screen = openModels(album.photo(Samples.TRIANGLE)).get();
    open(screen, album.add("mine.tflite", dense()));
    children(screen, R.id.cards).get(2).findViewById(R.id.model_remove).performClick();
    AlertDialog question = ShadowAlertDialog.getLatestAlertDialog();
    assertTrue(question.isShowing());
    assertEquals(ModelChoice.OWN, app.models().chosen());
    question.getButton(AlertDialog.BUTTON_NEGATIVE).performClick();
    settle();
    assertTrue(own().exists());
    children(screen, R.id.cards).get(2).findViewById(R.id.model_remove).performClick();
    ShadowAlertDialog.getLatestAlertDialog().getButton(AlertDialog.BUTTON_POSITIVE).performClick();
    settle();
    assertFalse(own().exists());
    assertEquals(ModelChoice.SPARSE, app.models().chosen());
    assertEquals(2, children(screen, R.id.cards).size());
  }

  @Test
  public void removingOnesOwnThatIsNotInUseLeavesTheOneThatIs() {
    ModelsActivity screen = openModels(null).get();
    open(screen, album.add("mine.tflite", dense()));
    children(screen, R.id.cards).get(1).findViewById(R.id.model_use).performClick();
    models(screen).answerToRemove(true);
    assertFalse(own().exists());
    assertEquals(ModelChoice.DENSE, app.models().chosen());
  }

  @Test
  public void turningThePhoneAsksTheSameQuestionAgain() {
    ActivityController<ModelsActivity> controller = openModels(null);
    open(controller.get(), album.add("mine.tflite", dense()));
    View card = children(controller.get(), R.id.cards).get(2);
    card.findViewById(R.id.model_remove).performClick();
    AlertDialog before = ShadowAlertDialog.getLatestAlertDialog();
    controller.recreate();
    controller.visible();
    settle();
    AlertDialog after = ShadowAlertDialog.getLatestAlertDialog();
    assertNotSame(before, after);
    assertFalse(before.isShowing());
    assertTrue(after.isShowing());
    after.cancel();
    settle();
    assertTrue(own().exists());
    assertFalse(models(controller.get()).state().asking());
  }

  @Test
  public void theModelOfTheAppCanBeUsedWithoutRemovingOnesOwn() {
    ModelsActivity screen = openModels(null).get();
    open(screen, album.add("mine.tflite", dense()));
    children(screen, R.id.cards).get(0).findViewById(R.id.model_use).performClick();
    assertEquals(ModelChoice.SPARSE, app.models().chosen());
    assertTrue(own().exists());
  }

  @Test
  public void whileABundleIsOpenedTheScreenWaitsForNothing() throws InterruptedException {
    ModelsActivity screen = openModels(null).get();
    int opened = app.engine.opened;
    app.engine.holdBack();
    models(screen).open(album.add("mine.tflite", dense()));
    await(() -> app.engine.opened > opened, "the bundle to be tried");
    Thread other =
        new Thread(
            () -> {
              app.models().choose(ModelChoice.DENSE);
              app.models().sweep();
            });
    other.start();
    other.join(5000);
    boolean waits = other.isAlive();
    app.engine.letThrough(100);
    assertFalse(waits);
    awaitMeasured(screen);
    assertEquals("its copy was not swept away", ModelChoice.OWN, app.models().chosen());
  }

  @Test
  public void badBundlesAreToldApartAndChangeNothing() throws IOException {
    ModelsActivity screen = openModels(null).get();
    open(screen, album.add("mine.tflite", dense()));
    byte[] sparse = sparse();
    assertRefused(screen, Arrays.copyOf(sparse, sparse.length / 2), R.string.problem_model_cut_short);
    assertRefused(screen, Arrays.copyOfRange(sparse, 5, 99), R.string.problem_model_not_a_model);
    assertRefused(screen, new byte[0], R.string.problem_model_cut_short);
    assertRefused(screen, Samples.bytes(Samples.TRIANGLE), R.string.problem_model_not_a_model);
    assertRefused(screen, newer(sparse), R.string.problem_model_newer_format);
    assertRefused(screen, bytes("features.tflite"), R.string.problem_model_takes_features);
    assertRefused(screen, bytes("future_operator.tflite"), R.string.problem_model_not_runnable);
    assertRefused(
        screen, renamed(sparse, "captioner.json", "captioner.jsoM"), R.string.problem_model_no_description);
  }

  @Test
  public void aFilmIsRefusedBeforeItIsCopied() throws IOException {
    ModelsActivity screen = openModels(null).get();
    open(screen, album.add("mine.tflite", dense()));
    Uri film = Uri.parse("content://org.example.films/holidays.mp4");
    AtomicLong read = new AtomicLong();
    shadowOf(app.getContentResolver())
        .registerInputStreamSupplier(
            film,
            () ->
                new InputStream() {
                  @Override
                  public int read() {
                    return read.incrementAndGet() > 1 << 20 ? -1 : 'f';
                  }
                });
    assertRefused(screen, film, R.string.problem_model_not_a_model);
    assertTrue("read " + read, read.get() <= 8192);
  }

  @Test
  public void aDocumentThatCannotBeReadChangesNothing() throws IOException {
    ModelsActivity screen = openModels(null).get();
    open(screen, album.add("mine.tflite", dense()));
    Uri locked = album.add("locked.tflite", sparse());
    album.lock(locked);
    assertRefused(screen, locked, R.string.problem_model_unreadable);
    Uri gone = album.add("gone.tflite", sparse());
    album.delete(gone);
    assertRefused(screen, gone, R.string.problem_model_unreadable);
    Uri cutOff = album.add("cut_off.tflite", sparse());
    album.deleteAfter(cutOff, 1); // its size is asked for, then it goes
    assertRefused(screen, cutOff, R.string.problem_model_unreadable);
    Uri broken = Uri.parse("content://org.example.broken/model.tflite");
    shadowOf(app.getContentResolver())
        .registerInputStreamSupplier(
            broken,
            () -> {
              throw new IllegalStateException("a bug of another app");
            });
    assertRefused(screen, broken, R.string.problem_model_unreadable);
  }

  @Test
  public void withoutRoomItSaysHowMuchIsNeededAndChangesNothing() throws IOException {
    ModelsActivity screen = openModels(null).get();
    open(screen, album.add("mine.tflite", dense()));
    app.freeBytes = (8 << 20) + 100_000;
    String kept = " " + screen.getString(R.string.problem_model_kept);
    click(screen, R.id.notice_done);
    open(screen, album.add("large.tflite", sparse()));
    assertEquals(
        screen.getString(R.string.problem_model_no_room, "8.7 MB", "8.5 MB") + kept,
        notice(screen));
    assertUnchanged();
    Uri streamed = Uri.parse("content://org.example.cloud/large.tflite"); // tells no size
    shadowOf(app.getContentResolver())
        .registerInputStreamSupplier(streamed, () -> new ByteArrayInputStream(sparse()));
    click(screen, R.id.notice_done);
    open(screen, streamed);
    assertEquals(
        screen.getString(R.string.problem_model_no_room_for_all, "8.5 MB") + kept,
        notice(screen));
    assertUnchanged();
  }

  @Test
  public void whatWasBeingOpenedWhenTheProcessWasKilledIsToldAndSweptAway() throws IOException {
    app.engine.holdBack();
    Intent intent = ModelsActivity.intent(app, null);
    ActivityController<ModelsActivity> controller = open(ModelsActivity.class, intent);
    models(controller.get()).open(album.add("mine.tflite", dense()));
    assertEquals(app.getString(R.string.opening_model), text(controller.get(), R.id.summary));
    assertFalse(controller.get().findViewById(R.id.open_model).isEnabled());
    Bundle saved = new Bundle();
    controller.pause().stop().saveInstanceState(saved);
    ModelsActivity next =
        org.robolectric.Robolectric.buildActivity(ModelsActivity.class, intent).setup(saved).get();
    assertEquals(
        app.getString(R.string.problem_model_interrupted)
            + " "
            + app.getString(R.string.problem_model_kept),
        notice(next));
    app.engine.letThrough(100);
    awaitMeasured(controller.get());

    File half = new File(own().getParentFile(), "incoming.tflite");
    Files.write(half.toPath(), new byte[10]);
    open();
    await(() -> !half.exists(), "the half copy to go");
  }

  @Test
  public void onesOwnBundleThatIsDamagedLaterGivesWayToTheModelOfTheApp() throws IOException {
    ModelsActivity screen = openModels(null).get();
    open(screen, album.add("mine.tflite", dense()));
    Files.write(own().toPath(), Arrays.copyOf(dense(), 1000));
    MainActivity main = openWith(Samples.TRIANGLE).get();
    assertEquals(sentence(Samples.TRIANGLE), text(main, R.id.caption));
    assertTrue(notice(main).endsWith(main.getString(R.string.problem_model_fallback)));
  }

  private void open(ModelsActivity screen, Uri document) {
    click(screen, R.id.open_model);
    answer(screen, Activity.RESULT_OK, new Intent().setData(document));
    awaitMeasured(screen);
  }

  private void assertRefused(ModelsActivity screen, byte[] content, int why) throws IOException {
    assertRefused(screen, album.add("bad.tflite", content), why);
  }

  /** The sentence, and the model that was in use before is so still, with its file and its name. */
  private void assertRefused(ModelsActivity screen, Uri document, int why) throws IOException {
    click(screen, R.id.notice_done);
    open(screen, document);
    assertEquals(
        screen.getString(why) + " " + screen.getString(R.string.problem_model_kept),
        notice(screen));
    assertUnchanged();
  }

  private void assertUnchanged() throws IOException {
    assertEquals(ModelChoice.OWN, app.models().chosen());
    assertEquals("mine.tflite", app.models().ownName());
    assertArrayEquals(dense(), Files.readAllBytes(own().toPath()));
    assertEquals("nothing is left over", 1, own().getParentFile().list().length);
  }

  private void awaitCaption(MainActivity screen, String caption) {
    await(() -> viewModel(screen).state().selected().caption().equals(caption), caption);
  }

  private File own() {
    return new File(new File(app.getFilesDir(), "models"), "own.tflite");
  }

  private static byte[] sparse() {
    return content("shapes_sparse");
  }

  private static byte[] dense() {
    return content("shapes_dense");
  }

  private static byte[] content(String model) {
    try {
      return Files.readAllBytes(Samples.model(model).toPath());
    } catch (IOException error) {
      throw new AssertionError(error);
    }
  }

  private static byte[] bytes(String name) throws IOException {
    return Files.readAllBytes(Samples.engines(name).toPath());
  }

  /** The same length, so that the archive stays whole; its checksum is another matter, so it is not used. */
  private static byte[] renamed(byte[] bundle, String from, String to) {
    String text = new String(bundle, StandardCharsets.ISO_8859_1);
    return text.replace(from, to).getBytes(StandardCharsets.ISO_8859_1);
  }

  private static byte[] newer(byte[] bundle) {
    return Bundles.withDescription(
        bundle, description -> description.replace("\"format_version\": 1", "\"format_version\": 2"));
  }
}
