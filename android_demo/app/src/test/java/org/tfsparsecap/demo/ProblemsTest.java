package org.tfsparsecap.demo;

import static org.junit.Assert.assertEquals;
import static org.junit.Assert.assertFalse;
import static org.junit.Assert.assertTrue;

import android.net.Uri;
import java.io.File;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.util.Arrays;
import java.util.EnumSet;
import org.junit.Test;
import org.tfsparsecap.captioner.BundleException;

/**
 * Photos and built-in models that cannot be used: each has its message, and the app keeps working.
 */
public final class ProblemsTest extends ScreenTest {
  @Test
  public void emptyFile() {
    assertProblem(album.add("empty.jpg", new byte[0]), R.string.problem_photo_empty);
  }

  @Test
  public void video() {
    byte[] video = new byte[5000];
    byte[] head = "\0\0\0\u0018ftypmp42\0\0\0\0mp42isom".getBytes(StandardCharsets.ISO_8859_1);
    System.arraycopy(head, 0, video, 0, head.length);
    assertProblem(album.add("video.mp4", video), R.string.problem_photo_not_an_image);
  }

  @Test
  public void truncatedPhoto() {
    byte[] half = Arrays.copyOf(SamplePhotos.bytes(SamplePhotos.TRIANGLE), 100);
    assertProblem(album.add("half.jpg", half), R.string.problem_photo_not_an_image);
  }

  @Test
  public void deniedPhoto() {
    Uri photo = album.photo(SamplePhotos.TRIANGLE);
    album.denyAccess(photo);
    assertProblem(photo, R.string.problem_photo_denied);
  }

  @Test
  public void deletedPhoto() {
    Uri photo = album.photo(SamplePhotos.TRIANGLE);
    album.delete(photo);
    assertProblem(photo, R.string.problem_photo_gone);
  }

  @Test
  public void photoDeletedWhileReading() {
    Uri photo = album.photo(SamplePhotos.TRIANGLE);
    album.deleteAfter(photo, 1);
    assertProblem(photo, R.string.problem_photo_gone);
  }

  @Test
  public void photoDeletedBeforeCaptioning() {
    Uri photo = album.photo(SamplePhotos.TRIANGLE);
    album.deleteAfter(photo, 3); // reading a photo opens it three times
    MainActivity screen = open(MainActivity.class, share(photo)).get();
    awaitCaptions(screen);
    assertEquals(screen.getString(R.string.problem_photo_gone), text(screen, R.id.problem));
    assertTrue("the image stays", isShown(screen, R.id.photo));
  }

  @Test
  public void missingProvider() {
    assertProblem(Uri.parse("content://org.example.gone/1.jpg"), R.string.problem_photo_gone);
  }

  @Test
  public void outOfMemory() {
    app.engine.failure = new OutOfMemoryError();
    Uri photo = album.photo(SamplePhotos.TRIANGLE);
    MainActivity screen = assertProblem(photo, R.string.problem_out_of_memory);
    click(screen, R.id.retry);
    awaitCaptions(screen);
    assertEquals(expectedCaption(SamplePhotos.TRIANGLE), text(screen, R.id.caption));
    assertFalse(isShown(screen, R.id.problem));
  }

  @Test
  public void unexpectedExceptionIsNamed() {
    app.engine.failure = new IllegalStateException("a bug");
    MainActivity screen = open(MainActivity.class, share(album.photo(SamplePhotos.TRIANGLE))).get();
    awaitCaptions(screen);
    assertEquals(
        screen.getString(R.string.problem_unexpected, "IllegalStateException"),
        text(screen, R.id.problem));
  }

  @Test
  public void retryReadsARestoredPhoto() {
    Uri photo = album.photo(SamplePhotos.TRIANGLE);
    album.delete(photo);
    MainActivity screen = assertProblem(photo, R.string.problem_photo_gone);
    album.photo(SamplePhotos.TRIANGLE);
    click(screen, R.id.retry);
    awaitCaptions(screen);
    assertEquals(expectedCaption(SamplePhotos.TRIANGLE), text(screen, R.id.caption));
    assertTrue(isShown(screen, R.id.photo));
  }

  @Test
  public void oneBadPhotoDoesNotAffectOthers() {
    Uri bad = album.add("empty.jpg", new byte[0]);
    MainActivity screen =
        open(MainActivity.class, share(album.photo(SamplePhotos.TRIANGLE), bad, album.photo(SamplePhotos.HEART_STAR)))
            .get();
    awaitCaptions(screen);
    assertEquals(expectedCaption(SamplePhotos.TRIANGLE), text(screen, R.id.caption));
    assertEquals(
        "Photo 2 of 3: " + screen.getString(R.string.problem_photo_empty),
        children(screen, R.id.thumbnails).get(1).getContentDescription());
    children(screen, R.id.thumbnails).get(1).performClick();
    assertEquals(screen.getString(R.string.problem_photo_empty), text(screen, R.id.problem));
    children(screen, R.id.thumbnails).get(2).performClick();
    assertEquals(expectedCaption(SamplePhotos.HEART_STAR), text(screen, R.id.caption));
  }

  @Test
  public void noCaptionFound() {
    app.engine.noCaptions = true;
    assertProblem(album.photo(SamplePhotos.TRIANGLE), R.string.problem_no_caption);
  }

  @Test
  public void fallsBackIfTheModelIsDamaged() throws IOException {
    app.engine.builtIn.put(ModelChoice.SPARSE, cut(SamplePhotos.model("shapes_sparse")));
    MainActivity screen = open(MainActivity.class, share(album.photo(SamplePhotos.TRIANGLE))).get();
    awaitCaptions(screen);
    String dense = SamplePhotos.captions(SamplePhotos.TRIANGLE, "dense").get(0);
    assertEquals(dense, text(screen, R.id.caption).toLowerCase(java.util.Locale.ROOT));
    assertEquals(
        screen.getString(R.string.problem_model_truncated)
            + " "
            + screen.getString(R.string.problem_model_fallback),
        notice(screen));
    assertEquals(ModelChoice.DENSE, app.models().chosen());
  }

  @Test
  public void twoDamagedModelsAreTriedOnce() throws IOException {
    app.engine.builtIn.put(ModelChoice.SPARSE, cut(SamplePhotos.model("shapes_sparse")));
    app.engine.builtIn.put(ModelChoice.DENSE, SamplePhotos.captionerFixture("future_operator.tflite"));
    MainActivity screen =
        assertProblem(album.photo(SamplePhotos.TRIANGLE), R.string.problem_model_not_runnable);
    assertFalse("no fallback notice", isShown(screen, R.id.notice));
  }

  @Test
  public void fallsBackIfTheModelFailsOnAPhoto() {
    app.engine.failure = new BundleException(BundleException.Reason.DAMAGED, "token 99 of 40");
    MainActivity screen = open(MainActivity.class, share(album.photo(SamplePhotos.TRIANGLE))).get();
    awaitCaptions(screen);
    assertTrue(isShown(screen, R.id.caption));
    assertTrue(notice(screen).startsWith(screen.getString(R.string.problem_model_damaged)));
  }

  @Test
  public void noModel() {
    app.builtIn = EnumSet.noneOf(ModelChoice.class);
    assertProblem(album.photo(SamplePhotos.TRIANGLE), R.string.problem_model_missing);
  }

  @Test
  public void unsupportedProcessor() {
    app.engine.failure =
        new BundleException(
            BundleException.Reason.NOT_RUNNABLE, "", new UnsatisfiedLinkError("no library for riscv64"));
    assertProblem(album.photo(SamplePhotos.TRIANGLE), R.string.problem_no_runtime);
    assertEquals("no fallback", ModelChoice.SPARSE, app.models().chosen());
  }

  /** Expects this message instead of a caption, and that the app can still be used. */
  private MainActivity assertProblem(Uri photo, int message) {
    MainActivity screen = open(MainActivity.class, share(photo)).get();
    awaitCaptions(screen);
    assertEquals(screen.getString(message), text(screen, R.id.problem));
    assertEquals("", text(screen, R.id.caption));
    assertFalse(isShown(screen, R.id.actions));
    assertTrue(isShown(screen, R.id.retry));
    assertTrue(isShown(screen, R.id.choose_photos));
    return screen;
  }

  private static File cut(File bundle) throws IOException {
    byte[] content = Files.readAllBytes(bundle.toPath());
    File cut = File.createTempFile("cut", ".tflite");
    cut.deleteOnExit();
    Files.write(cut.toPath(), Arrays.copyOf(content, content.length / 2));
    return cut;
  }
}
