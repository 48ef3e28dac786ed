"""Conversion of Keras models to dense float32 .tflite files whose weights are constants."""

import contextlib
import dataclasses
import errno
import hashlib
import logging
import math
import os
import re
import tempfile
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tfsparsecap.core.hidden_stderr import hidden_stderr
from tfsparsecap.core.keras_internals import computed_signs, fixed_seeds, layer_scopes, nested_layers
from tfsparsecap.core.model_call import model_call
from tfsparsecap.errors import InputError, first_line
from tfsparsecap.gates import gates
from tfsparsecap_export.keras_to_tflite import rnn_fusion, tensorflow_internals

#: Signature of the file of a model.
DEFAULT_SIGNATURE = "serving_default"
#: Limit of the formats of TensorFlow and TFLite.
_MOST_BYTES = 2**31
#: What TensorFlow's messages say about a full disk, a quota or a limit of the size of files.
_NO_SPACE = tuple(os.strerror(code) for code in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG))
#: An operation without a kernel in a message of the converter.
_MISSING = re.compile(r"tf\.[A-Z]\w+")
#: The same with the place in the graph: `fused["FFT:", "model/layer/FFT@…"] … 'tf.FFT' op is neither`.
_PLACED = re.compile(r"error: loc\([^\n]*?fused\[\"[^\"]*\", \"([^\"@]+)[^\n]*?'(tf\.\w+)' op is neither")


def model_graph(model: keras.Model, batch: int | None = 1, inputs: Any = None) -> bytes:
    """Converts the forward pass of any built Keras model to a dense float32 .tflite file.

    The signature is `serving_default`, with the names of inputs and outputs of `model_call`.

    Args:
        model: a model that is not a captioner.
        batch: batch size, or None for any.
        inputs: what the model is called with, see `model_call`.

    Raises:
        InputError: TFLite does not support an operation of the model, a weight is NaN or infinite, the model
            has unknown input shapes, or TFLite needs a fixed batch size.
    """
    check_weights(model)
    call = model_call(model, inputs, batch)

    def serving_default(**tensors):
        return call(tensors)

    with rnn_fusion.fuse_rnn_kernels(model):
        return convert(model, serving_default, call.inputs, DEFAULT_SIGNATURE)


@contextlib.contextmanager
def float32_computation(model: keras.Model) -> Iterator[None]:
    """Inside the block, a model with mixed precision computes in float32, the dtype of its weights.

    Layers that compute with integers keep their dtype.
    """
    layers = [
        layer
        for layer in nested_layers(model)
        if layer.compute_dtype != "float32" and keras.backend.is_float_dtype(layer.compute_dtype)
    ]
    policies = [layer.dtype_policy for layer in layers]
    try:
        for layer in layers:
            layer.dtype_policy = "float32"
        yield
    finally:
        for layer, policy in zip(layers, policies, strict=True):
            layer.dtype_policy = policy


@contextlib.contextmanager
def kept_state(model: keras.Model) -> Iterator[Callable[[], None]]:
    """After the block, what training does not learn has the values from before it: states, seeds, statistics.

    Yields:
        A function that raises InputError if the block has changed a weight: the model then has a state, which
        a file has not.
    """
    state = [(variable, np.array(variable)) for variable in model.non_trainable_variables]
    weights = {id(weight) for weight in model.non_trainable_weights}  # dropout changes its seeds

    def check() -> None:
        for variable, before in state:
            if id(variable) in weights and not np.array_equal(variable, before):
                raise InputError(
                    f"{model.name} changes {variable.path} when it is called, but a file keeps no state:"
                    " export a model with stateful=False and without calls of layers with training=True"
                )

    try:
        yield check
    finally:
        for variable, before in state:
            if not np.array_equal(variable, before):
                variable.assign(before)


def check_weights(model: keras.Model) -> None:
    """Raises InputError for a model that is not built, has gates, is too large, or has a weight that is no
    float32, NaN or, if it is learned, infinite."""
    if not model.built:
        raise InputError(f"{model.name} has no weights yet: call it once, or train it, before you export it")
    if gates(model):
        raise InputError(f"{model.name} still has gates: call strip_pruning on it before you export it")
    quantized = [layer.name for layer in nested_layers(model) if getattr(layer, "quantization_mode", None)]
    if quantized:
        raise InputError(
            f"{model.name} was quantized by Keras ({', '.join(quantized[:3])}), whose scales TensorFlow Lite"
            ' does not read: export the model as it was before model.quantize, with format="int8"'
        )
    size = 4 * sum(math.prod(weight.shape) for weight in model.weights)
    if size >= _MOST_BYTES:
        raise InputError(
            f"the weights of {model.name} take {size / 1e9:.1f} GB as float32, but TensorFlow converts less"
            f" than {_MOST_BYTES / 1e9:.1f} GB: export parts of the model as files of their own, or a smaller"
            " model"
        )
    for weight in model.weights:
        if not keras.backend.is_float_dtype(weight.dtype):
            continue
        if weight.dtype != "float32":
            raise InputError(
                f"weight {weight.path} of {model.name} is {weight.dtype}, but files compute in float32:"
                ' create the model with dtype="float32", or load the weights into such a model'
            )
        values = np.asarray(weight)
        # A mask of -infinity is a constant.
        if np.isnan(values).any() or (weight.trainable and np.isinf(values).any()):
            raise InputError(
                f"weight {weight.path} contains NaN or infinity because training diverged:"
                " export an earlier checkpoint"
            )


@dataclasses.dataclass(frozen=True)
class KerasWeight:
    """The weight of the Keras model that a constant of the file comes from.

    Attributes:
        name: path of the Keras weight.
        weights: number of weights in the model; the constant may contain additional zeros.
    """

    name: str
    weights: int


def weight_sources(model: keras.Model) -> dict[bytes, KerasWeight]:
    """The sources of constants, by the `content_key` of their values in TFLite's layout.

    Layouts of the same weight have the same object.
    """
    sources: dict[bytes, KerasWeight] = {}
    for weight in model.weights:
        if len(weight.shape) < 2:  # a bias of zeros would be mistaken for a kernel of zeros
            continue
        values = np.asarray(weight, np.float32)
        source = KerasWeight(weight.path, values.size)
        for layout in (values.T, values) if values.ndim == 2 else (values,):
            sources.setdefault(content_key(layout), source)
    for name, table in getattr(model, "constant_tables", dict)().items():  # constants that are no weights
        sources[content_key(table)] = KerasWeight(f"{model.name}/{name}", 0)
    for name, matrix, weights in rnn_fusion.fused_kernels(model):
        sources[content_key(matrix.T)] = KerasWeight(name, weights)
    return sources


def content_key(values: np.ndarray) -> bytes:
    """Hash of the values of an array in row order."""
    return hashlib.sha256(np.ascontiguousarray(values).data).digest()


def convert(
    model: keras.Model,
    function: Callable[..., dict],
    inputs: dict[str, tf.TensorSpec],
    signature: str,
) -> bytes:
    """A dense float32 file of a function of a model.

    Args:
        model: whose variables become constants, and whose layers errors name.
        function: called with a tensor for each name in `inputs`; returns tensors by name.
        inputs: the inputs of the file.
        signature: its name in the file.

    Raises:
        InputError: TensorFlow cannot convert the function.
    """
    specs = {name: tf.TensorSpec(spec.shape, spec.dtype, name=name) for name, spec in inputs.items()}
    with _quiet(), tempfile.TemporaryDirectory() as folder:
        # Recurrent layers draw masks for their dropout in inference too, and do not use them.
        with fixed_seeds(), computed_signs(), layer_scopes():
            concrete = tf.function(function, autograph=False).get_concrete_function(**specs)
        check_operations(concrete.graph, model)
        try:
            with hidden_stderr():
                return _converted(concrete, specs, signature, folder)
        except MemoryError:
            raise
        except Exception as error:
            missing = missing_operations_message(str(error), model)
            if any(None in spec.shape for spec in inputs.values()):
                raise InputError(
                    "TFLite needs a fixed batch size for this model: give batch= (or --batch) a number;"
                    f" models with recurrent layers always need it{missing and f' ({missing})'}"
                ) from error
            raise InputError(missing or conversion_error_message(error, model)) from error


def _converted(function: Any, specs: dict[str, tf.TensorSpec], signature: str, folder: str) -> bytes:
    """The .tflite file of a concrete function; `folder` is for TensorFlow's files."""
    # The converter cannot read variables inside loops, so they are replaced by constants first.
    frozen = tensorflow_internals.freeze_variables(function)
    arguments = [tensor.name.split(":")[0] for tensor in frozen.inputs]
    outputs = sorted(function.structured_outputs)

    def without_variables(**inputs):
        results = frozen(*(inputs[name] for name in arguments))
        return dict(zip(outputs, results, strict=True))

    module = tf.Module()
    module.frozen = tf.function(without_variables, autograph=False)
    tf.saved_model.save(
        module,
        folder,
        signatures={signature: module.frozen.get_concrete_function(**specs)},
        # Gradients are not needed, and that of swish cannot be saved.
        options=tf.saved_model.SaveOptions(experimental_custom_gradients=False),
    )
    return tensorflow_internals.convert_saved_model(folder, signature)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Hides TensorFlow's messages about saving and converting, which users cannot act on."""
    logger, absl = tf.get_logger(), logging.getLogger("absl")
    level = logger.level
    logger.setLevel(logging.ERROR)
    # It warns of functions with their own gradients, such as swish, whatever its level.
    absl.addFilter(_is_error)
    try:
        yield
    finally:
        absl.removeFilter(_is_error)
        logger.setLevel(level)


def _is_error(record: logging.LogRecord) -> bool:
    return record.levelno >= logging.ERROR


def missing_operations_message(message: str, model: keras.Model) -> str:
    """What a message of the converter says about operations that are missing, or an empty text.

    Examples:
        >>> missing_operations_message("'tf.FFT' op is neither a custom op nor a flex op", keras.Sequential())
        'TFLite does not support tf.FFT: replace the layer of the model that uses it'
    """
    names = sorted(set(_MISSING.findall(message)))
    layers = _layers((place for place, _ in _PLACED.findall(message)), model)
    if not names:
        return ""
    where = f"{' and '.join(layers)} of {model.name}" if layers else "the layer of the model that uses it"
    return f"TFLite does not support {', '.join(names)}: replace {where}"


def conversion_error_message(error: Exception, model: keras.Model) -> str:
    """What to say about an error of the converter that `missing_operations_message` says nothing about.

    Examples:
        >>> error = ValueError("loc(1): error: no rank")
        >>> conversion_error_message(error, keras.Sequential(name="net")).split(":")[0]
        'TensorFlow cannot convert net to TFLite (no rank)'
    """
    if any(reason in str(error) for reason in _NO_SPACE):
        return (
            f"the disk of temporary files is full ({tempfile.gettempdir()}): free some space there, or set"
            " TMPDIR to a folder on another disk"
        )
    reason = first_line(error).split("error: ")[-1]
    return (
        f"TensorFlow cannot convert {model.name} to TFLite ({reason}): replace the operation of the model"
        " that the message names, or export the part of the model without it"
    )


def check_operations(graph: tf.Graph, model: keras.Model) -> None:
    """Raises InputError if a graph looks up values in tables, which cannot become constants."""
    tables = [operation for operation in graph.get_operations() if operation.type.startswith("LookupTable")]
    if tables:
        layers = _layers((operation.name for operation in tables), model)
        where = f" in {' and '.join(layers)}" if layers else ""
        raise InputError(
            f"{model.name} looks up words or numbers in a table{where}, which TFLite does not support: export"
            " the part of the model behind it"
        )


def _layers(places: Iterable[str], model: keras.Model) -> list[str]:
    """The innermost layers of places in a graph, in the order in which they appear."""
    names = {layer.name for layer in nested_layers(model, include_self=False)}
    layers = []
    for place in places:
        for part in reversed(place.split("/")[:-1]):
            # TensorFlow numbers equal names.
            name = part if part in names else re.sub(r"_\d+$", "", part)
            if name in names:
                layers.append(name)
                break
    return list(dict.fromkeys(layers))
