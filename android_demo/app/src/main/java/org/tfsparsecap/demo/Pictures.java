package org.tfsparsecap.demo;

import android.graphics.Bitmap;
import android.graphics.Rect;

/** Small pictures out of large ones. */
final class Pictures {
  private Pictures() {}

  /** The middle of a picture as a square of at most {@code side} pixels. */
  static Bitmap thumbnail(Bitmap picture, int side) {
    int square = Math.min(picture.getWidth(), picture.getHeight());
    Rect middle = new Rect(0, 0, square, square);
    middle.offset((picture.getWidth() - square) / 2, (picture.getHeight() - square) / 2);
    Bitmap cut =
        Bitmap.createBitmap(picture, middle.left, middle.top, middle.width(), middle.height());
    return square > side ? Bitmap.createScaledBitmap(cut, side, side, true) : cut;
  }
}
