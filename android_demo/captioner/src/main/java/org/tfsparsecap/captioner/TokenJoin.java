package org.tfsparsecap.captioner;

import java.io.ByteArrayOutputStream;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.tfsparsecap.captioner.BundleException.Reason;

/** How tokens are joined to text. */
enum TokenJoin {
  /** Words, separated by spaces. */
  WORDS {
    @Override
    String join(List<String> tokens) {
      return String.join(" ", tokens);
    }
  },
  /**
   * SentencePiece: U+2581 stands for a space, and unknown characters are split into byte tokens.
   */
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
      String text = decodeUtf8(utf8.toByteArray());
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
  private static final char REPLACEMENT = '\ufffd';

  /** Joins tokens to text. */
  abstract String join(List<String> tokens);

  /**
   * @param name the value in the description.
   * @throws BundleException the name is unknown.
   */
  static TokenJoin named(Object name) throws BundleException {
    if ("words".equals(name)) {
      return WORDS;
    }
    if ("pieces".equals(name)) {
      return PIECES;
    }
    throw new BundleException(Reason.DAMAGED, "unknown join in the description: " + name);
  }

  /**
   * Decodes UTF-8 with one replacement character for each maximal invalid part, as Python does and
   * the Unicode standard recommends. Java's decoder counts the parts differently, and Android
   * versions disagree.
   */
  private static String decodeUtf8(byte[] utf8) {
    StringBuilder text = new StringBuilder(utf8.length);
    int pos = 0;
    while (pos < utf8.length) {
      int lead = utf8[pos++] & 255;
      int more =
          lead < 0x80 ? 0 : lead < 0xc2 ? -1 : lead < 0xe0 ? 1 : lead < 0xf0 ? 2 : lead < 0xf5 ? 3 : -1;
      if (more < 0) {
        text.append(REPLACEMENT);
        continue;
      }
      int point = more == 0 ? lead : lead & 0x3f >> more;
      // For some lead bytes the second byte has a smaller range: overlong forms and surrogates.
      int min = lead == 0xe0 ? 0xa0 : lead == 0xf0 ? 0x90 : 0x80;
      int max = lead == 0xed ? 0x9f : lead == 0xf4 ? 0x8f : 0xbf;
      while (more > 0 && pos < utf8.length && (utf8[pos] & 255) >= min && (utf8[pos] & 255) <= max) {
        point = point << 6 | utf8[pos++] & 0x3f;
        more--;
        min = 0x80;
        max = 0xbf;
      }
      text.appendCodePoint(more == 0 ? point : REPLACEMENT);
    }
    return text.toString();
  }
}
