package org.tfsparsecap.captioner;

import android.graphics.Bitmap;
import java.nio.ByteBuffer;
import java.util.ArrayDeque;
import java.util.Arrays;

/**
 * Pillow's {@code resize((side, side), BILINEAR)}, which training and the other programs read pictures with, to
 * the same bytes.
 *
 * <p>Where it reduces, it averages over all pixels under a triangle; Android's own scaling looks at four. It
 * counts in 22-bit fractions and rounds to bytes between the horizontal pass, which is first, and the vertical.
 * A picture goes through it a strip at a time, so that its size costs no heap.
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

  private final int side;
  private final Weights across;
  private final Weights down;
  private final ByteBuffer rgb;
  /** A row of the picture at its new width: red, green, blue of each pixel. */
  private final int[] row;
  /** Sums of rows of the result that are begun and not yet done. */
  private final int[][] sums;
  private final ArrayDeque<int[]> spare = new ArrayDeque<>();
  private int firstOpen;

  private PillowScaler(int width, int height, int side, ByteBuffer rgb) {
    this.side = side;
    this.rgb = rgb;
    across = new Weights(width, side);
    down = new Weights(height, side);
    row = new int[3 * side];
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
    int width = bitmap.getWidth();
    int height = bitmap.getHeight();
    int rows = Math.max(1, STRIP / width);
    int[] strip = new int[width * rows];
    for (int y = 0; y < height; y += rows) {
      int count = Math.min(rows, height - y);
      bitmap.getPixels(strip, 0, width, 0, y, width, count);
      if (bitmap.hasAlpha()) {
        for (int i = 0; i < width * count; i++) {
          strip[i] = WhiteGround.under(strip[i]);
        }
      }
      for (int i = 0; i < count; i++) {
        squeeze(strip, i * width);
        add(y + i);
      }
    }
  }

  /** The horizontal pass: a row of the strip to {@link #row}. */
  private void squeeze(int[] strip, int start) {
    for (int x = 0; x < side; x++) {
      int[] weights = across.weights[x];
      int at = start + across.first[x];
      int red = HALF;
      int green = HALF;
      int blue = HALF;
      for (int k = 0; k < weights.length; k++) {
        int argb = strip[at + k];
        int weight = weights[k];
        red += (argb >> 16 & 255) * weight;
        green += (argb >> 8 & 255) * weight;
        blue += (argb & 255) * weight;
      }
      row[3 * x] = clip(red);
      row[3 * x + 1] = clip(green);
      row[3 * x + 2] = clip(blue);
    }
  }

  /** The vertical pass: adds {@link #row} to what it is part of, and writes what that completes. */
  private void add(int y) {
    for (int out = firstOpen; out < side && down.first[out] <= y; out++) {
      int[] sum = sums[out];
      if (sum == null) {
        sum = spare.isEmpty() ? new int[3 * side] : spare.pop();
        Arrays.fill(sum, HALF);
        sums[out] = sum;
      }
      int weight = down.weights[out][y - down.first[out]];
      for (int i = 0; i < sum.length; i++) {
        sum[i] += row[i] * weight;
      }
    }
    for (; firstOpen < side && y == down.end(firstOpen) - 1; firstOpen++) {
      for (int value : sums[firstOpen]) {
        rgb.put((byte) clip(value));
      }
      spare.push(sums[firstOpen]);
      sums[firstOpen] = null;
    }
  }

  private static int clip(int value) {
    int shifted = value >> BITS;
    return shifted < 0 ? 0 : Math.min(shifted, 255);
  }
}
