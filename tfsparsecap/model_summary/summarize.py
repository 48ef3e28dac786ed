"""`sc.summary`: weights, non-zero weights, FLOPs and bytes of a model, layer by layer."""

from collections.abc import Callable
from typing import Any

import keras
import numpy as np

from tfsparsecap.core import keras_internals
from tfsparsecap.core.model_call import check_model
from tfsparsecap.errors import check_whole
from tfsparsecap.model_summary import storage
from tfsparsecap.model_summary.formulas import PRODUCT
from tfsparsecap.model_summary.forward import Calls, Forward, forward
from tfsparsecap.model_summary.nonzeros import Weight, layers_by_path, weights_of_layer
from tfsparsecap.model_summary.summary_tables import (
    DECODER,
    ENCODER,
    Figures,
    LayerRow,
    Summary,
    WeightRow,
    amount,
    show,
    totals,
)

#: Models with at most this many weights are compressed by default, which takes some seconds.
COMPRESSED_UP_TO = 5_000_000


def summary(
    model: keras.Layer,
    *,
    beam: int = 3,
    words: int = 9,
    input_shapes: Any = None,
    compress: bool | None = None,
    print_fn: Callable[[str], None] | None = None,
) -> Summary:
    """Prints weights, non-zero weights, FLOPs and bytes of a model, layer by layer.

    Works on any Keras 3 model, with or without gates. A weight behind a closed gate counts as zero.

    FLOPs are two for each multiply-add of matrix products and convolutions; activations, normalisation and
    look-ups are not counted. "FLOPs left" are those with non-zero weights. They come from a formula per layer
    (`model_summary.formulas`); layers without one are marked "?" and named below the table. FLOPs are for the
    inference of one example, or of one caption: the image is encoded once, then each of `beam` captions takes
    `words` steps. The defaults are those of Table 4 of "End-to-End Supermask Pruning" (Tan et
    al., https://arxiv.org/abs/2110.03298), with images of 224 x 224 pixels.

    Bytes are in decimal units; `storage.stored_bytes` documents each format. gzip and bzip2 are measured.

    Args:
        model: a built model or layer.
        beam: beam size of a captioner's search.
        words: number of words of a caption; with radix encoding, of tokens.
        input_shapes: shapes of the inputs without the batch axis: one (`(224, 224, 3)`), a list, or a
            dictionary by input name; for an input that is not float32, a `keras.Input` or `tf.TensorSpec`
            with the batch axis instead of a shape. Needed if the model does not know its shapes. A captioner
            takes the inputs of `encode`, such as `{"features": (36, 2048)}`.
        compress: whether to measure gzip and bzip2; None does so for up to 5 million weights.
        print_fn: function to print with, called once with the whole text; None prints to the terminal.

    Returns:
        The same figures and more; `dataclasses.asdict` makes a dictionary of it, for JSON.

    Raises:
        InputError: the model is not built, the shapes of its inputs are not known or not suitable, a number
            is below 1, or a caption is longer than the captioner's.

    Examples:
        >>> model = keras.Sequential([keras.Input((784,)), keras.layers.Dense(10)])
        >>> costs = summary(model, print_fn=lambda text: None)
        >>> costs.totals["all weights"].weights, costs.totals["all weights"].flops
        (7850, 15680)
    """
    check_model(model, "summary", keras.Layer)
    beam = check_whole("beam", beam, at_least=1)
    words = check_whole("words", words, at_least=1)
    layers = list(layers_by_path(model))
    run = forward(model, [layer for _, layer in layers], input_shapes, beam, words)
    weights = _weights(layers)
    size = sum(weight.size for of_layer in weights.values() for weight in of_layer)
    notes = list(run.notes)
    if compress is None:
        compress = size <= COMPRESSED_UP_TO
        if not compress:
            notes.append(f"gzip and bzip2 are not measured for {size:,} weights without compress=True")
    in_encoder = (
        set(map(id, keras_internals.nested_layers(run.encoder))) if run.encoder is not None else set()
    )
    rows = []
    for path, layer in layers:
        tensors = tuple(_weight_row(weight, _uses(run, weight), compress) for weight in weights[id(layer)])
        own_flops = 2 * sum(calls.uses[id(layer), PRODUCT] * times for _, calls, times in run.parts)
        counted = not any(id(layer) in calls.uncounted for _, calls, _ in run.parts)
        if tensors or own_flops or not counted:
            part = None if run.encoder is None else ENCODER if id(layer) in in_encoder else DECODER
            name = path or model.name
            rows.append(LayerRow(name, type(layer).__name__, tensors, own_flops, counted, part))
            if not counted:
                notes.append(
                    f"{name} ({type(layer).__name__}) has no formula, or inputs of unknown shape: FLOPs of"
                    " its own operations are missing"
                )
    if run.rates:
        flops = {name: amount(_flops(calls, weights)) for name, calls, _ in run.parts}
        notes.append(run.rates.format(**flops))
    result = Summary(model.name, tuple(rows), totals(rows), run.about, tuple(notes))
    show(result, print_fn)
    return result


def _weights(layers: list[tuple[str, keras.Layer]]) -> dict[int, list[Weight]]:
    """Returns weights by id of their layer; a shared weight belongs to the first layer that can be pruned.

    A wrapper, such as `SpectralNormalization`, comes before its layer, but only the layer can be pruned.
    """
    all_weights = {id(layer): weights_of_layer(layer) for _, layer in layers}
    prunable = {
        id(weight.variable) for of_layer in all_weights.values() for weight in of_layer if weight.prunable
    }
    seen, counted = set(), {}
    for _, layer in layers:
        own = [
            weight
            for weight in all_weights[id(layer)]
            if id(weight.variable) not in seen and weight.prunable == (id(weight.variable) in prunable)
        ]
        seen |= {id(weight.variable) for weight in own}
        counted[id(layer)] = own
    return counted


def _uses(run: Forward, weight: Weight) -> int:
    """Returns the number of multiply-adds per element of a weight."""
    key = id(weight.layer), weight.variable.name
    return sum(calls.uses[key] * times for _, calls, times in run.parts)


def _flops(calls: Calls, weights: dict[int, list[Weight]]) -> int:
    sizes = {(id(w.layer), w.variable.name): w.size for of_layer in weights.values() for w in of_layer}
    return 2 * sum(
        number * (1 if name == PRODUCT else sizes.get((layer, name), 0))
        for (layer, name), number in calls.uses.items()
    )


def _weight_row(weight: Weight, uses: int, compress: bool) -> WeightRow:
    values = weight.values()
    kind = storage.OTHER
    if weight.prunable:
        kind = storage.TABLE if weight.is_table else storage.MATRIX
        kind = storage.CONVOLUTION if hasattr(weight.layer, "kernel_size") else kind
    sizes = storage.stored_bytes(values, kind, inputs=weight.rows)
    if compress:
        sizes |= storage.compressed_bytes(values)
    nonzeros = int(np.count_nonzero(values))
    figures = Figures(weight.size, nonzeros, 2 * uses * weight.size, 2 * uses * nonzeros, sizes)
    return WeightRow(weight.variable.name, tuple(weight.variable.shape), weight.prunable, figures)
