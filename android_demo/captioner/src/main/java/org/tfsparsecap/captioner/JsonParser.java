package org.tfsparsecap.captioner;

import java.nio.ByteBuffer;
import java.nio.charset.CharacterCodingException;
import java.nio.charset.StandardCharsets;
import org.json.JSONException;
import org.json.JSONObject;
import org.json.JSONTokener;
import org.tfsparsecap.captioner.BundleException.Reason;

/** Parses JSON written by Python with org.json, safely for untrusted files. */
final class JsonParser {
  /**
   * Far above any description; org.json recurses for each level and creates a map for each object.
   */
  private static final int MAX_DEPTH = 100;
  private static final int MAX_VALUES = 100_000;

  private JsonParser() {}

  /** Decodes UTF-8; invalid bytes are an error. */
  static String decode(byte[] utf8) throws BundleException {
    try {
      return StandardCharsets.UTF_8.newDecoder().decode(ByteBuffer.wrap(utf8)).toString();
    } catch (CharacterCodingException error) {
      throw new BundleException(Reason.DAMAGED, "the description is not valid UTF-8", error);
    }
  }

  /**
   * @throws BundleException the text is not a JSON object, or is larger or nested deeper than any
   *     description.
   */
  static JSONObject parse(String text) throws BundleException {
    try {
      JSONTokener tokener = new JSONTokener(replaceNonFinite(text));
      Object value = tokener.nextValue();
      if (!(value instanceof JSONObject) || tokener.nextClean() != 0) {
        throw new BundleException(Reason.DAMAGED, "the description is not a JSON object");
      }
      return (JSONObject) value;
    } catch (JSONException error) {
      throw new BundleException(Reason.DAMAGED, "the description is not JSON", error);
    }
  }

  /** Replaces NaN and infinities, which Python writes and org.json rejects, with null. */
  private static String replaceNonFinite(String text) throws BundleException {
    StringBuilder result = new StringBuilder(text.length());
    int depth = 0;
    int values = 0;
    boolean quoted = false;
    for (int pos = 0; pos < text.length(); pos++) {
      char each = text.charAt(pos);
      if (quoted) {
        if (each == '\\' && pos + 1 < text.length()) {
          result.append(each);
          each = text.charAt(++pos);
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
        String number = nonFiniteNumber(text, pos);
        if (number != null) {
          result.append("null");
          pos += number.length() - 1;
          continue;
        }
      }
      if (depth > MAX_DEPTH || values > MAX_VALUES) {
        throw new BundleException(Reason.DAMAGED, "the description is too large or nested too deeply");
      }
      result.append(each);
    }
    return result.toString();
  }

  private static String nonFiniteNumber(String text, int pos) {
    for (String name : new String[] {"NaN", "Infinity", "-Infinity"}) {
      if (text.startsWith(name, pos)) {
        return name;
      }
    }
    return null;
  }
}
