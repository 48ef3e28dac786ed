"""Kernels that take over what removed channels contribute, by ridge regression on sample inputs."""

from collections.abc import Callable, Collection, Iterable
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tfsparsecap.core import keras_internals
from tfsparsecap.errors import InputError, first_line, short_line
from tfsparsecap.slimming.groups import Analysis
from tfsparsecap.slimming.operation_graph import Graph, replace_refs

#: Positions sampled of each tensor in a batch and in all of them, largest number of its channels.
ROWS, ALL_ROWS, MOST_CHANNELS = 4096, 16384, 4096
#: Relative to the variance of the channels.
RIDGE = 1e-2


class SamplesError(InputError):
    """Samples that cannot be used."""


#: A tensor, its axis, counted from the end, that holds the channels, and what is computed of it before.
Place = tuple[int, int, Callable[[Any], Any] | None]


def compensate(analysis: Analysis, alive: np.ndarray, samples: Iterable[Any]) -> dict[int, np.ndarray]:
    """Returns id of a kernel -> its new value, before it is cut.

    Each kernel that multiplies removed channels gets the weights of their prediction from those that stay (of
    the same group, in grouped convolutions), except in layers that are called several times.

    Args:
        analysis: of the model.
        alive: whether each label stays, bool [labels].
        samples: see `activations`.

    Raises:
        SamplesError: as in `activations`.
    """
    chosen = [
        (fold, (fold.tensor, fold.position, fold.before), alive[labels])
        for info in analysis.infos.values()
        for fold, labels in info.folds
        if len(labels) <= MOST_CHANNELS
        and alive[labels].any()
        and not alive[labels].all()
        and analysis.calls[id(info.operation)] == 1
    ]
    rows = activations(analysis, {place for _, place, _ in chosen}, samples)
    values: dict[int, np.ndarray] = {}
    predictions: dict[tuple[Place, int], list[np.ndarray]] = {}
    for fold, place, stays in chosen:
        kernel = keras.ops.convert_to_numpy(fold.kernel).astype(np.float64)
        values[id(fold.kernel)], moved = kernel, np.moveaxis(kernel, fold.axis, 0)  # a view
        groups = len(stays) // len(moved)
        masks = np.split(stays, groups)
        if (place, groups) not in predictions:
            pairs = zip(np.split(rows[place], groups, 1), masks, strict=True)
            predictions[place, groups] = [prediction(part, mask) for part, mask in pairs]
        parts = np.split(moved, groups, -1)
        for part, mask, weights in zip(parts, masks, predictions[place, groups], strict=True):
            part[mask] += np.tensordot(weights, part[~mask], 1)
    return values


def prediction(rows: np.ndarray, stays: np.ndarray) -> np.ndarray:
    """Returns how the channels that go follow from those that stay: weights float64 [kept, removed].

    Args:
        rows: values of all channels, float32 [rows, channels].
        stays: bool [channels].
    """
    rows = rows.astype(np.float64)
    predictors = rows[:, stays]
    gram = predictors.T @ predictors
    # Constant channels have no variance.
    ridge = max(RIDGE * predictors.var(0).mean(), 1e-6 * np.square(predictors).mean(), 1e-12) * len(rows)
    return np.linalg.solve(gram + ridge * np.eye(len(gram)), predictors.T @ rows[:, ~stays])


def _inputs(graph: Graph, batch: Any) -> dict[int, Any]:
    """Tensor -> its value, for the inputs of the model in a batch."""
    refs = [ref.index for ref in keras.tree.flatten(graph.inputs)]
    inputs = batch
    if isinstance(batch, (tuple, list)) and (len(refs) == 1 or not _is_array(batch[0])):
        inputs = batch[0]  # the rest are targets
    if isinstance(inputs, dict):
        is_dict = isinstance(graph.inputs, dict)
        names = list(graph.inputs) if is_dict else [graph.input_layers[index].name for index in refs]
        if not set(inputs) >= set(names):
            raise SamplesError(
                f"samples contain {', '.join(map(str, inputs))}, but the inputs of {graph.name} are"
                f" {', '.join(names)}: use their names"
            )
        # Others are ignored, as by Keras.
        inputs = {name: inputs[name] for name in names} if is_dict else [inputs[name] for name in names]
    values = keras.tree.flatten(inputs)
    if len(values) != len(refs):
        raise SamplesError(
            f"a batch of samples has {len(values)} arrays, but {graph.name} has {len(refs)} inputs: give a"
            " list of batches, each with one array for each input"
        )
    return {index: _as_input(graph, index, value) for index, value in zip(refs, values, strict=True)}


def model_inputs(graph: Graph, batch: Any) -> Any:
    """A batch of samples in the structure that the model takes; see `activations`."""
    return replace_refs(graph.inputs, _inputs(graph, batch).__getitem__)


def _is_array(value: Any) -> bool:
    return not isinstance(value, (tuple, list, dict))


def _as_input(graph: Graph, index: int, value: Any) -> Any:
    """An array as a tensor of the type and rank of an input."""
    layer = graph.input_layers[index]
    expected = tuple(layer.batch_shape)
    try:
        tensor = keras.ops.convert_to_tensor(value, layer.dtype)
    except (TypeError, ValueError, tf.errors.OpError) as error:
        raise SamplesError(
            f"samples contain {short_line(repr(value))[:100]} for the input {layer.name} of {graph.name},"
            f" which is no array of type {layer.dtype}: give a list of batches, each as the model takes it"
        ) from error
    if len(tensor.shape) == len(expected) - 1 and expected[-1] == 1:
        tensor = keras.ops.expand_dims(tensor, -1)
    sizes = zip(tensor.shape[1:], expected[1:], strict=False)
    if len(tensor.shape) != len(expected) or any(b is not None and a != b for a, b in sizes):
        raise SamplesError(
            f"samples have shape {tuple(tensor.shape)} for the input {layer.name} of {graph.name}, which"
            f" takes {expected}: give a list of batches"
        )
    if not tensor.shape[0]:
        raise SamplesError("samples contain an empty batch: leave it out")
    _check_finite(tensor, f"samples contain NaN or infinity for the input {layer.name} of {graph.name}")
    return tensor


def _check_finite(values: Any, problem: str) -> None:
    values = keras.ops.convert_to_numpy(values)
    if not np.issubdtype(values.dtype, np.integer) and not np.isfinite(values.astype(np.float64)).all():
        raise SamplesError(f"{problem}: check the preprocessing of the samples, and the weights of the model")


def activations(
    analysis: Analysis, places: Collection[Place], samples: Iterable[Any]
) -> dict[Place, np.ndarray]:
    """Returns the values of channels at random positions: float32 [rows, channels], at most `ALL_ROWS` rows.

    Args:
        analysis: of the model.
        places: of the channels.
        samples: batches of inputs, or tuples that start with them. Dictionaries are matched by the names of
            the inputs.

    Raises:
        SamplesError: there are no samples, they are not the inputs of the model, or they or what the model
            computes of them are not finite.
    """
    graph, rng = analysis.graph, np.random.default_rng(0)
    rows: dict[Place, np.ndarray] = {}
    # Of all rows so far, those with the largest random numbers are kept: as if chosen from all at the end.
    order: dict[Place, np.ndarray] = {}
    producers = {index: node.operation.name for node in graph.nodes for index in node.outputs}
    for batch in samples:
        tensors = _inputs(graph, batch)
        for node in graph.nodes:
            args, kwargs = replace_refs((node.args, node.kwargs), tensors.__getitem__)
            if isinstance(node.operation, keras.Layer) and keras_internals.takes_training(node.operation):
                kwargs = {**kwargs, "training": False}
            try:
                results = keras.tree.flatten(node.operation(*args, **kwargs))
            except (TypeError, ValueError, tf.errors.OpError) as error:
                raise SamplesError(
                    f"{node.operation.name} of {graph.name} cannot be called on the samples"
                    f" ({first_line(error)}): give batches that the model takes"
                ) from error
            tensors.update(zip(node.outputs, results, strict=True))
        for place in places:
            index, axis, before = place
            values = tensors[index] if before is None else before(tensors[index])
            values = np.moveaxis(keras.ops.convert_to_numpy(values), axis, -1)
            values = values.reshape(-1, values.shape[-1])
            chosen = values[rng.permutation(len(values))[:ROWS]].astype(np.float32)
            name = producers.get(index, "an input")
            _check_finite(chosen, f"{name} of {graph.name} returns NaN or infinity for the samples")
            numbers = rng.random(len(chosen))
            if place in rows:
                chosen = np.concatenate([rows[place], chosen])
                numbers = np.concatenate([order[place], numbers])
            if len(chosen) > ALL_ROWS:
                largest = np.argpartition(numbers, -ALL_ROWS)[-ALL_ROWS:]
                chosen, numbers = chosen[largest], numbers[largest]
            rows[place], order[place] = chosen, numbers
    if places and not rows:
        raise SamplesError("samples are empty: give at least one batch of inputs, or leave samples= out")
    return rows
