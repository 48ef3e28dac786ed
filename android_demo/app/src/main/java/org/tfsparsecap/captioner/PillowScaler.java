package org.tfsparsecap.captioner;

import android.graphics.Bitmap;
import java.nio.ByteBuffer;
import java.util.ArrayDeque;
import java.util.Arrays;

/**
 * Pillow's {@code resize((side, side), BILINEAR)}, which training and the other programs read pictures with, to
 * the same bytes as those of Pillow 13.
 *
 * <p>Where it reduces, it averages over all pixels under a triangle; Android's own scaling looks at four. It
 * counts in 22-bit fractions and rounds to bytes between its two passes, of which the horizontal one comes first
 * but for tall pictures. A picture goes through both a row at a time, so that its size costs no heap.
 */
final class PillowScaler {
  private static final int BITS = 32 - 8 - 2;
  private static final int HALF = 1 << (BITS - 1);
  /** Pixels that are taken out of a bitmap at once. */
  private static final int STRIP = 1 << 14;

  /** Which pixels of a side make one of the result, and how much each counts, in 2^-22. */
  private static final class Weights {
    final int[] first;
    final int[][] weights;

    Weights(int from, int to) {
      first = new int[to];
      weights = new int[to][];
      double scale = (double) from / to;
      double support = Math.max(scale, 1);
      for (int i = 0; i < to; i++) {
        double centre = (i + 0.5) * scale;
        int start = Math.max(0, (int) (centre - support + 0.5));
        int end = Math.min(from, (int) (centre + support + 0.5));
        first[i] = start;
        weights[i] = normalized(start, end, centre, 1 / support);
      }
    }

    private static int[] normalized(int start, int end, double centre, double slope) {
      double[] triangle = new double[end - start];
      double sum = 0;
      for (int k = 0; k < triangle.length; k++) {
        triangle[k] = Math.max(0, 1 - Math.abs((k + start - centre + 0.5) * slope));
        sum += triangle[k];
      }
      int[] result = new int[triangle.length];
      for (int k = 0; k < result.length; k++) {
        result[k] = (int) (0.5 + (sum == 0 ? 0 : triangle[k] / sum) * (1 << BITS));
      }
      return result;
    }

    int end(int i) {
      return first[i] + weights[i].length;
    }
  }

  private final int width;
  private final int side;
  private final boolean horizontalFirst;
  private final Weights across;
  private final Weights down;
  private final ByteBuffer rgb;
  /** Red, green, blue of each pixel of a row, as wide as the picture. */
  private final int[] wide;
  /** The same, as wide as the result. */
  private final int[] narrow;
  /** Sums of rows of the result that are begun and not yet done. */
  private final int[][] sums;
  private final ArrayDeque<int[]> spare = new ArrayDeque<>();
  private int firstOpen;

  private PillowScaler(int width, int height, int side, ByteBuffer rgb) {
    this.width = width;
    this.side = side;
    this.rgb = rgb;
    // As Pillow decides since version 13, by what is faster; the bytes differ by one where they do.
    horizontalFirst = height <= side || height - side <= 2 * (width - side);
    across = new Weights(width, side);
    down = new Weights(height, side);
    wide = new int[3 * width];
    narrow = new int[3 * side];
    sums = new int[side][];
  }

  /**
   * Scales a picture to a square, without keeping its aspect ratio.
   *
   * @param bitmap any size, any config; white is put under what is transparent.
   * @param side of the result in pixels.
   * @param rgb takes 3 * side * side bytes from its position on.
   */
  static void scale(Bitmap bitmap, int side, ByteBuffer rgb) {
    if (bitmap.isRecycled()) {
      throw new IllegalArgumentException("the bitmap is recycled");
    }
    // Other configs, of which hardware bitmaps give no pixels at all, are read from a copy.
    boolean copied = bitmap.getConfig() != Bitmap.Config.ARGB_8888;
    Bitmap readable = copied ? bitmap.copy(Bitmap.Config.ARGB_8888, false) : bitmap;
    if (readable == null) {
      throw new IllegalArgumentException("the pixels of a bitmap of " + bitmap.getConfig() + " cannot be had");
    }
    try {
      new PillowScaler(readable.getWidth(), readable.getHeight(), side, rgb).run(readable);
    } finally {
      if (copied) {
        readable.recycle();
      }
    }
  }

  private void run(Bitmap bitmap) {
    int height = bitmap.getHeight();
    int rows = Math.max(1, STRIP / width);
    int[] strip = new int[width * rows];
    for (int y = 0; y < height; y += rows) {
      int count = Math.min(rows, height - y);
      bitmap.getPixels(strip, 0, width, 0, y, width, count);
      for (int i = 0; i < count; i++) {
        split(strip, i * width, bitmap.hasAlpha());
        if (horizontalFirst) {
          squeeze(wide);
          add(y + i, narrow);
        } else {
          add(y + i, wide);
        }
      }
    }
  }

  /** A row of pixels to {@link #wide}. */
  private void split(int[] strip, int start, boolean hasAlpha) {
    for (int x = 0; x < width; x++) {
      int argb = hasAlpha ? WhiteGround.under(strip[start + x]) : strip[start + x];
      wide[3 * x] = argb >> 16 & 255;
      wide[3 * x + 1] = argb >> 8 & 255;
      wide[3 * x + 2] = argb & 255;
    }
  }

  /** The horizontal pass: a row to {@link #narrow}. */
  private void squeeze(int[] row) {
    for (int x = 0; x < side; x++) {
      int[] weights = across.weights[x];
      int at = 3 * across.first[x];
      int red = HALF;
      int green = HALF;
      int blue = HALF;
      for (int weight : weights) {
        red += row[at] * weight;
        green += row[at + 1] * weight;
        blue += row[at + 2] * weight;
        at += 3;
      }
      narrow[3 * x] = clip(red);
      narrow[3 * x + 1] = clip(green);
      narrow[3 * x + 2] = clip(blue);
    }
  }

  /** The vertical pass: adds a row to all that it is part of, and writes what that completes. */
  private void add(int y, int[] row) {
    for (int out = firstOpen; out < side && down.first[out] <= y; out++) {
      if (sums[out] == null) {
        sums[out] = spare.isEmpty() ? new int[row.length] : spare.pop();
        Arrays.fill(sums[out], HALF);
      }
      int[] sum = sums[out];
      int weight = down.weights[out][y - down.first[out]];
      for (int i = 0; i < sum.length; i++) {
        sum[i] += row[i] * weight;
      }
    }
    for (; firstOpen < side && y == down.end(firstOpen) - 1; firstOpen++) {
      complete(sums[firstOpen]);
      spare.push(sums[firstOpen]);
      sums[firstOpen] = null;
    }
  }

  private void complete(int[] sum) {
    for (int i = 0; i < sum.length; i++) {
      sum[i] = clip(sum[i]);
    }
    int[] row = sum;
    if (!horizontalFirst) {
      squeeze(sum);
      row = narrow;
    }
    for (int value : row) {
      rgb.put((byte) value);
    }
  }

  private static int clip(int value) {
    int shifted = value >> BITS;
    return shifted < 0 ? 0 : Math.min(shifted, 255);
  }
}
