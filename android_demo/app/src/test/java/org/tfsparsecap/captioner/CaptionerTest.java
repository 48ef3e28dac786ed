package org.tfsparsecap.captioner;

import static org.junit.Assert.assertEquals;
import static org.junit.Assert.assertFalse;
import static org.junit.Assert.assertNotEquals;
import static org.junit.Assert.assertThrows;
import static org.junit.Assert.assertTrue;

import android.graphics.Bitmap;
import android.graphics.Color;
import java.io.File;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Comparator;
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

/** Runs TFLite's Android library on the desktop. */
@RunWith(RobolectricTestRunner.class)
public class CaptionerTest {
  private static final int NO_CAPTION_SCORE = 255;

  @Test
  public void captionsEqualPythons() throws Exception {
    JSONObject models = Fixtures.object("captions.json");
    Set<String> distinct = new HashSet<>();
    for (Iterator<String> names = models.keys(); names.hasNext(); ) {
      String name = names.next();
      File file = Fixtures.asset(name);
      JSONObject model = models.getJSONObject(name);
      String again = name + " has changed: run fixtures.py again";
      assertEquals(again, model.getString("sha256"), Fixtures.sha256(file));
      // One thread, because two wait for each other actively, which is slow on a busy machine.
      try (Captioner captioner = new Captioner(CaptionerBundle.fromFile(file), 1)) {
        JSONObject images = model.getJSONObject("captions");
        for (Iterator<String> each = images.keys(); each.hasNext(); ) {
          String image = each.next();
          List<Caption> captions = captioner.caption(Fixtures.bitmap(image)).captions();
          assertEquals(model.getInt("beam"), captions.size());
          assertCaptions(
              name + " on " + image, images.getJSONArray(image), captions, model.getDouble("score_error"));
          distinct.add(captions.get(0).text());
        }
      }
    }
    assertTrue("same caption for all images: " + distinct, distinct.size() > 3);
  }

  /** In the order of their scores: the search also orders them by objects, in which they may be equal. */
  private static void assertCaptions(String where, JSONArray inOrder, List<Caption> found, double error)
      throws Exception {
    List<JSONObject> sorted = new ArrayList<>();
    for (int i = 0; i < inOrder.length(); i++) {
      sorted.add(inOrder.getJSONObject(i));
    }
    sorted.sort(Comparator.comparingDouble(each -> -each.optDouble("score")));
    JSONArray expected = new JSONArray(sorted);
    List<Caption> captions = new ArrayList<>(found.subList(0, inOrder.length()));
    captions.sort(Comparator.comparingDouble(each -> -each.logProbability()));
    for (int i = 0; i < expected.length(); i++) {
      double score = expected.getJSONObject(i).getDouble("score");
      assertEquals(where + ": " + captions.get(i).text(), score, captions.get(i).logProbability(), error);
      // Captions of nearly equal probability may be in either order.
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
  public void likelyObjectsEqualPythons() throws Exception {
    JSONObject images = Fixtures.object("objects.json");
    Set<List<String>> distinct = new HashSet<>();
    try (Captioner captioner = new Captioner(CaptionerBundle.fromFile(Fixtures.file("objects.tflite")), 1)) {
      for (Iterator<String> names = images.keys(); names.hasNext(); ) {
        String name = names.next();
        if (!name.startsWith("scene_")) {
          continue;
        }
        JSONObject expected = images.getJSONObject(name);
        CaptioningResult found = captioner.caption(Fixtures.bitmap(name));
        assertEquals(name, Fixtures.strings(expected.getJSONArray("objects")), found.objects());
        assertCaptions(name, expected.getJSONArray("captions"), found.captions(), 0.1);
        double confidence = expected.getJSONArray("captions").getJSONObject(0).getDouble("confidence");
        assertEquals(name, confidence, found.captions().get(0).confidence(), 0.02);
        distinct.add(found.objects());
        assertThrows(UnsupportedOperationException.class, () -> found.objects().add("cat"));
      }
    }
    assertTrue("same objects for all images: " + distinct, distinct.size() > 3);
    try (Captioner captioner = new Captioner(echo(), 1)) {
      Bitmap image = image(new int[][] {{4, 2, 0, 0}, {5, 2, 0, 0}, {5, 2, 0, 0}}, 16, 32, 48);
      assertTrue(captioner.caption(image).objects().isEmpty());
    }
  }

  @Test
  public void objectsThatTheGraphDoesNotReturnAreDamage() throws Exception {
    String description = Fixtures.withoutDigests(echo().description().json());
    String named = description.replaceFirst("\\{", "{\"objects\": [\"cat\"], ");
    byte[] graph = Fixtures.graph(Fixtures.bytes("echo.tflite"));
    assertEquals(Reason.DAMAGED, reason(Fixtures.write(Fixtures.bundle(graph, named, "a\n"))));
    byte[] whole = Fixtures.bytes("objects.tflite");
    CaptionerBundle bundle = CaptionerBundle.fromFile(Fixtures.file("objects.tflite"));
    JSONObject fewer = new JSONObject(Fixtures.withoutDigests(bundle.description().json()));
    fewer.put("objects", new JSONArray(Arrays.asList("cat", "dog")));
    String words = String.join("\n", bundle.vocabulary()) + "\n";
    File file = Fixtures.write(Fixtures.bundle(Fixtures.graph(whole), fewer.toString(), words));
    try (Captioner captioner = new Captioner(CaptionerBundle.fromFile(file), 1)) {
      Bitmap image = Fixtures.bitmap("scene_0.png");
      assertEquals(Reason.DAMAGED, assertThrows(BundleException.class, () -> captioner.caption(image)).reason());
    }
  }

  @Test
  public void decodesTheGraphsOutput() throws Exception {
    try (Captioner captioner = new Captioner(echo(), 1)) {
      CaptioningResult captioning =
          captioner.caption(image(new int[][] {{4, 5, 2, 0}, {5, 2, 0, 0}, {2, 0, 0, 0}}, 24, 32, 48));
      List<Caption> captions = captioning.captions();
      assertEquals(Arrays.asList("a dog", "dog", ""), texts(captions));
      assertEquals(-1.5f, captions.get(0).logProbability(), 0);
      assertFalse(captions.get(0).hasConfidence());
      assertEquals(-3f, captions.get(2).logProbability(), 0);
      assertTrue(captioning.runMilliseconds() > 0);
      assertTrue(captioning.totalMilliseconds() >= captioning.runMilliseconds());
      assertThrows(UnsupportedOperationException.class, () -> captions.remove(0));
    }
  }

  @Test
  public void skipsBeamsWithoutCaption() throws Exception {
    try (Captioner captioner = new Captioner(echo(), 1)) {
      int[][] tokens = {{4, 2, 0, 0}, {5, 2, 0, 0}, {4, 5, 2, 0}};
      assertEquals(
          Arrays.asList("a", "a dog"),
          texts(captioner.caption(image(tokens, 16, NO_CAPTION_SCORE, 48)).captions()));
      Bitmap none = image(tokens, NO_CAPTION_SCORE, NO_CAPTION_SCORE, NO_CAPTION_SCORE);
      assertTrue(captioner.caption(none).captions().isEmpty());
      Bitmap lowest = image(tokens, 16, 32, 48);
      lowest.setPixel(0, 2, Color.rgb(4, 48, NO_CAPTION_SCORE));
      assertEquals(Arrays.asList("a", "dog"), texts(captioner.caption(lowest).captions()));
    }
  }

  @Test
  public void tokenOutsideTheVocabularyIsDamage() throws Exception {
    try (Captioner captioner = new Captioner(echo(), 1)) {
      Bitmap beyond = image(new int[][] {{4, 8, 2, 0}, {5, 2, 0, 0}, {5, 2, 0, 0}}, 16, 32, 48);
      assertEquals(Reason.DAMAGED, assertThrows(BundleException.class, () -> captioner.caption(beyond)).reason());
      // The captioner still works.
      Bitmap good = image(new int[][] {{4, 2, 0, 0}, {5, 2, 0, 0}, {5, 2, 0, 0}}, 16, 32, 48);
      assertEquals("a", captioner.caption(good).captions().get(0).text());
    }
  }

  @Test
  public void imagesDoNotAffectEachOther() throws Exception {
    File file = Fixtures.asset("small.tflite");
    try (Captioner captioner = new Captioner(CaptionerBundle.fromFile(file), 1)) {
      List<Caption> first = captioner.caption(Fixtures.bitmap("scene_0.png")).captions();
      Bitmap other = Fixtures.bitmap("scene_3.png");
      assertNotEquals(first, captioner.caption(other).captions());
      other.recycle();
      assertEquals(first, captioner.caption(Fixtures.bitmap("scene_0.png")).captions());
    }
  }

  @Test
  public void reportsModelsThatCannotRun() throws Exception {
    assertEquals(Reason.NOT_RUNNABLE, reason("future_operator.tflite"));
    assertEquals(Reason.TAKES_FEATURES, reason("features.tflite"));
    assertEquals(Reason.DAMAGED, reason("silent.tflite"));
    assertEquals(Reason.DAMAGED, reason("other_signature.tflite"));
    // Only the header of a model, followed by an archive.
    String description = Fixtures.withoutDigests(echo().description().json());
    File hollow = Fixtures.write(Fixtures.bundle(Fixtures.GRAPH, description, "a\n"));
    assertEquals(Reason.NOT_RUNNABLE, reason(hollow));
    byte[] graph = Fixtures.graph(Fixtures.bytes("echo.tflite"));
    String large = description.replace("\"image_size\": 4", "\"image_size\": 5");
    assertNotEquals(description, large);
    assertEquals(Reason.DAMAGED, reason(Fixtures.write(Fixtures.bundle(graph, large, "a\n"))));
  }

  @Test
  public void rejectsZeroThreads() throws Exception {
    CaptionerBundle bundle = echo();
    assertThrows(IllegalArgumentException.class, () -> new Captioner(bundle, 0));
  }

  @Test
  public void closedCaptionerThrows() throws Exception {
    Captioner captioner = new Captioner(echo(), 1);
    Bitmap image = image(new int[][] {{4, 2, 0, 0}, {5, 2, 0, 0}, {5, 2, 0, 0}}, 16, 32, 48);
    captioner.caption(image);
    captioner.close();
    captioner.close();
    assertThrows(IllegalStateException.class, () -> captioner.caption(image));
    assertEquals(4, captioner.bundle().description().imageSize());
  }

  @Test
  public void concurrentCallsAreSerialized() throws Exception {
    ExecutorService threads = Executors.newFixedThreadPool(3);
    CaptionerBundle bundle = CaptionerBundle.fromFile(Fixtures.file("objects.tflite"));
    try (Captioner captioner = new Captioner(bundle, 1)) {
      Bitmap[] images = {Fixtures.bitmap("scene_0.png"), Fixtures.bitmap("scene_3.png")};
      List<List<Caption>> expected =
          Arrays.asList(captioner.caption(images[0]).captions(), captioner.caption(images[1]).captions());
      List<Future<CaptioningResult>> results =
          IntStream.range(0, 60)
              .mapToObj(i -> threads.submit(() -> captioner.caption(images[i % 2])))
              .collect(Collectors.toList());
      for (int i = 0; i < results.size(); i++) {
        assertEquals(expected.get(i % 2), results.get(i).get().captions());
      }
    } finally {
      threads.shutdownNow();
    }
  }

  /** An image whose pixels determine the output of the Echo graph, see bundle_fixtures.py. */
  private static Bitmap image(int[][] tokens, int... scores) {
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
