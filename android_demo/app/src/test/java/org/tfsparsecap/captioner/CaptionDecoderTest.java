package org.tfsparsecap.captioner;

import static org.junit.Assert.assertEquals;
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

  @Test
  public void textEqualsPythons() throws Exception {
    List<JSONObject> cases = Fixtures.objects("texts.json");
    assertTrue(cases.size() > 50);
    for (JSONObject each : cases) {
      int[] ids = ints(each.getJSONArray("ids"));
      String text =
          text(each.getJSONObject("description"), each.getJSONArray("vocabulary")).caption(ids, -1).text();
      assertEquals(each.getString("description") + Arrays.toString(ids), each.getString("text"), text);
    }
  }

  @Test
  public void confidenceIsTheMeanOverWordsAndEndToken() throws Exception {
    CaptionDecoder text = words();
    // Three predictions: two words and the end token.
    assertEquals(Math.exp(-1), text.caption(new int[] {4, 5, 2, 0, 0}, -3).confidence(), TOLERANCE);
    // No end token: as many predictions as the maximum length.
    assertEquals(Math.exp(-1), text.caption(new int[] {4, 5, 4}, -3).confidence(), TOLERANCE);
    assertEquals(1, text.caption(new int[] {2, 0}, 0).confidence(), 0);
    assertEquals(1, text.caption(new int[] {2, 0}, 1e-7f).confidence(), 0);
  }

  @Test
  public void rejectsTokensOutsideTheVocabulary() throws Exception {
    CaptionDecoder text = words();
    for (int token : new int[] {8, Integer.MAX_VALUE, -1}) {
      BundleException error =
          assertThrows(BundleException.class, () -> text.caption(new int[] {4, token}, -1));
      assertEquals(BundleException.Reason.DAMAGED, error.reason());
    }
    // Tokens after the end token are ignored, as in Python.
    assertEquals("a", text.caption(new int[] {4, 2, 8}, -1).text());
  }

  private static CaptionDecoder words() throws Exception {
    for (JSONObject each : Fixtures.objects("texts.json")) {
      JSONObject description = each.getJSONObject("description");
      if (description.getString("join").equals("words") && description.optInt("unknown_id") == 3) {
        return text(description, each.getJSONArray("vocabulary"));
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
