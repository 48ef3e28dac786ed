package org.tfsparsecap.captioner;

import android.graphics.Bitmap;
import android.graphics.Matrix;
import android.media.ExifInterface;
import java.io.IOException;
import java.io.InputStream;

/** Reads and applies the orientation in a photo's EXIF data. */
final class ExifOrientation {
  private ExifOrientation() {}

  /**
   * Reads the orientation from a photo's EXIF data.
   *
   * @param photo the file from its start.
   * @return one of {@code ExifInterface.ORIENTATION_...}; normal if there is none or the EXIF data
   *     is malformed, because the pixels may still be valid.
   */
  static int of(InputStream photo) {
    try {
      return new ExifInterface(photo)
          .getAttributeInt(ExifInterface.TAG_ORIENTATION, ExifInterface.ORIENTATION_NORMAL);
    } catch (IOException | RuntimeException broken) {
      // Android versions differ in the exceptions that they throw on malformed EXIF data.
      return ExifInterface.ORIENTATION_NORMAL;
    }
  }

  /** Whether the photo must be rotated or mirrored, which needs a second bitmap. */
  static boolean turns(int orientation) {
    return orientation > ExifInterface.ORIENTATION_NORMAL && orientation <= ExifInterface.ORIENTATION_ROTATE_270;
  }

  /** Returns the upright photo. If that is a new bitmap, the one passed in is recycled. */
  static Bitmap apply(int orientation, Bitmap bitmap) {
    if (!turns(orientation)) {
      return bitmap;
    }
    Matrix matrix = matrix(orientation);
    // Without filtering: rotations by 90 degrees and reflections only move pixels.
    Bitmap upright =
        Bitmap.createBitmap(bitmap, 0, 0, bitmap.getWidth(), bitmap.getHeight(), matrix, false);
    if (upright != bitmap) {
      bitmap.recycle();
    }
    return upright;
  }

  private static Matrix matrix(int orientation) {
    Matrix matrix = new Matrix();
    switch (orientation) {
      case ExifInterface.ORIENTATION_FLIP_HORIZONTAL:
        matrix.setScale(-1, 1);
        break;
      case ExifInterface.ORIENTATION_ROTATE_180:
        matrix.setRotate(180);
        break;
      case ExifInterface.ORIENTATION_FLIP_VERTICAL:
        matrix.setScale(1, -1);
        break;
      case ExifInterface.ORIENTATION_TRANSPOSE:
        matrix.setRotate(90);
        matrix.postScale(-1, 1);
        break;
      case ExifInterface.ORIENTATION_ROTATE_90:
        matrix.setRotate(90);
        break;
      case ExifInterface.ORIENTATION_TRANSVERSE:
        matrix.setRotate(-90);
        matrix.postScale(-1, 1);
        break;
      case ExifInterface.ORIENTATION_ROTATE_270:
        matrix.setRotate(-90);
        break;
      default:
        break;
    }
    return matrix;
  }
}
