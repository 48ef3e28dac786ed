package org.tfsparsecap.demo;

import android.graphics.Bitmap;
import android.graphics.BitmapShader;
import android.graphics.Canvas;
import android.graphics.Matrix;
import android.graphics.Paint;
import android.graphics.Shader;

/** Small pictures out of large ones. */
final class Pictures {
  private static final float CORNER = 0.16f;
  private static final int LONGEST_SIDE = 4096;

  private Pictures() {}

  /** The middle of a picture as a square of at most {@code most} pixels a side, with round corners. */
  static Bitmap thumbnail(Bitmap picture, int most) {
    int square = Math.min(picture.getWidth(), picture.getHeight());
    int side = Math.min(square, most);
    Matrix place = new Matrix();
    place.setTranslate((square - picture.getWidth()) / 2f, (square - picture.getHeight()) / 2f);
    place.postScale((float) side / square, (float) side / square);
    // A shader looks at few of a large picture's pixels: first it is made nearly as small as needed.
    Bitmap near = reduced(picture, side, square);
    place.preScale(
        (float) picture.getWidth() / near.getWidth(),
        (float) picture.getHeight() / near.getHeight());
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
   * A picture that every phone draws: graphics chips leave out what is longer than their textures, such as a
   * screenshot of a whole page.
   *
   * @return the one given, or a smaller one.
   */
  static Bitmap drawable(Bitmap picture) {
    float scale = (float) LONGEST_SIDE / Math.max(picture.getWidth(), picture.getHeight());
    return scale >= 1
        ? picture
        : Bitmap.createScaledBitmap(
            picture,
            Math.max(1, Math.round(scale * picture.getWidth())),
            Math.max(1, Math.round(scale * picture.getHeight())),
            true);
  }

  private static Bitmap reduced(Bitmap picture, int side, int square) {
    int factor = square / side;
    return factor < 2
        ? picture
        : Bitmap.createScaledBitmap(
            picture,
            Math.max(1, picture.getWidth() / factor),
            Math.max(1, picture.getHeight() / factor),
            true);
  }
}
