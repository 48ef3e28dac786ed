package org.tfsparsecap.captioner;

import java.nio.ByteBuffer;
import java.nio.CharBuffer;
import java.nio.charset.CharsetDecoder;
import java.nio.charset.CoderResult;
import java.nio.charset.StandardCharsets;
import java.util.AbstractList;
import java.util.RandomAccess;
import org.tfsparsecap.captioner.BundleException.Reason;

/**
 * The lines of a text as an unmodifiable list. Strings are created on access: a malicious file of
 * short lines would take fifty times its size if they were kept.
 */
final class Vocabulary extends AbstractList<String> implements RandomAccess {
  private final byte[] text;
  /** Start of each line, followed by the start of the line after the last one. */
  private final int[] starts;

  private Vocabulary(byte[] text, int[] starts) {
    this.text = text;
    this.starts = starts;
  }

  /**
   * @param text UTF-8, one token per line; not copied.
   * @throws BundleException the text is not valid UTF-8.
   */
  static Vocabulary of(byte[] text) throws BundleException {
    checkUtf8(text);
    int lines = 0;
    for (byte each : text) {
      lines += each == '\n' ? 1 : 0;
    }
    boolean openEnd = text.length > 0 && text[text.length - 1] != '\n';
    int[] starts = new int[lines + (openEnd ? 2 : 1)];
    int line = 1;
    for (int pos = 0; pos < text.length; pos++) {
      if (text[pos] == '\n') {
        starts[line++] = pos + 1;
      }
    }
    if (openEnd) {
      starts[line] = text.length + 1;
    }
    return new Vocabulary(text, starts);
  }

  @Override
  public String get(int index) {
    if (index < 0 || index >= size()) {
      throw new IndexOutOfBoundsException("token " + index + " of " + size());
    }
    int start = starts[index];
    return new String(text, start, starts[index + 1] - 1 - start, StandardCharsets.UTF_8);
  }

  @Override
  public int size() {
    return starts.length - 1;
  }

  private static void checkUtf8(byte[] text) throws BundleException {
    CharsetDecoder decoder = StandardCharsets.UTF_8.newDecoder();
    ByteBuffer bytes = ByteBuffer.wrap(text);
    CharBuffer ignored = CharBuffer.allocate(4096);
    CoderResult result;
    do {
      ignored.clear();
      result = decoder.decode(bytes, ignored, true);
    } while (result.isOverflow());
    if (result.isError()) {
      throw new BundleException(Reason.DAMAGED, "the vocabulary is not valid UTF-8 at byte " + bytes.position());
    }
  }
}
