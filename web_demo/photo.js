/** Reads photographs with the pixels of `tfsparsecap.captioning.data.images.read_image`. */

import { CaptionerError } from "./errors.js";
import { jpegHeader, webpOrientation } from "./exif.js";
import { resize } from "./resize.js";

/** Larger photographs are refused, as in Python. */
const MOST_PIXELS = 178956970;
const JPEG_REDUCTIONS = [8, 4, 2];
// Of frames, as names of canvases; the frames have the pixels of the file, which are not converted yet.
const COLOUR_SPACES = { bt709: "srgb", smpte432: "display-p3" };
const SRGB_CURVE = "iec61966-2-1";
// An image of 2 x 1 pixels that EXIF turns to 1 x 2.
const TURNED_WEBP =
  "UklGRk4AAABXRUJQVlA4WAoAAAAIAAAAAQAAAAAAVlA4TA4AAAAvAQAAAAcQEf0PRET/A0VYSUYaAAAA" +
  "TU0AKgAAAAgAAQESAAMAAAABAAYAAAAAAAA=";

/**
 * Reads a photograph upright, in sRGB, on white, resized to a square.
 *
 * JPEGs are decoded at the smallest scale of 1/1, 1/2, 1/4, 1/8 that is at least twice `size`, as in Python.
 * Where the browser cannot do that, they are decoded whole: the pixels then differ slightly from Python's.
 *
 * @param {Blob} photo A file in a format that the browser knows.
 * @param {number} size Side of the square in pixels.
 * @param {number} [previewSide] Longest side of the preview in pixels; 0 for none.
 * @returns {Promise<{pixels: Uint8Array, preview: ImageBitmap | null}>} RGB, size * size * 3 bytes; the
 *   upright photograph in its aspect ratio, to show it, which takes less memory than to decode the file
 * again.
 * @throws {CaptionerError} The file is empty, damaged, no image, or too large.
 */
export async function readPhoto(photo, size, previewSide = 0) {
  if (!(photo instanceof Blob)) throw new CaptionerError("this is no photo: give a File or a Blob");
  const name = photo.name ? `the photo ${photo.name}` : "the photo";
  if (photo.size === 0) throw new CaptionerError(`${name} is empty (0 bytes): choose it again`);
  let bytes;
  try {
    bytes = new Uint8Array(await photo.arrayBuffer());
  } catch (error) {
    throw new CaptionerError(`${name} cannot be read (${error.message}): choose it again`, error);
  }
  const header = jpegHeader(bytes);
  if (header) checkPixels(header, name);
  let bitmap = header && (await reducedJpeg(bytes, header, size));
  let orientation = bitmap ? header.orientation : webpOrientation(bytes);
  bytes = null; // the browser reads the file itself
  if (!bitmap) {
    bitmap = await decoded(photo, name);
    if (orientation > 1 && (await turnsWebp())) orientation = 1;
  }
  try {
    checkPixels(bitmap, name);
    const pixels = resize(pixelsOf(bitmap, orientation), size);
    return { pixels, preview: previewSide ? previewOf(bitmap, orientation, previewSide) : null };
  } finally {
    bitmap.close();
  }
}

/** The whole photograph, upright and in sRGB. */
async function decoded(photo, name) {
  try {
    return await createImageBitmap(photo, { premultiplyAlpha: "none" });
  } catch (error) {
    throw new CaptionerError(
      `this browser cannot decode ${name}, which is damaged, no image, too large, or in a format that the` +
        " browser does not know: save it as JPEG or PNG, or choose another one",
      error,
    );
  }
}

function checkPixels({ width, height }, name) {
  if (width * height > MOST_PIXELS) {
    throw new CaptionerError(
      `${name} has ${Math.round((width * height) / 1e6)} million pixels, and at most` +
        ` ${Math.floor(MOST_PIXELS / 1e6)} million are decoded: make it smaller`,
    );
  }
}

/** Whether this browser applies the EXIF orientation of WebP files, as it does that of others. */
async function turnsWebp() {
  const bytes = Uint8Array.from(atob(TURNED_WEBP), (letter) => letter.charCodeAt(0));
  const bitmap = await createImageBitmap(new Blob([bytes], { type: "image/webp" }));
  return bitmap.height === 2;
}

/** Size of a bitmap that an EXIF orientation turns, and the matrix of a canvas that turns it. */
function turnOf(bitmap, orientation) {
  // Whether an upright image has the stored rows as columns, and begins at the right and at the bottom.
  const turned = orientation > 4;
  const fromRight = [2, 3, 7, 8].includes(orientation);
  const fromBottom = [3, 4, 6, 7].includes(orientation);
  const [x, y] = [fromRight ? -1 : 1, fromBottom ? -1 : 1];
  const [left, top] = [fromRight ? bitmap.width : 0, fromBottom ? bitmap.height : 0];
  return turned
    ? { width: bitmap.height, height: bitmap.width, matrix: [0, x, y, 0, top, left] }
    : { width: bitmap.width, height: bitmap.height, matrix: [x, 0, 0, y, left, top] };
}

/**
 * The pixels of a bitmap, upright.
 *
 * @returns {import("./resize.js").Pixels}
 */
function pixelsOf(bitmap, orientation) {
  const { width, height, matrix } = turnOf(bitmap, orientation);
  let context;
  const rows = (top, count) => {
    if (context?.canvas.height !== count) {
      context = new OffscreenCanvas(width, count).getContext("2d", { willReadFrequently: true });
      context.globalCompositeOperation = "copy";
      context.imageSmoothingEnabled = false;
    }
    context.setTransform(1, 0, 0, 1, 0, -top);
    context.transform(...matrix);
    context.drawImage(bitmap, 0, 0);
    return context.getImageData(0, 0, width, count).data;
  };
  return { width, height, rows };
}

/** A copy of a bitmap, upright, with at most `side` pixels on its longest side. */
function previewOf(bitmap, orientation, side) {
  const { width, height, matrix } = turnOf(bitmap, orientation);
  const scale = Math.min(1, side / Math.max(width, height));
  const [scaledWidth, scaledHeight] = [width, height].map((length) =>
    Math.max(1, Math.round(scale * length)),
  );
  const context = new OffscreenCanvas(scaledWidth, scaledHeight).getContext("2d");
  context.imageSmoothingQuality = "high";
  context.scale(scale, scale);
  context.transform(...matrix);
  context.drawImage(bitmap, 0, 0);
  return context.canvas.transferToImageBitmap();
}

/**
 * A JPEG decoded at 1/2, 1/4 or 1/8 of its size, not turned; null if that is too small, or if the browser
 * cannot do it.
 *
 * The factor is that of Pillow's `draft`. libjpeg, which Pillow and Chromium use, computes the smaller image
 * from the coefficients of the file: large photographs take little memory, and the pixels are the same.
 */
async function reducedJpeg(bytes, { width, height }, size) {
  const most = Math.min(Math.floor(width / (2 * size)), Math.floor(height / (2 * size)));
  const reduction = JPEG_REDUCTIONS.find((factor) => factor <= most);
  if (!reduction || typeof ImageDecoder === "undefined") return null;
  const [desiredWidth, desiredHeight] = [Math.ceil(width / reduction), Math.ceil(height / reduction)];
  const decoder = new ImageDecoder({ data: bytes, type: "image/jpeg", desiredWidth, desiredHeight });
  let frame;
  try {
    frame = (await decoder.decode()).image;
    const { primaries, transfer } = frame.colorSpace;
    const colorSpace = transfer === SRGB_CURVE && COLOUR_SPACES[primaries];
    const isReduced = frame.codedWidth === desiredWidth && frame.codedHeight === desiredHeight;
    if (!isReduced || !colorSpace || !/^(RGB|BGR)[XA]$/.test(frame.format)) return null;
    const pixels = new Uint8ClampedArray(4 * desiredWidth * desiredHeight);
    await frame.copyTo(pixels, { layout: [{ offset: 0, stride: 4 * desiredWidth }] });
    for (let i = 0; i < pixels.length; i += 4) {
      if (frame.format.startsWith("B")) [pixels[i], pixels[i + 2]] = [pixels[i + 2], pixels[i]];
      pixels[i + 3] = 255;
    }
    return await createImageBitmap(new ImageData(pixels, desiredWidth, desiredHeight, { colorSpace }));
  } catch (error) {
    const expected = [DOMException, TypeError, RangeError].some((type) => error instanceof type);
    if (!expected) throw error;
    return null;
  } finally {
    frame?.close();
    decoder.close();
  }
}
