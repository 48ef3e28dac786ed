/**
 * Captions photographs in the browser, with a .tflite file that `tfsparsecap-export` wrote.
 *
 * No photograph is sent anywhere. In a page, or in a worker that is not a module:
 *
 *     const { loadCaptioner } = await import("./captioner.js");
 *     const captioner = await loadCaptioner("captioner.tflite");
 *     const found = await captioner.caption(file); // of <input type="file">
 *     console.log(found.summary); // "a dog runs on the beach (72%)", or "Perhaps: dog, frisbee"
 */

import { readBundle } from "./bundle.js";
import { captionsOf } from "./captions.js";
import { CaptionerError } from "./errors.js";
import { readPhoto } from "./photo.js";

export { CaptionerError, readPhoto };

const SIGNATURE = "caption";
const BUILD = "litert_wasm_compat_internal.js";

/**
 * @typedef {import("./captions.js").Captions & {milliseconds: {photo: number, run: number}}} Captions
 *   With the time to read the photo, and to run the captioner; of a file also with `preview`, an ImageBitmap.
 */

/**
 * Loads a captioner, and the runtime if this is the first one.
 *
 * @param {string | URL | Blob | ArrayBuffer | Uint8Array} source The bundle, or its address.
 * @param {object} [options]
 * @param {string | URL} [options.runtime] Folder of LiteRT.js that `make web` writes; `litert/` beside this
 *   module by default.
 * @returns {Promise<Captioner>}
 * @throws {CaptionerError} The bundle cannot be loaded, is damaged, has a newer format, or cannot be run.
 */
export async function loadCaptioner(source, { runtime = new URL("litert/", import.meta.url) } = {}) {
  const { bytes, name } = await contentOf(source);
  const { description, vocabulary } = await readBundle(bytes, name);
  const litert = await loadRuntime(new URL(runtime, globalThis.location?.href));
  let model;
  try {
    model = await litert.loadAndCompile(bytes, { accelerator: "wasm" });
  } catch (error) {
    throw new CaptionerError(
      `the runtime of this page cannot run ${name} (${reasonOf(error)}): export it again with a` +
        " current tfsparsecap, or build the page with a newer LiteRT.js",
      error,
    );
  }
  try {
    return new Captioner({ litert, model, description, vocabulary, name });
  } catch (error) {
    model.delete();
    throw error;
  }
}

async function contentOf(source) {
  if (source == null) throw new CaptionerError("there is no captioner: give its address, a File or its bytes");
  const name = source.name ? `the captioner ${source.name}` : "the captioner";
  if (source instanceof ArrayBuffer) return { bytes: new Uint8Array(source), name };
  if (source instanceof Uint8Array) return { bytes: source, name };
  if (source instanceof Blob) return { bytes: new Uint8Array(await source.arrayBuffer()), name };
  const address = new URL(source, globalThis.location?.href);
  const file = `the captioner ${address.pathname.split("/").at(-1)}`;
  try {
    const response = await fetch(address);
    if (!response.ok) throw new Error(`${response.status} ${response.statusText}`.trim());
    return { bytes: new Uint8Array(await response.arrayBuffer()), name: file };
  } catch (error) {
    throw new CaptionerError(
      `${file} cannot be loaded (${error.message}): check its address and the network, then reload the page`,
      error,
    );
  }
}

let loading = null;

/** LiteRT.js, which exists once for each page or worker. */
async function loadRuntime(folder) {
  loading ??= (async () => {
    const litert = await import(new URL("index.js", folder).href);
    if (!litert.getGlobalLiteRtPromise()) {
      // In a worker, the runtime would look for its .wasm file beside the worker.
      globalThis.Module = { locateFile: (file) => new URL(file, folder).href };
      await litert.loadLiteRt(new URL(BUILD, folder).href);
    }
    await litert.getGlobalLiteRtPromise();
    return litert;
  })();
  try {
    return await loading;
  } catch (error) {
    loading = null;
    throw new CaptionerError(
      `the runtime cannot be loaded (${reasonOf(error)}): check the network, use a browser with WebAssembly` +
        " SIMD, then reload the page",
      error,
    );
  }
}

/** The runtime also throws numbers and events. */
function reasonOf(error) {
  const text = error instanceof Error ? error.message : typeof error === "string" ? error : "unknown reason";
  return text.split("\n", 1)[0].slice(0, 200);
}

/** A captioner that is ready to run; `loadCaptioner` creates it. */
export class Captioner {
  #litert;
  #model;
  #name;
  #run;

  constructor({ litert, model, description, vocabulary, name }) {
    this.#litert = litert;
    this.#model = model;
    this.#name = name;
    /** The content of `captioner.json`. */
    this.description = description;
    /** The tokens in the order of their ids. */
    this.vocabulary = vocabulary;
    this.#run = model.signatures[SIGNATURE];
    this.#checkSignature();
  }

  #checkSignature() {
    if (!this.#run) throw this.#damaged(`has no signature ${SIGNATURE}`);
    const inputs = this.#run
      .getInputDetails()
      .map(({ name, dtype, shape }) => `${name} ${dtype} [${shape.join(", ")}]`);
    const size = this.description.image_size;
    const expected = `image uint8 [1, ${size}, ${size}, 3]`;
    if (inputs.join() !== expected) throw this.#damaged(`takes ${inputs.join(" and ")}, not ${expected}`);
    const outputs = this.#run.getOutputDetails().map(({ name }) => name);
    const needed = ["token_ids", "scores", ...(this.#objects.length ? ["objects"] : [])];
    const missing = needed.filter((name) => !outputs.includes(name));
    if (missing.length) throw this.#damaged(`has no output ${missing.join(" and ")}`);
  }

  get #objects() {
    return this.description.objects ?? [];
  }

  /**
   * Captions a photograph of any size.
   *
   * @param {Blob} photo A file in a format that the browser knows.
   * @param {object} [options]
   * @param {number} [options.preview] Longest side, in pixels, of the upright photograph in `preview`; 0 for
   *   none.
   * @returns {Promise<Captions>}
   * @throws {CaptionerError} The photograph cannot be decoded, or the bundle is damaged.
   */
  async caption(photo, { preview: previewSide = 0 } = {}) {
    const start = performance.now();
    const { pixels, preview } = await readPhoto(photo, this.description.image_size, previewSide);
    const read = performance.now() - start;
    const found = await this.captionPixels(pixels);
    found.milliseconds.photo = read;
    return { ...found, preview };
  }

  /**
   * Captions an image that already has the size of the input.
   *
   * @param {Uint8Array} pixels RGB, S * S * 3 bytes, where S is `description.image_size`.
   * @returns {Promise<Captions>}
   * @throws {CaptionerError} The captioner is closed, the number of bytes is wrong, or the bundle is damaged.
   */
  async captionPixels(pixels) {
    const size = this.description.image_size;
    if (!this.#model) throw new CaptionerError("this captioner is closed: load it again");
    if (pixels.length !== 3 * size * size) {
      throw new CaptionerError(
        `${this.#name} takes ${3 * size * size} bytes, not ${pixels.length}: resize the image`,
      );
    }
    const start = performance.now();
    const outputs = await this.#outputs(pixels, size);
    const run = performance.now() - start;
    try {
      return { ...captionsOf(outputs, this.description, this.vocabulary), milliseconds: { photo: 0, run } };
    } catch (error) {
      throw error instanceof RangeError ? this.#damaged(error.message) : error;
    }
  }

  async #outputs(pixels, size) {
    const image = new this.#litert.Tensor(pixels, [1, size, size, 3]);
    try {
      const outputs = {};
      for (const [name, tensor] of Object.entries(await this.#run.run({ image }))) {
        outputs[name] = await tensor.data();
        tensor.delete();
      }
      return outputs;
    } catch (error) {
      throw new CaptionerError(
        `the runtime of this page cannot run ${this.#name} (${reasonOf(error)}): reload the page, or export` +
          " it again",
        error,
      );
    } finally {
      image.delete();
    }
  }

  #damaged(what) {
    return new CaptionerError(
      `${this.#name} ${what}: copy or download the file again, or export the run again`,
    );
  }

  /** Frees the memory of the captioner. May be called more than once. */
  close() {
    this.#model?.delete();
    this.#model = null;
  }
}
