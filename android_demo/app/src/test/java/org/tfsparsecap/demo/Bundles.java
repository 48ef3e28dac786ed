package org.tfsparsecap.demo;

import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.function.UnaryOperator;
import java.util.zip.ZipEntry;
import java.util.zip.ZipInputStream;
import java.util.zip.ZipOutputStream;

/** Changes descriptions of bundles. */
final class Bundles {
  private Bundles() {}

  /** Replaces captioner.json with the result of {@code change}. */
  static byte[] withDescription(byte[] bundle, UnaryOperator<String> change) {
    int archive = indexOf(bundle, new byte[] {'P', 'K', 3, 4});
    ByteArrayOutputStream changed = new ByteArrayOutputStream();
    changed.write(bundle, 0, archive);
    try (ZipInputStream in =
            new ZipInputStream(
                new ByteArrayInputStream(bundle, archive, bundle.length - archive));
        ZipOutputStream out = new ZipOutputStream(changed)) {
      for (ZipEntry entry = in.getNextEntry(); entry != null; entry = in.getNextEntry()) {
        ByteArrayOutputStream content = new ByteArrayOutputStream();
        for (int each = in.read(); each >= 0; each = in.read()) {
          content.write(each);
        }
        byte[] bytes = content.toByteArray();
        if (entry.getName().equals("captioner.json")) {
          String text = new String(bytes, StandardCharsets.UTF_8);
          bytes = change.apply(text).getBytes(StandardCharsets.UTF_8);
        }
        out.putNextEntry(new ZipEntry(entry.getName()));
        out.write(bytes);
      }
    } catch (IOException impossible) {
      throw new AssertionError(impossible);
    }
    return changed.toByteArray();
  }

  private static int indexOf(byte[] content, byte[] wanted) {
    for (int pos = 0; pos <= content.length - wanted.length; pos++) {
      if (Arrays.equals(Arrays.copyOfRange(content, pos, pos + wanted.length), wanted)) {
        return pos;
      }
    }
    throw new AssertionError("signature not found");
  }
}
