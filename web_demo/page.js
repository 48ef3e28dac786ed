/** The page: takes photographs, and shows what the captioner says about them. */

const NOT_SURE = 0.5;
const QUITE_SURE = 0.75;

const element = (id) => document.getElementById(id);
const result = element("result");
const photo = element("photo");
const others = element("others");

const waiting = new Map();
let worker;
let stopped = null;
let number = 0;

function startWorker() {
  worker = new Worker("worker.js");
  worker.addEventListener("message", ({ data }) => {
    waiting.get(data.id)(data);
    waiting.delete(data.id);
  });
  worker.addEventListener("error", () => {
    const error =
      "the captioner stopped, because memory is short or the browser lacks a feature: reload the page";
    for (const resolve of waiting.values()) resolve({ error });
    waiting.clear();
    stopped = { error };
  });
}

function ask(message) {
  if (stopped) return Promise.resolve(stopped);
  const id = ++number;
  return new Promise((resolve) => {
    waiting.set(id, resolve);
    worker.postMessage({ id, ...message });
  });
}

const capitalised = (text) => text.charAt(0).toUpperCase() + text.slice(1);
const percent = (share) => share.toLocaleString("en", { style: "percent" });

/** The best caption, or the likely objects. */
function sentenceOf(found) {
  if (!found.captions.length) return "The captioner found no caption for this photo: try another one.";
  return found.namesObjects ? found.summary : capitalised(found.captions[0].text);
}

/** The confidence in words, such as "Probably · 62%"; empty if it is unknown, or if objects are named. */
function confidenceOf(found) {
  const confidence = found.captions[0]?.confidence ?? null;
  if (confidence === null || found.namesObjects) return "";
  const words = confidence < NOT_SURE ? "Not sure" : confidence < QUITE_SURE ? "Probably" : "Quite sure";
  return `${words} · ${percent(confidence)}`;
}

function say(sentence, note = "", state = "") {
  result.className = state;
  element("sentence").textContent = sentence;
  element("note").textContent = note;
}

function showOthers(captions) {
  element("captions").replaceChildren(
    ...captions.map(({ text, confidence }) => {
      const row = document.createElement("li");
      row.textContent = capitalised(text) + (confidence === null ? "" : ` · ${percent(confidence)}`);
      return row;
    }),
  );
  others.hidden = !captions.length;
}

let latest = 0;

/** Says why there is no photo, in the place of the last one. */
function refuse(sentence) {
  ++latest;
  element("figure").hidden = true;
  showOthers([]);
  say(sentence, "", "error");
}

async function describe(file) {
  const turn = ++latest;
  element("figure").hidden = true;
  say("Describing the photo…");
  showOthers([]);
  const { found, error } = (await loaded) ?? (await ask({ photo: file }));
  if (turn !== latest) return; // another photo was chosen meanwhile
  if (error) {
    say(capitalised(`${error}.`), "", "error");
    return;
  }
  const sentence = sentenceOf(found);
  [photo.width, photo.height] = [found.preview.width, found.preview.height];
  photo.getContext("bitmaprenderer").transferFromImageBitmap(found.preview);
  photo.setAttribute("aria-label", `Photo: ${sentence}`);
  element("figure").hidden = false;
  say(sentence, confidenceOf(found));
  showOthers(found.namesObjects ? found.captions : found.captions.slice(1));
  const { photo: read, run } = found.milliseconds;
  element("time").textContent =
    `${Math.round(read)} ms to read the photo, ${Math.round(run)} ms to caption it`;
}

function describeFirst(files) {
  if (files.length) describe(files[0]);
}

for (const id of ["choose", "camera"]) {
  element(id).addEventListener("change", ({ target }) => {
    describeFirst([...target.files]);
    target.value = ""; // the same file can be chosen again
  });
}
document.addEventListener("paste", ({ clipboardData }) => {
  const files = [...clipboardData.files];
  if (files.length) describeFirst(files);
  else refuse("The clipboard has no photo: copy a photo, not its address, and paste again.");
});
document.addEventListener("dragover", (event) => {
  event.preventDefault();
  document.body.classList.add("dropping");
});
for (const name of ["dragleave", "drop", "dragend"]) {
  document.addEventListener(name, () => document.body.classList.remove("dropping"));
}
document.addEventListener("drop", (event) => {
  event.preventDefault();
  const files = [...event.dataTransfer.files];
  if (files.length) describeFirst(files);
  else refuse("What was dropped is no file: save the photo, and drop the file.");
});

/** Keeps the files for later visits; false if this browser keeps nothing, as in some private windows. */
async function keepFiles() {
  try {
    const { installing } = await navigator.serviceWorker.register("service-worker.js");
    if (installing && !navigator.serviceWorker.controller) {
      await new Promise((resolve) => {
        installing.addEventListener("statechange", () => {
          if (["activated", "redundant"].includes(installing.state)) resolve();
        });
      });
      return installing.state === "activated";
    }
    return true;
  } catch {
    return false;
  }
}

/** Loads the captioner; returns { error } if that fails. */
async function start() {
  say("Loading the captioner…");
  // First, so that the captioner and its runtime come from there, and are not sent twice.
  element("offline").hidden = !(await keepFiles());
  startWorker();
  const { about, error } = await ask({ load: "captioner.tflite" });
  if (error) {
    say(capitalised(`${error}.`), "", "error");
    return { error };
  }
  for (const id of ["choose", "camera"]) element(id).disabled = false;
  const { words, size } = about;
  element("about").textContent =
    `It knows ${words.toLocaleString("en")} words, and sees each photo at ${size} × ${size} pixels.`;
  if (latest === 0) say("Ready for a photo.");
  return null;
}

const loaded = start();
