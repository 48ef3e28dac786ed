package org.tfsparsecap.captioner;

import android.content.ContentResolver;
import android.content.res.AssetManager;
import android.net.Uri;
import java.io.BufferedInputStream;
import java.io.File;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.List;
import org.tfsparsecap.captioner.BundleException.Reason;

/**
 * A bundle written by tfsparsecap-export: graph, vocabulary and description in one .tflite file.
 * Immutable and thread-safe. The model is memory-mapped and takes no Java heap.
 *
 * <pre>{@code
 * CaptionerBundle bundle = CaptionerBundle.fromAsset(context.getAssets(), "captioner.tflite");
 * }</pre>
 */
public final class CaptionerBundle {
  private static final String DESCRIPTION = "captioner.json";
  private static final String VOCABULARY = "vocabulary.txt";
  // Far above the size of any bundle; they prevent a malicious file from exhausting the memory.
  private static final int MAX_DESCRIPTION = 4 << 20;
  private static final int MAX_VOCABULARY = 16 << 20;
  /** Signature of a file entry in a ZIP archive. */
  private static final int FILE_IN_ARCHIVE = 0x04034b50;

  private final ByteBuffer model;
  private final List<String> vocabulary;
  private final BundleDescription description;

  private CaptionerBundle(ByteBuffer model) throws BundleException {
    this.model = model;
    ModelFile.checkHeader(model.duplicate());
    BundleArchive archive = BundleArchive.find(model);
    if (archive == null) {
      throw missingArchive(model);
    }
    description = new BundleDescription(JsonParser.decode(archive.read(DESCRIPTION, MAX_DESCRIPTION)));
    byte[] words = archive.read(VOCABULARY, MAX_VOCABULARY);
    description.checkDigests(model, archive.start(), words);
    vocabulary = Vocabulary.of(words);
  }

  /**
   * Maps a bundle from the APK. Reads the disk, so call it off the main thread.
   *
   * <p>The asset should be stored uncompressed; a compressed one is first copied to the cache
   * folder.
   *
   * @throws BundleException the asset is not a usable bundle.
   * @throws IOException the asset is missing or cannot be read.
   */
  public static CaptionerBundle fromAsset(AssetManager assets, String name)
      throws BundleException, IOException {
    return new CaptionerBundle(ModelFile.ofAsset(assets, name));
  }

  /**
   * Maps a file. Reads the disk, so call it off the main thread. While the bundle is in use, the
   * file may be deleted or replaced, but not overwritten in place.
   *
   * @throws BundleException the file is not a usable bundle.
   * @throws IOException the file is missing or cannot be read.
   */
  public static CaptionerBundle fromFile(File file) throws BundleException, IOException {
    return new CaptionerBundle(ModelFile.ofFile(file));
  }

  /**
   * Maps a document, for example from a document picker. A document that is not backed by a file is
   * first copied to the cache folder. Reads the disk or the network, so call it off the main
   * thread.
   *
   * <p>Other apps can overwrite a document. To use one for longer, copy it to a file of your own
   * and call {@link #fromFile}.
   *
   * @throws BundleException the document is not a usable bundle.
   * @throws IOException the document is missing, access is denied (the cause is a
   *     SecurityException), or there is no space for the copy.
   */
  public static CaptionerBundle fromUri(ContentResolver resolver, Uri uri)
      throws BundleException, IOException {
    return new CaptionerBundle(ModelFile.ofUri(resolver, uri));
  }

  /**
   * Checks the first bytes of a stream, so that other files, such as videos, are rejected before
   * they are copied.
   *
   * @param in is reset to its position.
   * @throws BundleException the stream does not begin like a model.
   * @throws IOException the stream cannot be read.
   */
  public static void checkHeader(BufferedInputStream in) throws BundleException, IOException {
    ModelFile.checkHeader(in);
  }

  /**
   * The whole file as a direct, read-only buffer in native byte order; a new view for each call.
   */
  public ByteBuffer model() {
    ByteBuffer view = model.duplicate().order(ByteOrder.nativeOrder());
    view.clear();
    return view;
  }

  /** Size of the file in bytes. */
  public long bytes() {
    return model.capacity();
  }

  /** The tokens in the order of their ids; unmodifiable. */
  public List<String> vocabulary() {
    return vocabulary;
  }

  /** The description of the captioner. */
  public BundleDescription description() {
    return description;
  }

  /** Finds out why a model has no archive at its end. */
  private static BundleException missingArchive(ByteBuffer file) {
    int end = FlatbufferSize.of(file);
    if (end < 0) {
      return new BundleException(Reason.TRUNCATED, "the graph extends beyond the end of the file");
    }
    ByteBuffer rest = file.duplicate().order(ByteOrder.LITTLE_ENDIAN);
    rest.clear();
    for (int pos = end; pos <= rest.limit() - 4; pos++) {
      if (rest.getInt(pos) == FILE_IN_ARCHIVE) {
        return new BundleException(Reason.TRUNCATED, "the archive after the graph has no end record");
      }
    }
    return new BundleException(Reason.NO_DESCRIPTION, "no archive with " + DESCRIPTION + " after the graph");
  }
}
