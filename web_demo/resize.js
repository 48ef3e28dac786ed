/**
 * Pillow's `resize((size, size), BILINEAR)`, which training uses, with the same bytes as Pillow 13.
 *
 * When it reduces, this filter averages over all pixels under a triangle; browsers scale with other filters.
 * Weights are fixed-point numbers of 22 bits, and values are rounded to bytes between the two passes. Rows
 * are read in strips, so that a large photograph takes little memory besides its own pixels.
 */

const PRECISION_BITS = 22;
const HALF = 1 << (PRECISION_BITS - 1);
const STRIP_PIXELS = 1 << 18;

/**
 * @typedef {object} Pixels
 * @property {number} width
 * @property {number} height
 * @property {(top: number, count: number) => Uint8ClampedArray} rows
 *   Returns `count` rows from `top`: red, green, blue and alpha of each pixel, alpha not premultiplied.
 */

/**
 * Scales an image to a square, without keeping its aspect ratio; transparent pixels become white.
 *
 * @param {Pixels} pixels
 * @param {number} size Side of the square in pixels.
 * @returns {Uint8Array} RGB, size * size * 3 bytes.
 */
export function resize(pixels, size) {
  const { width, height } = pixels;
  const result = new Uint8Array(3 * size * size);
  const horizontal = weightsOf(width, size);
  const vertical = weightsOf(height, size);
  // Pillow's choice since version 13, which affects speed and the last bit.
  const horizontalFirst = height <= size || height - size <= 2 * (width - size);
  const input = new Int32Array(3 * width);
  const scaled = new Int32Array(3 * size);
  const rowLength = horizontalFirst ? scaled.length : input.length;
  const sums = new Map();
  let finished = 0;

  const add = (y, row) => {
    for (let out = finished; out < size && vertical[out].first <= y; out++) {
      if (!sums.has(out)) sums.set(out, new Int32Array(rowLength).fill(HALF));
      const sum = sums.get(out);
      const weight = vertical[out].weights[y - vertical[out].first];
      for (let i = 0; i < rowLength; i++) sum[i] += row[i] * weight;
    }
    for (
      ;
      finished < size && y === vertical[finished].first + vertical[finished].weights.length - 1;
      finished++
    ) {
      const sum = sums.get(finished);
      sums.delete(finished);
      for (let i = 0; i < rowLength; i++) sum[i] = byteOf(sum[i]);
      if (!horizontalFirst) scaleRow(sum, horizontal, scaled);
      result.set(horizontalFirst ? sum : scaled, 3 * size * finished);
    }
  };

  const strip = Math.max(1, Math.floor(STRIP_PIXELS / width));
  for (let top = 0; top < height; top += strip) {
    const count = Math.min(strip, height - top);
    const bytes = pixels.rows(top, count);
    for (let y = 0; y < count; y++) {
      unpackRow(bytes, 4 * width * y, input);
      if (horizontalFirst) scaleRow(input, horizontal, scaled);
      add(top + y, horizontalFirst ? scaled : input);
    }
  }
  return result;
}

/** The input pixels that contribute to each output pixel, and their weights in units of 2^-22. */
function weightsOf(from, to) {
  const scale = from / to;
  const support = Math.max(scale, 1);
  return Array.from({ length: to }, (_, i) => {
    const centre = (i + 0.5) * scale;
    const first = Math.max(0, Math.trunc(centre - support + 0.5));
    const end = Math.min(from, Math.trunc(centre + support + 0.5));
    const triangle = Array.from({ length: end - first }, (_, k) =>
      Math.max(0, 1 - Math.abs((k + first - centre + 0.5) * (1 / support))),
    );
    const sum = triangle.reduce((total, value) => total + value, 0);
    const rounded = (value) => Math.trunc(0.5 + (sum === 0 ? 0 : value / sum) * (1 << PRECISION_BITS));
    return { first, weights: Int32Array.from(triangle, rounded) };
  });
}

function scaleRow(row, horizontal, scaled) {
  for (let x = 0; x < horizontal.length; x++) {
    const { first, weights } = horizontal[x];
    let [red, green, blue] = [HALF, HALF, HALF];
    for (let k = 0, i = 3 * first; k < weights.length; k++, i += 3) {
      const weight = weights[k];
      red += row[i] * weight;
      green += row[i + 1] * weight;
      blue += row[i + 2] * weight;
    }
    scaled[3 * x] = byteOf(red);
    scaled[3 * x + 1] = byteOf(green);
    scaled[3 * x + 2] = byteOf(blue);
  }
}

function unpackRow(bytes, start, row) {
  for (let i = start, j = 0; j < row.length; i += 4, j += 3) {
    const alpha = bytes[i + 3];
    row[j] = onWhite(bytes[i], alpha);
    row[j + 1] = onWhite(bytes[i + 1], alpha);
    row[j + 2] = onWhite(bytes[i + 2], alpha);
  }
}

/** Pillow's `alpha_composite` on white: weights in units of 1/128, then a rounding division by 255. */
function onWhite(colour, alpha) {
  if (alpha === 255) return colour;
  if (alpha === 0) return 255;
  const sum = ((colour * alpha) << 7) + ((255 * (255 - alpha)) << 7) + (128 << 7);
  return (((sum >> 8) + sum) >> 8) >> 7;
}

function byteOf(sum) {
  const value = sum >> PRECISION_BITS;
  return value < 0 ? 0 : Math.min(value, 255);
}
