package org.tfsparsecap.captioner;

/**
 * UTF-8 with a replacement character for each stretch that is none, as Python has it and the standard recommends.
 * Java's own decoder counts such stretches in another way, and Android's versions differ among themselves.
 */
final class LenientUtf8 {
  private static final char REPLACEMENT = '\ufffd';

  private LenientUtf8() {}

  static String decode(byte[] utf8) {
    StringBuilder text = new StringBuilder(utf8.length);
    int at = 0;
    while (at < utf8.length) {
      int lead = utf8[at++] & 255;
      int more = lead < 0x80 ? 0 : lead < 0xc2 ? -1 : lead < 0xe0 ? 1 : lead < 0xf0 ? 2 : lead < 0xf5 ? 3 : -1;
      if (more < 0) {
        text.append(REPLACEMENT);
        continue;
      }
      int point = more == 0 ? lead : lead & 0x3f >> more;
      // The second byte has narrower bounds where the character would have a shorter spelling, or be none.
      int least = lead == 0xe0 ? 0xa0 : lead == 0xf0 ? 0x90 : 0x80;
      int most = lead == 0xed ? 0x9f : lead == 0xf4 ? 0x8f : 0xbf;
      while (more > 0 && at < utf8.length && (utf8[at] & 255) >= least && (utf8[at] & 255) <= most) {
        point = point << 6 | utf8[at++] & 0x3f;
        more--;
        least = 0x80;
        most = 0xbf;
      }
      text.appendCodePoint(more == 0 ? point : REPLACEMENT);
    }
    return text.toString();
  }
}
