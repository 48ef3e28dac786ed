/**
 * Captions, confidence and objects from what the graph returns, as `tfsparsecap.captioning.inference` does.
 */

// Objects with at least this probability count as being in the photo.
const LIKELY = 0.5;
// Below this confidence, likely objects are named instead of the caption.
const NOT_SURE = 0.5;
// Beams without a caption have a lower score: minus infinity, or the lowest float32.
const NO_CAPTION = -1e30;

/**
 * @typedef {object} Caption
 * @property {string} text Its words.
 * @property {number} score Sum of the log-probabilities of its tokens.
 * @property {number | null} confidence Probability that it is good, 0 to 1; null without calibration.
 */

/**
 * @typedef {object} Captions
 * @property {string} summary What `python -m tfsparsecap.caption` prints: the best caption and its
 *   confidence, or "Perhaps: " and the likely objects if it is not sure and there are any. Empty without a
 *   caption.
 * @property {boolean} namesObjects Whether the summary names objects instead of the best caption.
 * @property {Caption[]} captions Best first.
 * @property {{name: string, probability: number}[]} objects Those with a probability of at least 0.5,
 *   likeliest first.
 */

/**
 * @param {{token_ids: Int32Array, scores: Float32Array, objects?: Float32Array}} outputs Of the graph: beam *
 *   T ids, beam scores, K probabilities.
 * @param {object} description Content of `captioner.json`.
 * @param {string[]} vocabulary
 * @returns {Captions}
 * @throws {RangeError} The outputs do not fit the description; the message says what the file does wrong.
 */
export function captionsOf({ token_ids: ids, scores, objects: probabilities }, description, vocabulary) {
  const length = ids?.length / scores?.length;
  if (!(ids instanceof Int32Array && scores instanceof Float32Array && Number.isInteger(length))) {
    throw new RangeError("gives no token ids and scores of captions");
  }
  const names = description.objects ?? [];
  probabilities = names.length ? Array.from(probabilities) : [];
  if (probabilities.length !== names.length || !probabilities.every((value) => value >= 0 && value <= 1)) {
    throw new RangeError(`gives no probability for each of its ${names.length} objects`);
  }
  const captions = Array.from(scores, (score, row) => ({
    score,
    row: ids.subarray(row * length, (row + 1) * length),
  }))
    .filter(({ score }) => score > NO_CAPTION && score < Infinity)
    .map(({ score, row }) => captionOf(row, score, probabilities, description, vocabulary));
  const objects = probabilities
    .map((probability, i) => ({ name: names[i], probability }))
    .filter(({ probability }) => probability >= LIKELY)
    .sort((one, other) => other.probability - one.probability);
  return { ...summaryOf(captions, objects), captions, objects };
}

/** The caption in a row of token ids: up to the end token, without special tokens. */
function captionOf(row, score, probabilities, description, vocabulary) {
  const { special_ids: special, unknown_id: unknown, join, confidence: calibration } = description;
  const skipped = new Set([...Object.values(special), unknown]);
  const end = row.indexOf(special.end);
  const ids = Array.from(end < 0 ? row : row.subarray(0, end));
  const wrong = ids.find((id) => id < 0 || id >= vocabulary.length);
  if (wrong !== undefined) throw new RangeError(`gives token ${wrong}, and has ${vocabulary.length} tokens`);
  const tokens = ids.filter((id) => !skipped.has(id)).map((id) => vocabulary[id]);
  // The end token counts; a caption of maximum length has none.
  const count = end < 0 ? Math.max(1, row.length) : end + 1;
  const text = join === "pieces" ? joinPieces(tokens) : tokens.join(" ");
  return {
    text,
    score,
    confidence: calibration ? probabilityOf(calibration, score, count, probabilities) : null,
  };
}

/** The probability that a caption is good; see docs/objects.md. */
function probabilityOf(calibration, score, length, probabilities) {
  const { slope, intercept, length_penalty: penalty, objects = 0, object_count = 0, tokens = 0 } = calibration;
  const likeliest = Math.max(0, ...probabilities);
  const count = probabilities.reduce((sum, probability) => sum + probability, 0);
  const odds =
    (slope * score) / length ** penalty + tokens * length + intercept + objects * likeliest + object_count * count;
  return 1 / (1 + Math.exp(-Math.max(-700, Math.min(700, odds))));
}

/** SentencePiece's text: U+2581 is a space, `<0xNN>` is a byte. */
function joinPieces(tokens) {
  const encoder = new TextEncoder();
  const parts = tokens.map((token) => {
    const byte = /^<0x([0-9A-F]{2})>$/.exec(token);
    return byte ? [parseInt(byte[1], 16)] : [...encoder.encode(token.replaceAll("\u2581", " "))];
  });
  const text = new TextDecoder("utf-8", { ignoreBOM: true }).decode(Uint8Array.from(parts.flat()));
  return text.replace(/^ +| +$/g, "");
}

function summaryOf([best], objects) {
  if (!best) return { summary: "", namesObjects: false };
  if (best.confidence === null) return { summary: best.text, namesObjects: false };
  const unsure = best.confidence < NOT_SURE;
  if (unsure && objects.length) {
    return { summary: `Perhaps: ${objects.map(({ name }) => name).join(", ")}`, namesObjects: true };
  }
  const share = `${(100 * best.confidence).toFixed(0)}%`;
  return { summary: `${best.text} (${unsure ? "not sure, " : ""}${share})`, namesObjects: false };
}
