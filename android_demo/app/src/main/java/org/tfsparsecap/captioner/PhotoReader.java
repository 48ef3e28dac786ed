package org.tfsparsecap.captioner;

import android.content.ContentResolver;
import android.graphics.Bitmap;
import android.graphics.BitmapFactory;
import android.net.Uri;
import android.os.Build;
import android.system.ErrnoException;
import android.system.OsConstants;
import java.io.FileNotFoundException;
import java.io.IOException;
import org.tfsparsecap.captioner.PhotoException.Reason;

/**
 * Reads photos: upright, opaque, at a size that fits memory, with the pixels that training's reader sees.
 *
 * <p>The photo's file is read from a stream, never held as a whole.
 */
public final class PhotoReader {
  /** Bytes of bitmaps that may exist at once: a picture, or the one as it lies in the file and the upright one. */
  private static final int MOST_BYTES = 24 << 20;
  /** What JPEGs are reduced by at most, and how many of the captioner's pixels are left at least: as in Python. */
  private static final int LARGEST_JPEG_STEP = 8;

  private static final int TIMES_SIDE = 2;
  /** A pixel of 16 bits a colour, and its copy of 8. */
  private static final int DEEP_BYTES = 8 + 4;
  private static final int MOST_ATTEMPTS = 4;

  private final ContentResolver resolver;
  private final Uri uri;

  private PhotoReader(ContentResolver resolver, Uri uri) {
    this.resolver = resolver;
    this.uri = uri;
  }

  /**
   * Reads a photo. It reads the disk or the network: call it off the main thread.
   *
   * <p>EXIF orientation is applied, transparent parts become white, of several frames the first is taken.
   * Formats are those that this version of Android decodes, HEIC from Android 9 on among them.
   *
   * @param resolver the app's.
   * @param uri of a picture: {@code content:}, {@code file:} or {@code android.resource:}.
   * @param side of the square that it will be captioned at, in pixels: the bundle's
   *     {@link BundleDescription#imageSize()}. For a picture to look at, half of what its shorter side should have.
   * @return the whole picture with its aspect ratio, ARGB_8888. JPEGs are reduced to the smallest of 1/1, 1/2, 1/4
   *     and 1/8 that has twice {@code side} both ways, which gives the pixels that Python's reader gives; others
   *     only where they would not fit the memory: 24 MB for all that exists at once.
   * @throws PhotoException there is no picture to be had from it.
   */
  public static Bitmap read(ContentResolver resolver, Uri uri, int side) throws PhotoException {
    if (side < 1) {
      throw new IllegalArgumentException("side is " + side + ": give at least 1");
    }
    PhotoReader reader = new PhotoReader(resolver, uri);
    try {
      return reader.read(side);
    } catch (SecurityException error) {
      throw reader.failure(Reason.DENIED, error);
    } catch (FileNotFoundException error) {
      throw reader.failure(denied(error) ? Reason.DENIED : Reason.GONE, error);
    } catch (IOException | RuntimeException error) {
      // Providers are other people's programs: what they throw arrives here.
      throw reader.failure(Reason.GONE, error);
    } catch (OutOfMemoryError error) {
      throw reader.failure(Reason.OUT_OF_MEMORY, error);
    }
  }

  private Bitmap read(int side) throws PhotoException, IOException {
    BitmapFactory.Options bounds = bounds();
    int orientation;
    try (WatchedStream in = open()) {
      orientation = Orientation.of(in);
      // Not the block but the reading of it may have failed.
      in.rethrow();
    }
    int sample = sample(bounds, side, Orientation.turns(orientation) ? 2 : 1);
    for (int attempt = 1; ; attempt++, sample *= 2) {
      try {
        return upright(decode(sample), orientation);
      } catch (OutOfMemoryError error) {
        if (attempt == MOST_ATTEMPTS) {
          throw error;
        }
      }
    }
  }

  /** Size and kind of the picture. */
  private BitmapFactory.Options bounds() throws PhotoException, IOException {
    BitmapFactory.Options options = new BitmapFactory.Options();
    options.inJustDecodeBounds = true;
    try (WatchedStream in = open()) {
      BitmapFactory.decodeStream(in, null, options);
      if (options.outWidth <= 0 || options.outHeight <= 0) {
        throw undecodable(in);
      }
    }
    return options;
  }

  private Bitmap decode(int sample) throws PhotoException, IOException {
    BitmapFactory.Options options = new BitmapFactory.Options();
    options.inSampleSize = sample;
    options.inMutable = true;
    // Colours of transparent pixels are wanted as they are in the file, to put white under them exactly.
    options.inPremultiplied = false;
    try (WatchedStream in = open()) {
      Bitmap bitmap = BitmapFactory.decodeStream(in, null, options);
      in.rethrow();
      if (bitmap == null) {
        throw undecodable(in);
      }
      return bitmap;
    }
  }

  private static Bitmap upright(Bitmap decoded, int orientation) {
    Bitmap bitmap = decoded;
    if (bitmap.getConfig() != Bitmap.Config.ARGB_8888 || !bitmap.isMutable()) {
      // 16 bits a colour, or grey with 8 bits a pixel.
      bitmap = decoded.copy(Bitmap.Config.ARGB_8888, true);
      decoded.recycle();
      if (bitmap == null) {
        throw new OutOfMemoryError("no memory for a copy of the bitmap");
      }
    }
    if (bitmap.hasAlpha()) {
      WhiteGround.paint(bitmap);
      bitmap.setPremultiplied(true);
      bitmap.setHasAlpha(false);
    }
    return Orientation.apply(orientation, bitmap);
  }

  /**
   * By how much a picture is reduced.
   *
   * @param copies how many bitmaps of it there are at once.
   */
  private static int sample(BitmapFactory.Options bounds, int side, int copies) {
    long width = bounds.outWidth;
    long height = bounds.outHeight;
    int sample = 1;
    // Other decoders leave pixels out instead of averaging, and Python's reader reduces no others.
    if ("image/jpeg".equals(bounds.outMimeType)) {
      long most = Math.min(width, height) / ((long) TIMES_SIDE * side);
      while (2 * sample <= Math.min(most, LARGEST_JPEG_STEP)) {
        sample *= 2;
      }
    }
    long bytes = Math.max(4L * copies, deep(bounds) ? DEEP_BYTES : 0);
    while ((width / sample) * (height / sample) * bytes > MOST_BYTES && sample < 1 << 16) {
      sample *= 2;
    }
    return sample;
  }

  /** Whether bitmaps have 16 bits a colour. */
  private static boolean deep(BitmapFactory.Options bounds) {
    return Build.VERSION.SDK_INT >= Build.VERSION_CODES.O && bounds.outConfig == Bitmap.Config.RGBA_F16;
  }

  private WatchedStream open() throws IOException {
    return new WatchedStream(resolver.openInputStream(uri), uri);
  }

  /** Why a stream gave no picture. */
  private PhotoException undecodable(WatchedStream in) throws IOException {
    in.rethrow();
    return failure(in.isEmpty() ? Reason.EMPTY : Reason.NOT_A_PICTURE, null);
  }

  private PhotoException failure(Reason reason, Throwable cause) {
    return new PhotoException(reason, uri + ": " + reason + (cause == null ? "" : ", " + cause), cause);
  }

  private static boolean denied(FileNotFoundException error) {
    return error.getCause() instanceof ErrnoException
        && ((ErrnoException) error.getCause()).errno == OsConstants.EACCES;
  }
}
