package org.tfsparsecap.captioner;

import android.content.ContentResolver;
import android.graphics.Bitmap;
import android.graphics.BitmapFactory;
import android.net.Uri;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.File;
import java.io.IOException;
import java.io.InputStream;
import java.math.BigInteger;
import java.net.URISyntaxException;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.util.ArrayList;
import java.util.List;
import java.util.function.Supplier;
import java.util.zip.ZipEntry;
import java.util.zip.ZipOutputStream;
import org.json.JSONArray;
import org.json.JSONException;
import org.json.JSONObject;
import org.robolectric.RuntimeEnvironment;
import org.robolectric.Shadows;

/** Files written by fixtures.py, and helpers. */
final class Fixtures {
  /** Header of a graph; the bundle reader does not check the rest if an archive follows. */
  static final byte[] GRAPH = graphHead();

  private Fixtures() {}

  static File file(String name) {
    try {
      return new File(Fixtures.class.getResource("/captioner/" + name).toURI());
    } catch (URISyntaxException error) {
      throw new AssertionError(error);
    }
  }

  static byte[] bytes(String name) throws IOException {
    return Files.readAllBytes(file(name).toPath());
  }

  static JSONObject object(String name) throws IOException, JSONException {
    return new JSONObject(new String(bytes(name), StandardCharsets.UTF_8));
  }

  static List<JSONObject> objects(String name) throws IOException, JSONException {
    JSONArray array = new JSONArray(new String(bytes(name), StandardCharsets.UTF_8));
    List<JSONObject> objects = new ArrayList<>();
    for (int i = 0; i < array.length(); i++) {
      objects.add(array.getJSONObject(i));
    }
    return objects;
  }

  static List<String> strings(JSONArray array) {
    List<String> strings = new ArrayList<>();
    for (int i = 0; i < array.length(); i++) {
      strings.add(array.optString(i));
    }
    return strings;
  }

  /** A model that is packaged in the app. */
  static File asset(String name) {
    return new File("target/assets", name);
  }

  static String sha256(File file) throws IOException, NoSuchAlgorithmException {
    byte[] digest = MessageDigest.getInstance("SHA-256").digest(Files.readAllBytes(file.toPath()));
    return String.format("%064x", new BigInteger(1, digest));
  }

  /** An opaque PNG, with the pixels of the file. */
  static Bitmap bitmap(String name) throws IOException {
    byte[] content = bytes(name);
    return BitmapFactory.decodeByteArray(content, 0, content.length);
  }

  /** Red, green and blue of each pixel of an opaque bitmap. */
  static byte[] rgb(Bitmap bitmap) {
    int[] pixels = new int[bitmap.getWidth() * bitmap.getHeight()];
    bitmap.getPixels(pixels, 0, bitmap.getWidth(), 0, 0, bitmap.getWidth(), bitmap.getHeight());
    ByteBuffer bytes = ByteBuffer.allocate(3 * pixels.length);
    for (int argb : pixels) {
      bytes.put((byte) (argb >> 16)).put((byte) (argb >> 8)).put((byte) argb);
    }
    return bytes.array();
  }

  static byte[] scaled(Bitmap bitmap, int side) {
    ByteBuffer bytes = ByteBuffer.allocate(3 * side * side);
    PillowScaler.scale(bitmap, side, bytes);
    return bytes.array();
  }

  /** The largest difference between the bytes of two images. */
  static int difference(byte[] one, byte[] other) {
    int largest = Math.abs(one.length - other.length) == 0 ? 0 : 256;
    for (int i = 0; i < Math.min(one.length, other.length); i++) {
      largest = Math.max(largest, Math.abs((one[i] & 255) - (other[i] & 255)));
    }
    return largest;
  }

  static ContentResolver resolver() {
    return RuntimeEnvironment.getApplication().getContentResolver();
  }

  /** A URI that returns this content whenever it is opened. */
  static Uri offer(byte[] content) {
    return offer(() -> new ByteArrayInputStream(content));
  }

  static Uri offer(Supplier<InputStream> streams) {
    Uri uri = Uri.parse("content://images/" + System.nanoTime());
    Shadows.shadowOf(resolver()).registerInputStreamSupplier(uri, streams::get);
    return uri;
  }

  /** A bundle of these parts; null omits one. */
  static byte[] bundle(byte[] graph, String description, String vocabulary) throws IOException {
    ByteArrayOutputStream content = new ByteArrayOutputStream();
    content.write(graph);
    ZipOutputStream archive = new ZipOutputStream(content);
    add(archive, "captioner.json", description);
    add(archive, "vocabulary.txt", vocabulary);
    // Java writes no end record for an empty archive.
    if (description == null && vocabulary == null) {
      add(archive, "labels.txt", "dog");
    }
    archive.close();
    return content.toByteArray();
  }

  private static void add(ZipOutputStream archive, String name, String text) throws IOException {
    if (text != null) {
      archive.putNextEntry(new ZipEntry(name));
      archive.write(text.getBytes(StandardCharsets.UTF_8));
    }
  }

  /** A description as older versions of the exporter wrote it. */
  static String withoutDigests(String description) throws JSONException {
    JSONObject json = new JSONObject(description);
    json.remove("graph_sha256");
    json.remove("vocabulary_sha256");
    return json.toString(1);
  }

  /** The graph of a bundle: everything before its archive. */
  static byte[] graph(byte[] bundle) {
    ByteBuffer bytes = ByteBuffer.wrap(bundle);
    for (int pos = 0; ; pos++) {
      if (bytes.getInt(pos) == 0x504b0304) {
        byte[] graph = new byte[pos];
        bytes.get(graph);
        return graph;
      }
    }
  }

  static File write(byte[] content) throws IOException {
    Path path = Files.createTempFile("captioner", ".tflite");
    path.toFile().deleteOnExit();
    return Files.write(path, content).toFile();
  }

  private static byte[] graphHead() {
    byte[] head = new byte[64];
    head[0] = 0x1c;
    System.arraycopy("TFL3".getBytes(StandardCharsets.US_ASCII), 0, head, 4, 4);
    return head;
  }
}
