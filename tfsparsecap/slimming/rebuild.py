"""The slim model: layers of smaller configurations, with slices of the weights, connected like before."""

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import keras
import numpy as np

from tfsparsecap.core import keras_internals
from tfsparsecap.errors import InputError
from tfsparsecap.slimming.groups import Analysis
from tfsparsecap.slimming.labels import Axis
from tfsparsecap.slimming.operation_graph import replace_refs
from tfsparsecap.slimming.scope import Count

#: What `keras.Input` takes from the configuration of an input layer.
_INPUT_SETTINGS = ("batch_shape", "dtype", "name", "sparse", "ragged", "optional")


@dataclass(frozen=True)
class Pair:
    """A weight of the whole model, the weight of the slim model, and the labels of its axes."""

    old: keras.Variable
    new: keras.Variable
    axes: tuple[Axis, ...] | None


def cut(value: np.ndarray, axes: tuple[Axis, ...], alive: np.ndarray) -> np.ndarray:
    """Returns the part of a weight whose channels stay.

    Args:
        value: the weight.
        axes: labels of each of its axes; None for an axis that stays whole.
        alive: whether each label stays, bool [labels].
    """
    for axis, labels in enumerate(axes):
        if labels is not None:
            value = np.compress(alive[labels], value, axis)
    return value


def rebuild(
    analysis: Analysis, alive: np.ndarray, values: Mapping[int, np.ndarray] | None = None
) -> tuple[keras.Model, list[Pair]]:
    """Creates the model without the channels that go; also returns which weights belong together.

    Args:
        analysis: of the model.
        alive: whether each label stays, bool [labels].
        values: id of a variable -> its new value, before it is cut.

    Raises:
        InputError: a layer cannot be copied, or the slim model would return other shapes.
    """
    graph = analysis.graph

    def count(axis: np.ndarray) -> int:
        return int(alive[axis].sum())

    names = {*graph.renamed_outputs(), *(layer.name for layer in graph.input_layers.values())}
    copies = {id(operation): _copy(analysis, operation, count, names) for operation in graph.operations()}
    tensors: dict[int, Any] = {}
    for index, layer in graph.input_layers.items():
        config = layer.get_config()
        settings = {key: config[key] for key in _INPUT_SETTINGS if config[key] is not None}
        tensors[index] = keras.Input(**settings)
    if graph.is_sequential:
        first = keras_internals.producer(next(iter(tensors.values())))
        # The other operations compute masks, which the layers compute again.
        layers = [
            copies[id(node.operation)] for node in graph.nodes if isinstance(node.operation, keras.Layer)
        ]
        model = keras.Sequential([first, *layers], name=graph.name)
    else:
        model = _connect(analysis, tensors, copies, count)
    _check_outputs(analysis, model)
    pairs: list[Pair] = []
    for operation in graph.operations():
        if isinstance(operation, keras.Layer):
            pairs += _fill(analysis, operation, copies[id(operation)], alive, values or {})
    return model, pairs


def _connect(
    analysis: Analysis, tensors: dict[int, Any], copies: dict[int, Any], count: Count
) -> keras.Model:
    """Calls the copies like the originals."""
    graph = analysis.graph
    for node in graph.nodes:
        args, kwargs = node.args, node.kwargs
        change = analysis.info(node.operation).arguments
        if change is not None:
            args, kwargs = change(args, kwargs, count)
        args, kwargs = replace_refs((args, kwargs), tensors.__getitem__)
        results = keras.tree.flatten(copies[id(node.operation)](*args, **kwargs))
        tensors.update(zip(node.outputs, results, strict=True))
    inputs = replace_refs(graph.inputs, tensors.__getitem__)
    outputs = replace_refs(graph.outputs, tensors.__getitem__)
    model = keras.Model(inputs, outputs, name=graph.name)
    if tuple(model.output_names) == graph.output_names:
        return model
    # The outputs of a nested model have its name, also if it is called several times.
    renamed = {name: keras.layers.Identity(name=name) for name in graph.renamed_outputs()}
    flat = [
        renamed[name](output) if name in renamed else output
        for output, name in zip(model.outputs, graph.output_names, strict=True)
    ]
    return keras.Model(inputs, keras.tree.pack_sequence_as(outputs, flat), name=graph.name)


def _check_outputs(analysis: Analysis, model: keras.Model) -> None:
    graph = analysis.graph
    before = [graph.shapes[ref.index][1:] for ref in keras.tree.flatten(graph.outputs)]
    for name, shape, output in zip(graph.output_names, before, model.outputs, strict=True):
        sizes = zip(shape, output.shape[1:], strict=True)
        if any(size is not None and size != size_before for size_before, size in sizes):
            raise InputError(
                f"{graph.name} would return {name} of shape {tuple(output.shape[1:])} instead of {shape}:"
                " keep the layers before it with skip="
            )


def _copy(analysis: Analysis, operation: Any, count: Count, names: set[str]) -> Any:
    """A copy with sizes for the channels that stay, and a name that is not in `names`, which gets it, too."""
    info, name, number = analysis.info(operation), operation.name, 1
    while name in names:
        number += 1
        name = f"{operation.name}_{number}"
    names.add(name)
    if type(operation) is keras.layers.Lambda:  # its function cannot be stored in a configuration
        return keras_internals.copy_of_lambda(operation, name)
    try:
        config = operation.get_config()
        config |= {key: new(count) for key, new in info.sizes.items()}
        if "name" in config:
            config["name"] = name
        copy = type(operation).from_config(config)
        _copy_assets(operation, copy)
        return copy
    except (TypeError, ValueError, NotImplementedError, KeyError, AttributeError) as error:
        raise InputError(
            f"{operation.name} of {analysis.graph.name}, a {type(operation).__name__}, cannot be copied: use"
            " keras.ops or a layer with get_config instead"
        ) from error


def _copy_assets(operation: Any, copy: Any) -> None:
    """Copies what adapted preprocessing layers keep in files of their own, such as vocabularies."""
    if hasattr(operation, "save_assets"):
        with tempfile.TemporaryDirectory() as folder:
            operation.save_assets(folder)
            copy.load_assets(folder)


def _fill(
    analysis: Analysis,
    operation: keras.Layer,
    copy: keras.Layer,
    alive: np.ndarray,
    values: Mapping[int, np.ndarray],
) -> list[Pair]:
    info = analysis.info(operation)
    pairs = []
    if not operation.trainable:  # the copy has the value already, and Keras would skip what is inside it
        copy.trainable = True
        copy.trainable = False
    for old, new in zip(operation.weights, copy.weights, strict=True):
        new.trainable = old.trainable
        value = values.get(id(old))
        value = keras.ops.convert_to_numpy(old) if value is None else value
        axes = info.slots.get(id(old))
        if axes is not None:
            value = cut(value, axes, alive)
        new.assign(value)
        pairs.append(Pair(old, new, axes))
    # A normalisation computes with values derived from its weights.
    if hasattr(copy, "finalize_state") and copy.weights:
        copy.finalize_state()
    if info.scale_query is not None:
        key_size = int(alive[info.scale_query].sum())
        # The layer divides scores by the root of the new key size.
        factor = (key_size / len(info.scale_query)) ** 0.5
        for name in ("kernel", "bias"):
            variable = getattr(copy.query_dense, name)
            if variable is not None:
                variable.assign(variable * factor)
    return pairs
