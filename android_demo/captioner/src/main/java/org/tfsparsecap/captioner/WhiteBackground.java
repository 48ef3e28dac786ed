package org.tfsparsecap.captioner;

import android.graphics.Bitmap;

/** Blends images onto a white background, bit-exactly like Pillow's {@code alpha_composite}. */
final class WhiteBackground {
  private static final int STRIP_PIXELS = 1 << 14;

  private WhiteBackground() {}

  /**
   * @param argb 0xAARRGGBB, not premultiplied.
   * @return the colour on white, opaque.
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

  /**
   * Pillow's fixed-point arithmetic: weights in units of 1/128, then a rounding division by 255.
   */
  private static int blend(int colour, int alpha) {
    int sum = (colour * alpha << 7) + 255 * (255 - alpha << 7) + (128 << 7);
    return (sum >> 8) + sum >> 8 >> 7;
  }

  /** Blends a mutable ARGB_8888 bitmap in place. */
  static void paint(Bitmap bitmap) {
    int width = bitmap.getWidth();
    int rows = Math.max(1, STRIP_PIXELS / width);
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
