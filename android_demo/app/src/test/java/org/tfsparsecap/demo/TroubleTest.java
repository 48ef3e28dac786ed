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

/** Photos and built-in models that cannot be used: a sentence each, and the app goes on. */
public final class TroubleTest extends ScreenTest {
  @Test
  public void anEmptyFile() {
    assertTrouble(album.add("empty.jpg", new byte[0]), R.string.problem_photo_empty);
  }

  @Test
  public void aVideo() {
    byte[] video = new byte[5000];
    byte[] head = "\0\0\0\u0018ftypmp42\0\0\0\0mp42isom".getBytes(StandardCharsets.ISO_8859_1);
    System.arraycopy(head, 0, video, 0, head.length);
    assertTrouble(album.add("film.mp4", video), R.string.problem_photo_not_a_picture);
  }

  @Test
  public void aPhotoThatIsCutOffBeforeItsPixels() {
    byte[] half = Arrays.copyOf(Samples.bytes(Samples.TRIANGLE), 100);
    assertTrouble(album.add("half.jpg", half), R.string.problem_photo_not_a_picture);
  }

  @Test
  public void aPhotoThatMayNotBeRead() {
    Uri photo = album.photo(Samples.TRIANGLE);
    album.lock(photo);
    assertTrouble(photo, R.string.problem_photo_denied);
  }

  @Test
  public void aPhotoThatWasDeleted() {
    Uri photo = album.photo(Samples.TRIANGLE);
    album.delete(photo);
    assertTrouble(photo, R.string.problem_photo_gone);
  }

  @Test
  public void aPhotoThatIsDeletedWhileItIsRead() {
    Uri photo = album.photo(Samples.TRIANGLE);
    album.deleteAfter(photo, 1);
    assertTrouble(photo, R.string.problem_photo_gone);
  }

  @Test
  public void aPhotoThatIsDeletedBetweenShowingAndCaptioning() {
    Uri photo = album.photo(Samples.TRIANGLE);
    album.deleteAfter(photo, 3); // what reading it once takes
    MainActivity screen = open(MainActivity.class, share(photo)).get();
    awaitCaptions(screen);
    assertEquals(screen.getString(R.string.problem_photo_gone), text(screen, R.id.problem));
    assertTrue("what was read of it stays", isShown(screen, R.id.photo));
  }

  @Test
  public void anAppThatIsNotThere() {
    assertTrouble(Uri.parse("content://org.example.gone/1.jpg"), R.string.problem_photo_gone);
  }

  @Test
  public void tooLittleMemory() {
    app.engine.failure = new OutOfMemoryError();
    Uri photo = album.photo(Samples.TRIANGLE);
    MainActivity screen = assertTrouble(photo, R.string.problem_out_of_memory);
    click(screen, R.id.retry);
    awaitCaptions(screen);
    assertEquals(sentence(Samples.TRIANGLE), text(screen, R.id.caption));
    assertFalse(isShown(screen, R.id.problem));
  }

  @Test
  public void whatNobodyExpectedIsNamed() {
    app.engine.failure = new IllegalStateException("a bug");
    MainActivity screen = open(MainActivity.class, share(album.photo(Samples.TRIANGLE))).get();
    awaitCaptions(screen);
    assertEquals(
        screen.getString(R.string.problem_unexpected, "IllegalStateException"),
        text(screen, R.id.problem));
  }

  @Test
  public void aPhotoThatHasComeBackIsReadWhenTriedAgain() {
    Uri photo = album.photo(Samples.TRIANGLE);
    album.delete(photo);
    MainActivity screen = assertTrouble(photo, R.string.problem_photo_gone);
    album.photo(Samples.TRIANGLE);
    click(screen, R.id.retry);
    awaitCaptions(screen);
    assertEquals(sentence(Samples.TRIANGLE), text(screen, R.id.caption));
    assertTrue(isShown(screen, R.id.photo));
  }

  @Test
  public void oneBadPhotoAmongOthersDoesNoHarm() {
    Uri bad = album.add("empty.jpg", new byte[0]);
    MainActivity screen =
        open(MainActivity.class, share(album.photo(Samples.TRIANGLE), bad, album.photo(Samples.HEART_STAR)))
            .get();
    awaitCaptions(screen);
    assertEquals(sentence(Samples.TRIANGLE), text(screen, R.id.caption));
    assertEquals(
        "Photo 2 of 3: " + screen.getString(R.string.problem_photo_empty),
        children(screen, R.id.strip).get(1).getContentDescription());
    children(screen, R.id.strip).get(1).performClick();
    assertEquals(screen.getString(R.string.problem_photo_empty), text(screen, R.id.problem));
    children(screen, R.id.strip).get(2).performClick();
    assertEquals(sentence(Samples.HEART_STAR), text(screen, R.id.caption));
  }

  @Test
  public void aModelWithoutWordsForAPhoto() {
    app.engine.silent = true;
    assertTrouble(album.photo(Samples.TRIANGLE), R.string.problem_no_words);
  }

  @Test
  public void aDamagedModelGivesWayToTheOtherOne() throws IOException {
    app.engine.builtIn.put(ModelChoice.SPARSE, cut(Samples.model("shapes_sparse")));
    MainActivity screen = open(MainActivity.class, share(album.photo(Samples.TRIANGLE))).get();
    awaitCaptions(screen);
    String dense = Samples.captions(Samples.TRIANGLE, "dense").get(0);
    assertEquals(dense, text(screen, R.id.caption).toLowerCase(java.util.Locale.ROOT));
    assertEquals(
        screen.getString(R.string.problem_model_cut_short)
            + " "
            + screen.getString(R.string.problem_model_fallback),
        notice(screen));
    assertEquals(ModelChoice.DENSE, app.models().chosen());
  }

  @Test
  public void twoDamagedModelsAreNotTriedForEver() throws IOException {
    app.engine.builtIn.put(ModelChoice.SPARSE, cut(Samples.model("shapes_sparse")));
    app.engine.builtIn.put(ModelChoice.DENSE, Samples.engines("future_operator.tflite"));
    MainActivity screen =
        assertTrouble(album.photo(Samples.TRIANGLE), R.string.problem_model_not_runnable);
    assertFalse("nothing says that another model is used", isShown(screen, R.id.notice));
  }

  @Test
  public void aModelThatFailsOnAPhotoGivesWayToTheOtherOne() {
    app.engine.failure = new BundleException(BundleException.Reason.DAMAGED, "token 99 of 40");
    MainActivity screen = open(MainActivity.class, share(album.photo(Samples.TRIANGLE))).get();
    awaitCaptions(screen);
    assertTrue(isShown(screen, R.id.caption));
    assertTrue(notice(screen).startsWith(screen.getString(R.string.problem_model_damaged)));
  }

  @Test
  public void withoutAnyModelItSaysHowToGetOne() {
    app.builtIn = EnumSet.noneOf(ModelChoice.class);
    assertTrouble(album.photo(Samples.TRIANGLE), R.string.problem_model_missing);
  }

  @Test
  public void aPhoneThatTensorFlowLiteDoesNotRunOn() {
    app.engine.failure =
        new BundleException(
            BundleException.Reason.NOT_RUNNABLE, "", new UnsatisfiedLinkError("no library for riscv64"));
    assertTrouble(album.photo(Samples.TRIANGLE), R.string.problem_no_runtime);
    assertEquals("no other model runs either", ModelChoice.SPARSE, app.models().chosen());
  }

  /** The sentence is there, and nothing else is broken: the next photo is captioned. */
  private MainActivity assertTrouble(Uri photo, int sentence) {
    MainActivity screen = open(MainActivity.class, share(photo)).get();
    awaitCaptions(screen);
    assertEquals(screen.getString(sentence), text(screen, R.id.problem));
    assertEquals("", text(screen, R.id.caption));
    assertFalse(isShown(screen, R.id.actions));
    assertTrue(isShown(screen, R.id.retry));
    assertTrue(isShown(screen, R.id.choose));
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
