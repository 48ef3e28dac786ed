/** Size and EXIF orientation in the headers of image files. */

const EXIF = "Exif\0\0";
const ORIENTATION = 0x0112;

/**
 * Size and orientation of a JPEG file; null for other files.
 *
 * @param {Uint8Array} bytes The whole file.
 * @returns {{width: number, height: number, orientation: number} | null} Size as stored, orientation 1 to 8.
 */
export function jpegHeader(bytes) {
  const view = viewOf(bytes);
  let orientation = 0;
  return beforeTheEnd(() => {
    if (view.getUint16(0) !== 0xffd8) return null;
    for (let position = 2; view.getUint8(position) === 0xff;) {
      const marker = view.getUint8(position + 1);
      if (marker === 0xff) {
        position += 1; // a fill byte
        continue;
      }
      const start = position + 4;
      position += 2 + view.getUint16(position + 2);
      const segment = bytes.subarray(start, position);
      if (marker === 0xe1 && startsWith(segment, EXIF)) orientation ||= orientationOf(segment);
      // SOF0 to SOF15, without the tables DHT, JPG and DAC.
      if (marker >= 0xc0 && marker <= 0xcf && ![0xc4, 0xc8, 0xcc].includes(marker)) {
        const [height, width] = [view.getUint16(start + 1), view.getUint16(start + 3)];
        return { width, height, orientation: orientation || 1 };
      }
    }
    return null;
  }, null);
}

/** Orientation 1 to 8 of a WebP file; 1 for other files. */
export function webpOrientation(bytes) {
  if (!startsWith(bytes, "RIFF") || !startsWith(bytes.subarray(8), "WEBP")) return 1;
  const view = viewOf(bytes);
  return beforeTheEnd(() => {
    for (let position = 12; ;) {
      const length = view.getUint32(position + 4, true);
      const chunk = bytes.subarray(position + 8, position + 8 + length);
      if (startsWith(bytes.subarray(position), "EXIF")) return orientationOf(chunk) || 1;
      position += 8 + length + (length % 2);
    }
  }, 1);
}

/** Orientation 1 to 8 in EXIF data; 0 if there is none. */
function orientationOf(exif) {
  const tiff = startsWith(exif, EXIF) ? exif.subarray(EXIF.length) : exif;
  const view = viewOf(tiff);
  return beforeTheEnd(() => {
    const little = view.getUint16(0) === 0x4949;
    const directory = view.getUint32(4, little);
    for (let i = 0; i < view.getUint16(directory, little); i++) {
      const entry = directory + 2 + 12 * i;
      if (view.getUint16(entry, little) !== ORIENTATION) continue;
      const value = view.getUint16(entry + 8, little);
      return value >= 1 && value <= 8 ? value : 0;
    }
    return 0;
  }, 0);
}

function viewOf(bytes) {
  return new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
}

function startsWith(bytes, text) {
  return String.fromCharCode(...bytes.subarray(0, text.length)) === text;
}

/**
 * What `read` returns, or `otherwise` if the file ends before it is done: its pixels may be valid
 * nevertheless.
 */
function beforeTheEnd(read, otherwise) {
  try {
    return read();
  } catch (error) {
    if (error instanceof RangeError) return otherwise;
    throw error;
  }
}
