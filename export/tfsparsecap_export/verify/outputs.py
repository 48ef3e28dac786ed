"""The check before a file exists: on the TensorFlow Lite runtime it says what the Keras model says."""

import dataclasses

import keras
import numpy as np
import tensorflow as tf

from tfsparsecap.decoding import Decoder
from tfsparsecap.errors import InputError
from tfsparsecap.models.captioner import Captioner
from tfsparsecap_export.convert.graph import CAPTION_SIGNATURE, DEFAULT_SIGNATURE, DIGITS
from tfsparsecap_export.samples import Sample

#: Nats a word by which the score in the file may differ from the Keras model's score of the same caption.
#: Rounding to float16 moves it by hundredths, to int8 by tenths, a kernel that reads garbage by several.
SCORE_ERROR = {True: 0.05, False: 0.6}
#: Nats within which two captions, or two words after the same ones, are equally good to the Keras model:
#: which one comes first is then chance. Rounding weights to float16 decides what is closer than that.
TIE, ROUNDED_TIE = 1e-3, 0.05
#: Largest difference of another model's outputs, as a share of the largest output.
OUTPUT_ERROR = {True: 0.01, False: 0.1}


@dataclasses.dataclass(frozen=True)
class Verification:
    """What the check found.

    Attributes:
        samples: inputs that were tried.
        source: what those inputs are.
        equal: share of them whose best caption has the Keras model's token ids, or is as good to within
            a tie; None for a model that gives no captions.
        equal_beams: share of all captions, the other beams included, with the same token ids.
        ties: captions that counted as equal because both are equally good.
        error: largest difference between the file's score of a caption and the Keras model's, nats a word;
            for a model that gives no captions, of any output, as a share of the largest one.
        runtime: what the file ran on.
    """

    samples: int
    source: str
    equal: float | None
    equal_beams: float | None
    ties: int
    error: float
    runtime: str


class CaptionsDiffer(InputError):
    """The file's captions are not the Keras model's."""


def check_deterministic(model: keras.Model, sample: Sample) -> None:
    """Raises InputError for a model that does not give the same input the same output twice.

    Nothing that is exported could be compared with it.
    """
    if isinstance(model, Captioner):
        start = tf.constant([[model.start_id] * 2], tf.int32)
        runs = [model({**sample, "tokens": start}, training=False) for _ in range(2)]
    else:
        runs = [_keras_outputs(model, sample) for _ in range(2)]
    for one, other in zip(*map(tf.nest.flatten, runs), strict=True):
        one, other = np.asarray(one, np.float64), np.asarray(other, np.float64)
        # Threads add up in any order: what that changes is no difference.
        if not np.allclose(one, other, rtol=0, atol=1e-4 * max(1e-6, float(np.abs(one).max(initial=0)))):
            raise InputError(
                f"{model.name} gives the same input another output each time: export a model whose layers"
                " draw no random numbers in inference"
            )


def _keras_outputs(model: keras.Model, sample: Sample) -> list:
    tensors = [tf.constant(value) for value in sample.values()]
    inputs = tf.nest.pack_sequence_as(model.inputs, tensors) if len(tensors) > 1 else tensors[0]
    return tf.nest.flatten(model(inputs, training=False))


def verify_captions(
    content: bytes,
    captioner: Captioner,
    samples: list[Sample],
    *,
    beam: int,
    max_length: int,
    all_float: bool,
    tolerance: float | None = None,
    tie: float = TIE,
    source: str = "given inputs",
) -> Verification:
    """Runs a file and the Keras model that it came from on the same inputs.

    Args:
        content: the bytes of the .tflite file.
        captioner: the Keras model.
        samples: inputs, each with leading axis 1.
        beam, max_length: as the file was exported with.
        all_float: whether all weights in the file are floating point numbers.
        tolerance: share of the captions that may differ; None allows none where all weights are float, and
            any number, as long as the scores fit, where some are int8.
        tie: nats within which another caption is as good, see `TIE`.
        source: what the inputs are, for the record.

    Raises:
        InputError: the file does not load, gives NaN, or scores that the Keras model does not give its
            captions.
        CaptionsDiffer: more captions differ than `tolerance` allows.
    """
    decode = Decoder(captioner, beam, max_length)
    equal = ties = equal_beams = 0
    score_error = 0.0
    # With XNNPACK, as every program runs it, and without: an operation that the one leaves to the other
    # shows.
    with_delegate, plain = (
        _runner(content, CAPTION_SIGNATURE, True),
        _runner(content, CAPTION_SIGNATURE, False),
    )
    for number, sample in enumerate(samples):
        expected = [np.asarray(tensor)[0] for tensor in decode(sample)]
        expected_ids = expected[0]
        outputs = with_delegate(**sample)
        runs = [outputs, plain(**sample)] if number < 2 else [outputs]
        for run in runs:
            # Where all candidates are NaN, TOPK_V2 gives the lowest number there is.
            if np.isnan(run["scores"]).any() or run["scores"][0] < -1e30:
                raise InputError("the exported file gives NaN: nothing was written; try another --format")
            best = _predicted(run)[0]
            words = _words(captioner, best)
            keras_score = _score(captioner, sample, best)
            error = abs(float(run["scores"][0]) - keras_score) / words
            score_error = max(score_error, error)
            if error > SCORE_ERROR[all_float]:
                raise InputError(
                    f"the exported file gives a caption the score {run['scores'][0]:.3f}, the Keras model"
                    f" gives it {keras_score:.3f}: nothing was written; try another --format"
                )
        same = (_predicted(outputs) == expected_ids).all(axis=1)
        equal_beams += int(same.sum())
        if same[0]:
            equal += 1
        elif _lead(captioner, sample, expected_ids[0], _predicted(outputs)[0]) <= tie:
            ties += 1
    share = (equal + ties) / len(samples)
    allowed = tolerance if tolerance is not None else (0.0 if all_float else 1.0)
    if 1 - share > allowed + 1e-9:
        raise CaptionsDiffer(
            f"{len(samples) - equal - ties} of {len(samples)} captions of the exported file differ from the"
            " Keras model's: nothing was written; allow a share with --tolerance, or try another --format"
        )
    return Verification(
        len(samples), source, share, equal_beams / (len(samples) * beam), ties, score_error, runtime_name()
    )


def verify_outputs(
    content: bytes,
    model: keras.Model,
    samples: list[Sample],
    *,
    all_float: bool,
    source: str = "given inputs",
) -> Verification:
    """As `verify_captions`, for a model that is no captioner: compares all outputs.

    Raises:
        InputError: the file does not load, gives NaN, or outputs that are too far from the Keras model's.
    """
    run, plain = _runner(content, DEFAULT_SIGNATURE, True), _runner(content, DEFAULT_SIGNATURE, False)
    largest_error = 0.0
    for sample in samples:
        expected = [np.asarray(output) for output in _keras_outputs(model, sample)]
        for outputs in (run(**sample), plain(**sample)):
            for i, values in enumerate(expected):
                given = outputs[f"output_{i}"]
                if np.isnan(given).any():
                    raise InputError("the exported file gives NaN: nothing was written; try another format")
                scale = max(1e-6, float(np.abs(values).max(initial=0)))
                largest_error = max(largest_error, float(np.abs(given - values).max(initial=0)) / scale)
    if largest_error > OUTPUT_ERROR[all_float]:
        raise InputError(
            f"an output of the exported file is {largest_error:.1%} of the largest one away from the"
            " Keras model's: nothing was written; try another format"
        )
    return Verification(len(samples), source, None, None, 0, largest_error, runtime_name())


def runtime_name() -> str:
    """The runtime that files are checked on, with its version."""
    import importlib.metadata

    return f"LiteRT {importlib.metadata.version('ai-edge-litert')}"


def _runner(content: bytes, signature: str, delegate: bool):
    from ai_edge_litert.interpreter import Interpreter, OpResolverType

    resolver = OpResolverType.AUTO if delegate else OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES
    try:
        interpreter = Interpreter(model_content=content, experimental_op_resolver_type=resolver)
        return interpreter.get_signature_runner(signature)
    except (ValueError, RuntimeError) as error:
        raise InputError(
            f"the runtime does not load the exported file ({str(error).strip().splitlines()[0]}):"
            " nothing was written; try another --format"
        ) from error


def _predicted(outputs: dict[str, np.ndarray]) -> np.ndarray:
    """The captioner's own tokens, int32 [beam, T], be they words or digits of words."""
    return outputs.get(DIGITS, outputs["token_ids"])


def _words(captioner: Captioner, token_ids: np.ndarray) -> int:
    """Tokens that a caption's score counts: up to the end token, which is one of them."""
    ends = np.flatnonzero(token_ids == captioner.end_id)
    return int(ends[0]) + 1 if len(ends) else len(token_ids)


def _score(captioner: Captioner, sample: Sample, token_ids: np.ndarray) -> float:
    """Sum of the log-probabilities that the Keras model gives a caption."""
    return float(_log_probabilities(captioner, sample, token_ids).sum())


def _lead(captioner: Captioner, sample: Sample, expected: np.ndarray, given: np.ndarray) -> float:
    """By how many nats the Keras model prefers its own caption to the file's.

    As a whole, or at the word where they part, whichever is less: after a tie between words, greedy decoding
    goes on to a caption that may be quite another.
    """
    own = _log_probabilities(captioner, sample, expected)
    other = _log_probabilities(captioner, sample, given)
    parting = int(np.argmax(expected != given))
    return min(abs(float(own.sum() - other.sum())), abs(float(own[parting] - other[parting])))


def _log_probabilities(captioner: Captioner, sample: Sample, token_ids: np.ndarray) -> np.ndarray:
    """What the Keras model gives each word of a caption, its end token included."""
    # Word by word, as captions are decoded: not every captioner gives teacher forcing the same scores.
    memory = captioner.encode({name: tf.constant(value) for name, value in sample.items()}, training=False)
    state, last, logs = captioner.initial_state(memory), captioner.start_id, []
    for token in token_ids[: _words(captioner, token_ids)]:
        logits, state = captioner.step(tf.constant([last], tf.int32), state, memory, training=False)
        logs.append(tf.nn.log_softmax(tf.cast(logits[0], tf.float32))[int(token)])
        last = int(token)
    return np.asarray(tf.stack(logs))
