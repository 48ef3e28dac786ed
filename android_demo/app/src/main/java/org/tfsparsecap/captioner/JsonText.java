package org.tfsparsecap.captioner;

import java.nio.ByteBuffer;
import java.nio.charset.CharacterCodingException;
import java.nio.charset.StandardCharsets;
import org.json.JSONException;
import org.json.JSONObject;
import org.json.JSONTokener;
import org.tfsparsecap.captioner.BundleException.Reason;

/** JSON as Python writes it, from a file that need not be honest, read by org.json. */
final class JsonText {
  /** Far beyond any description: org.json calls itself for each level, and makes a map for each object. */
  private static final int DEEPEST = 100;
  private static final int MOST_VALUES = 100_000;

  private JsonText() {}

  /** UTF-8 as text, or an exception where it is none. */
  static String decode(byte[] utf8) throws BundleException {
    try {
      return StandardCharsets.UTF_8.newDecoder().decode(ByteBuffer.wrap(utf8)).toString();
    } catch (CharacterCodingException error) {
      throw new BundleException(Reason.DAMAGED, "the description is no UTF-8", error);
    }
  }

  /**
   * @throws BundleException it is no JSON object, or one of a size or depth that no description has.
   */
  static JSONObject parse(String text) throws BundleException {
    try {
      JSONTokener tokener = new JSONTokener(prepared(text));
      Object value = tokener.nextValue();
      if (!(value instanceof JSONObject) || tokener.nextClean() != 0) {
        throw new BundleException(Reason.DAMAGED, "the description is no JSON object");
      }
      return (JSONObject) value;
    } catch (JSONException error) {
      throw new BundleException(Reason.DAMAGED, "the description is no JSON", error);
    }
  }

  /** The text with null for the numbers that Python writes and org.json refuses: NaN and infinities. */
  private static String prepared(String text) throws BundleException {
    StringBuilder result = new StringBuilder(text.length());
    int depth = 0;
    int values = 0;
    boolean quoted = false;
    for (int at = 0; at < text.length(); at++) {
      char each = text.charAt(at);
      if (quoted) {
        if (each == '\\' && at + 1 < text.length()) {
          result.append(each);
          each = text.charAt(++at);
        } else if (each == '"') {
          quoted = false;
        }
      } else if (each == '"') {
        quoted = true;
      } else if (each == '[' || each == '{') {
        depth++;
        values++;
      } else if (each == ']' || each == '}') {
        depth--;
      } else if (each == ',') {
        values++;
      } else {
        String number = noNumber(text, at);
        if (number != null) {
          result.append("null");
          at += number.length() - 1;
          continue;
        }
      }
      if (depth > DEEPEST || values > MOST_VALUES) {
        throw new BundleException(Reason.DAMAGED, "the description is deeper or longer than any is");
      }
      result.append(each);
    }
    return result.toString();
  }

  private static String noNumber(String text, int at) {
    for (String name : new String[] {"NaN", "Infinity", "-Infinity"}) {
      if (text.startsWith(name, at)) {
        return name;
      }
    }
    return null;
  }
}
