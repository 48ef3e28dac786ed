"""Counts non-zero weights, with the same rule for all commands, reports and studies.

Kernels and embedding tables can be pruned. Biases (a GRU's two-dimensional one, too), normalisation
parameters and statistics cannot. A weight behind a closed gate counts as zero.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import keras
import numpy as np
import tensorflow as tf

from tfsparsecap.core import keras_internals
from tfsparsecap.gates import Gate
from tfsparsecap.layers.gated import GATED_FORMS, GatedLayer


@dataclass(frozen=True, eq=False)
class Weight:
    """A weight of a layer.

    Attributes:
        layer: the layer that owns it.
        variable: its raw value, without a mask.
        prunable: whether `prune` gates it or could gate it.
        gate: its gate, or None.
        is_table: whether it is an embedding table.
        rows: number of rows as a matrix [inputs summed over, outputs]; None if not prunable.
    """

    layer: keras.Layer
    variable: keras.Variable
    prunable: bool = False
    gate: Gate | None = None
    is_table: bool = False
    rows: int | None = None

    @property
    def size(self) -> int:
        return int(np.prod(self.variable.shape, dtype=np.int64))

    def values(self) -> np.ndarray:
        """The weight as the layer uses it in inference, float32."""
        raw = tf.cast(tf.convert_to_tensor(self.variable.value), tf.float32)
        return np.asarray(raw if self.gate is None else self.gate.call(raw, training=False))

    def nonzeros(self) -> int:
        return int(np.count_nonzero(self.values()))


def weights_of_layer(layer: keras.Layer) -> list[Weight]:
    """Returns the weights of a layer, without those of its sublayers."""
    gated_form = type(layer) if isinstance(layer, GatedLayer) else GATED_FORMS.get(type(layer))
    prunable = {}
    for name in gated_form.gated_names if gated_form is not None and layer.built else ():
        assert gated_form is not None
        descriptor = gated_form.gated_descriptor(name)
        variable = descriptor.stored(layer)
        if isinstance(variable, keras.Variable):  # unless the layer is quantized or has LoRA weights
            gate = layer.gate_of.get(name) if isinstance(layer, GatedLayer) else None
            rows, _ = gated_form.tiling(layer, name, tuple(variable.shape), (1, 1))
            prunable[id(variable)] = Weight(layer, variable, True, gate, name == "embeddings", rows)
    own = keras_internals.own_weights(layer)
    return [prunable.get(id(variable), Weight(layer, variable)) for variable in own]


def layers_by_path(model: keras.Layer) -> Iterator[tuple[str, keras.Layer]]:
    """Yields path and layer: the model, then each nested layer once, in order of creation, without gates."""
    seen, waiting = set(), [("", model)]
    while waiting:
        path, layer = waiting.pop()
        if id(layer) in seen or isinstance(layer, Gate):
            continue
        seen.add(id(layer))
        yield path, layer
        waiting += [
            (f"{path}/{part.name}".lstrip("/"), part) for part in reversed(keras_internals.sublayers(layer))
        ]


def prunable_weights(model: keras.Layer, with_encoder: bool = True) -> list[Weight]:
    """Lists the kernels and embedding tables of a model, each once, in order of creation.

    Args:
        model: any Keras model, with gates or without.
        with_encoder: whether to include those of `model.encoder`, if it has one.

    Examples:
        >>> model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2, name="dense")], name="model")
        >>> [(weight.variable.path, weight.size) for weight in prunable_weights(model)]
        [('model/dense/kernel', 6)]
    """
    encoder = None if with_encoder else getattr(model, "encoder", None)
    seen = {id(variable) for variable in encoder.variables} if encoder is not None else set()
    weights = []
    for _, layer in layers_by_path(model):
        for weight in weights_of_layer(layer):
            if weight.prunable and id(weight.variable) not in seen:
                seen.add(id(weight.variable))
                weights.append(weight)
    return weights


def weight_counts(model: keras.Layer, with_encoder: bool = False) -> dict[str, int | float]:
    """Counts the prunable weights of a model.

    Args:
        model, with_encoder: see `prunable_weights`.

    Returns:
        `weights`, `nonzero_weights` and `sparsity`, the share of zeros from 0 to 1.
    """
    weights = prunable_weights(model, with_encoder)
    total, nonzeros = sum(weight.size for weight in weights), sum(weight.nonzeros() for weight in weights)
    return {"weights": total, "nonzero_weights": nonzeros, "sparsity": 1.0 - nonzeros / max(1, total)}
