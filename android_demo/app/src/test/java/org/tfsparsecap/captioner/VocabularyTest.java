package org.tfsparsecap.captioner;

import static org.junit.Assert.assertEquals;
import static org.junit.Assert.assertThrows;

import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import org.junit.Test;

public class VocabularyTest {
  @Test
  public void splitsLinesIntoTokens() throws Exception {
    assertEquals(Arrays.asList("a", "schläft", "", "\ud83d\udc36\u2028s"), of("a\nschläft\n\n\ud83d\udc36\u2028s\n"));
    assertEquals(Arrays.asList("a", "dog"), of("a\ndog"));
    assertEquals(Arrays.asList("a\r", "dog\r"), of("a\r\ndog\r\n"));
    assertEquals(Collections.singletonList(""), of("\n"));
    assertEquals(Collections.emptyList(), of(""));
  }

  @Test
  public void isUnmodifiableAndChecksBounds() throws Exception {
    List<String> tokens = of("a\ndog\n");
    assertThrows(UnsupportedOperationException.class, () -> tokens.set(0, "b"));
    assertThrows(UnsupportedOperationException.class, () -> tokens.remove(0));
    assertThrows(IndexOutOfBoundsException.class, () -> tokens.get(2));
    assertThrows(IndexOutOfBoundsException.class, () -> tokens.get(-1));
  }

  @Test
  public void rejectsInvalidUtf8() {
    for (byte[] text : new byte[][] {{'a', '\n', (byte) 0xff}, {(byte) 0xe2, (byte) 0x82}}) {
      BundleException error = assertThrows(BundleException.class, () -> Vocabulary.of(text));
      assertEquals(BundleException.Reason.DAMAGED, error.reason());
    }
  }

  private static List<String> of(String text) throws BundleException {
    return Vocabulary.of(text.getBytes(StandardCharsets.UTF_8));
  }
}
