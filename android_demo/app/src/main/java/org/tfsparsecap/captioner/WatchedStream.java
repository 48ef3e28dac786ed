package org.tfsparsecap.captioner;

import android.net.Uri;
import java.io.FileNotFoundException;
import java.io.FilterInputStream;
import java.io.IOException;
import java.io.InputStream;

/** Remembers what Android's decoders keep to themselves: that reading failed, and that there was nothing. */
final class WatchedStream extends FilterInputStream {
  private IOException failure;
  private RuntimeException refusal;
  private boolean empty = true;

  /**
   * @param in what a provider gave, or null where it gave nothing.
   * @param uri of which.
   */
  WatchedStream(InputStream in, Uri uri) throws FileNotFoundException {
    super(in);
    if (in == null) {
      throw new FileNotFoundException("nobody gives " + uri);
    }
  }

  @Override
  public int read() throws IOException {
    byte[] one = new byte[1];
    int count = read(one, 0, 1);
    return count < 0 ? -1 : one[0] & 255;
  }

  @Override
  public int read(byte[] bytes, int offset, int length) throws IOException {
    try {
      int count = super.read(bytes, offset, length);
      empty &= count <= 0;
      return count;
    } catch (IOException error) {
      failure = error;
      throw error;
    } catch (RuntimeException error) {
      refusal = error;
      throw error;
    }
  }

  @Override
  public long skip(long count) throws IOException {
    try {
      long skipped = super.skip(count);
      empty &= skipped <= 0;
      return skipped;
    } catch (IOException error) {
      failure = error;
      throw error;
    }
  }

  /** Whether nothing has come out of it. */
  boolean isEmpty() {
    return empty;
  }

  /** Throws what reading threw, if it did. */
  void rethrow() throws IOException {
    if (failure != null) {
      throw failure;
    }
    if (refusal != null) {
      throw refusal;
    }
  }
}
