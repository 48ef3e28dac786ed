package org.tfsparsecap.demo;

import android.graphics.Bitmap;
import android.graphics.Matrix;
import android.media.Image;
import java.nio.ByteBuffer;

/** Converts camera frames in YUV 4:2:0, whose colours are those of JPEG files, to bitmaps. */
final class YuvFrames {
  // JFIF: BT.601 coefficients, all values from 0 to 255, in units of 1/65536.
  private static final int RED_V = 91881;
  private static final int GREEN_U = 22554;
  private static final int GREEN_V = 46802;
  private static final int BLUE_U = 116130;
  private static final int HALF = 1 << 15;

  private YuvFrames() {}

  /**
   * Converts a frame.
   *
   * @param frame in the format YUV_420_888.
   * @param degrees clockwise rotation that makes it upright: 0, 90, 180 or 270.
   */
  static Bitmap bitmap(Image frame, int degrees) {
    Image.Plane[] planes = frame.getPlanes();
    int[] pixels =
        pixels(
            frame.getWidth(),
            frame.getHeight(),
            planes[0].getBuffer(),
            planes[0].getRowStride(),
            planes[1].getBuffer(),
            planes[2].getBuffer(),
            planes[1].getRowStride(),
            planes[1].getPixelStride());
    Bitmap stored =
        Bitmap.createBitmap(pixels, frame.getWidth(), frame.getHeight(), Bitmap.Config.ARGB_8888);
    Matrix turn = new Matrix();
    turn.setRotate(degrees);
    return Bitmap.createBitmap(stored, 0, 0, stored.getWidth(), stored.getHeight(), turn, false);
  }

  /**
   * Returns the pixels, 0xAARRGGBB, row by row.
   *
   * @param rowStride bytes from one row of {@code y} to the next.
   * @param chromaRowStride the same, of {@code u} and {@code v}, which have a value for 2 x 2 pixels.
   * @param chromaPixelStride bytes from one value of {@code u} and {@code v} to the next.
   */
  static int[] pixels(
      int width,
      int height,
      ByteBuffer y,
      int rowStride,
      ByteBuffer u,
      ByteBuffer v,
      int chromaRowStride,
      int chromaPixelStride) {
    int[] pixels = new int[width * height];
    for (int row = 0; row < height; row++) {
      for (int column = 0; column < width; column++) {
        int light = (y.get(row * rowStride + column) & 255) << 16;
        int chroma = row / 2 * chromaRowStride + column / 2 * chromaPixelStride;
        int blueness = (u.get(chroma) & 255) - 128;
        int redness = (v.get(chroma) & 255) - 128;
        pixels[row * width + column] =
            0xff000000
                | level(light + RED_V * redness) << 16
                | level(light - GREEN_U * blueness - GREEN_V * redness) << 8
                | level(light + BLUE_U * blueness);
      }
    }
    return pixels;
  }

  private static int level(int value) {
    return Math.max(0, Math.min(255, value + HALF >> 16));
  }
}
