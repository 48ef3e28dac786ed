package org.tfsparsecap.demo;

import static org.junit.Assert.assertEquals;
import static org.junit.Assert.assertFalse;
import static org.junit.Assert.assertTrue;

import android.content.ClipboardManager;
import android.text.Spanned;
import android.text.style.LocaleSpan;
import android.view.View;
import android.widget.TextView;
import java.util.Collections;
import java.util.List;
import java.util.Locale;
import org.json.JSONArray;
import org.json.JSONException;
import org.json.JSONObject;
import org.junit.Before;
import org.junit.Test;
import org.robolectric.RuntimeEnvironment;
import org.robolectric.android.controller.ActivityController;

/** Likely objects instead of captions of low confidence, with a model that predicts objects. */
public final class ObjectsTest extends ScreenTest {
  /** The model is not sure of its caption, and finds objects. */
  private static final String UNSURE = SamplePhotos.HEART_CROSS;
  /** The model is rather sure of its caption, and finds an object. */
  private static final String SURE = SamplePhotos.TRIANGLE;

  @Before
  public void openAModelThatPredictsObjects() {
    app.engine.builtIn.put(ModelChoice.SPARSE, SamplePhotos.captionerFixture("objects.tflite"));
  }

  @Test
  public void objectsAreShownAndReadAloud() {
    ActivityController<MainActivity> controller = openWith(UNSURE);
    MainActivity screen = controller.get();
    assertEquals("Perhaps: " + objects(UNSURE), text(screen, R.id.caption));
    assertFalse(isShown(screen, R.id.confidence));
    assertEquals(
        "Photo: Perhaps: " + objects(UNSURE), screen.findViewById(R.id.photo).getContentDescription());
    List<View> rows = children(screen, R.id.alternatives);
    assertEquals(2, rows.size());
    TextView first = rows.get(0).findViewById(R.id.row_text);
    assertEquals(caption(UNSURE), first.getText().toString().toLowerCase(Locale.ROOT));
    click(screen, R.id.speak);
    assertEquals(Collections.singletonList("Perhaps: " + objects(UNSURE)), app.speaker.spoken);
    click(screen, R.id.copy);
    ClipboardManager clipboard = app.getSystemService(ClipboardManager.class);
    assertEquals("Perhaps: " + objects(UNSURE), clipboard.getPrimaryClip().getItemAt(0).getText().toString());

    MainActivity next = killAndRestore(controller).get();
    assertEquals("Perhaps: " + objects(UNSURE), text(next, R.id.caption));
  }

  @Test
  public void surePhotosAndThoseWithoutObjectsHaveCaptions() {
    MainActivity screen = openWith(SURE).get();
    assertFalse(objects(SURE).isEmpty());
    assertEquals(caption(SURE), text(screen, R.id.caption).toLowerCase(Locale.ROOT));
    assertTrue(text(screen, R.id.confidence).startsWith("Probably"));
    app.engine.noObjects = true;
    screen = openWith(UNSURE).get();
    assertEquals(caption(UNSURE), text(screen, R.id.caption).toLowerCase(Locale.ROOT));
    assertTrue(text(screen, R.id.confidence).startsWith("Not sure"));
  }

  @Test
  public void germanNamesTheObjectsInEnglish() {
    RuntimeEnvironment.setQualifiers("de-rDE-w411dp-h891dp-xhdpi");
    MainActivity screen = openWith(UNSURE).get();
    assertEquals("Vielleicht: " + objects(UNSURE), text(screen, R.id.caption));
    Spanned shown = (Spanned) ((TextView) screen.findViewById(R.id.caption)).getText();
    LocaleSpan[] marked = shown.getSpans(0, shown.length(), LocaleSpan.class);
    assertEquals(1, marked.length);
    assertEquals("Vielleicht: ".length(), shown.getSpanStart(marked[0]));
    click(screen, R.id.speak);
    assertEquals(
        "the voice is English",
        Collections.singletonList("Perhaps: " + objects(UNSURE)),
        app.speaker.spoken);
  }

  @Test
  public void comparisonShowsObjects() {
    ModelsActivity screen = openModels(album.photo(UNSURE)).get();
    View card = children(screen, R.id.cards).get(0);
    TextView caption = card.findViewById(R.id.model_caption);
    assertEquals("Perhaps: " + objects(UNSURE), caption.getText().toString());
    TextView confidence = card.findViewById(R.id.model_confidence);
    assertEquals("", confidence.getText().toString());
  }

  /** The likely objects in Python, with commas. */
  private static String objects(String photo) {
    JSONArray names = expected(photo).optJSONArray("objects");
    StringBuilder joined = new StringBuilder();
    for (int i = 0; i < names.length(); i++) {
      joined.append(i == 0 ? "" : ", ").append(names.optString(i));
    }
    return joined.toString();
  }

  /** The best caption in Python. */
  private static String caption(String photo) {
    return expected(photo).optJSONArray("captions").optJSONObject(0).optString("text");
  }

  private static JSONObject expected(String photo) {
    try {
      return new JSONObject(SamplePhotos.captionerText("objects.json")).getJSONObject(photo);
    } catch (JSONException error) {
      throw new AssertionError(error);
    }
  }
}
