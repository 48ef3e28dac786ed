package org.tfsparsecap.captioner;

import android.graphics.Bitmap;
import android.graphics.Matrix;
import android.media.ExifInterface;
import java.io.IOException;
import java.io.InputStream;

/** Which way up a camera was held, as EXIF writes it. */
final class Orientation {
  private Orientation() {}

  /**
   * The orientation that a picture's EXIF block gives.
   *
   * @param photo its file from the start.
   * @return one of {@code ExifInterface.ORIENTATION_...}; normal where none is given or the block is broken,
   *     which says nothing of the pixels.
   */
  static int of(InputStream photo) {
    try {
      return new ExifInterface(photo)
          .getAttributeInt(ExifInterface.TAG_ORIENTATION, ExifInterface.ORIENTATION_NORMAL);
    } catch (IOException | RuntimeException broken) {
      // Versions of Android differ in what they throw on broken blocks.
      return ExifInterface.ORIENTATION_NORMAL;
    }
  }

  /** Whether the picture has to be turned or mirrored, for which it is held twice. */
  static boolean turns(int orientation) {
    return orientation > ExifInterface.ORIENTATION_NORMAL && orientation <= ExifInterface.ORIENTATION_ROTATE_270;
  }

  /** The picture upright; the one given is recycled where another is returned. */
  static Bitmap apply(int orientation, Bitmap bitmap) {
    if (!turns(orientation)) {
      return bitmap;
    }
    Matrix matrix = matrix(orientation);
    // Not filtered: quarter turns and mirrorings move pixels and change none.
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
