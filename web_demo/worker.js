/**
 * Runs the captioner beside the page, which stays responsive. Not a module: LiteRT.js calls importScripts.
 *
 * Messages to it are { id, load: address } and then { id, photo: file }, and are answered one after another,
 * with { id, about } and { id, found }, or { id, error }.
 */

const PREVIEW = 1344; // sharp at the width of the page on most screens
const module = import("./captioner.js");
let captioner = null;
let last = Promise.resolve();

self.addEventListener("message", ({ data }) => {
  last = last.then(() => answer(data));
});

async function answer({ id, load, photo }) {
  try {
    const { loadCaptioner } = await module;
    if (load) {
      captioner = await loadCaptioner(load);
      // Shows that it runs. The browser also compiles the runtime further meanwhile, so that photos are fast.
      await captioner.captionPixels(new Uint8Array(3 * captioner.description.image_size ** 2));
      self.postMessage({
        id,
        about: { words: captioner.vocabulary.length, size: captioner.description.image_size },
      });
    } else {
      const found = await captioner.caption(photo, { preview: PREVIEW });
      self.postMessage({ id, found }, [found.preview]);
    }
  } catch (error) {
    const known = error?.name === "CaptionerError";
    self.postMessage({
      id,
      error: known ? error.message : `something went wrong (${error}): reload the page`,
    });
  }
}
