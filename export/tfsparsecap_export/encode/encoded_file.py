"""Storing the weights of a dense .tflite file in the encodings of an export format."""

import collections
import dataclasses
from collections.abc import Collection, Sequence

import numpy as np

from tfsparsecap.model_summary.storage import Pattern
from tfsparsecap_export.encode import (
    DEFAULT_TARGET,
    encodings,
    formats,
    hidden_units,
    ordering,
    sparse,
    splitting,
)
from tfsparsecap_export.encode.costs import Costs, of_target
from tfsparsecap_export.encode.formats import Layer
from tfsparsecap_export.flatbuffer import compact
from tfsparsecap_export.flatbuffer import model_file as flatfile
from tfsparsecap_export.keras_to_tflite.graph import Source, content_key

_SLIMMED = "; without units that have no inputs or no outputs"


@dataclasses.dataclass(frozen=True)
class LayerReport:
    """How one constant of the file is stored.

    Attributes:
        name: path of the Keras weight if it is known, else the name of the tensor.
        role: "fully connected", "table" or "convolution".
        shape: shape in the file; [outputs, inputs] for a fully connected layer.
        pattern: "dense", "unstructured", "1x4 blocks" or "1x16 blocks".
        weights: number of weights in the model, including zeros, excluding padding. Tied weights, which the
            file contains several times, count once.
        nonzeros: number of non-zero weights; tied weights count once.
        encoding: name of the encoding.
        bytes: size of values, indices and scales in the file, without values that another layer shares.
        expected_ms: expected milliseconds per caption; 0 if the encodings do not differ in time.
        reason: why this encoding was chosen.

    Examples:
        >>> from tfsparsecap_export import export_model
        >>> model = keras.Sequential([keras.Input((64,)), keras.layers.Dense(256)])
        >>> layer = export_model(model, "model.tflite").layers[0]
        >>> layer.role, layer.shape, layer.weights
        ('fully connected', (256, 64), 16384)
    """

    name: str
    role: str
    shape: tuple[int, ...]
    pattern: str
    weights: int
    nonzeros: int
    encoding: str
    bytes: int
    expected_ms: float
    reason: str

    @property
    def is_float(self) -> bool:
        """Whether its values are floating point numbers, so that it must not change captions."""
        return encodings.ENCODINGS[self.encoding].is_float


#: The content of a file, and reports on its encoded constants.
EncodedFile = tuple[bytes, list[LayerReport]]


def encode_file(
    dense: bytes,
    format: str,
    *,
    words: int = 1,
    sources: dict[bytes, Source] | None = None,
    rounded: str = "all",
    keep_float: Collection[str] = (),
    costs: Costs | None = None,
    names: bool = True,
) -> EncodedFile:
    """Stores the weights of a dense .tflite file in the encodings of a format.

    Args:
        dense: a dense float32 .tflite file.
        format: one of `formats.FORMATS`.
        words: number of words per caption, for the expected milliseconds.
        sources: the Keras weights of constants, from `graph.weight_sources`.
        rounded: which float weights may be rounded to float16: `all`, `convolutions` (the encoder's, which
            save most) or `nothing`.
        keep_float: names of layers that stay float in every format.
        costs: costs of the target's kernels; by default those of `encode.DEFAULT_TARGET`.
        names: whether each tensor has a name of its own, or only weights, inputs and outputs have one.

    Returns:
        The bytes of the new file, and a report on each constant. The same input gives the same bytes.
    """
    model, costs = flatfile.read_model(dense), costs or of_target(DEFAULT_TARGET)
    compact.complete_names(model)
    sparse.separate_shapes(model)
    sparse.separate_roles(model)

    # Weights without some hidden units -> source and non-zero weights of the whole weight.
    slimmed: dict[bytes, tuple[Source, int]] = {}

    def source_of(weight):
        unknown = Source(weight.name, weight.values.size)
        key = content_key(weight.values)
        return slimmed[key][0] if key in slimmed else (sources or {}).get(key, unknown)

    def format_of(weight):
        is_kept = format in formats.INT8_FORMATS and layer_name(source_of(weight).name) in keep_float
        return "fast" if is_kept else format

    if format not in ("dense", "dense-int8"):

        def costs_of(hidden):
            layers = [Layer(weight, Pattern.of(weight.values)) for weight in (hidden.first, hidden.second)]
            return formats.expected_costs(layers, [format_of(layer.weight) for layer in layers], costs)

        while (hidden := hidden_units.worth_removing(model, costs_of)) is not None:
            for before, after in zip(
                (hidden.first, hidden.second), hidden_units.remove(model, hidden), strict=True
            ):
                before_key = content_key(before.values)
                if before_key in slimmed:
                    nonzeros = slimmed[before_key][1]
                else:
                    nonzeros = int(np.count_nonzero(before.values))
                slimmed[content_key(after)] = source_of(before), nonzeros
    # Buffer of each part of a split weight -> its columns without padding, what was done, and its source.
    split = {}
    for weight in sparse.find_weights(model):
        layer = Layer(weight, Pattern.of(weight.values))
        if formats.wants_block16(layer, format_of(weight), costs) and splitting.can_split(model, weight):
            plan = splitting.plan_split(weight.values)
            if str(plan):
                origin = source_of(weight)
                parts = splitting.apply(model, weight, plan, origin.name)
                split.update({buffer: (columns, f" ({plan})", origin) for buffer, columns in parts.items()})

    roles = (sparse.FULLY_CONNECTED, sparse.TABLE, sparse.CONVOLUTION)
    roundable = {"all": roles, "convolutions": (sparse.CONVOLUTION,), "nothing": ()}[rounded]
    weights = sparse.find_weights(model)
    products = ordering.products(model, weights)
    layers = [
        Layer(
            weight,
            Pattern.of(weight.values),
            float16=weight.role in roundable and encodings.fits_float16(weight.values),
        )
        for weight in weights
    ]
    choices = [formats.choose(layer, format_of(layer.weight), costs) for layer in layers]
    int8 = (encodings.BLOCK16, encodings.INT8)
    if any(choice.encoding in int8 for choice in choices):
        choices = [
            formats.choose(layer, format_of(layer.weight), costs, int8_tables=True) for layer in layers
        ]
    changes, orders, reports, origins = [], {}, [], []
    for layer, choice in zip(layers, choices, strict=True):
        weight, encoding, values = layer.weight, choice.encoding, layer.weight.values
        source = source_of(weight)
        sparse.rename(model, weight, source.name)
        size = values.nbytes
        if encoding != encodings.DENSE:
            if encoding in (encodings.CSR, encodings.BLOCK4, encodings.SPARSE32) and layer.float16:
                values = encodings.round_to_float16(values)
            is_multiplied = encodings.ENCODINGS[encoding].multiplied
            if weight.buffer in products and is_multiplied and len(values) >= formats.MIN_SORTED_OUTPUTS:
                order = orders[weight.buffer] = ordering.order_of(values, encoding)
                values = values[order]
            changes.append(sparse.change(weight, encoding, values))
            size = changes[-1].encoded.bytes
        columns, how, origin = split.get(weight.buffer, (weight.shape[-1], "", source))
        origins.append(origin)
        report = LayerReport(
            name=source.name,
            role=weight.role,
            shape=(*weight.shape[:-1], columns),
            pattern=formats.pattern_name(layer.pattern),
            weights=min(source.weights, weight.values.size // weight.shape[-1] * columns),
            nonzeros=layer.pattern.nonzeros if source.weights else 0,
            encoding=encoding,
            bytes=size,
            expected_ms=formats.expected_ms(layer, encoding, words, costs),
            reason=choice.reason + how,
        )
        weight_key = content_key(weight.values)
        if weight_key in slimmed:
            full_source, nonzeros = slimmed[weight_key]
            reason = report.reason + _SLIMMED
            report = dataclasses.replace(
                report, weights=full_source.weights, nonzeros=nonzeros, reason=reason
            )
        reports.append(report)
    sparse.rewrite(model, changes)
    stored = [np.ascontiguousarray(model.buffers[weight.buffer].data) for weight in weights]
    reports = _counted_once(reports, origins, stored)
    for buffer, order in orders.items():
        ordering.apply(model, products[buffer], order)
    compact.share_equal_buffers(model)
    compact.drop_unused(model)
    (compact.complete_names if names else compact.drop_names)(model)
    return flatfile.write_model(model), reports


def _counted_once(
    reports: Sequence[LayerReport], origins: Sequence[Source], values: Sequence[np.ndarray]
) -> list[LayerReport]:
    """The reports without tied weights that were counted before, and without values that are stored before.

    Args:
        reports: on all constants.
        origins: the weight of the model that each is from, or is a part of; the same object if it is one.
        values: what the buffer of each contains.
    """
    counted: collections.Counter[int] = collections.Counter()
    stored: set[bytes] = set()
    counted_reports = []
    for report, origin, data in zip(reports, origins, values, strict=True):
        # The zeros of a layer may be those of another one.
        if report.nonzeros and counted[id(origin)] >= origin.weights:
            report = dataclasses.replace(report, weights=0, nonzeros=0, reason=f"{report.reason}; tied")
        counted[id(origin)] += report.weights
        key = content_key(data)
        if key in stored:
            report = dataclasses.replace(report, bytes=report.bytes - data.nbytes)
        stored.add(key)
        counted_reports.append(report)
    return counted_reports


def layer_name(name: str) -> str:
    """Name of the layer that a part of it, such as `output/kernel[0:4096]`, belongs to."""
    return name.partition("[")[0]
