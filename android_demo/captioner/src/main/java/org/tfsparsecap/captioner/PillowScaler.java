package org.tfsparsecap.captioner;

import android.graphics.Bitmap;
import java.nio.ByteBuffer;
import java.util.ArrayDeque;
import java.util.Arrays;

/**
 * Implements Pillow's {@code resize((side, side), BILINEAR)}, which training uses, bit-exactly for
 * Pillow 13.
 *
 * <p>When it reduces an image, it averages over all pixels under a triangle filter; Android's own
 * scaling uses only four. Weights are 22-bit fixed-point numbers, and values are rounded to bytes
 * between the two passes. The horizontal pass comes first, except for tall images. Rows are
 * processed one at a time, so that large images take no additional heap.
 */
final class PillowScaler {
  private static final int PRECISION_BITS = 32 - 8 - 2;
  private static final int HALF = 1 << (PRECISION_BITS - 1);
  /** Number of pixels read from the bitmap at a time. */
  private static final int STRIP_PIXELS = 1 << 14;

  /** The input pixels that contribute to each output pixel, and their weights in units of 2^-22. */
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
        result[k] = (int) (0.5 + (sum == 0 ? 0 : triangle[k] / sum) * (1 << PRECISION_BITS));
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
  private final Weights horizontal;
  private final Weights vertical;
  private final ByteBuffer rgb;
  /** Red, green and blue of each pixel in a row, at the width of the input. */
  private final int[] inputRow;
  /** The same at the width of the output. */
  private final int[] outputRow;
  /** Sums for output rows that are not complete yet. */
  private final int[][] sums;
  private final ArrayDeque<int[]> freeRows = new ArrayDeque<>();
  private int firstUnfinished;

  private PillowScaler(int width, int height, int side, ByteBuffer rgb) {
    this.width = width;
    this.side = side;
    this.rgb = rgb;
    // Pillow's choice since version 13, which affects speed and the last bit.
    horizontalFirst = height <= side || height - side <= 2 * (width - side);
    horizontal = new Weights(width, side);
    vertical = new Weights(height, side);
    inputRow = new int[3 * width];
    outputRow = new int[3 * side];
    sums = new int[side][];
  }

  /**
   * Scales an image to a square, ignoring its aspect ratio.
   *
   * @param bitmap any size, any config; transparent pixels get a white background.
   * @param side side length of the result in pixels.
   * @param rgb receives 3 * side * side bytes from its position.
   */
  static void scale(Bitmap bitmap, int side, ByteBuffer rgb) {
    if (bitmap.isRecycled()) {
      throw new IllegalArgumentException("the bitmap is recycled");
    }
    // Other configs are copied first; the pixels of hardware bitmaps cannot be read at all.
    boolean copied = bitmap.getConfig() != Bitmap.Config.ARGB_8888;
    Bitmap readable = copied ? bitmap.copy(Bitmap.Config.ARGB_8888, false) : bitmap;
    if (readable == null) {
      throw new IllegalArgumentException("cannot read the pixels of a " + bitmap.getConfig() + " bitmap");
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
    int rows = Math.max(1, STRIP_PIXELS / width);
    int[] thumbnails = new int[width * rows];
    for (int y = 0; y < height; y += rows) {
      int count = Math.min(rows, height - y);
      bitmap.getPixels(thumbnails, 0, width, 0, y, width, count);
      for (int i = 0; i < count; i++) {
        unpackRow(thumbnails, i * width, bitmap.hasAlpha());
        if (horizontalFirst) {
          scaleRow(inputRow);
          add(y + i, outputRow);
        } else {
          add(y + i, inputRow);
        }
      }
    }
  }

  /** Unpacks a row of pixels into {@link #inputRow}. */
  private void unpackRow(int[] thumbnails, int start, boolean hasAlpha) {
    for (int x = 0; x < width; x++) {
      int argb = hasAlpha ? WhiteBackground.under(thumbnails[start + x]) : thumbnails[start + x];
      inputRow[3 * x] = argb >> 16 & 255;
      inputRow[3 * x + 1] = argb >> 8 & 255;
      inputRow[3 * x + 2] = argb & 255;
    }
  }

  /** Horizontal pass: scales a row into {@link #outputRow}. */
  private void scaleRow(int[] row) {
    for (int x = 0; x < side; x++) {
      int[] weights = horizontal.weights[x];
      int pos = 3 * horizontal.first[x];
      int red = HALF;
      int green = HALF;
      int blue = HALF;
      for (int weight : weights) {
        red += row[pos] * weight;
        green += row[pos + 1] * weight;
        blue += row[pos + 2] * weight;
        pos += 3;
      }
      outputRow[3 * x] = clip(red);
      outputRow[3 * x + 1] = clip(green);
      outputRow[3 * x + 2] = clip(blue);
    }
  }

  /**
   * Vertical pass: adds a row to the output rows that it contributes to, and writes those that are
   * complete.
   */
  private void add(int y, int[] row) {
    for (int out = firstUnfinished; out < side && vertical.first[out] <= y; out++) {
      if (sums[out] == null) {
        sums[out] = freeRows.isEmpty() ? new int[row.length] : freeRows.pop();
        Arrays.fill(sums[out], HALF);
      }
      int[] sum = sums[out];
      int weight = vertical.weights[out][y - vertical.first[out]];
      for (int i = 0; i < sum.length; i++) {
        sum[i] += row[i] * weight;
      }
    }
    for (; firstUnfinished < side && y == vertical.end(firstUnfinished) - 1; firstUnfinished++) {
      complete(sums[firstUnfinished]);
      freeRows.push(sums[firstUnfinished]);
      sums[firstUnfinished] = null;
    }
  }

  private void complete(int[] sum) {
    for (int i = 0; i < sum.length; i++) {
      sum[i] = clip(sum[i]);
    }
    int[] row = sum;
    if (!horizontalFirst) {
      scaleRow(sum);
      row = outputRow;
    }
    for (int value : row) {
      rgb.put((byte) value);
    }
  }

  private static int clip(int value) {
    int shifted = value >> PRECISION_BITS;
    return shifted < 0 ? 0 : Math.min(shifted, 255);
  }
}
