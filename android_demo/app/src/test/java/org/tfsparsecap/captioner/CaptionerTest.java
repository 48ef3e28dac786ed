package org.tfsparsecap.captioner;

import static org.junit.Assert.assertEquals;
import static org.junit.Assert.assertNotEquals;
import static org.junit.Assert.assertThrows;
import static org.junit.Assert.assertTrue;

import android.graphics.Bitmap;
import android.graphics.Color;
import java.io.File;
import java.util.Arrays;
import java.util.HashSet;
import java.util.Iterator;
import java.util.List;
import java.util.Set;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import org.json.JSONArray;
import org.json.JSONObject;
import org.junit.Test;
import org.junit.runner.RunWith;
import org.robolectric.RobolectricTestRunner;
import org.tfsparsecap.captioner.BundleException.Reason;

/** The library of TFLite that apps get, on the desktop. */
@RunWith(RobolectricTestRunner.class)
public class CaptionerTest {
  private static final int NOTHING_FOUND = 255;

  @Test
  public void theAppsModelsSayWhatTheySayInPython() throws Exception {
    JSONObject models = Fixtures.object("captions.json");
    Set<String> said = new HashSet<>();
    for (Iterator<String> names = models.keys(); names.hasNext(); ) {
      String name = names.next();
      File file = Fixtures.asset(name);
      JSONObject model = models.getJSONObject(name);
      String again = name + " is not the model that fixtures.py captioned with: run it again";
      assertEquals(again, model.getString("sha256"), Fixtures.sha256(file));
      try (Captioner captioner = new Captioner(CaptionerBundle.fromFile(file), 2)) {
        JSONObject pictures = model.getJSONObject("captions");
        for (Iterator<String> each = pictures.keys(); each.hasNext(); ) {
          String picture = each.next();
          List<Caption> captions = captioner.caption(Fixtures.bitmap(picture)).captions();
          assertCaptions(
              name + " on " + picture, pictures.getJSONArray(picture), captions, model.getDouble("score_error"));
          said.add(captions.get(0).text());
        }
      }
    }
    assertTrue("the same for all pictures: " + said, said.size() > 3);
  }

  private static void assertCaptions(String where, JSONArray expected, List<Caption> captions, double error)
      throws Exception {
    assertEquals(where, expected.length(), captions.size());
    for (int i = 0; i < captions.size(); i++) {
      double score = expected.getJSONObject(i).getDouble("score");
      assertEquals(where, score, captions.get(i).logProbability(), error);
      // Captions that are nearly equally likely may change places.
      boolean tied = tie(expected, i, i - 1, error) || tie(expected, i, i + 1, error);
      if (!tied) {
        assertEquals(where, expected.getJSONObject(i).getString("text"), captions.get(i).text());
      }
    }
  }

  private static boolean tie(JSONArray expected, int one, int other, double error) throws Exception {
    return other >= 0
        && other < expected.length()
        && Math.abs(expected.getJSONObject(one).getDouble("score") - expected.getJSONObject(other).getDouble("score"))
            <= 2 * error;
  }

  @Test
  public void captionsAreReadFromTheGraphsTokens() throws Exception {
    try (Captioner captioner = new Captioner(echo(), 1)) {
      Captioning captioning =
          captioner.caption(picture(new int[][] {{4, 5, 2, 0}, {5, 2, 0, 0}, {2, 0, 0, 0}}, 24, 32, 48));
      List<Caption> captions = captioning.captions();
      assertEquals(Arrays.asList("a dog", "dog", ""), texts(captions));
      assertEquals(-1.5f, captions.get(0).logProbability(), 0);
      assertEquals(Math.exp(-1.5 / 3), captions.get(0).confidence(), 1e-6);
      assertEquals(-3f, captions.get(2).logProbability(), 0);
      assertTrue(captioning.runMilliseconds() > 0);
      assertTrue(captioning.totalMilliseconds() >= captioning.runMilliseconds());
      assertThrows(UnsupportedOperationException.class, () -> captions.remove(0));
    }
  }

  @Test
  public void aBeamThatFoundNothingIsLeftOut() throws Exception {
    try (Captioner captioner = new Captioner(echo(), 1)) {
      int[][] tokens = {{4, 2, 0, 0}, {5, 2, 0, 0}, {4, 5, 2, 0}};
      assertEquals(
          Arrays.asList("a", "a dog"),
          texts(captioner.caption(picture(tokens, 16, NOTHING_FOUND, 48)).captions()));
      Bitmap none = picture(tokens, NOTHING_FOUND, NOTHING_FOUND, NOTHING_FOUND);
      assertTrue(captioner.caption(none).captions().isEmpty());
      Bitmap lowest = picture(tokens, 16, 32, 48);
      lowest.setPixel(0, 2, Color.rgb(4, 48, NOTHING_FOUND));
      assertEquals(Arrays.asList("a", "dog"), texts(captioner.caption(lowest).captions()));
    }
  }

  @Test
  public void aTokenBeyondTheVocabularyIsDamage() throws Exception {
    try (Captioner captioner = new Captioner(echo(), 1)) {
      Bitmap beyond = picture(new int[][] {{4, 8, 2, 0}, {5, 2, 0, 0}, {5, 2, 0, 0}}, 16, 32, 48);
      assertEquals(Reason.DAMAGED, assertThrows(BundleException.class, () -> captioner.caption(beyond)).reason());
      // And it goes on.
      Bitmap good = picture(new int[][] {{4, 2, 0, 0}, {5, 2, 0, 0}, {5, 2, 0, 0}}, 16, 32, 48);
      assertEquals("a", captioner.caption(good).captions().get(0).text());
    }
  }

  @Test
  public void eachPictureIsSeenAnewAndNotKept() throws Exception {
    File file = Fixtures.asset("sparse.tflite");
    try (Captioner captioner = new Captioner(CaptionerBundle.fromFile(file), 1)) {
      List<Caption> first = captioner.caption(Fixtures.bitmap("scene_0.png")).captions();
      Bitmap other = Fixtures.bitmap("scene_3.png");
      assertNotEquals(first, captioner.caption(other).captions());
      other.recycle();
      assertEquals(first, captioner.caption(Fixtures.bitmap("scene_0.png")).captions());
    }
  }

  @Test
  public void whatTheRuntimeCannotRunIsSaid() throws Exception {
    assertEquals(Reason.NOT_RUNNABLE, reason("future_operator.tflite"));
    assertEquals(Reason.TAKES_FEATURES, reason("features.tflite"));
    assertEquals(Reason.DAMAGED, reason("silent.tflite"));
    assertEquals(Reason.DAMAGED, reason("other_signature.tflite"));
    // A head of a model and nothing behind it but an archive.
    String description = echo().description().json();
    File hollow = Fixtures.write(Fixtures.bundle(Fixtures.GRAPH, description, "a\n"));
    assertEquals(Reason.NOT_RUNNABLE, reason(hollow));
    byte[] graph = Fixtures.graph(Fixtures.bytes("echo.tflite"));
    String large = description.replace("\"image_size\": 4", "\"image_size\": 5");
    assertNotEquals(description, large);
    assertEquals(Reason.DAMAGED, reason(Fixtures.write(Fixtures.bundle(graph, large, "a\n"))));
  }

  @Test
  public void threadsMustBeSome() throws Exception {
    CaptionerBundle bundle = echo();
    assertThrows(IllegalArgumentException.class, () -> new Captioner(bundle, 0));
  }

  @Test
  public void closedItSaysSo() throws Exception {
    Captioner captioner = new Captioner(echo(), 1);
    Bitmap picture = picture(new int[][] {{4, 2, 0, 0}, {5, 2, 0, 0}, {5, 2, 0, 0}}, 16, 32, 48);
    captioner.caption(picture);
    captioner.close();
    captioner.close();
    assertThrows(IllegalStateException.class, () -> captioner.caption(picture));
    assertEquals(4, captioner.bundle().description().imageSize());
  }

  @Test
  public void severalThreadsWaitForEachOther() throws Exception {
    ExecutorService threads = Executors.newFixedThreadPool(3);
    CaptionerBundle bundle = CaptionerBundle.fromFile(Fixtures.asset("sparse.tflite"));
    try (Captioner captioner = new Captioner(bundle, 1)) {
      Bitmap[] pictures = {Fixtures.bitmap("scene_0.png"), Fixtures.bitmap("scene_3.png")};
      List<List<Caption>> expected =
          Arrays.asList(captioner.caption(pictures[0]).captions(), captioner.caption(pictures[1]).captions());
      List<Future<Captioning>> results =
          IntStream.range(0, 12)
              .mapToObj(i -> threads.submit(() -> captioner.caption(pictures[i % 2])))
              .collect(Collectors.toList());
      for (int i = 0; i < results.size(); i++) {
        assertEquals(expected.get(i % 2), results.get(i).get().captions());
      }
    } finally {
      threads.shutdownNow();
    }
  }

  /** A picture for the graph that says what its picture tells it to: see Echo in bundle_fixtures.py. */
  private static Bitmap picture(int[][] tokens, int... scores) {
    Bitmap bitmap = Bitmap.createBitmap(4, 4, Bitmap.Config.ARGB_8888);
    bitmap.eraseColor(Color.BLACK);
    for (int beam = 0; beam < tokens.length; beam++) {
      for (int i = 0; i < tokens[beam].length; i++) {
        bitmap.setPixel(i, beam, Color.rgb(tokens[beam][i], scores[beam], 0));
      }
    }
    return bitmap;
  }

  private static CaptionerBundle echo() throws Exception {
    return CaptionerBundle.fromFile(Fixtures.file("echo.tflite"));
  }

  private static Reason reason(String fixture) throws Exception {
    return reason(Fixtures.file(fixture));
  }

  private static Reason reason(File file) throws Exception {
    CaptionerBundle bundle = CaptionerBundle.fromFile(file);
    BundleException error = assertThrows(BundleException.class, () -> new Captioner(bundle, 1));
    return error.reason();
  }

  private static List<String> texts(List<Caption> captions) {
    return captions.stream().map(Caption::text).collect(Collectors.toList());
  }
}
