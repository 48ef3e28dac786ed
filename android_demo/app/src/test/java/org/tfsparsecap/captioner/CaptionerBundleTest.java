package org.tfsparsecap.captioner;

import static org.junit.Assert.assertEquals;
import static org.junit.Assert.assertSame;
import static org.junit.Assert.assertThrows;
import static org.junit.Assert.assertTrue;

import android.content.res.AssetManager;
import android.net.Uri;
import android.os.ParcelFileDescriptor;
import java.io.ByteArrayInputStream;
import java.io.File;
import java.io.FileNotFoundException;
import java.io.IOException;
import java.io.InputStream;
import java.io.RandomAccessFile;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.MappedByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.SortedSet;
import java.util.TreeSet;
import org.json.JSONObject;
import org.junit.Test;
import org.junit.runner.RunWith;
import org.robolectric.RobolectricTestRunner;
import org.robolectric.RuntimeEnvironment;
import org.tfsparsecap.captioner.BundleException.Reason;

@RunWith(RobolectricTestRunner.class)
public class CaptionerBundleTest {
  private static final String DESCRIPTION =
      "{\"format_version\": 1, \"input\": \"image\", \"image_size\": 4, \"join\": \"words\","
          + " \"special_ids\": {\"pad\": 0, \"start\": 1, \"end\": 2}}";
  private static final String WORDS = "<pad>\n<start>\n<end>\ndog\n";

  @Test
  public void filesAssetsAndUrisGiveTheSameBundle() throws Exception {
    File file = Fixtures.asset("sparse.tflite");
    byte[] content = Files.readAllBytes(file.toPath());
    AssetManager assets = RuntimeEnvironment.getApplication().getAssets();
    for (CaptionerBundle bundle :
        Arrays.asList(
            CaptionerBundle.fromFile(file),
            CaptionerBundle.fromAsset(assets, "sparse.tflite"),
            CaptionerBundle.fromUri(Fixtures.resolver(), Uri.fromFile(file)),
            CaptionerBundle.fromUri(Fixtures.resolver(), Fixtures.offer(content)))) {
      assertEquals(content.length, bundle.bytes());
      ByteBuffer model = bundle.model();
      assertTrue("not mapped", model instanceof MappedByteBuffer && model.isReadOnly());
      assertEquals(ByteBuffer.wrap(content), model);
      assertEquals(0, bundle.model().position());
      assertTrue(bundle.vocabulary().contains("<end>"));
      assertEquals(new JSONObject(bundle.description().json()).getInt("image_size"), bundle.description().imageSize());
    }
  }

  @Test
  public void readsVocabularyAndDescription() throws Exception {
    CaptionerBundle bundle = read(Fixtures.bundle(Fixtures.GRAPH, DESCRIPTION, WORDS));
    assertEquals(Arrays.asList("<pad>", "<start>", "<end>", "dog"), bundle.vocabulary());
    assertEquals(DESCRIPTION, bundle.description().json());
    assertEquals(4, bundle.description().imageSize());
    assertEquals(2, bundle.description().endId());
  }

  @Test
  public void reportsTheReasonForEachInvalidBundle() throws Exception {
    assertEquals(Reason.NOT_A_MODEL, reason("a text, not a model".getBytes(StandardCharsets.UTF_8)));
    assertEquals(Reason.NOT_A_MODEL, reason("abc".getBytes(StandardCharsets.UTF_8)));
    assertEquals(Reason.NOT_A_MODEL, reason(Fixtures.bytes("colour.jpg")));
    assertEquals(Reason.TRUNCATED, reason(new byte[0]));
    assertEquals(Reason.NO_DESCRIPTION, reason(Fixtures.bundle(Fixtures.GRAPH, null, null)));
    assertEquals(Reason.NO_DESCRIPTION, reason(Fixtures.bundle(Fixtures.GRAPH, null, WORDS)));
    assertEquals(Reason.NO_DESCRIPTION, reason(Fixtures.bundle(Fixtures.GRAPH, DESCRIPTION, null)));
    assertEquals(Reason.NEWER_FORMAT, reason(DESCRIPTION.replace("\"format_version\": 1", "\"format_version\": 2")));
    assertEquals(Reason.TAKES_FEATURES, reason(DESCRIPTION.replace("\"image\"", "\"features\"")));
    for (String damaged :
        Arrays.asList(
            "",
            "{",
            "[1]",
            "7",
            "{} {}",
            "{\"format_version\": \"1\"}",
            "{\"format_version\": 1.5}",
            DESCRIPTION.replace("\"end\": 2", "\"end\": null"),
            DESCRIPTION.replace("special_ids", "ids"),
            DESCRIPTION.replace("\"words\"", "\"letters\""),
            DESCRIPTION.replace("\"join\"", "\"joined\""),
            DESCRIPTION.replace("\"image_size\": 4", "\"image_size\": 0"),
            DESCRIPTION.replace("\"image_size\": 4", "\"image_size\": 4097"),
            DESCRIPTION.replace("\"image_size\": 4", "\"image_size\": \"4\""),
            DESCRIPTION.replace("}}", "}, \"more\": " + repeated("[", 100_000)))) {
      assertEquals(damaged, Reason.DAMAGED, reason(damaged));
    }
  }

  @Test
  public void changedGraphsAndVocabulariesAreRecognized() throws Exception {
    byte[] whole = Fixtures.bytes("echo.tflite");
    byte[] graph = Fixtures.graph(whole);
    CaptionerBundle bundle = read(whole);
    for (int place : new int[] {8, graph.length / 2, graph.length - 1}) {
      byte[] changed = whole.clone();
      changed[place] ^= 1;
      assertEquals(Reason.CHANGED, reason(changed));
    }
    String description = bundle.description().json();
    String words = String.join("\n", bundle.vocabulary()) + "\n";
    assertEquals(bundle.vocabulary(), read(Fixtures.bundle(graph, description, words)).vocabulary());
    assertEquals(Reason.CHANGED, reason(Fixtures.bundle(graph, description, words.replace("dog", "cat"))));
    byte[] longer = Arrays.copyOf(graph, graph.length + 1);
    assertEquals(Reason.CHANGED, reason(Fixtures.bundle(longer, description, words)));
    assertEquals(Reason.CHANGED, reason(DESCRIPTION.replace("}}", "}, \"graph_sha256\": 7}")));
    // Older bundles have no digests.
    read(Fixtures.bundle(longer, Fixtures.withoutDigests(description), words));
    read(Fixtures.bundle(Fixtures.GRAPH, DESCRIPTION.replace("}}", "}, \"graph_sha256\": null}"), WORDS));
  }

  @Test
  public void modelWithoutArchiveHasNoDescription() throws Exception {
    assertEquals(Reason.NO_DESCRIPTION, reason(Fixtures.graph(Fixtures.bytes("echo.tflite"))));
    byte[] sparse = Files.readAllBytes(Fixtures.asset("sparse.tflite").toPath());
    assertEquals(Reason.NO_DESCRIPTION, reason(Fixtures.graph(sparse)));
  }

  @Test
  public void truncatedFilesAreRecognized() throws Exception {
    for (File file : Arrays.asList(Fixtures.file("echo.tflite"), Fixtures.asset("sparse.tflite"))) {
      byte[] whole = Files.readAllBytes(file.toPath());
      int graph = Fixtures.graph(whole).length;
      // Every length around the start and the end of the archive, and a sample of the others.
      SortedSet<Integer> lengths = new TreeSet<>(Collections.reverseOrder());
      for (int i = 0; i < 300; i++) {
        lengths.addAll(Arrays.asList(whole.length - 1 - i, graph - 64 + i));
      }
      for (int length = 8; length < whole.length; length += Math.max(1, whole.length / 200)) {
        lengths.add(length);
      }
      lengths.removeIf(length -> length < 8 || length >= whole.length);
      File cut = Fixtures.write(whole);
      for (int length : lengths) {
        try (RandomAccessFile truncated = new RandomAccessFile(cut, "rw")) {
          truncated.setLength(length);
        }
        // A file cut before the archive's signature may be a model that never had an archive.
        if (length < graph - 16 || length >= graph + 4) {
          BundleException error =
              assertThrows(BundleException.class, () -> CaptionerBundle.fromFile(cut));
          assertEquals(file + " cut at " + length, Reason.TRUNCATED, error.reason());
        }
      }
      assertTrue(cut.delete());
    }
  }

  @Test
  public void rejectsTheSameDamagedBytesAsPython() throws Exception {
    JSONObject damage = Fixtures.object("damage.json");
    byte[] whole = Fixtures.bytes(damage.getString("bundle"));
    String verdicts = damage.getString("verdicts");
    int start = damage.getInt("start");
    assertEquals(3 * (whole.length - start), verdicts.length());
    int refused = 0;
    for (int i = 0; i < verdicts.length(); i++) {
      int place = start + i / 3;
      byte[] values = {0, (byte) 0xff, (byte) (whole[place] ^ 1)};
      byte[] damaged = whole.clone();
      damaged[place] = values[i % 3];
      String what = "byte " + place + " is " + (values[i % 3] & 255);
      assertEquals(what, verdicts.charAt(i), verdict(damaged));
      refused += verdicts.charAt(i) == 'r' ? 1 : 0;
    }
    assertTrue(refused > 500);
  }

  /** Like Python's read_bundle, which checks only the archive, the digests and the format version. */
  private static char verdict(byte[] content) throws BundleException {
    try {
      BundleArchive archive = BundleArchive.find(ByteBuffer.wrap(content));
      if (archive == null) {
        return 'r';
      }
      JSONObject description = JsonParser.parse(JsonParser.decode(archive.read("captioner.json", 4 << 20)));
      if (!archive.contains("vocabulary.txt")) {
        return description.isNull("vocabulary_sha256") ? 'n' : 'r';
      }
      byte[] words = archive.read("vocabulary.txt", 16 << 20);
      Digests.check(description, ByteBuffer.wrap(content), archive.start(), words);
      return Vocabulary.of(words).isEmpty() ? 'n' : '.';
    } catch (BundleException refused) {
      return 'r';
    }
  }

  @Test
  public void rejectsOversizedParts() throws Exception {
    assertEquals(Reason.DAMAGED, reason(repeated(" ", 5 << 20)));
    assertEquals(Reason.DAMAGED, reason(Fixtures.bundle(Fixtures.GRAPH, DESCRIPTION, repeated("a\n", 9 << 20))));
    // The declared size is small, the actual size is not.
    byte[] bomb = Fixtures.bundle(Fixtures.GRAPH, repeated(" ", 5 << 20), WORDS);
    ByteBuffer fields = ByteBuffer.wrap(bomb).order(ByteOrder.LITTLE_ENDIAN);
    int directory = fields.getInt(bomb.length - 6) + Fixtures.GRAPH.length;
    assertEquals(0x02014b50, fields.getInt(directory));
    fields.putInt(directory + 24, 1000);
    assertEquals(Reason.DAMAGED, reason(bomb));
    // Just below the limit of 16 MB.
    String lines = repeated("\n", 15 << 20);
    assertEquals(15 << 20, read(Fixtures.bundle(Fixtures.GRAPH, DESCRIPTION, lines)).vocabulary().size());
  }

  @Test
  public void unreadableSourcesThrowIoException() throws Exception {
    assertThrows(FileNotFoundException.class, () -> CaptionerBundle.fromFile(new File("absent.tflite")));
    assertThrows(IOException.class, () -> CaptionerBundle.fromFile(new File("target")));
    AssetManager assets = RuntimeEnvironment.getApplication().getAssets();
    assertThrows(IOException.class, () -> CaptionerBundle.fromAsset(assets, "absent.tflite"));
    Uri absent = Uri.fromFile(new File("absent.tflite"));
    assertThrows(IOException.class, () -> CaptionerBundle.fromUri(Fixtures.resolver(), absent));
    Uri isAccessDenied =
        Fixtures.offer(
            () -> {
              throw new SecurityException("access denied");
            });
    IOException error =
        assertThrows(IOException.class, () -> CaptionerBundle.fromUri(Fixtures.resolver(), isAccessDenied));
    assertTrue(error.getCause() instanceof SecurityException);
  }

  @Test
  public void providerFilesAreMappedWithoutACopy() throws Exception {
    File file = Fixtures.asset("sparse.tflite");
    List<String> before = copies();
    List<String> during = new ArrayList<>();
    Uri uri =
        TestProvider.offer(
            each -> {
              during.addAll(copies());
              return ParcelFileDescriptor.open(file, ParcelFileDescriptor.MODE_READ_ONLY);
            });
    CaptionerBundle bundle = CaptionerBundle.fromUri(Fixtures.resolver(), uri);
    assertEquals(ByteBuffer.wrap(Files.readAllBytes(file.toPath())), bundle.model());
    assertEquals("copied, or opened more than once", before, during);
  }

  @Test
  public void providerExceptionsBecomeIoExceptions() {
    for (RuntimeException refusal :
        new RuntimeException[] {new SecurityException("access denied"), new IllegalStateException("a bug")}) {
      Uri uri =
          TestProvider.offer(
              each -> {
                throw refusal;
              });
      IOException error =
          assertThrows(IOException.class, () -> CaptionerBundle.fromUri(Fixtures.resolver(), uri));
      assertSame(refusal, error.getCause());
    }
    Uri nothing = TestProvider.offer(each -> null);
    assertThrows(IOException.class, () -> CaptionerBundle.fromUri(Fixtures.resolver(), nothing));
  }

  @Test
  public void otherStreamsAreNotReadToTheEnd() {
    long[] read = {0};
    Uri video =
        Fixtures.offer(
            () ->
                new InputStream() {
                  @Override
                  public int read() {
                    read[0]++;
                    return 7;
                  }
                });
    BundleException error =
        assertThrows(BundleException.class, () -> CaptionerBundle.fromUri(Fixtures.resolver(), video));
    assertEquals(Reason.NOT_A_MODEL, error.reason());
    assertTrue(read[0] < 1 << 20);
  }

  @Test
  public void temporaryCopiesAreDeleted() throws Exception {
    List<String> before = copies();
    byte[] content = Fixtures.bundle(Fixtures.GRAPH, DESCRIPTION, WORDS);
    CaptionerBundle.fromUri(Fixtures.resolver(), Fixtures.offer(content));
    byte[] cut = Arrays.copyOf(content, content.length - 5);
    Uri broken = Fixtures.offer(() -> new ByteArrayInputStream(cut));
    assertThrows(BundleException.class, () -> CaptionerBundle.fromUri(Fixtures.resolver(), broken));
    assertEquals(before, copies());
  }

  private static List<String> copies() {
    String[] names = new File(System.getProperty("java.io.tmpdir")).list((folder, name) -> name.startsWith("bundle"));
    List<String> sorted = Arrays.asList(names);
    Collections.sort(sorted);
    return sorted;
  }

  private static Reason reason(String description) throws IOException {
    return reason(Fixtures.bundle(Fixtures.GRAPH, description, WORDS));
  }

  private static Reason reason(byte[] content) throws IOException {
    return assertThrows(BundleException.class, () -> read(content)).reason();
  }

  private static CaptionerBundle read(byte[] content) throws BundleException, IOException {
    File file = Fixtures.write(content);
    try {
      return CaptionerBundle.fromFile(file);
    } finally {
      file.delete();
    }
  }

  private static String repeated(String text, int times) {
    StringBuilder result = new StringBuilder(text.length() * times);
    for (int i = 0; i < times; i++) {
      result.append(text);
    }
    return result.toString();
  }
}
