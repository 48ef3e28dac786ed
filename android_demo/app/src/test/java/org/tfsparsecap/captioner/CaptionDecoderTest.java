package org.tfsparsecap.captioner;

import static org.junit.Assert.assertEquals;
import static org.junit.Assert.assertFalse;
import static org.junit.Assert.assertThrows;
import static org.junit.Assert.assertTrue;

import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.List;
import org.json.JSONArray;
import org.json.JSONException;
import org.json.JSONObject;
import org.junit.Test;
import org.junit.runner.RunWith;
import org.robolectric.RobolectricTestRunner;

@RunWith(RobolectricTestRunner.class)
public class CaptionDecoderTest {
  private static final float TOLERANCE = 1e-6f;
  /** Probabilities of objects of a captioner without objects. */
  private static final float[] NONE = {};

  @Test
  public void textEqualsPythons() throws Exception {
    List<JSONObject> cases = Fixtures.objects("texts.json");
    assertTrue(cases.size() > 50);
    for (JSONObject each : cases) {
      int[] ids = ints(each.getJSONArray("ids"));
      String text =
          text(each.getJSONObject("description"), each.getJSONArray("vocabulary")).caption(ids, -1, NONE).text();
      assertEquals(each.getString("description") + Arrays.toString(ids), each.getString("text"), text);
    }
  }

  @Test
  public void confidenceIsALogisticFunctionOfScoreLengthAndObjects() throws Exception {
    JSONObject description = wordDescription();
    JSONObject entry = new JSONObject("{\"slope\": 2.0, \"intercept\": 3, \"length_penalty\": 0.5}");
    CaptionDecoder text = text(description.put("confidence", entry), wordVocabulary());
    // Three predictions: two words and the end token.
    double three = 1 / (1 + Math.exp(2 * 2.5 / Math.sqrt(3) - 3));
    assertEquals(three, text.caption(new int[] {4, 5, 2, 0, 0}, -2.5f, NONE).confidence(), TOLERANCE);
    // No end token: as many predictions as the maximum length.
    assertEquals(three, text.caption(new int[] {4, 5, 4}, -2.5f, NONE).confidence(), TOLERANCE);
    assertEquals(0, text.caption(new int[] {2, 0}, -1e9f, NONE).confidence(), 0);
    entry.put("objects", 1.5).put("object_count", -0.5).put("tokens", 0.25);
    double seen = 1 / (1 + Math.exp(2 * 2.5 / Math.sqrt(3) - 1.5 * 0.8 + 0.5 * 0.9 - 0.25 * 3 - 3));
    CaptionDecoder sees = text(description, wordVocabulary());
    float[] probabilities = {0.1f, 0.8f};
    assertEquals(seen, sees.caption(new int[] {4, 5, 2}, -2.5f, probabilities).confidence(), TOLERANCE);
    entry.put("slope", JSONObject.NULL);
    BundleException error =
        assertThrows(BundleException.class, () -> text(description, wordVocabulary()));
    assertEquals(BundleException.Reason.DAMAGED, error.reason());
  }

  @Test
  public void filesWithoutCalibrationHaveNoConfidence() throws Exception {
    assertFalse(words().caption(new int[] {4, 5, 2}, -3, NONE).hasConfidence());
    JSONObject description = wordDescription().put("confidence", JSONObject.NULL);
    assertFalse(text(description, wordVocabulary()).caption(new int[] {4, 2}, -3, NONE).hasConfidence());
  }

  @Test
  public void rejectsTokensOutsideTheVocabulary() throws Exception {
    CaptionDecoder text = words();
    for (int token : new int[] {8, Integer.MAX_VALUE, -1}) {
      BundleException error =
          assertThrows(BundleException.class, () -> text.caption(new int[] {4, token}, -1, NONE));
      assertEquals(BundleException.Reason.DAMAGED, error.reason());
    }
    // Tokens after the end token are ignored, as in Python.
    assertEquals("a", text.caption(new int[] {4, 2, 8}, -1, NONE).text());
  }

  private static CaptionDecoder words() throws Exception {
    return text(wordDescription(), wordVocabulary());
  }

  private static JSONObject wordDescription() throws Exception {
    return wordCase().getJSONObject("description");
  }

  private static JSONArray wordVocabulary() throws Exception {
    return wordCase().getJSONArray("vocabulary");
  }

  private static JSONObject wordCase() throws Exception {
    for (JSONObject each : Fixtures.objects("texts.json")) {
      JSONObject description = each.getJSONObject("description");
      if (description.getString("join").equals("words") && description.optInt("unknown_id") == 3) {
        return each;
      }
    }
    throw new AssertionError("no such case");
  }

  private static CaptionDecoder text(JSONObject description, JSONArray vocabulary) throws Exception {
    StringBuilder lines = new StringBuilder();
    for (int i = 0; i < vocabulary.length(); i++) {
      lines.append(vocabulary.getString(i)).append('\n');
    }
    byte[] utf8 = lines.toString().getBytes(StandardCharsets.UTF_8);
    return new CaptionDecoder(Vocabulary.of(utf8), new BundleDescription(description.toString()));
  }

  private static int[] ints(JSONArray array) throws JSONException {
    int[] ints = new int[array.length()];
    for (int i = 0; i < ints.length; i++) {
      ints[i] = array.getInt(i);
    }
    return ints;
  }
}
