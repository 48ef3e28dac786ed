"""From a Keras model to a dense float32 .tflite file whose weights are constants that `sparse` can find."""

import contextlib
import dataclasses
import hashlib
import logging
import re
import tempfile
import warnings
from collections.abc import Callable, Iterator

import keras
import numpy as np
import tensorflow as tf
from tensorflow.python.framework.convert_to_constants import convert_variables_to_constants_v2

from tfsparsecap import decoding
from tfsparsecap.errors import InputError
from tfsparsecap.gates import gates
from tfsparsecap.models.captioner import Captioner
from tfsparsecap_export.convert import cells

#: Name of the signature of a captioner's file; docs/export.md, "A captioner's file".
CAPTION_SIGNATURE = "caption"
#: Its output besides the words, where a captioner predicts digits of words.
DIGITS = "digit_ids"
ENCODER_SIGNATURE = "encode"
#: Name of the signature of any other model's file.
DEFAULT_SIGNATURE = "serving_default"


def caption_graph(
    captioner: Captioner,
    inputs: dict[str, tf.TensorSpec],
    beam: int,
    max_length: int,
    to_words: Callable[[tf.Tensor], tf.Tensor] | None = None,
) -> bytes:
    """The whole caption in one graph: normalisation, encoder and beam search.

    Args:
        captioner: a built captioner without gates.
        inputs: `{"image": uint8 [1, S, S, 3]}` or `{"features": float32 [1, N, D]}`.
        beam: captions that the search keeps, and gives.
        max_length: tokens of a caption at most, the end token included.
        to_words: `RadixTokenizer.to_words`, for a captioner that predicts digits of words.

    Returns:
        A dense float32 .tflite file of one signature, `caption`, with outputs `token_ids` int32 [beam,
        max_length] and `scores` float32 [beam], best first. With `to_words`, `token_ids` are of words, and
        `digit_ids` int32 [beam, max_length] are what the captioner predicts.

    Raises:
        InputError: the graph needs an operation that TFLite does not have, or a weight is not a finite
            number.
    """
    check_weights(captioner)

    def caption(**inputs):
        token_ids, scores = decoding.beam_search(captioner, inputs, beam, max_length)
        if to_words is None:
            return {"token_ids": token_ids[0], "scores": scores[0]}
        words = to_words(token_ids[0])
        return {"token_ids": words, DIGITS: token_ids[0], "scores": scores[0]}

    with cells.one_product_a_word(captioner):
        return _convert(caption, inputs, CAPTION_SIGNATURE)


def encoder_graph(captioner: Captioner, image: tf.TensorSpec, calibration: list[np.ndarray]) -> bytes:
    """The encoder alone, from pixels to features, its weights and what flows between them int8.

    Args:
        captioner: a built captioner with an encoder.
        image: uint8 [1, S, S, 3].
        calibration: images like it, from which the converter takes the range of every value in between.

    Returns:
        A .tflite file of one signature, `encode`, with output `features` float32 [1, N, D].

    Raises:
        InputError: as `caption_graph`.
    """

    def encode(image):
        return {"features": captioner.encoder(image, training=False)}

    return _convert(encode, {"image": image}, ENCODER_SIGNATURE, calibration)


def model_graph(model: keras.Model, batch: int | None = 1) -> bytes:
    """Any built Keras model's forward pass, as a dense float32 .tflite file.

    The signature is `serving_default`; its inputs are named as the model's, its outputs `output_0`,
    `output_1`, ….

    Args:
        model: functional or sequential.
        batch: examples at a time, or None for any number.

    Raises:
        InputError: as `caption_graph`, or the model does not know the shapes of its inputs, or TFLite cannot
            leave the number of examples open.
    """
    check_weights(model)
    inputs = model_inputs(model, batch)

    def serving_default(**inputs):
        tensors = [inputs[name] for name in specs]
        outputs = model(tf.nest.pack_sequence_as(model.inputs, tensors) if len(tensors) > 1 else tensors[0])
        return {f"output_{i}": output for i, output in enumerate(tf.nest.flatten(outputs))}

    specs = inputs
    with cells.one_product_a_word(model):
        return _convert(serving_default, inputs, DEFAULT_SIGNATURE)


def model_inputs(model: keras.Model, batch: int | None = 1) -> dict[str, tf.TensorSpec]:
    """Names, shapes and dtypes of a functional or sequential model's inputs.

    Args:
        model: the model.
        batch: length of the first axis of each, or None.

    Raises:
        InputError: the model is subclassed or not built, or leaves an axis other than the first open.
    """
    tensors = getattr(model, "inputs", None)
    if not tensors:
        raise InputError(
            f"{model.name} does not know the shapes of its inputs: export a functional or sequential model"
            " that is built"
        )
    specs = {}
    for tensor in tensors:
        shape = tensor.shape[1:]
        if None in shape:
            raise InputError(
                f"input {tensor.name} of {model.name} has shape {tuple(tensor.shape)}:"
                " only the first axis may be open"
            )
        specs[tensor.name] = tf.TensorSpec((batch, *shape), tensor.dtype, name=tensor.name)
    return specs


def check_weights(model: keras.Model) -> None:
    """Raises InputError for a model without weights, with gates, or with a weight that is no number."""
    if not model.built:
        raise InputError(f"{model.name} has no weights yet: call it once, or train it, before exporting it")
    if gates(model):
        raise InputError(f"{model.name} still has its gates: export what strip_pruning makes of it")
    for weight in model.weights:
        if keras.backend.is_float_dtype(weight.dtype) and not np.isfinite(np.asarray(weight)).all():
            raise InputError(
                f"weight {weight.path} holds NaN or infinity: the training that made it diverged;"
                " export an earlier checkpoint"
            )


@dataclasses.dataclass(frozen=True)
class Source:
    """What a constant of the file was in the model.

    Attributes:
        name: path of the Keras weight.
        weights: how many weights the model has there; the constant may hold zeros beside them.
    """

    name: str
    weights: int


def weight_sources(model: keras.Model) -> dict[bytes, Source]:
    """What constants come from, by the `content_key` of their values in TFLite's layout, for the report."""
    found = {}
    for weight in model.weights:
        values = np.asarray(weight, np.float32)
        source = Source(weight.path, values.size)
        if values.ndim == 2:
            found.setdefault(content_key(values.T), source)
        found.setdefault(content_key(values), source)
    if isinstance(model, Captioner):
        tables = model.constant_tables().items()
        found |= {content_key(table): Source(f"{model.name}/{name}", 0) for name, table in tables}
    for name, matrix, weights in cells.matrices(model):
        found[content_key(matrix.T)] = Source(name, weights)
    return found


def content_key(values: np.ndarray) -> bytes:
    """A digest of an array's numbers in row order."""
    return hashlib.sha256(np.ascontiguousarray(values)).digest()


def _convert(
    function: Callable[..., dict],
    inputs: dict[str, tf.TensorSpec],
    signature: str,
    calibration: list[np.ndarray] | None = None,
) -> bytes:
    specs = {name: tf.TensorSpec(spec.shape, spec.dtype, name=name) for name, spec in inputs.items()}
    with _quiet(), tempfile.TemporaryDirectory() as folder:
        concrete = tf.function(function, autograph=False).get_concrete_function(**specs)
        # The converter cannot read a variable inside a loop: freeze first, and export what is left, which has
        # none.
        frozen = convert_variables_to_constants_v2(concrete, lower_control_flow=False)
        arguments = [tensor.name.split(":")[0] for tensor in frozen.inputs]
        outputs = sorted(concrete.structured_outputs)

        def constant(**inputs):
            results = frozen(*(inputs[name] for name in arguments))
            return dict(zip(outputs, results, strict=True))

        module = tf.Module()
        module.frozen = tf.function(constant, autograph=False)
        tf.saved_model.save(
            module, folder, signatures={signature: module.frozen.get_concrete_function(**specs)}
        )
        converter = tf.lite.TFLiteConverter.from_saved_model(folder, signature_keys=[signature])
        # Versions of operations that TFLite 2.16, the newest in Maven Central, does not have.
        converter._experimental_disable_per_channel_quantization_for_dense_layers = True
        if calibration is not None:
            (name,) = inputs
            converter.optimizations = [tf.lite.Optimize.DEFAULT]
            converter.representative_dataset = lambda: ({name: sample} for sample in calibration)
        try:
            return converter.convert()
        except Exception as error:
            missing = sorted(set(re.findall(r"tf\.[A-Z]\w+", str(error))))
            if any(None in spec.shape for spec in inputs.values()):
                raise InputError(
                    "TFLite cannot leave the number of examples of this model open"
                    f"{' (' + ', '.join(missing) + ')' if missing else ''}: give a batch size, which"
                    " recurrent layers always need"
                ) from error
            if not missing:
                raise
            raise InputError(
                f"TFLite has no {', '.join(missing)}: replace the layer of the model that needs it"
            ) from error


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keeps TensorFlow's notes on saving and converting, which nobody can act on, off the terminal."""
    logger = tf.get_logger()
    level = logger.level
    logger.setLevel(logging.ERROR)
    with warnings.catch_warnings():
        # Calibration runs on an interpreter that TensorFlow itself calls deprecated.
        warnings.filterwarnings("ignore", message=r"\s*Warning: tf\.lite\.Interpreter is deprecated")
        try:
            yield
        finally:
            logger.setLevel(level)
