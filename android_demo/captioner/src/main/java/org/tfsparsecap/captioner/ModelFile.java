package org.tfsparsecap.captioner;

import android.content.ContentResolver;
import android.content.res.AssetFileDescriptor;
import android.content.res.AssetManager;
import android.net.Uri;
import java.io.BufferedInputStream;
import java.io.File;
import java.io.FileInputStream;
import java.io.FileNotFoundException;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import org.tfsparsecap.captioner.BundleException.Reason;

/** Maps model files into memory, so that they take no Java heap. */
final class ModelFile {
  private static final byte[] IDENTIFIER = {'T', 'F', 'L', '3'};
  private static final int HEADER_SIZE = 8;

  private ModelFile() {}

  static ByteBuffer ofAsset(AssetManager assets, String name) throws BundleException, IOException {
    try (AssetFileDescriptor descriptor = assets.openFd(name);
        FileInputStream in = new FileInputStream(descriptor.getFileDescriptor())) {
      return map(in.getChannel(), descriptor.getStartOffset(), descriptor.getDeclaredLength());
    } catch (FileNotFoundException compressedOrAbsent) {
      // Assets that are stored uncompressed can be mapped; opening the stream reports a missing
      // one.
      try (InputStream in = assets.open(name)) {
        return copy(in);
      }
    }
  }

  static ByteBuffer ofFile(File file) throws BundleException, IOException {
    if (file.exists() && !file.isFile()) {
      throw new IOException(file + " is not a file");
    }
    try (FileInputStream in = new FileInputStream(file)) {
      return map(in.getChannel(), 0, in.getChannel().size());
    }
  }

  static ByteBuffer ofUri(ContentResolver resolver, Uri uri) throws BundleException, IOException {
    try {
      ByteBuffer mapped = mapped(resolver, uri);
      if (mapped != null) {
        return mapped;
      }
      try (InputStream in = resolver.openInputStream(uri)) {
        if (in == null) {
          throw new FileNotFoundException("no content at " + uri);
        }
        return copy(in);
      }
    } catch (RuntimeException error) {
      // Providers belong to other apps and may throw anything, most often SecurityException.
      throw new IOException(uri + " cannot be read: " + error, error);
    }
  }

  /** Maps a document; returns null if its provider offers only a stream. */
  private static ByteBuffer mapped(ContentResolver resolver, Uri uri) throws BundleException {
    try (AssetFileDescriptor descriptor = resolver.openAssetFileDescriptor(uri, "r")) {
      if (descriptor == null) {
        return null;
      }
      try (FileInputStream in = new FileInputStream(descriptor.getFileDescriptor())) {
        FileChannel channel = in.getChannel();
        long length = descriptor.getDeclaredLength();
        if (length == AssetFileDescriptor.UNKNOWN_LENGTH) {
          length = channel.size() - descriptor.getStartOffset();
        }
        return length > 0 ? map(channel, descriptor.getStartOffset(), length) : null;
      }
    } catch (IOException noFile) {
      return null; // A pipe or a missing document; opening the stream tells which.
    }
  }

  private static ByteBuffer map(FileChannel channel, long start, long length)
      throws BundleException, IOException {
    checkLength(length);
    return channel.map(FileChannel.MapMode.READ_ONLY, start, length);
  }

  /** Copies a stream to a temporary file, which is deleted once it is mapped. */
  private static ByteBuffer copy(InputStream in) throws BundleException, IOException {
    // On Android java.io.tmpdir is the app's cache folder.
    File file = File.createTempFile("bundle", ".tflite");
    try {
      try (OutputStream out = new FileOutputStream(file)) {
        BufferedInputStream whole = new BufferedInputStream(in);
        // Other files, such as videos, are rejected before they are copied.
        checkHeader(whole);
        byte[] part = new byte[1 << 16];
        long length = 0;
        for (int count = whole.read(part); count >= 0; count = whole.read(part)) {
          length += count;
          checkLength(length);
          out.write(part, 0, count);
        }
      }
      return ofFile(file);
    } finally {
      if (!file.delete()) {
        file.deleteOnExit();
      }
    }
  }

  /** Checks that a stream begins like a model, and resets it to its position. */
  static void checkHeader(BufferedInputStream in) throws BundleException, IOException {
    byte[] head = new byte[HEADER_SIZE];
    int length = 0;
    in.mark(HEADER_SIZE);
    for (int count = 0; count >= 0 && length < HEADER_SIZE; count = in.read(head, length, HEADER_SIZE - length)) {
      length += count;
    }
    in.reset();
    checkHeader(ByteBuffer.wrap(head, 0, length));
  }

  /** Checks that a file begins like a model. */
  static void checkHeader(ByteBuffer start) throws BundleException {
    if (start.remaining() == 0) {
      throw new BundleException(Reason.TRUNCATED, "the file is empty");
    }
    boolean model = start.remaining() >= HEADER_SIZE;
    for (int i = 0; model && i < IDENTIFIER.length; i++) {
      model = start.get(start.position() + HEADER_SIZE - IDENTIFIER.length + i) == IDENTIFIER[i];
    }
    if (!model) {
      throw new BundleException(Reason.NOT_A_MODEL, "not a .tflite file");
    }
  }

  private static void checkLength(long length) throws BundleException {
    if (length > Integer.MAX_VALUE) {
      throw new BundleException(Reason.NOT_RUNNABLE, "the file is larger than 2 GB");
    }
  }
}
