/**
 * Reads what `tfsparsecap-export` writes: a graph, and behind it a zip archive with vocabulary, description.
 */

import { CaptionerError } from "./errors.js";

const FORMAT_VERSION = 1;
const DESCRIPTION = "captioner.json";
const VOCABULARY = "vocabulary.txt";
const LARGEST_IMAGE = 4096;
const LARGEST_WEIGHTS = { slope: 1e6, intercept: 1e6, length_penalty: 10 };
// Files of earlier versions lack these.
const LATER_WEIGHTS = { objects: 1e6, object_count: 1e6, tokens: 1e6 };
const ADVICE = "give a .tflite file that tfsparsecap-export wrote";
// Signatures and sizes of the records of a zip archive.
const END_OF_DIRECTORY = { signature: 0x06054b50, size: 22, longestComment: 0xffff };
const DIRECTORY_ENTRY = { signature: 0x02014b50, size: 46 };
const FILE_ENTRY = { signature: 0x04034b50, size: 30 };
const UTF_8_NAME = 0x0800;
const NEWEST_ZIP = 63; // version 6.3

/**
 * Reads and checks a bundle. Nothing in it is executed.
 *
 * @param {Uint8Array} bytes The whole file.
 * @param {string} name What messages call it, such as "the captioner good.tflite".
 * @returns {Promise<{description: object, vocabulary: string[]}>} The content of `captioner.json`, and the
 *   tokens in the order of their ids.
 * @throws {CaptionerError} The file is no bundle, is damaged, has a newer format, was changed after its
 *   export, or does not take images.
 */
export async function readBundle(bytes, name) {
  if (String.fromCharCode(...bytes.subarray(4, 8)) !== "TFL3") {
    throw new CaptionerError(`${name} is not a .tflite file: ${ADVICE}`);
  }
  let archive, description;
  try {
    archive = readArchive(bytes);
    description = JSON.parse(textOf(archive.files.get(DESCRIPTION)));
  } catch (error) {
    throw new CaptionerError(
      `${name} has no readable ${DESCRIPTION}, because it is cut short, or is not a captioner: ${ADVICE}`,
      error,
    );
  }
  const version = description?.format_version;
  if (!Number.isInteger(version)) {
    throw new CaptionerError(`the description in ${name} has no format version: export the run again`);
  }
  if (version > FORMAT_VERSION) {
    throw new CaptionerError(
      `${name} has a newer format than ${FORMAT_VERSION}, the newest that this page reads: reload` +
        " the page, or update tfsparsecap and build the page again",
    );
  }
  const words = archive.files.get(VOCABULARY);
  await checkDigest(bytes.subarray(0, archive.start), description.graph_sha256, "graph", name);
  await checkDigest(words, description.vocabulary_sha256, "vocabulary", name);
  checkDescription(description, name);
  if (!words) throw new CaptionerError(`${name} has no vocabulary: export the run again`);
  let vocabulary;
  try {
    vocabulary = textOf(words).split("\n");
  } catch (error) {
    throw new CaptionerError(`the vocabulary in ${name} is not UTF-8 text: export the run again`, error);
  }
  if (vocabulary.at(-1) === "") vocabulary.pop();
  return { description, vocabulary };
}

/**
 * The files of an uncompressed zip archive at the end of `bytes`, and where it starts.
 *
 * @throws {RangeError} There is no such archive, or it is damaged.
 */
function readArchive(bytes) {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const short = (place) => view.getUint16(place, true);
  const long = (place) => view.getUint32(place, true);
  const check = (isRight) => {
    if (!isRight) throw new RangeError("the archive is damaged");
  };
  let end = bytes.length - END_OF_DIRECTORY.size;
  const last = Math.max(0, end - END_OF_DIRECTORY.longestComment);
  while (end > last && long(end) !== END_OF_DIRECTORY.signature) end--;
  check(long(end) === END_OF_DIRECTORY.signature);
  const files = new Map();
  let [count, entry] = [short(end + 10), long(end + 16)];
  let start = entry;
  check(entry + long(end + 12) === end);
  for (; count > 0; count--) {
    const [version, flags, method] = [short(entry + 6), short(entry + 8), short(entry + 10)];
    const [crc, stored, size] = [long(entry + 16), long(entry + 20), long(entry + 24)];
    check(long(entry) === DIRECTORY_ENTRY.signature && version <= NEWEST_ZIP);
    check((flags & ~UTF_8_NAME) === 0 && method === 0 && stored === size);
    const name = entry + DIRECTORY_ENTRY.size;
    const nameEnd = name + short(entry + 28);
    const key = textOf(bytes.subarray(name, nameEnd));
    const file = long(entry + 42);
    const fileName = file + FILE_ENTRY.size;
    const fileNameEnd = fileName + short(file + 26);
    check(long(file) === FILE_ENTRY.signature && short(file + 6) === flags);
    check(textOf(bytes.subarray(fileName, fileNameEnd)) === key);
    const content = fileNameEnd + short(file + 28);
    const data = bytes.subarray(content, content + size);
    check(data.length === size && crc32(data) === crc);
    files.set(key, data);
    start = Math.min(start, file);
    entry = nameEnd + short(entry + 30) + short(entry + 32);
  }
  return { files, start };
}

function crc32(data) {
  let crc = -1;
  for (const byte of data) {
    crc ^= byte;
    for (let bit = 0; bit < 8; bit++) crc = (crc >>> 1) ^ (crc & 1 ? 0xedb88320 : 0);
  }
  return ~crc >>> 0;
}

/** @throws {TypeError} The bytes are absent or not UTF-8. */
function textOf(bytes) {
  if (!bytes) throw new TypeError("the file is absent");
  return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes);
}

async function checkDigest(bytes, expected, what, name) {
  if (expected === undefined || expected === null) return; // files of older versions and of other programs
  if (!globalThis.crypto?.subtle) {
    throw new CaptionerError(
      `this browser does not check ${name} on a page without encryption: open the page with https, or from` +
        " localhost",
    );
  }
  const digest = bytes && new Uint8Array(await crypto.subtle.digest("SHA-256", bytes));
  if (!digest || Array.from(digest, (byte) => byte.toString(16).padStart(2, "0")).join("") !== expected) {
    throw new CaptionerError(
      `the ${what} of ${name} was changed after its export, or is damaged: copy or download the file` +
        " again, or export the run again",
    );
  }
}

/** Checks the entries that captioning reads. */
function checkDescription(description, name) {
  const wrong = (what) => new CaptionerError(`the description in ${name} ${what}: export the run again`);
  const special = description.special_ids;
  if (!Number.isInteger(special?.end) || !Object.values(special).every(Number.isInteger)) {
    throw wrong("does not name the special tokens");
  }
  if (description.input === "features") {
    throw new CaptionerError(
      `${name} takes features that another program computes, not photos: give one with an encoder`,
    );
  }
  const size = description.image_size;
  if (!Number.isInteger(size) || size < 1 || size > LARGEST_IMAGE) {
    throw wrong(`gives no image size from 1 to ${LARGEST_IMAGE}`);
  }
  if (!["words", "pieces"].includes(description.join)) throw wrong("does not say how to join tokens");
  const objects = description.objects ?? [];
  if (!Array.isArray(objects) || !objects.every((object) => object && typeof object === "string")) {
    throw wrong("does not give the objects as a list of names");
  }
  const calibration = description.confidence;
  if (calibration === undefined || calibration === null) return;
  for (const [entry, largest] of Object.entries({ ...LARGEST_WEIGHTS, ...LATER_WEIGHTS })) {
    const value = entry in LATER_WEIGHTS ? (calibration[entry] ?? 0) : calibration[entry];
    if (!(typeof value === "number" && Math.abs(value) <= largest)) throw wrong("has a damaged confidence");
  }
}
