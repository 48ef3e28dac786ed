package org.tfsparsecap.demo;

import java.io.ByteArrayOutputStream;
import java.io.File;
import java.io.IOException;
import java.io.InputStream;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.nio.file.StandardCopyOption;
import java.util.ArrayList;
import java.util.List;
import java.util.zip.GZIPInputStream;
import org.json.JSONArray;
import org.json.JSONException;
import org.json.JSONObject;

/**
 * Photos of drawn scenes, their captions from Python, and models, written by screen_fixtures.py.
 */
final class SamplePhotos {
  static final String HEART_STAR = "heart_star.jpg";
  static final String CROSS_HEART = "cross_heart.jpg";
  static final String HEART_CROSS = "heart_cross.jpg";
  static final String CIRCLE_STAR = "circle_star.jpg";
  static final String TRIANGLE = "triangle.jpg";

  private SamplePhotos() {}

  static byte[] bytes(String name) {
    try (InputStream in = SamplePhotos.class.getResourceAsStream("/demo/" + name)) {
      return all(in);
    } catch (IOException error) {
      throw new UncheckedIOException(error);
    }
  }

  /** A bundle, unpacked once. */
  static synchronized File model(String name) {
    Path unpacked = Paths.get("target", "test-models", name + ".tflite");
    if (!Files.exists(unpacked)) {
      try (InputStream in =
          new GZIPInputStream(SamplePhotos.class.getResourceAsStream("/demo/" + name + ".tflite.gz"))) {
        Files.createDirectories(unpacked.getParent());
        Path half = Files.createTempFile(unpacked.getParent(), name, ".half");
        Files.write(half, all(in));
        Files.move(half, unpacked, StandardCopyOption.ATOMIC_MOVE);
      } catch (IOException error) {
        throw new UncheckedIOException(error);
      }
    }
    return unpacked.toFile();
  }

  /** A fixture of the captioner tests. */
  static File captionerFixture(String name) {
    try {
      return new File(SamplePhotos.class.getResource("/captioner/" + name).toURI());
    } catch (java.net.URISyntaxException error) {
      throw new AssertionError(error);
    }
  }

  /** The text of such a fixture. */
  static String captionerText(String name) {
    try {
      return new String(Files.readAllBytes(captionerFixture(name).toPath()), StandardCharsets.UTF_8);
    } catch (IOException error) {
      throw new UncheckedIOException(error);
    }
  }

  /** The captions of the sparse model in Python, best first. */
  static List<String> captions(String photo) {
    return captions(photo, "sparse");
  }

  static List<String> captions(String photo, String model) {
    List<String> captions = new ArrayList<>();
    JSONArray expected = expected(photo, model);
    for (int i = 0; i < expected.length(); i++) {
      captions.add(expected.optJSONObject(i).optString("text"));
    }
    return captions;
  }

  /** The best caption of the sparse model in Python. */
  static String caption(String photo) {
    return captions(photo).get(0);
  }

  /** Confidence of the best caption, 0 to 1. */
  static double confidence(String photo) {
    return expected(photo, "sparse").optJSONObject(0).optDouble("confidence");
  }

  private static JSONArray expected(String photo, String model) {
    try {
      JSONObject all = new JSONObject(new String(bytes("captions.json"), StandardCharsets.UTF_8));
      return all.getJSONObject(photo.replace(".jpg", "")).getJSONArray(model);
    } catch (JSONException error) {
      throw new AssertionError(error);
    }
  }

  private static byte[] all(InputStream in) throws IOException {
    ByteArrayOutputStream out = new ByteArrayOutputStream();
    byte[] buffer = new byte[1 << 16];
    for (int read = in.read(buffer); read >= 0; read = in.read(buffer)) {
      out.write(buffer, 0, read);
    }
    return out.toByteArray();
  }
}
