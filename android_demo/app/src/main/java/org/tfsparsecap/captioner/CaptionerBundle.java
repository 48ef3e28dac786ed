package org.tfsparsecap.captioner;

import android.content.ContentResolver;
import android.content.res.AssetManager;
import android.net.Uri;
import java.io.File;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.util.List;

/**
 * A bundle that tfsparsecap-export wrote: graph, vocabulary and description in one .tflite file. Immutable and
 * safe for use by several threads; holds the memory-mapped model, which costs no Java heap.
 */
public final class CaptionerBundle {
  private CaptionerBundle() {}

  /**
   * Maps a bundle from the APK. It reads the disk: call it off the main thread.
   *
   * @throws BundleException the asset is no bundle that this version can use.
   * @throws IOException there is no such asset, or it cannot be read.
   */
  public static CaptionerBundle fromAsset(AssetManager assets, String name)
      throws BundleException, IOException {
    throw new UnsupportedOperationException();
  }

  /**
   * Maps a file. It reads the disk: call it off the main thread.
   *
   * @throws BundleException the file is no bundle that this version can use.
   * @throws IOException it is absent, or cannot be read.
   */
  public static CaptionerBundle fromFile(File file) throws BundleException, IOException {
    throw new UnsupportedOperationException();
  }

  /**
   * Maps what a document picker gave; what is no file is copied to the cache folder first. It reads the disk
   * or the network: call it off the main thread.
   *
   * @throws BundleException the document is no bundle that this version can use.
   * @throws IOException it is absent, may not be read, or there is no room for the copy.
   */
  public static CaptionerBundle fromUri(ContentResolver resolver, Uri uri)
      throws BundleException, IOException {
    throw new UnsupportedOperationException();
  }

  /** The whole file, direct and read-only; a new view with each call. */
  public ByteBuffer model() {
    throw new UnsupportedOperationException();
  }

  /** Size of the file. */
  public long bytes() {
    throw new UnsupportedOperationException();
  }

  /** The tokens in the order of their ids; cannot be changed. */
  public List<String> vocabulary() {
    throw new UnsupportedOperationException();
  }

  /** What the file says of itself. */
  public BundleDescription description() {
    throw new UnsupportedOperationException();
  }
}
