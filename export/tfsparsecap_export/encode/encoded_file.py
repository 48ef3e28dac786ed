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
from tfsparsecap_export.encode.costs import KernelCosts, kernel_costs
from tfsparsecap_export.encode.formats import WeightPattern
from tfsparsecap_export.flatbuffer import compact
from tfsparsecap_export.flatbuffer import model_file as flatfile
from tfsparsecap_export.flatbuffer.subgraph_runs import runs_of_subgraphs
from tfsparsecap_export.keras_to_tflite.graph import KerasWeight, content_key

_SLIMMED = "; without units that have no inputs or no outputs"


@dataclasses.dataclass(frozen=True)
class LayerReport:
    """How one constant of the file is stored.

    Attributes:
        name: path of the Keras weight if it is known, else the name of the tensor.
        role: "fully connected", "table", "convolution" or "3D convolution".
        shape: shape in the file; [outputs, inputs] for a fully connected layer.
        pattern: "dense", "unstructured", "1x4 blocks" or "1x16 blocks".
        weights: number of weights in the model, including zeros, excluding padding. Tied weights, which the
            file contains several times, count once.
        nonzeros: number of non-zero weights; tied weights count once.
        encoding: name of the encoding.
        bytes: size of values, indices and scales in the file, without values that another layer shares.
        expected_ms: expected milliseconds of a run, which makes one caption; 0 if the encodings do not differ
            in time.
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
        """Whether its values are floating point numbers, so that the outputs stay nearly the same."""
        return encodings.ENCODINGS[self.encoding].is_float


#: The content of a file, and reports on its encoded constants.
EncodedFile = tuple[bytes, list[LayerReport]]


def encode_file(
    dense: bytes,
    format: str,
    *,
    steps: int = 1,
    sources: dict[bytes, KerasWeight] | None = None,
    rounded: str = "all",
    keep_float: Collection[str] = (),
    costs: KernelCosts | None = None,
    names: bool = True,
) -> EncodedFile:
    """Stores the weights of a dense .tflite file in the encodings of a format.

    Args:
        dense: a dense float32 .tflite file.
        format: one of `formats.FORMATS`.
        steps: number of steps of loops whose number of steps the file does not tell, for the expected
            milliseconds.
        sources: the Keras weights of constants, from `graph.weight_sources`.
        rounded: which float weights may be rounded to float16: `all`, `convolutions` (which
            save most) or `nothing`.
        keep_float: names of layers that stay float in every format.
        costs: costs of the target's kernels; by default those of `encode.DEFAULT_TARGET`.
        names: whether each tensor has a name of its own, or only weights, inputs and outputs have one.

    Returns:
        The bytes of the new file, and a report on each constant. The same input gives the same bytes.
    """
    file = _File(dense, format, sources or {}, keep_float, costs or kernel_costs(DEFAULT_TARGET))
    if format not in ("dense", "dense-int8"):
        file.remove_hidden_units()
    file.split_weights()
    layers = file.layers(rounded)
    choices = file.choices(layers)
    origins = [file.origin(layer.weight) for layer in layers]
    reordered, sizes = file.store(layers, choices)
    runs = runs_of_subgraphs(file.model, steps)
    reports = [
        file.report(layer, choice, size, max(runs[use.graph] for use in layer.weight.uses))
        for layer, choice, size in zip(layers, choices, sizes, strict=True)
    ]
    reports = _counted_once(reports, origins, [file.stored(layer.weight) for layer in layers])
    for product, order in reordered:
        ordering.apply_order(file.model, product, order)
    compact.share_equal_buffers(file.model)
    compact.drop_unused(file.model)
    (compact.complete_names if names else compact.drop_names)(file.model)
    return flatfile.write_model(file.model), reports


@dataclasses.dataclass(frozen=True)
class _Part:
    """A part of a split weight: its columns without padding, how it was split, and what it is a part of."""

    columns: int
    plan: str
    origin: KerasWeight


class _File:
    """A file between its dense and its encoded form; the arguments are those of `encode_file`."""

    def __init__(
        self,
        dense: bytes,
        format: str,
        sources: dict[bytes, KerasWeight],
        keep_float: Collection[str],
        costs: KernelCosts,
    ) -> None:
        self.model = flatfile.read_model(dense)
        compact.complete_names(self.model)
        sparse.separate_shapes(self.model)
        sparse.separate_roles(self.model)
        self._format, self._costs = format, costs
        self._sources, self._keep_float = sources, keep_float
        #: Key of a weight without some hidden units -> source and non-zero weights of the whole weight.
        self._slimmed: dict[bytes, tuple[KerasWeight, int]] = {}
        #: Buffer of a part of a split weight -> the part.
        self._parts: dict[int, _Part] = {}

    def source(self, weight: sparse.FileWeight) -> KerasWeight:
        """The Keras weight that it comes from; one with the tensor's name if that is not known."""
        key = content_key(weight.values)
        if key in self._slimmed:
            return self._slimmed[key][0]
        return self._sources.get(key, KerasWeight(weight.name, weight.values.size))

    def origin(self, weight: sparse.FileWeight) -> KerasWeight:
        """The source of the weight, or of that which it is a part of: the same object for all parts."""
        part = self._parts.get(weight.buffer)
        return part.origin if part else self.source(weight)

    def remove_hidden_units(self) -> None:
        """Removes hidden units without inputs or outputs where that pays."""

        def expected_costs(hidden: hidden_units.Hidden) -> tuple[float, int]:
            layers = [
                WeightPattern(weight, Pattern.of(weight.values)) for weight in (hidden.first, hidden.second)
            ]
            return formats.expected_costs(
                layers, [self._format_of(layer.weight) for layer in layers], self._costs
            )

        while (hidden := hidden_units.worth_removing(self.model, expected_costs)) is not None:
            slim_values = hidden_units.remove(self.model, hidden)
            for weight, values in zip((hidden.first, hidden.second), slim_values, strict=True):
                key = content_key(weight.values)
                is_slim = key in self._slimmed
                nonzeros = self._slimmed[key][1] if is_slim else int(np.count_nonzero(weight.values))
                self._slimmed[content_key(values)] = self.source(weight), nonzeros

    def split_weights(self) -> None:
        """Splits the weights that the kernel of int8 blocks can multiply in parts only."""
        for weight in sparse.find_weights(self.model):
            layer = WeightPattern(weight, Pattern.of(weight.values))
            in_blocks = formats.wants_block16(layer, self._format_of(weight), self._costs)
            if not in_blocks or not splitting.can_split(self.model, weight):
                continue
            plan, source = splitting.plan_split(weight.values), self.source(weight)
            if str(plan):
                for buffer, columns in splitting.apply_split(self.model, weight, plan, source.name).items():
                    self._parts[buffer] = _Part(columns, f" ({plan})", source)

    def layers(self, rounded: str) -> list[WeightPattern]:
        """All weights, and which of them may be rounded to float16."""
        roles = (sparse.FULLY_CONNECTED, sparse.TABLE, sparse.CONVOLUTION)
        roundable = {"all": roles, "convolutions": (sparse.CONVOLUTION,), "nothing": ()}[rounded]
        return [
            WeightPattern(
                weight,
                Pattern.of(weight.values),
                float16=weight.role in roundable and encodings.fits_float16(weight.values),
            )
            for weight in sparse.find_weights(self.model)
        ]

    def choices(self, layers: Sequence[WeightPattern]) -> list[formats.EncodingChoice]:
        """The encoding of each layer. If any is int8, tables are as well."""
        requested = [self._format_of(layer.weight) for layer in layers]

        def chosen(int8_tables: bool) -> list[formats.EncodingChoice]:
            return [
                formats.choose_encoding(layer, format, self._costs, int8_tables=int8_tables)
                for layer, format in zip(layers, requested, strict=True)
            ]

        choices = chosen(int8_tables=False)
        has_int8 = any(choice.encoding in (encodings.BLOCK16, encodings.INT8) for choice in choices)
        return chosen(int8_tables=True) if has_int8 else choices

    def store(
        self, layers: Sequence[WeightPattern], choices: Sequence[formats.EncodingChoice]
    ) -> tuple[list[tuple[ordering.Product, np.ndarray]], list[int]]:
        """Stores the weights.

        Returns:
            The products whose outputs have a new order, with the order; the bytes of each weight.
        """
        products = ordering.products(self.model, [layer.weight for layer in layers])
        changes, reordered, sizes = [], [], []
        for layer, choice in zip(layers, choices, strict=True):
            weight, encoding, values = layer.weight, choice.encoding, layer.weight.values
            sparse.rename(self.model, weight, self.source(weight).name)
            if encoding == encodings.DENSE:
                sizes.append(values.nbytes)
                continue
            if encoding in (encodings.CSR, encodings.BLOCK4, encodings.SPARSE32) and layer.float16:
                values = encodings.round_to_float16(values)
            is_multiplied = encodings.ENCODINGS[encoding].multiplied
            if weight.buffer in products and is_multiplied and len(values) >= formats.MIN_SORTED_OUTPUTS:
                order = ordering.order_of(values, encoding)
                reordered.append((products[weight.buffer], order))
                values = values[order]
            changes.append(sparse.change(weight, encoding, values))
            sizes.append(changes[-1].encoded.bytes)
        sparse.rewrite(self.model, changes)
        return reordered, sizes

    def stored(self, weight: sparse.FileWeight) -> np.ndarray:
        """What the buffer of a weight contains."""
        return np.ascontiguousarray(self.model.buffers[weight.buffer].data)

    def report(
        self, layer: WeightPattern, choice: formats.EncodingChoice, size: int, runs: int
    ) -> LayerReport:
        """How a weight of `size` bytes, which is multiplied `runs` times, is stored."""
        weight, source = layer.weight, self.source(layer.weight)
        part = self._parts.get(weight.buffer)
        columns = part.columns if part else weight.shape[-1]
        weights = min(source.weights, weight.values.size // weight.shape[-1] * columns)
        nonzeros = layer.pattern.nonzeros if source.weights else 0
        reason = choice.reason + (part.plan if part else "")
        key = content_key(weight.values)
        if key in self._slimmed:
            weights, nonzeros = source.weights, self._slimmed[key][1]
            reason += _SLIMMED
        return LayerReport(
            name=source.name,
            role=weight.role,
            shape=(*weight.shape[:-1], columns),
            pattern=formats.pattern_name(layer.pattern),
            weights=weights,
            nonzeros=nonzeros,
            encoding=choice.encoding,
            bytes=size,
            expected_ms=formats.expected_ms(layer, choice.encoding, runs, self._costs),
            reason=reason,
        )

    def _format_of(self, weight: sparse.FileWeight) -> str:
        """The format of a weight: that of the file, or a float one for what stays float."""
        is_int8 = self._format in formats.INT8_FORMATS
        if is_int8 and self._keep_float and layer_name(self.source(weight).name) in self._keep_float:
            return "fast"
        return self._format


def _counted_once(
    reports: Sequence[LayerReport], origins: Sequence[KerasWeight], values: Sequence[np.ndarray]
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
