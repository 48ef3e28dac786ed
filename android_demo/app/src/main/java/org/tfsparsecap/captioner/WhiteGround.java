package org.tfsparsecap.captioner;

import android.graphics.Bitmap;

/** White behind what is transparent, by the arithmetic of Pillow's alpha_composite: to the same bytes. */
final class WhiteGround {
  private static final int STRIP = 1 << 14;

  private WhiteGround() {}

  /**
   * @param argb 0xAARRGGBB, not premultiplied.
   * @return the same on white, opaque.
   */
  static int under(int argb) {
    int alpha = argb >>> 24;
    if (alpha == 255) {
      return argb;
    }
    if (alpha == 0) {
      return 0xffffffff;
    }
    return 0xff000000
        | blend(argb >> 16 & 255, alpha) << 16
        | blend(argb >> 8 & 255, alpha) << 8
        | blend(argb & 255, alpha);
  }

  /** Pillow counts in 1/128: the colour's share, the ground's, and a division by 255 that rounds. */
  private static int blend(int colour, int alpha) {
    int sum = (colour * alpha << 7) + 255 * (255 - alpha << 7) + (128 << 7);
    return (sum >> 8) + sum >> 8 >> 7;
  }

  /** Puts white under a bitmap, in place: mutable, ARGB_8888. */
  static void paint(Bitmap bitmap) {
    int width = bitmap.getWidth();
    int rows = Math.max(1, STRIP / width);
    int[] strip = new int[width * rows];
    for (int y = 0; y < bitmap.getHeight(); y += rows) {
      int count = Math.min(rows, bitmap.getHeight() - y);
      bitmap.getPixels(strip, 0, width, 0, y, width, count);
      for (int i = 0; i < width * count; i++) {
        strip[i] = under(strip[i]);
      }
      bitmap.setPixels(strip, 0, width, 0, y, width, count);
    }
  }
}
