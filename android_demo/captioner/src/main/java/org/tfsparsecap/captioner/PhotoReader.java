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
 * Reads photos upright, opaque and at a size that fits into memory, with the same pixels as the
 * reader used for training.
 *
 * <p>The file is streamed and never held in memory as a whole.
 */
public final class PhotoReader {
  /**
   * Maximum size of all bitmaps that exist at the same time: the photo, or the photo as stored and
   * upright.
   */
  private static final int MAX_BITMAP_BYTES = 24 << 20;
  /**
   * JPEGs are reduced by at most this factor, to at least this multiple of the captioner's input,
   * as in Python.
   */
  private static final int MAX_JPEG_REDUCTION = 8;

  private static final int MIN_JPEG_SCALE = 2;
  /** A pixel with 16 bits per channel and its copy with 8. */
  private static final int DEEP_COLOUR_BYTES = 8 + 4;
  private static final int MAX_ATTEMPTS = 4;

  private final ContentResolver resolver;
  private final Uri uri;

  private PhotoReader(ContentResolver resolver, Uri uri) {
    this.resolver = resolver;
    this.uri = uri;
  }

  /**
   * Reads a photo. Accesses the disk or the network, so call it off the main thread.
   *
   * <p>EXIF orientation is applied, transparent pixels get a white background, and animations are
   * reduced to their first frame. The formats are those that this version of Android decodes,
   * including HEIC since Android 9.
   *
   * @param resolver the app's content resolver.
   * @param uri an image: {@code content:}, {@code file:} or {@code android.resource:}.
   * @param side side length of the captioner's input in pixels: {@link
   *     BundleDescription#imageSize()}. To display the photo, half of the desired shorter side.
   * @return the whole photo in its aspect ratio, ARGB_8888. JPEGs are reduced by 1, 2, 4 or 8, as
   *     long as both sides keep twice {@code side}, which gives the same pixels as Python's reader.
   *     Other formats are reduced only if they would exceed the memory limit of 24 MB for all
   *     bitmaps.
   * @throws PhotoException the photo cannot be read.
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
      throw reader.failure(isAccessDenied(error) ? Reason.DENIED : Reason.GONE, error);
    } catch (IOException | RuntimeException error) {
      // Providers belong to other apps and may throw anything.
      throw reader.failure(Reason.GONE, error);
    } catch (OutOfMemoryError error) {
      throw reader.failure(Reason.OUT_OF_MEMORY, error);
    }
  }

  private Bitmap read(int side) throws PhotoException, IOException {
    BitmapFactory.Options bounds = bounds();
    int orientation;
    try (FailureTrackingStream in = open()) {
      orientation = ExifOrientation.of(in);
      // Reading the file may have failed, rather than parsing its EXIF data.
      in.rethrow();
    }
    int sample = sample(bounds, side, ExifOrientation.turns(orientation) ? 2 : 1);
    for (int attempt = 1; ; attempt++, sample *= 2) {
      try {
        return upright(decode(sample), orientation);
      } catch (OutOfMemoryError error) {
        if (attempt == MAX_ATTEMPTS) {
          throw error;
        }
      }
    }
  }

  /** Reads the size and the format of the photo. */
  private BitmapFactory.Options bounds() throws PhotoException, IOException {
    BitmapFactory.Options options = new BitmapFactory.Options();
    options.inJustDecodeBounds = true;
    try (FailureTrackingStream in = open()) {
      BitmapFactory.decodeStream(in, null, options);
      if (options.outWidth <= 0 || options.outHeight <= 0) {
        throw decodeFailure(in);
      }
    }
    return options;
  }

  private Bitmap decode(int sample) throws PhotoException, IOException {
    BitmapFactory.Options options = new BitmapFactory.Options();
    options.inSampleSize = sample;
    options.inMutable = true;
    // Without premultiplication, so that the white background can be blended exactly.
    options.inPremultiplied = false;
    try (FailureTrackingStream in = open()) {
      Bitmap bitmap = BitmapFactory.decodeStream(in, null, options);
      in.rethrow();
      if (bitmap == null) {
        throw decodeFailure(in);
      }
      return bitmap;
    }
  }

  private static Bitmap upright(Bitmap decoded, int orientation) {
    Bitmap bitmap = decoded;
    if (bitmap.getConfig() != Bitmap.Config.ARGB_8888 || !bitmap.isMutable()) {
      // Bitmaps with 16 bits per channel, or 8-bit greyscale.
      bitmap = decoded.copy(Bitmap.Config.ARGB_8888, true);
      decoded.recycle();
      if (bitmap == null) {
        throw new OutOfMemoryError("not enough memory to copy the bitmap");
      }
    }
    if (bitmap.hasAlpha()) {
      WhiteBackground.paint(bitmap);
      bitmap.setPremultiplied(true);
      bitmap.setHasAlpha(false);
    }
    return ExifOrientation.apply(orientation, bitmap);
  }

  /**
   * Returns the factor by which the photo is reduced.
   *
   * @param copies number of bitmaps that exist at the same time.
   */
  private static int sample(BitmapFactory.Options bounds, int side, int copies) {
    long width = bounds.outWidth;
    long height = bounds.outHeight;
    int sample = 1;
    // Other decoders drop pixels instead of averaging, and Python's reader reduces only JPEGs.
    if ("image/jpeg".equals(bounds.outMimeType)) {
      long max = Math.min(width, height) / ((long) MIN_JPEG_SCALE * side);
      while (2 * sample <= Math.min(max, MAX_JPEG_REDUCTION)) {
        sample *= 2;
      }
    }
    long bytes = Math.max(4L * copies, hasDeepColour(bounds) ? DEEP_COLOUR_BYTES : 0);
    while ((width / sample) * (height / sample) * bytes > MAX_BITMAP_BYTES && sample < 1 << 16) {
      sample *= 2;
    }
    return sample;
  }

  /** Whether the bitmap has 16 bits per channel. */
  private static boolean hasDeepColour(BitmapFactory.Options bounds) {
    return Build.VERSION.SDK_INT >= Build.VERSION_CODES.O && bounds.outConfig == Bitmap.Config.RGBA_F16;
  }

  private FailureTrackingStream open() throws IOException {
    return new FailureTrackingStream(resolver.openInputStream(uri), uri);
  }

  /** Explains why a stream could not be decoded. */
  private PhotoException decodeFailure(FailureTrackingStream in) throws IOException {
    in.rethrow();
    return failure(in.isEmpty() ? Reason.EMPTY : Reason.NOT_AN_IMAGE, null);
  }

  private PhotoException failure(Reason reason, Throwable cause) {
    return new PhotoException(reason, uri + ": " + reason + (cause == null ? "" : ", " + cause), cause);
  }

  private static boolean isAccessDenied(FileNotFoundException error) {
    return error.getCause() instanceof ErrnoException
        && ((ErrnoException) error.getCause()).errno == OsConstants.EACCES;
  }
}
