"""summary: what a model costs, layer by layer: weights, non-zeros, multiply-adds, bytes."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

import keras
import numpy as np
import tensorflow as tf

from tfsparsecap import keras_internals
from tfsparsecap.errors import InputError
from tfsparsecap.gates import Gate
from tfsparsecap.layers.gated import GATED_FORMS, GatedLayer
from tfsparsecap.models.captioner import Captioner
from tfsparsecap.summary import storage
from tfsparsecap.summary.figures import (
    ALL,
    DECODER,
    ENCODER,
    PRUNABLE,
    LayerCost,
    Summary,
    Total,
    WeightCost,
)
from tfsparsecap.summary.forward import Forward, forward, layer_of
from tfsparsecap.summary.products import Product, products
from tfsparsecap.summary.table import show

#: Weights up to which they are compressed, by gzip and bzip2, without being asked: it takes some seconds.
COMPRESSED_UP_TO = 5_000_000


def summary(
    model: keras.Layer,
    *,
    beam: int = 3,
    words: int = 9,
    input_shapes=None,
    compress: bool | None = None,
    index_bytes: int = 8,
    print_fn: Callable[[str], None] | None = None,
) -> Summary:
    """Prints what a model costs, layer by layer: weights, those that are not zero, FLOPs and bytes.

    Works on any Keras 3 model, with gates (a weight behind a closed gate counts as zero), without them, and
    after `strip_pruning`.

    FLOPs are 2 for each multiply-add of matrix products and convolutions, and nothing else: no activations,
    normalisation or look-ups. "FLOPs left" are those with weights that are not zero. They are of one example
    in inference; of a captioner, of one caption: the image is encoded once, then `beam` captions take `words`
    steps. The defaults are those of Table 4 of "End-to-End Supermask Pruning" (Tan et al.,
    https://arxiv.org/abs/2110.03298), which has an image of 224 x 224 pixels; how that table counts is not
    known here.

    Bytes are in decimal units; `storage.stored_bytes` says what each format holds. Only gzip and bzip2 are
    really tried.

    Args:
        model: a built model or layer.
        beam, words: of a captioner's search; a word that is said in two tokens takes two steps.
        input_shapes: shapes of the inputs without the axis of the batch, one (`(224, 224, 3)`), a list, or by
            names of inputs; in place of a shape, of an input that is not float32, a `keras.Input` or
            `tf.TensorSpec` (with the axis of the batch). Needed where the model does not know them itself. A
            captioner takes what `encode` does, such as `{"features": (36, 2048)}`, its default.
        compress: whether gzip and bzip2 are tried; None does it for up to 5 million weights.
        index_bytes: of an index of COO; PyTorch's checkpoints have 8.
        print_fn: what to print with, called once with the whole text; None prints to the terminal.

    Returns:
        The same figures and more, `as_dict()` for JSON.

    Raises:
        InputError: the model is not built, the shapes of its inputs are not known or do not suit it, a number
            is below 1, or a caption is longer than the captioner's.

    Example:
        >>> model = keras.Sequential([keras.Input((784,)), keras.layers.Dense(10)])
        >>> costs = summary(model, print_fn=lambda text: None)
        >>> costs.totals["all weights"].weights, costs.totals["all weights"].flops
        (7850, 15680)
    """
    _check(model, beam=beam, words=words, index_bytes=index_bytes)
    layers = list(_nested(model))
    tensors = _tensors(layer for _, layer in layers)
    run = forward(model, [layer for _, layer in layers], input_shapes, beam, words)
    found, doubts = _multiplied(run, tensors)
    notes = [*run.notes, *_named(doubts, layers, model.name)]

    flops = _of_weights(found, tensors)
    costs = {key: tensor.cost(flops[key], index_bytes) for key, tensor in tensors.items()}
    size = sum(tensor.size for tensor in tensors.values())
    if compress is None:
        compress = size <= COMPRESSED_UP_TO
        if not compress:
            notes.append(f"gzip and bzip2 are not tried on {size:,} weights without compress=True")
    if compress:
        for key, tensor in tensors.items():
            more = storage.compressed_bytes(tensor.values())
            costs[key] = replace(costs[key], bytes={**costs[key].bytes, **more})

    rows = _rows(model, layers, tensors, costs, found)
    result = Summary(model.name, tuple(rows), _totals(rows), run.about, tuple(notes), index_bytes)
    show(result, print_fn)
    return result


@dataclass(frozen=True, eq=False)
class _Tensor:
    """A weight of a layer, before anything is counted."""

    layer: keras.Layer
    variable: keras.Variable
    gate: Gate | None = None
    prunable: bool = False
    kind: str = storage.OTHER
    summed: int | None = None

    @classmethod
    def of(cls, layer: keras.Layer) -> list["_Tensor"]:
        """A layer's own weights."""
        gated = isinstance(layer, GatedLayer)
        form = type(layer) if gated else GATED_FORMS.get(type(layer))
        prunable = {}
        for name in form.gated_names if form is not None and layer.built else ():
            descriptor = form.gated_descriptor(name)
            variable = descriptor.stored(layer)
            if isinstance(variable, keras.Variable):  # and not what quantisation or LoRA make of one
                summed, _ = form.tiling(layer, name, tuple(variable.shape), (1, 1))
                kind = storage.TABLE if descriptor.transposed else storage.MATRIX
                if hasattr(layer, "kernel_size"):
                    kind = storage.CONVOLUTION
                gate = layer.gate_of.get(name) if gated else None
                prunable[id(variable)] = cls(layer, variable, gate, True, kind, summed)
        own = keras_internals.own_weights(layer)
        return [prunable.get(id(variable), cls(layer, variable)) for variable in own]

    @property
    def key(self) -> int:
        return id(self.variable)

    @property
    def size(self) -> int:
        return int(np.prod(self.variable.shape, dtype=np.int64))

    @property
    def handles(self) -> list[tf.Tensor]:
        """What graphs know it by; a distributed variable has one for each device."""
        value = self.variable.value
        parts = value.values if isinstance(value, tf.distribute.DistributedValues) else [value]
        return [part.handle for part in parts]

    def values(self) -> np.ndarray:
        """The weights as the layer uses them in inference, float32."""
        raw = tf.cast(tf.convert_to_tensor(self.variable.value), tf.float32)
        return (raw if self.gate is None else self.gate.call(raw, training=False)).numpy()

    def cost(self, flops: int, index_bytes: int) -> WeightCost:
        values, size = self.values(), self.size
        nonzeros = int(np.count_nonzero(values))
        return WeightCost(
            name=self.variable.name,
            shape=tuple(self.variable.shape),
            prunable=self.prunable,
            weights=size,
            nonzeros=nonzeros,
            flops=flops,
            # Every weight of a product takes part in as many multiply-adds as the others.
            flops_left=round(flops * nonzeros / size) if size else 0,
            bytes=storage.stored_bytes(values, self.kind, inputs=self.summed, coo_index_bytes=index_bytes),
        )


def _nested(model: keras.Layer) -> Iterator[tuple[str, keras.Layer]]:
    """Paths and layers, each once, in the order in which they were made; gates are none."""
    seen, waiting = set(), [("", model)]
    while waiting:
        path, layer = waiting.pop()
        if id(layer) in seen or isinstance(layer, Gate):
            continue
        seen.add(id(layer))
        yield path, layer
        below = [
            (f"{path}/{part.name}" if path else part.name, part) for part in keras_internals.sublayers(layer)
        ]
        waiting += reversed(below)


def _tensors(layers: Iterable[keras.Layer]) -> dict[int, _Tensor]:
    """The weights of all layers; one that several share belongs to the first."""
    tensors: dict[int, _Tensor] = {}
    for layer in layers:
        for tensor in _Tensor.of(layer):
            tensors.setdefault(tensor.key, tensor)
    return tensors


def _multiplied(run: Forward, tensors: dict[int, _Tensor]) -> tuple[list[Product], list[tuple[str, str]]]:
    """What is multiplied in all parts of a forward pass, and what could not be counted."""
    keys = {id(handle): key for key, tensor in tensors.items() for handle in tensor.handles}
    found, doubts = [], []
    for function, rounds in run.parts:
        once, more = products(function, keys)
        found += [product.times(rounds) for product in once]
        doubts += more
    return found, doubts


def _named(doubts: list[tuple[str, str]], layers: list, name: str) -> list[str]:
    """Doubts as sentences, with the layers that they are of."""
    sentences = []
    for operation, why in doubts:
        number, operation = layer_of(operation)
        sentences.append(f"{layers[number or 0][0] or name}, {operation}: {why}")
    return list(dict.fromkeys(sentences))


def _of_weights(found: list[Product], tensors: dict[int, _Tensor]) -> dict[int, int]:
    """FLOPs by weight; where one side is made of several, each has its share by size."""
    flops = dict.fromkeys(tensors, 0)
    for product in found:
        whole = sum(tensors[key].size for key in product.variables)
        for key in product.variables:
            flops[key] += round(2 * product.multiply_adds * tensors[key].size / whole)
    return flops


def _rows(model: keras.Layer, layers: list, tensors: dict, costs: dict, found: list) -> list[LayerCost]:
    own_flops = [0] * len(layers)
    for product in found:
        if not product.variables:
            own_flops[layer_of(product.name)[0] or 0] += 2 * product.multiply_adds
    of_layer = {id(layer): [] for _, layer in layers}
    for key, tensor in tensors.items():
        of_layer[id(tensor.layer)].append(costs[key])
    encoder, rows = _encoder_of(model), []
    for (path, layer), own in zip(layers, own_flops, strict=True):
        weights = tuple(of_layer[id(layer)])
        if weights or own:
            part = None if not encoder else ENCODER if id(layer) in encoder else DECODER
            rows.append(LayerCost(path or model.name, type(layer).__name__, weights, own, part))
    return rows


def _encoder_of(model: keras.Layer) -> set[int]:
    encoder = getattr(model, "encoder", None) if isinstance(model, Captioner) else None
    return set() if encoder is None else {id(layer) for layer in keras_internals.nested_layers(encoder)}


def _totals(rows: list[LayerCost]) -> dict[str, Total]:
    def total(part: str | None, only_prunable: bool) -> Total:
        there = [row for row in rows if part in (None, row.part)]
        tensors = [t for row in there for t in row.weights_of if t.prunable or not only_prunable]
        return Total.of(tensors, 0 if only_prunable else sum(row.own_flops for row in there))

    totals = {ALL: total(None, False), PRUNABLE: total(None, True)}
    for part in (ENCODER, DECODER):
        if any(row.part == part for row in rows):
            totals |= {part: total(part, False), f"{part}, prunable": total(part, True)}
    return totals


def _check(model, **numbers) -> None:
    if not isinstance(model, keras.Layer):
        raise InputError(
            f"summary takes a Keras 3 model, not a {type(model).__module__}.{type(model).__name__}: models of"
            " tf_keras or torch must be made with keras first"
        )
    if not model.built:
        raise InputError(
            f"{model.name} is not built, so it has no weights to count: call it on a batch, or"
            " model.build(input_shape), first"
        )
    for name, number in numbers.items():
        if isinstance(number, bool) or not isinstance(number, int) or number < 1:
            raise InputError(f"{name} is {number!r}: give a whole number of at least 1")
