"""The check before a captioner's file is written: on the runtime, its captions must be the Keras model's."""

import dataclasses
from collections.abc import Callable, Sequence

import numpy as np
import tensorflow as tf

from tfsparsecap.captioning.inference.bundle import CAPTION_SIGNATURE
from tfsparsecap.captioning.models.captioner_base import Captioner
from tfsparsecap.captioning.search.beam_search import Decoder
from tfsparsecap.captioning.search.sentence_rules import SearchRules
from tfsparsecap.errors import InputError
from tfsparsecap_export.caption_files.caption_graph import DIGITS, OBJECTS
from tfsparsecap_export.samples import Sample
from tfsparsecap_export.verify import outputs

#: Whether all weights are float -> largest difference, in nats per word, between the file's and the Keras
#: model's score of the same caption. Rounding to float16 changes scores by hundredths, to int8 by tenths; a
#: kernel that reads garbage changes them by several nats.
SCORE_ERROR = {True: 0.05, False: 0.6}
#: Whether weights are rounded to float16 -> nats below which two captions, or two words after the same
#: prefix, are a tie: either may come first.
TIE = {False: 1e-3, True: 0.05}
#: Whether all weights are float -> largest difference of the probabilities of the objects in an image, as a
#: root mean square. With int8 activations, a single one of a few images changes by more than a half.
OBJECT_ERROR = {True: 0.02, False: 0.2}


@dataclasses.dataclass(frozen=True)
class CaptionVerification(outputs.Verification):
    """The result of the check of a captioner's file.

    Attributes:
        error: largest difference between the file's and the Keras model's score of a caption, in nats per
            word.
        equal: fraction of the inputs whose best caption has the Keras model's token ids or ties with it.
        equal_beams: fraction of all captions, including the other beams, with the same token ids.
        ties: number of captions that count as equal because both have the same score.
        objects_error: largest difference of the probability of an object; None without objects.
    """

    equal: float = 1.0
    equal_beams: float = 1.0
    ties: int = 0
    objects_error: float | None = None

    def sentence(self) -> str:
        ties = f" ({self.ties} of them are different captions with equal scores)" if self.ties else ""
        return (
            f"{self._compared()} {self.equal:.1%} of the best captions are equal{ties}, and"
            f" {self.equal_beams:.1%} of the captions of all beams. Scores differ by at most"
            f" {self.error:.1g} nats per word."
        )


class CaptionsDiffer(outputs.Differs):
    """The file's captions differ from the Keras model's."""


def verify_captions(
    captioner: Captioner,
    content: bytes,
    samples: Sequence[Sample],
    *,
    beam: int,
    max_length: int,
    rules: SearchRules | None = None,
    all_float: bool,
    tolerance: float | None = None,
    rounded: bool = False,
    source: str = "given inputs",
) -> CaptionVerification:
    """Compares the captions of a file with those of the Keras model that it was made from.

    Args:
        captioner: the Keras model.
        content: the bytes of the .tflite file.
        samples: inputs, each with a first axis of 1.
        beam, max_length, rules: as in the export.
        all_float: whether all weights in the file are floating point numbers.
        tolerance: fraction of the captions that may differ. By default 0 if all weights are float, and 1 with
            int8 weights, because the scores are checked.
        rounded: whether weights are rounded to float16.
        source: where the inputs come from, for the report.

    Raises:
        InputError: the file does not load, returns NaN, or its scores or its probabilities of objects differ
            from those of the Keras model.
        CaptionsDiffer: more captions differ than `tolerance` allows.
    """
    decode, score_tokens = Decoder(captioner, beam, max_length, rules), caption_scorer(captioner)
    equal = ties = equal_beams = 0
    largest_error, objects_error = 0.0, None
    run, run_plain = outputs.runners(content, CAPTION_SIGNATURE)
    for number, sample in enumerate(samples):
        token_ids, _, objects = decode.with_objects(sample)
        expected = np.asarray(token_ids)[0]
        results = [run(**sample)]
        if number < 2:
            results.append(run_plain(**sample))
        for result in results:
            score, best = float(result["scores"][0]), _predicted(result)[0]
            # If all candidates are NaN, TOPK_V2 returns the lowest float.
            if np.isnan(result["scores"]).any() or score < -1e30:
                raise InputError("the exported file returns NaN: nothing was written; try another --format")
            log_probabilities = score_tokens(sample, best)
            keras_score = float(log_probabilities.sum())
            error = abs(score - keras_score) / len(log_probabilities)
            if error > SCORE_ERROR[all_float]:
                raise InputError(
                    f"a caption has the score {score:.3f} in the exported file, and {keras_score:.3f} in the"
                    " Keras model: nothing was written; try another --format"
                )
            largest_error = max(largest_error, error)
            if objects is not None:
                errors = np.abs(result[OBJECTS] - np.asarray(objects)[0])
                error = float(np.sqrt(np.mean(np.square(errors))))
                if not error <= OBJECT_ERROR[all_float]:  # neither does NaN pass
                    raise InputError(
                        f"the probabilities of objects in the exported file differ from the Keras model's by"
                        f" {error:.2f} (root mean square): nothing was written; try another --format"
                    )
                objects_error = max(objects_error or 0.0, float(errors.max()))
        file_ids = _predicted(results[0])
        same_ids = file_ids == expected
        same = same_ids.all(axis=1)
        equal_beams += int(same.sum())
        if same[0]:
            equal += 1
        else:
            own, others = (score_tokens(sample, ids) for ids in (expected[0], file_ids[0]))
            penalty = 0.0 if rules is None else rules.length_penalty
            gap = _score_gap(own, others, first=int(np.argmin(same_ids[0])), length_penalty=penalty)
            ties += int(gap <= TIE[rounded])
    different = len(samples) - equal - ties
    allowed = tolerance if tolerance is not None else (0.0 if all_float else 1.0)
    if different / len(samples) > allowed + 1e-9:
        raise CaptionsDiffer(
            f"{different} of {len(samples)} captions of the exported file differ from the Keras model's:"
            " nothing was written; allow a fraction with --tolerance, or try another --format"
        )
    return CaptionVerification(
        samples=len(samples),
        source=source,
        equal=(equal + ties) / len(samples),
        equal_beams=equal_beams / (len(samples) * beam),
        ties=ties,
        error=largest_error,
        runtime=outputs.runtime_name(),
        objects_error=objects_error,
    )


def _predicted(result: dict[str, np.ndarray]) -> np.ndarray:
    """The tokens that the captioner predicts, int32 [beam, T]: words, or the digits of words."""
    return result.get(DIGITS, result["token_ids"])


def _score_gap(own: np.ndarray, other: np.ndarray, first: int, length_penalty: float) -> float:
    """Nats by which the Keras model's scores of two captions differ.

    This is the difference of the whole captions, with length penalty, or of the first words that differ,
    whichever is smaller: after a tie between two words, greedy decoding may produce very different captions.

    Args:
        own, other: log-probabilities of the tokens of both captions.
        first: position of the first token that differs.
        length_penalty: as of the search.
    """
    caption_gap = own.sum() / len(own) ** length_penalty - other.sum() / len(other) ** length_penalty
    word_gap = own[first] - other[first]
    return min(abs(float(caption_gap)), abs(float(word_gap)))


def caption_scorer(captioner: Captioner) -> Callable[[Sample, np.ndarray], np.ndarray]:
    """A function of inputs and token ids int32 [T]: the Keras model's log-probability of each token.

    Tokens after the end token are left out. The captioner runs token by token, as in decoding, because not
    every captioner gives the same scores with teacher forcing.
    """

    @tf.function(autograph=False, reduce_retracing=True)
    def run(inputs, token_ids):
        memory = captioner.encode(inputs, training=False)
        loop = (tf.constant(0), tf.fill([1], captioner.start_id), captioner.initial_state(memory))

        def step(position, last, state, scores):
            logits, new = captioner.step(last, state, memory, training=False)
            tf.nest.map_structure(lambda x, old: x.set_shape(old.shape), new, state)  # a loop needs them
            token = token_ids[position]
            score = tf.nn.log_softmax(tf.cast(logits[0], tf.float32))[token]
            return position + 1, token[None], new, scores.write(position, score)

        scores = tf.TensorArray(tf.float32, tf.size(token_ids))
        return tf.while_loop(lambda position, *_: position < tf.size(token_ids), step, (*loop, scores))[
            3
        ].stack()

    def score(sample: Sample, token_ids: np.ndarray) -> np.ndarray:
        ends = np.flatnonzero(token_ids == captioner.end_id)
        length = int(ends[0]) + 1 if len(ends) else len(token_ids)
        inputs = {name: tf.constant(value) for name, value in sample.items()}
        return run(inputs, tf.constant(token_ids[:length], tf.int32)).numpy()

    return score
