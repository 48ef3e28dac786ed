package org.tfsparsecap.demo;

import android.graphics.Bitmap;
import android.graphics.BitmapShader;
import android.graphics.Canvas;
import android.graphics.Matrix;
import android.graphics.Paint;
import android.graphics.Shader;

/** Creates small bitmaps from large ones. */
final class Bitmaps {
  private static final float CORNER = 0.16f;
  private static final int MAX_SIDE = 4096;

  private Bitmaps() {}

  /** The centre of an image as a square with rounded corners, at most {@code max} pixels wide. */
  static Bitmap thumbnail(Bitmap image, int max) {
    int square = Math.min(image.getWidth(), image.getHeight());
    int side = Math.min(square, max);
    Matrix place = new Matrix();
    place.setTranslate((square - image.getWidth()) / 2f, (square - image.getHeight()) / 2f);
    place.postScale((float) side / square, (float) side / square);
    // A shader samples few pixels of a large image, so it is first reduced to nearly the final
    // size.
    Bitmap near = reduced(image, side, square);
    place.preScale(
        (float) image.getWidth() / near.getWidth(),
        (float) image.getHeight() / near.getHeight());
    Paint paint = new Paint(Paint.ANTI_ALIAS_FLAG | Paint.FILTER_BITMAP_FLAG);
    BitmapShader shader = new BitmapShader(near, Shader.TileMode.CLAMP, Shader.TileMode.CLAMP);
    shader.setLocalMatrix(place);
    paint.setShader(shader);
    Bitmap thumbnail = Bitmap.createBitmap(side, side, Bitmap.Config.ARGB_8888);
    float corner = CORNER * side;
    new Canvas(thumbnail).drawRoundRect(0, 0, side, side, corner, corner, paint);
    return thumbnail;
  }

  /**
   * Returns a bitmap that every phone can draw. GPUs do not draw images that exceed their maximum
   * texture size, such as a screenshot of a long page.
   *
   * @return the bitmap passed in, or a reduced one.
   */
  static Bitmap drawable(Bitmap image) {
    float scale = (float) MAX_SIDE / Math.max(image.getWidth(), image.getHeight());
    return scale >= 1
        ? image
        : Bitmap.createScaledBitmap(
            image,
            Math.max(1, Math.round(scale * image.getWidth())),
            Math.max(1, Math.round(scale * image.getHeight())),
            true);
  }

  private static Bitmap reduced(Bitmap image, int side, int square) {
    int factor = square / side;
    return factor < 2
        ? image
        : Bitmap.createScaledBitmap(
            image,
            Math.max(1, image.getWidth() / factor),
            Math.max(1, image.getHeight() / factor),
            true);
  }
}
