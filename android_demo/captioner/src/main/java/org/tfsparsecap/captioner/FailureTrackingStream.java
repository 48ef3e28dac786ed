package org.tfsparsecap.captioner;

import android.net.Uri;
import java.io.FileNotFoundException;
import java.io.FilterInputStream;
import java.io.IOException;
import java.io.InputStream;

/** Records what Android's decoders do not report: read errors, and whether the stream was empty. */
final class FailureTrackingStream extends FilterInputStream {
  private IOException failure;
  private RuntimeException refusal;
  private boolean empty = true;

  /**
   * @param in the provider's stream, or null if it returned none.
   * @param uri the photo, for messages.
   */
  FailureTrackingStream(InputStream in, Uri uri) throws FileNotFoundException {
    super(in);
    if (in == null) {
      throw new FileNotFoundException("no content at " + uri);
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

  /** Whether no byte has been read. */
  boolean isEmpty() {
    return empty;
  }

  /** Throws the exception that an earlier read threw, if any. */
  void rethrow() throws IOException {
    if (failure != null) {
      throw failure;
    }
    if (refusal != null) {
      throw refusal;
    }
  }
}
