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

/** Files mapped into memory from wherever Android has them: the Java heap holds none of their bytes. */
final class ModelFile {
  private static final byte[] IDENTIFIER = {'T', 'F', 'L', '3'};
  private static final int HEAD = 8;

  private ModelFile() {}

  static ByteBuffer ofAsset(AssetManager assets, String name) throws BundleException, IOException {
    try (AssetFileDescriptor descriptor = assets.openFd(name);
        FileInputStream in = new FileInputStream(descriptor.getFileDescriptor())) {
      return map(in.getChannel(), descriptor.getStartOffset(), descriptor.getDeclaredLength());
    } catch (FileNotFoundException compressedOrAbsent) {
      // Assets are mapped where the APK stores them as they are; the stream says so if there is none.
      try (InputStream in = assets.open(name)) {
        return copy(in);
      }
    }
  }

  static ByteBuffer ofFile(File file) throws BundleException, IOException {
    if (file.exists() && !file.isFile()) {
      throw new IOException(file + " is no file");
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
          throw new FileNotFoundException("nobody gives " + uri);
        }
        return copy(in);
      }
    } catch (RuntimeException error) {
      // Providers are other people's programs: what they throw arrives here, SecurityException the most.
      throw new IOException(uri + " cannot be read: " + error, error);
    }
  }

  /** The document, or null where its provider gives no file but a stream. */
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
      return null; // A pipe, or nothing: the stream tells.
    }
  }

  private static ByteBuffer map(FileChannel channel, long start, long length)
      throws BundleException, IOException {
    checkLength(length);
    return channel.map(FileChannel.MapMode.READ_ONLY, start, length);
  }

  /** A stream's content in a file of its own without a name, gone when the mapping is. */
  private static ByteBuffer copy(InputStream in) throws BundleException, IOException {
    // On Android java.io.tmpdir is the app's cache folder.
    File file = File.createTempFile("bundle", ".tflite");
    try {
      try (OutputStream out = new FileOutputStream(file)) {
        BufferedInputStream whole = new BufferedInputStream(in);
        // What is no model, such as a film, is not copied to its end.
        checkHead(whole);
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

  /** Raises where a stream does not begin as a model does; the stream is then where it was before. */
  static void checkHead(BufferedInputStream in) throws BundleException, IOException {
    byte[] head = new byte[HEAD];
    int length = 0;
    in.mark(HEAD);
    for (int count = 0; count >= 0 && length < HEAD; count = in.read(head, length, HEAD - length)) {
      length += count;
    }
    in.reset();
    checkHead(ByteBuffer.wrap(head, 0, length));
  }

  /** Raises where a file does not begin as a model does. */
  static void checkHead(ByteBuffer start) throws BundleException {
    if (start.remaining() == 0) {
      throw new BundleException(Reason.CUT_SHORT, "the file is empty");
    }
    boolean model = start.remaining() >= HEAD;
    for (int i = 0; model && i < IDENTIFIER.length; i++) {
      model = start.get(start.position() + HEAD - IDENTIFIER.length + i) == IDENTIFIER[i];
    }
    if (!model) {
      throw new BundleException(Reason.NOT_A_MODEL, "the file is no .tflite file");
    }
  }

  private static void checkLength(long length) throws BundleException {
    if (length > Integer.MAX_VALUE) {
      throw new BundleException(Reason.NOT_RUNNABLE, "the file is larger than 2 GB");
    }
  }
}
