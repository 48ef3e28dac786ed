"""From a dense .tflite file to one whose constants are stored as a format asks."""

from collections.abc import Callable

from tfsparsecap_export import flatfile, formats, graph, layout, sparse
from tfsparsecap_export.costs import Costs
from tfsparsecap_export.encodings import fits_float16, round_to_float16
from tfsparsecap_export.report import LayerReport


def encode(
    dense: bytes,
    format: str,
    *,
    words: int,
    names: dict[bytes, str] | None = None,
    rounded: str = "all",
    keep_float: frozenset[str] = frozenset(),
    costs: Costs | None = None,
) -> tuple[bytes, list[LayerReport]]:
    """Stores the weights of a dense .tflite file as a format asks.

    Args:
        dense: a dense float32 .tflite file.
        format: one of `tfsparsecap_export.FORMATS`.
        words: words of a caption, for the expected milliseconds.
        names: names of weights by their content, as `graph.weight_names` gives them.
        rounded: which float weights may be rounded to float16: `all`, `convolutions` (the encoder's, most of
            the bytes that rounding saves) or `nothing`.
        keep_float: names of layers whose weights stay float whatever the format.
        costs: what the kernels cost; the shipped constants by default.

    Returns:
        The bytes of the new file, and what each constant became. The same input gives the same bytes.
    """
    model = flatfile.read_model(dense)
    names = names or {}

    def format_of(weight):
        name = names.get(graph.content_key(weight.values), weight.name)
        return "fast" if whole(name) in keep_float and format in ("auto", "int8") else format

    cut = _cut_for_blocks(model, format_of, names, costs)
    weights = sparse.find_weights(model)
    roles = {
        "all": {weight.role for weight in weights},
        "convolutions": {sparse.CONVOLUTION},
        "nothing": set(),
    }
    rounds = {
        weight.buffer: weight.role in roles[rounded] and fits_float16(weight.values) for weight in weights
    }
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
            encoded = sparse.encode(choice.encoding, values, weight.role)
            changes.append(sparse.Change(weight, choice.encoding, encoded))
            stored = encoded.bytes
        columns, how = cut.get(weight.buffer, (weight.shape[-1], ""))
        layers.append(
            LayerReport(
                name=names.get(graph.content_key(weight.values), weight.name),
                role=weight.role,
                shape=(*weight.shape[:-1], columns),
                pattern=str(pattern),
                nonzeros=pattern.nonzeros,
                encoding=choice.encoding,
                bytes=stored,
                expected_ms=formats.expected_ms(weight, pattern, choice.encoding, words, costs),
                reason=f"{choice.reason} ({how})" if how else choice.reason,
            )
        )
    sparse.rewrite(model, changes)
    return flatfile.write_model(model), layers


def whole(name: str) -> str:
    """Name of the layer that a part of it, `output/kernel[0:4096]`, belongs to."""
    return name.partition("[")[0]


def _cut_for_blocks(
    model, format_of: Callable[[sparse.Weight], str], names: dict[bytes, str], costs: Costs | None
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
            name = names.get(graph.content_key(weight.values), weight.name)
            parts = layout.apply(model, weight, how, name)
            cut.update({buffer: (columns, str(how)) for buffer, columns in parts.items()})
    return cut
