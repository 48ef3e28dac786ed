package org.tfsparsecap.captioner;

import android.content.ContentResolver;
import android.graphics.Bitmap;
import android.net.Uri;

/** Reads photos: upright, opaque, at a size that fits memory. */
public final class PhotoReader {
  private PhotoReader() {}

  /**
   * Reads a photo. It reads the disk or the network: call it off the main thread.
   *
   * @param resolver the app's.
   * @param uri of a picture: {@code content:}, {@code file:} or {@code android.resource:}.
   * @param side of the square that it will be captioned at, in pixels, such as the bundle's
   *     {@link BundleDescription#imageSize()}.
   * @return the whole picture with its aspect ratio, ARGB_8888, its shorter side at least four times
   *     {@code side} where the photo has that, reduced by powers of two so that it takes at most some
   *     20 MB; transparent parts are white.
   * @throws PhotoException there is no picture to be had from it.
   */
  public static Bitmap read(ContentResolver resolver, Uri uri, int side) throws PhotoException {
    throw new UnsupportedOperationException();
  }
}
