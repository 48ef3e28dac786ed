package org.tfsparsecap.captioner;

import static org.junit.Assert.assertEquals;
import static org.junit.Assert.assertFalse;
import static org.junit.Assert.assertThrows;
import static org.junit.Assert.assertTrue;

import java.util.Arrays;
import java.util.Optional;
import java.util.OptionalDouble;
import java.util.OptionalInt;
import org.junit.Test;
import org.junit.runner.RunWith;
import org.robolectric.RobolectricTestRunner;

@RunWith(RobolectricTestRunner.class)
public class BundleDescriptionTest {
  private static final String NEEDED =
      "\"format_version\": 1, \"image_size\": 224, \"join\": \"words\", \"special_ids\": {\"end\": 2}";

  @Test
  public void readsPresentFields() throws Exception {
    BundleDescription description =
        new BundleDescription(
            "{" + NEEDED + ", \"run\": \"small\", \"model\": \"SoftAttention\", \"trained_on\": \"flickr8k\","
                + " \"sparsity\": 0.95, \"export_format\": \"auto\", \"beam\": 3, \"max_length\": 16,"
                + " \"scores\": {\"split\": \"test\", \"images\": 1000, \"CIDEr\": 0.327, \"SPICE\": NaN}}");
    assertEquals(Optional.of("small"), description.name());
    assertEquals(Optional.of("SoftAttention"), description.model());
    assertEquals(Optional.of("flickr8k"), description.trainedOn());
    assertEquals(OptionalDouble.of(0.95), description.sparsity());
    assertEquals(Optional.of("auto"), description.exportFormat());
    assertEquals(OptionalInt.of(3), description.beam());
    assertEquals(OptionalInt.of(16), description.maxLength());
    assertEquals(Arrays.asList("images", "CIDEr"), Arrays.asList(description.scores().keySet().toArray()));
    assertEquals(0.327, description.scores().get("CIDEr"), 0);
    assertThrows(UnsupportedOperationException.class, () -> description.scores().clear());
  }

  @Test
  public void missingFieldsAndWrongTypesAreEmpty() throws Exception {
    for (String more : new String[] {"", ", \"run\": null, \"sparsity\": \"much\", \"beam\": null, \"scores\": []"}) {
      BundleDescription description = new BundleDescription("{" + NEEDED + more + "}");
      assertFalse(description.name().isPresent());
      assertFalse(description.sparsity().isPresent());
      assertFalse(description.beam().isPresent());
      assertTrue(description.scores().isEmpty());
    }
  }

  @Test
  public void namesOfObjectsAreChecked() throws Exception {
    String objects = "{" + NEEDED + ", \"objects\": ";
    assertEquals(Arrays.asList("cat", "dog"), new BundleDescription(objects + "[\"cat\", \"dog\"]}").objects());
    assertTrue(new BundleDescription("{" + NEEDED + "}").objects().isEmpty());
    for (String none : new String[] {"null}", "[]}"}) {
      assertTrue(new BundleDescription(objects + none).objects().isEmpty());
    }
    for (String wrong : new String[] {"\"cat\"}", "{}}", "3}", "[3]}", "[\"\"]}", "[null]}", "[[\"cat\"]]}"}) {
      BundleException error = assertThrows(BundleException.class, () -> new BundleDescription(objects + wrong));
      assertEquals(wrong, BundleException.Reason.DAMAGED, error.reason());
    }
  }

  @Test
  public void acceptsNanAndInfinityFromPython() throws Exception {
    String more = "\"sparsity\": -Infinity, \"run\": \"NaN \\\" Infinity\", \"error\": [NaN, Infinity]";
    String text = "{" + NEEDED + ", " + more + "}";
    BundleDescription description = new BundleDescription(text);
    assertFalse(description.sparsity().isPresent());
    assertEquals(Optional.of("NaN \" Infinity"), description.name());
    assertEquals(text, description.json());
  }
}
