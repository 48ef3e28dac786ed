package org.tfsparsecap.captioner;

import java.io.ByteArrayOutputStream;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.tfsparsecap.captioner.BundleException.Reason;

/** How tokens become text. */
enum TokenJoin {
  /** Words, with a space between them. */
  WORDS {
    @Override
    String join(List<String> tokens) {
      return String.join(" ", tokens);
    }
  },
  /** SentencePiece's: a letter of its own is the space, and what has no piece is spelt in bytes. */
  PIECES {
    @Override
    String join(List<String> tokens) {
      ByteArrayOutputStream utf8 = new ByteArrayOutputStream();
      for (String token : tokens) {
        Matcher spelt = BYTE.matcher(token);
        if (spelt.matches()) {
          utf8.write(Integer.parseInt(spelt.group(1), 16));
        } else {
          byte[] bytes = token.replace(SPACE, ' ').getBytes(StandardCharsets.UTF_8);
          utf8.write(bytes, 0, bytes.length);
        }
      }
      String text = LenientUtf8.decode(utf8.toByteArray());
      int from = 0;
      int to = text.length();
      while (from < to && text.charAt(from) == ' ') {
        from++;
      }
      while (to > from && text.charAt(to - 1) == ' ') {
        to--;
      }
      return text.substring(from, to);
    }
  };

  private static final Pattern BYTE = Pattern.compile("<0x([0-9A-F]{2})>");
  private static final char SPACE = '\u2581';

  /** The text that tokens make. */
  abstract String join(List<String> tokens);

  /**
   * @param name as a description has it.
   * @throws BundleException it is none that is known here.
   */
  static TokenJoin named(Object name) throws BundleException {
    if ("words".equals(name)) {
      return WORDS;
    }
    if ("pieces".equals(name)) {
      return PIECES;
    }
    throw new BundleException(Reason.DAMAGED, "the description does not say how words are joined: " + name);
  }
}
