"""From a dense .tflite file to one whose constants are stored as a format asks."""

from collections.abc import Callable

from tfsparsecap_export.convert import graph
from tfsparsecap_export.encode import formats, layout, ordering, sparse
from tfsparsecap_export.encode.costs import Costs
from tfsparsecap_export.encode.encodings import fits_float16, round_to_float16
from tfsparsecap_export.flatbuffer import model_file as flatfile
from tfsparsecap_export.report import LayerReport


def encode(
    dense: bytes,
    format: str,
    *,
    words: int,
    sources: dict[bytes, graph.Source] | None = None,
    rounded: str = "all",
    keep_float: frozenset[str] = frozenset(),
    costs: Costs | None = None,
) -> tuple[bytes, list[LayerReport]]:
    """Stores the weights of a dense .tflite file as a format asks.

    Args:
        dense: a dense float32 .tflite file.
        format: one of `tfsparsecap_export.FORMATS`.
        words: words of a caption, for the expected milliseconds.
        sources: what constants come from, as `graph.weight_sources` gives it.
        rounded: which float weights may be rounded to float16: `all`, `convolutions` (the encoder's, most of
            the bytes that rounding saves) or `nothing`.
        keep_float: names of layers whose weights stay float whatever the format.
        costs: what the kernels cost; the shipped constants by default.

    Returns:
        The bytes of the new file, and what each constant became. The same input gives the same bytes.
    """
    model = flatfile.read_model(dense)
    sources = sources or {}

    def source_of(weight):
        unknown = graph.Source(weight.name, weight.values.size)
        return sources.get(graph.content_key(weight.values), unknown)

    def format_of(weight):
        name = source_of(weight).name
        return "fast" if whole(name) in keep_float and format in ("auto", "int8", "dense-int8") else format

    cut = _cut_for_blocks(model, format_of, source_of, costs)
    weights = sparse.find_weights(model)
    roles = {
        "all": {weight.role for weight in weights},
        "convolutions": {sparse.CONVOLUTION},
        "nothing": set(),
    }
    rounds = {
        weight.buffer: weight.role in roles[rounded] and fits_float16(weight.values) for weight in weights
    }
    products, orders = ordering.products(model, weights), {}
    picked = {buffer for buffer, product in products.items() if product.pick is not None}
    patterns = {weight.buffer: formats.Pattern.of(weight.values) for weight in weights}

    def choices(int8_tables):
        return {
            weight.buffer: formats.choose(
                weight,
                patterns[weight.buffer],
                format_of(weight),
                costs,
                int8_tables=int8_tables,
                float16=rounds[weight.buffer],
                picked=weight.buffer in picked,
            )
            for weight in weights
        }

    chosen = choices(False)
    if any(choice.encoding == sparse.BLOCK16 for choice in chosen.values()):
        chosen = choices(True)
    changes = []
    layers = []
    for weight in weights:
        choice, pattern = chosen[weight.buffer], patterns[weight.buffer]
        stored = weight.values.nbytes
        if choice.encoding != sparse.DENSE:
            values = weight.values
            if choice.encoding in (sparse.CSR, sparse.BLOCK4, sparse.SPARSE32) and rounds[weight.buffer]:
                values = round_to_float16(values)
            if weight.buffer in products and formats.worth_ordering(
                weight, choice.encoding, costs, picked=weight.buffer in picked
            ):
                order = ordering.order_of(values, choice.encoding)
                values, orders[weight.buffer] = values[order], order
            encoded = sparse.encode(choice.encoding, values, weight.role)
            changes.append(sparse.Change(weight, choice.encoding, encoded))
            stored = encoded.bytes
        columns, how = cut.get(weight.buffer, (weight.shape[-1], ""))
        source = source_of(weight)
        layers.append(
            LayerReport(
                name=source.name,
                role=weight.role,
                shape=(*weight.shape[:-1], columns),
                pattern=str(pattern),
                weights=min(source.weights, weight.values.size // weight.shape[-1] * columns),
                nonzeros=pattern.nonzeros if source.weights else 0,
                encoding=choice.encoding,
                bytes=stored,
                expected_ms=formats.expected_ms(
                    weight, pattern, choice.encoding, words, costs, picked=weight.buffer in picked
                ),
                reason=f"{choice.reason} ({how})" if how else choice.reason,
            )
        )
    sparse.rewrite(model, changes)
    for buffer, order in orders.items():
        ordering.apply(model, products[buffer], order)
    return flatfile.write_model(model), layers


def whole(name: str) -> str:
    """Name of the layer that a part of it, `output/kernel[0:4096]`, belongs to."""
    return name.partition("[")[0]


def _cut_for_blocks(
    model,
    format_of: Callable[[sparse.Weight], str],
    source_of: Callable[[sparse.Weight], graph.Source],
    costs: Costs | None,
) -> dict[int, tuple[int, str]]:
    """Cuts the layers that are to be int8 1x16 blocks, and are not yet such that the kernel takes them.

    Returns:
        Buffer of each part -> its columns without padding, and what was done.
    """
    cut = {}
    for weight in sparse.find_weights(model):
        if not formats.suits_block16(weight, formats.Pattern.of(weight.values), format_of(weight), costs):
            continue
        how = layout.layout_of(weight.values)
        if not how.fits and layout.can_apply(model, weight):
            parts = layout.apply(model, weight, how, source_of(weight).name)
            cut.update({buffer: (columns, str(how)) for buffer, columns in parts.items()})
    return cut
