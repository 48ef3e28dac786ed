package org.tfsparsecap.captioner;

import java.nio.ByteBuffer;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import org.json.JSONObject;
import org.tfsparsecap.captioner.BundleException.Reason;

/**
 * Compares a bundle with the SHA-256 digests in its description. They reveal damage and accidental
 * changes; whoever changes a bundle on purpose can compute them again.
 */
final class Digests {
  private static final String GRAPH = "graph_sha256";
  private static final String VOCABULARY = "vocabulary_sha256";
  private static final String HEXADECIMAL = "0123456789abcdef";

  private Digests() {}

  /**
   * Compares graph and vocabulary. A part without a digest is accepted: older bundles have none.
   *
   * @param description the content of {@code captioner.json}.
   * @param file the whole bundle.
   * @param graphSize size of the graph, at the start of the file, in bytes.
   * @param vocabulary the content of {@code vocabulary.txt}.
   * @throws BundleException a part has another digest.
   */
  static void check(JSONObject description, ByteBuffer file, int graphSize, byte[] vocabulary)
      throws BundleException {
    ByteBuffer graph = file.duplicate();
    graph.clear();
    graph.limit(graphSize);
    compare(description, GRAPH, graph);
    compare(description, VOCABULARY, ByteBuffer.wrap(vocabulary));
  }

  private static void compare(JSONObject description, String name, ByteBuffer content) throws BundleException {
    if (!description.isNull(name) && !sha256(content).equals(description.opt(name))) {
      throw new BundleException(Reason.CHANGED, "the file has another " + name + " than its description");
    }
  }

  private static String sha256(ByteBuffer content) {
    MessageDigest digest;
    try {
      digest = MessageDigest.getInstance("SHA-256");
    } catch (NoSuchAlgorithmException error) {
      throw new AssertionError(error); // all versions of Android have it
    }
    digest.update(content);
    StringBuilder text = new StringBuilder();
    for (byte each : digest.digest()) {
      text.append(HEXADECIMAL.charAt(each >> 4 & 15)).append(HEXADECIMAL.charAt(each & 15));
    }
    return text.toString();
  }
}
