"""How recurrent and attention layers create, pass on and couple channels."""

import math
from typing import Any

import numpy as np
from keras import layers

from tfsparsecap.core import keras_internals
from tfsparsecap.slimming.labels import Axis
from tfsparsecap.slimming.layer_rules import LAYERS as SIMPLE_LAYERS
from tfsparsecap.slimming.layer_rules import Rule, is_elementwise, unknown
from tfsparsecap.slimming.operation_graph import Ref
from tfsparsecap.slimming.scope import Count, Scope, refs

#: Number of gates of a cell: their columns lie one after the other in each kernel.
GATES = {layers.LSTM: 4, layers.GRU: 3, layers.SimpleRNN: 1}


def _cell(scope: Scope, layer: Any, into: Axis, units: np.ndarray) -> None:
    """Notes the labels of the weights of a recurrent cell."""
    cell, gates = layer.cell, GATES[type(layer)]
    columns = np.tile(units, gates)
    scope.kernel(cell.kernel, into, columns, creates=(1,))
    scope.kernel(cell.recurrent_kernel, units, columns, creates=(1,))
    if cell.bias is not None:
        scope.slot(cell.bias, *([None] * (len(cell.bias.shape) - 1)), columns)
    scope.fold(cell.kernel, 0, into)


def recurrent(scope: Scope) -> None:
    layer = scope.operation
    if type(layer) not in GATES or len(scope.tensors()) > 1 + len(refs(scope.node.kwargs.get("mask"))):
        return unknown(scope)
    into = scope.tie("inputs", scope.channels(scope.only))
    units = scope.create("units", layer.units, size="units")
    _cell(scope, layer, into, units)
    scope.labels.mix(units)
    for position in range(len(scope.node.outputs)):
        scope.emit_channels(units, position)


def resized_inner(config: dict[str, Any], units: int) -> dict[str, Any]:
    """Returns the serialized layer of a wrapper with another number of units, not built yet."""
    config = {key: value for key, value in config.items() if key != "build_config"}
    return {**config, "config": {**config["config"], "units": units}}


def bidirectional(scope: Scope) -> None:
    layer = scope.operation
    parts = (layer.forward_layer, layer.backward_layer)
    plain = all(type(part) in GATES for part in parts) and len(scope.node.outputs) == 1
    if not plain or len(scope.tensors()) > 1 + len(refs(scope.node.kwargs.get("mask"))):
        return unknown(scope)
    into = scope.tie("inputs", scope.channels(scope.only))
    units = [scope.create(f"{side} units", layer.forward_layer.units) for side in ("forward", "backward")]
    # Keras gives both directions the same number of units.
    scope.labels.unite(units[0], units[1])
    for part, of_part in zip(parts, units, strict=True):
        _cell(scope, part, into, of_part)
        scope.labels.mix(of_part)

    def resized(name: str) -> Any:
        def new(count: Count) -> dict[str, Any]:
            return resized_inner(scope.operation.get_config()[name], count(units[0]))

        return new

    config = layer.get_config()
    for name in ("layer", "backward_layer"):
        if config.get(name) is not None:
            scope.info.sizes[name] = resized(name)
    scope.emit_channels(np.concatenate(units) if layer.merge_mode == "concat" else units[0])


def multi_head_attention(scope: Scope) -> None:
    """Heads, sizes of keys and of values are removed; scores keep their scale."""
    layer, config = scope.operation, scope.operation.get_config()
    query, value = scope.argument(0, "query"), scope.argument(1, "value")
    key = scope.argument(2, "key") or value
    if any(not isinstance(tensor, Ref) for tensor in (query, key, value)) or config.get("use_gate"):
        return unknown(scope)
    parts = {name: getattr(layer, f"{name}_dense") for name in ("query", "key", "value", "output")}
    # The output kernel has one more axis for each further axis of `output_shape`.
    if len(scope.node.outputs) > 1 or len(parts["output"].kernel.shape) != 3:
        return unknown(scope)
    heads = scope.create("heads", config["num_heads"], size="num_heads")
    keys = scope.create("key size", config["key_dim"], size="key_dim")
    values = scope.create("value size", config["value_dim"], size="value_dim")
    for name, ref, columns in (("query", query, keys), ("key", key, keys), ("value", value, values)):
        into, dense = scope.tie(name, scope.channels(ref.index)), parts[name]
        scope.kernel(dense.kernel, into, heads, columns, creates=(1, 2))
        scope.slot(dense.bias, heads, columns)
        scope.fold(dense.kernel, 0, into, tensor=ref.index)
    dense = parts["output"]
    created = scope.create("output", dense.kernel.shape[-1])
    scope.kernel(dense.kernel, heads, values, created, creates=(2,))
    scope.slot(dense.bias, created)
    for axis in (heads, keys, values):
        scope.labels.mix(axis)
    scope.info.scale_query = keys
    scope.info.sizes["output_shape"] = lambda count: (count(created),)
    scope.emit_channels(created)


def time_distributed(scope: Scope) -> None:
    """A dense layer for each step; other layers inside stay whole."""
    inner = scope.operation.layer
    if type(inner) is not layers.Dense:
        return unknown(scope)
    outer = scope.operation
    scope.operation = inner
    try:
        SIMPLE_LAYERS[layers.Dense](scope)
    finally:
        scope.operation = outer
    units = scope.info.sizes.pop("units")

    def resized(count: Count) -> dict[str, Any]:
        return resized_inner(outer.get_config()["layer"], units(count))

    scope.info.sizes["layer"] = resized


def transformer_encoder(scope: Scope) -> None:
    """KerasHub's layer: units of its feed-forward network are removed; heads and features stay."""
    layer = scope.operation
    parts = {part.name: part for part in keras_internals.sublayers(layer)}
    inner, outer = (parts.get(f"feedforward_{name}_dense") for name in ("intermediate", "output"))
    if inner is None or outer is None or len(scope.node.outputs) > 1:
        return unknown(scope)
    scope.freeze_all(f"{layer.name} keeps the number of its features")
    shape = scope.shape(scope.only)
    units = scope.create("units", layer.intermediate_dim, size="intermediate_dim")
    scope.kernel(inner.kernel, None, units, creates=(1,))
    scope.slot(inner.bias, units)
    scope.slot(outer.kernel, units, None)
    of_hub = getattr(layer.activation, "__name__", "") == "gelu_approximate"
    if not of_hub and not is_elementwise(layer.activation):
        scope.freeze([units], f"{layer.name} has an activation of all units")
    tokens, features = math.prod(shape[:-1]), shape[-1]
    for kernel, axes in ((inner.kernel, (None, units)), (outer.kernel, (units, None))):
        scope.count(tokens, kernel.shape, axes)
    # The projections of the attention, and the products of queries and keys, and of scores and values.
    scope.count(tokens, (4 * features, features), (None, None))
    scope.count(2 * shape[-2], shape, (None,) * len(shape))
    scope.emit_channels(None)


LAYERS: dict[type, Rule] = {
    **dict.fromkeys(GATES, recurrent),
    layers.Bidirectional: bidirectional,
    layers.MultiHeadAttention: multi_head_attention,
    layers.TimeDistributed: time_distributed,
}
#: Layers of KerasHub, by the name of their class.
OF_HUB: dict[str, Rule] = {"TransformerEncoder": transformer_encoder}
