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

/**
 * Bundles opened from the phone's storage: good ones are used from then on, bad ones change
 * nothing.
 */
public final class OpenModelTest extends ScreenTest {
  @Test
  public void asksForDocumentsOfAnyType() {
    ModelsActivity screen = openModels(null).get();
    click(screen, R.id.open_model);
    Intent asked = shadowOf(screen).getNextStartedActivityForResult().intent;
    assertEquals(Intent.ACTION_OPEN_DOCUMENT, asked.getAction());
    assertEquals("*/*", asked.getType());
    assertTrue(asked.hasCategory(Intent.CATEGORY_OPENABLE));
  }

  @Test
  public void reportsMissingFilePicker() {
    ModelsActivity screen = openModels(null).get();
    shadowOf(app).checkActivities(true);
    click(screen, R.id.open_model);
    assertEquals(screen.getString(R.string.problem_no_file_picker), notice(screen));
  }

  @Test
  public void validBundleIsCopiedMeasuredAndUsed() throws IOException {
    ModelsActivity screen = openModels(album.photo(SamplePhotos.HEART_CROSS)).get();
    open(screen, album.add("mine.tflite", dense()));
    assertEquals(screen.getString(R.string.problem_model_opened), notice(screen));
    assertEquals(ModelChoice.USER, app.models().chosen());
    assertArrayEquals(dense(), Files.readAllBytes(own().toPath()));
    assertEquals(3, children(screen, R.id.cards).size());
    TextView title = children(screen, R.id.cards).get(2).findViewById(R.id.model_title);
    assertEquals("Your model: mine.tflite", title.getText().toString());

    // As in a later process: the original is gone, the copy exists.
    ModelStore later =
        new ModelStore(app, app.engine, app.builtIn, app.settings(), folder -> Long.MAX_VALUE);
    assertEquals(ModelChoice.USER, later.chosen());
    MainActivity main = openWith(SamplePhotos.HEART_CROSS).get();
    String expected = SamplePhotos.captions(SamplePhotos.HEART_CROSS, "dense").get(0);
    assertEquals(expected, viewModel(main).state().selected().caption());
  }

  @Test
  public void newBundleReplacesTheOldOneAndPhotosAreCaptionedAgain() throws IOException {
    ActivityController<MainActivity> main = openWith(SamplePhotos.HEART_CROSS);
    ModelsActivity screen = openModels(null).get();
    open(screen, album.add("first.tflite", dense()));
    main.pause().stop().restart().start().resume();
    awaitCaption(main.get(), SamplePhotos.captions(SamplePhotos.HEART_CROSS, "dense").get(0));
    click(screen, R.id.notice_done);
    open(screen, album.add("second.tflite", sparse()));
    assertEquals("second.tflite", app.models().userModelName());
    main.pause().stop().restart().start().resume();
    awaitCaption(main.get(), SamplePhotos.captions(SamplePhotos.HEART_CROSS, "sparse").get(0));
    assertEquals("only one user model", 1, own().getParentFile().list().length);
  }

  @Test
  public void removingTheUserModelNeedsConfirmationAndRestoresTheBuiltInOne() {
    ModelsActivity screen = openModels(album.photo(SamplePhotos.TRIANGLE)).get();
    open(screen, album.add("mine.tflite", dense()));
    children(screen, R.id.cards).get(2).findViewById(R.id.model_remove).performClick();
    AlertDialog question = ShadowAlertDialog.getLatestAlertDialog();
    assertTrue(question.isShowing());
    assertEquals(ModelChoice.USER, app.models().chosen());
    question.getButton(AlertDialog.BUTTON_NEGATIVE).performClick();
    idleMainLooper();
    assertTrue(own().exists());
    children(screen, R.id.cards).get(2).findViewById(R.id.model_remove).performClick();
    ShadowAlertDialog.getLatestAlertDialog().getButton(AlertDialog.BUTTON_POSITIVE).performClick();
    idleMainLooper();
    assertFalse(own().exists());
    assertEquals(ModelChoice.SPARSE, app.models().chosen());
    assertEquals(2, children(screen, R.id.cards).size());
  }

  @Test
  public void removingAnUnusedUserModelKeepsTheModelInUse() {
    ModelsActivity screen = openModels(null).get();
    open(screen, album.add("mine.tflite", dense()));
    children(screen, R.id.cards).get(1).findViewById(R.id.model_use).performClick();
    models(screen).onRemovalAnswer(true);
    assertFalse(own().exists());
    assertEquals(ModelChoice.DENSE, app.models().chosen());
  }

  @Test
  public void rotationKeepsTheConfirmationDialog() {
    ActivityController<ModelsActivity> controller = openModels(null);
    open(controller.get(), album.add("mine.tflite", dense()));
    View card = children(controller.get(), R.id.cards).get(2);
    card.findViewById(R.id.model_remove).performClick();
    AlertDialog before = ShadowAlertDialog.getLatestAlertDialog();
    controller.recreate();
    controller.visible();
    idleMainLooper();
    AlertDialog after = ShadowAlertDialog.getLatestAlertDialog();
    assertNotSame(before, after);
    assertFalse(before.isShowing());
    assertTrue(after.isShowing());
    after.cancel();
    idleMainLooper();
    assertTrue(own().exists());
    assertFalse(models(controller.get()).state().confirmingRemoval());
  }

  @Test
  public void builtInModelCanBeUsedWithoutRemovingTheUserModel() {
    ModelsActivity screen = openModels(null).get();
    open(screen, album.add("mine.tflite", dense()));
    children(screen, R.id.cards).get(0).findViewById(R.id.model_use).performClick();
    assertEquals(ModelChoice.SPARSE, app.models().chosen());
    assertTrue(own().exists());
  }

  @Test
  public void openingABundleDoesNotBlockTheMainThread() throws InterruptedException {
    ModelsActivity screen = openModels(null).get();
    int opened = app.engine.opened;
    app.engine.block();
    models(screen).open(album.add("mine.tflite", dense()));
    await(() -> app.engine.opened > opened, "the bundle to be tried");
    Thread other =
        new Thread(
            () -> {
              app.models().choose(ModelChoice.DENSE);
              app.models().deleteLeftovers();
            });
    other.start();
    other.join(5000);
    boolean waits = other.isAlive();
    app.engine.release(100);
    assertFalse(waits);
    awaitMeasured(screen);
    assertEquals("its copy was not deleted", ModelChoice.USER, app.models().chosen());
  }

  @Test
  public void invalidBundlesAreReportedAndChangeNothing() throws IOException {
    ModelsActivity screen = openModels(null).get();
    open(screen, album.add("mine.tflite", dense()));
    byte[] sparse = sparse();
    assertRefused(screen, Arrays.copyOf(sparse, sparse.length / 2), R.string.problem_model_truncated);
    assertRefused(screen, Arrays.copyOfRange(sparse, 5, 99), R.string.problem_model_not_a_model);
    assertRefused(screen, new byte[0], R.string.problem_model_truncated);
    assertRefused(screen, SamplePhotos.bytes(SamplePhotos.TRIANGLE), R.string.problem_model_not_a_model);
    assertRefused(screen, newer(sparse), R.string.problem_model_newer_format);
    assertRefused(screen, bytes("features.tflite"), R.string.problem_model_takes_features);
    assertRefused(screen, bytes("future_operator.tflite"), R.string.problem_model_not_runnable);
    byte[] changed = bytes("echo.tflite");
    changed[changed.length / 4] ^= 1;
    assertRefused(screen, changed, R.string.problem_model_changed);
    assertRefused(
        screen, renamed(sparse, "captioner.json", "captioner.jsoM"), R.string.problem_model_no_description);
  }

  @Test
  public void videoIsRejectedBeforeItIsCopied() throws IOException {
    ModelsActivity screen = openModels(null).get();
    open(screen, album.add("mine.tflite", dense()));
    Uri video = Uri.parse("content://org.example.videos/holidays.mp4");
    AtomicLong read = new AtomicLong();
    shadowOf(app.getContentResolver())
        .registerInputStreamSupplier(
            video,
            () ->
                new InputStream() {
                  @Override
                  public int read() {
                    return read.incrementAndGet() > 1 << 20 ? -1 : 'f';
                  }
                });
    assertRefused(screen, video, R.string.problem_model_not_a_model);
    assertTrue("read " + read, read.get() <= 8192);
  }

  @Test
  public void unreadableDocumentsChangeNothing() throws IOException {
    ModelsActivity screen = openModels(null).get();
    open(screen, album.add("mine.tflite", dense()));
    Uri locked = album.add("locked.tflite", sparse());
    album.denyAccess(locked);
    assertRefused(screen, locked, R.string.problem_model_unreadable);
    Uri gone = album.add("gone.tflite", sparse());
    album.delete(gone);
    assertRefused(screen, gone, R.string.problem_model_unreadable);
    Uri cutOff = album.add("cut_off.tflite", sparse());
    album.deleteAfter(cutOff, 1); // deleted after its size was read
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
  public void insufficientStorageIsReportedAndChangesNothing() throws IOException {
    ModelsActivity screen = openModels(null).get();
    open(screen, album.add("mine.tflite", dense()));
    app.freeBytes = (8 << 20) + 100_000;
    String cameraFiles = " " + screen.getString(R.string.problem_model_kept);
    click(screen, R.id.notice_done);
    open(screen, album.add("large.tflite", sparse()));
    assertEquals(
        screen.getString(R.string.problem_model_no_storage, "8.7 MB", "8.5 MB") + cameraFiles,
        notice(screen));
    assertUnchanged();
    Uri streamed = Uri.parse("content://org.example.cloud/large.tflite"); // of unknown size
    shadowOf(app.getContentResolver())
        .registerInputStreamSupplier(streamed, () -> new ByteArrayInputStream(sparse()));
    click(screen, R.id.notice_done);
    open(screen, streamed);
    assertEquals(
        screen.getString(R.string.problem_model_no_storage_size_unknown, "8.5 MB") + cameraFiles,
        notice(screen));
    assertUnchanged();
  }

  @Test
  public void interruptedOpeningIsReportedAndItsCopyDeleted() throws IOException {
    app.engine.block();
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
    app.engine.release(100);
    awaitMeasured(controller.get());

    File half = new File(own().getParentFile(), "incoming.tflite");
    Files.write(half.toPath(), new byte[10]);
    open();
    await(() -> !half.exists(), "the incomplete copy to be deleted");
  }

  @Test
  public void fallsBackToABuiltInModelIfTheUserModelIsDamaged() throws IOException {
    ModelsActivity screen = openModels(null).get();
    open(screen, album.add("mine.tflite", dense()));
    Files.write(own().toPath(), Arrays.copyOf(dense(), 1000));
    MainActivity main = openWith(SamplePhotos.TRIANGLE).get();
    assertEquals(expectedCaption(SamplePhotos.TRIANGLE), text(main, R.id.caption));
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

  /** The message is shown, and the user's previous model stays in use. */
  private void assertRefused(ModelsActivity screen, Uri document, int why) throws IOException {
    click(screen, R.id.notice_done);
    open(screen, document);
    assertEquals(
        screen.getString(why) + " " + screen.getString(R.string.problem_model_kept),
        notice(screen));
    assertUnchanged();
  }

  private void assertUnchanged() throws IOException {
    assertEquals(ModelChoice.USER, app.models().chosen());
    assertEquals("mine.tflite", app.models().userModelName());
    assertArrayEquals(dense(), Files.readAllBytes(own().toPath()));
    assertEquals("leftover files", 1, own().getParentFile().list().length);
  }

  private void awaitCaption(MainActivity screen, String caption) {
    await(() -> viewModel(screen).state().selected().caption().equals(caption), caption);
  }

  private File own() {
    return new File(new File(app.getFilesDir(), "models"), "user.tflite");
  }

  private static byte[] sparse() {
    return content("shapes_sparse");
  }

  private static byte[] dense() {
    return content("shapes_dense");
  }

  private static byte[] content(String model) {
    try {
      return Files.readAllBytes(SamplePhotos.model(model).toPath());
    } catch (IOException error) {
      throw new AssertionError(error);
    }
  }

  private static byte[] bytes(String name) throws IOException {
    return Files.readAllBytes(SamplePhotos.captionerFixture(name).toPath());
  }

  /** Keeps the length, so that the archive stays valid. */
  private static byte[] renamed(byte[] bundle, String from, String to) {
    String text = new String(bundle, StandardCharsets.ISO_8859_1);
    return text.replace(from, to).getBytes(StandardCharsets.ISO_8859_1);
  }

  private static byte[] newer(byte[] bundle) {
    return Bundles.withDescription(
        bundle, description -> description.replace("\"format_version\": 1", "\"format_version\": 2"));
  }
}
