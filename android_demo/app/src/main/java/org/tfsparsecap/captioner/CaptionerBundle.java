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
 * A bundle that tfsparsecap-export wrote: graph, vocabulary and description in one .tflite file. Immutable and
 * safe for use by several threads; holds the memory-mapped model, which costs no Java heap.
 *
 * <pre>{@code
 * CaptionerBundle bundle = CaptionerBundle.fromAsset(context.getAssets(), "captioner.tflite");
 * }</pre>
 */
public final class CaptionerBundle {
  private static final String DESCRIPTION = "captioner.json";
  private static final String VOCABULARY = "vocabulary.txt";
  // Far beyond any bundle: they keep a hostile file from filling the memory.
  private static final int LARGEST_DESCRIPTION = 4 << 20;
  private static final int LARGEST_VOCABULARY = 16 << 20;
  /** How a file in a ZIP archive begins. */
  private static final int FILE_IN_ARCHIVE = 0x04034b50;

  private final ByteBuffer model;
  private final List<String> vocabulary;
  private final BundleDescription description;

  private CaptionerBundle(ByteBuffer model) throws BundleException {
    this.model = model;
    ModelFile.checkHead(model.duplicate());
    BundleArchive archive = BundleArchive.at(model);
    if (archive == null) {
      throw withoutArchive(model);
    }
    description = new BundleDescription(JsonText.decode(archive.read(DESCRIPTION, LARGEST_DESCRIPTION)));
    vocabulary = Vocabulary.of(archive.read(VOCABULARY, LARGEST_VOCABULARY));
  }

  /**
   * Maps a bundle from the APK. It reads the disk: call it off the main thread.
   *
   * <p>An asset that the APK stores compressed is copied to the cache folder: see to it that it does not.
   *
   * @throws BundleException the asset is no bundle that this version can use.
   * @throws IOException there is no such asset, or it cannot be read.
   */
  public static CaptionerBundle fromAsset(AssetManager assets, String name)
      throws BundleException, IOException {
    return new CaptionerBundle(ModelFile.ofAsset(assets, name));
  }

  /**
   * Maps a file. It reads the disk: call it off the main thread. While the bundle is in use, the file may be
   * deleted or replaced by another, but not overwritten where it is.
   *
   * @throws BundleException the file is no bundle that this version can use.
   * @throws IOException it is absent, or cannot be read.
   */
  public static CaptionerBundle fromFile(File file) throws BundleException, IOException {
    return new CaptionerBundle(ModelFile.ofFile(file));
  }

  /**
   * Maps what a document picker gave; what is no file is copied to the cache folder first. It reads the disk
   * or the network: call it off the main thread.
   *
   * <p>A file stays its owner's: what is to be used for long, or could be overwritten meanwhile, is better
   * copied to a file of one's own and read with {@link #fromFile}.
   *
   * @throws BundleException the document is no bundle that this version can use.
   * @throws IOException it is absent, may not be read (with the SecurityException as its cause), or there is no
   *     room for the copy.
   */
  public static CaptionerBundle fromUri(ContentResolver resolver, Uri uri)
      throws BundleException, IOException {
    return new CaptionerBundle(ModelFile.ofUri(resolver, uri));
  }

  /**
   * Looks at how a file begins, so that what is no model, such as a film, need not be copied to be refused.
   *
   * @param in is afterwards where it was before.
   * @throws BundleException it does not begin as a model does.
   * @throws IOException it cannot be read.
   */
  public static void checkHead(BufferedInputStream in) throws BundleException, IOException {
    ModelFile.checkHead(in);
  }

  /** The whole file, direct, read-only, in the machine's byte order; a new view with each call. */
  public ByteBuffer model() {
    ByteBuffer view = model.duplicate().order(ByteOrder.nativeOrder());
    view.clear();
    return view;
  }

  /** Size of the file in bytes. */
  public long bytes() {
    return model.capacity();
  }

  /** The tokens in the order of their ids; cannot be changed. */
  public List<String> vocabulary() {
    return vocabulary;
  }

  /** What the file says of itself. */
  public BundleDescription description() {
    return description;
  }

  /** What is wrong with a model that no archive ends. */
  private static BundleException withoutArchive(ByteBuffer file) {
    int end = ModelExtent.of(file);
    if (end < 0) {
      return new BundleException(Reason.CUT_SHORT, "the graph reaches beyond the file's end");
    }
    ByteBuffer rest = file.duplicate().order(ByteOrder.LITTLE_ENDIAN);
    rest.clear();
    for (int at = end; at <= rest.limit() - 4; at++) {
      if (rest.getInt(at) == FILE_IN_ARCHIVE) {
        return new BundleException(Reason.CUT_SHORT, "the archive behind the graph has no end");
      }
    }
    return new BundleException(Reason.NO_DESCRIPTION, "no archive with " + DESCRIPTION + " behind the graph");
  }
}
