"""What a .tflite file contains, as tables for the terminal and as plain values for JSON."""

import dataclasses
from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from tfsparsecap_export.flatbuffer.contents import Contents
from tfsparsecap_export.flatbuffer.stored import Constant, decoded_text
from tfsparsecap_export.tables import layer_rows, new_table
from tfsparsecap_export.verify.portability import ANDROID_RUNTIME, warnings

#: Entries of a bundle's description that are shown.
_DESCRIBED = (
    *("model", "run", "trained_on", "scores", "sparsity", "export_format", "input", "beam", "max_length"),
    "verification",
)
_WORDS_SHOWN, _LONGEST_SHOWN = 8, 300


def as_dict(contents: Contents, description: dict | None = None, vocabulary: Sequence[str] = ()) -> dict:
    """Everything that is known about a file as plain values, for JSON.

    Args:
        contents: of the file.
        description, vocabulary: of a captioner's file, see `captioning.inference.bundle.read_bundle`.
    """
    return {
        "path": str(contents.path),
        "bytes": contents.bytes,
        "description": description,
        "vocabulary": {"size": len(vocabulary), "first": list(vocabulary[:_WORDS_SHOWN])},
        "signatures": [dataclasses.asdict(signature) for signature in contents.signatures],
        "layers": [
            {**dataclasses.asdict(layer), "bytes": layer.bytes, "sparsity": layer.sparsity}
            for layer in contents.layers
        ],
        "other_constants": _sums(contents.other_constants),
        "total": _sums(contents.layers),
        "parts": contents.parts,
        "files": contents.files,
        "metadata": contents.metadata,
        "operators": [dataclasses.asdict(operator) for operator in contents.operators],
        "warnings": warnings(contents),
    }


def _sums(constants: Sequence[Constant]) -> dict[str, int]:
    names = ("weights", "nonzeros", "bytes", "value_bytes", "index_bytes", "scale_bytes")
    sums = {name: sum(getattr(constant, name) for constant in constants) for name in names}
    return {"count": len(constants), **sums}


def contents_of_file(
    contents: Contents, description: dict | None = None, vocabulary: Sequence[str] = ()
) -> RenderableType:
    """Like `as_dict`, as tables for the terminal."""
    problems = warnings(contents)
    return Group(
        Text(f"{decoded_text(str(contents.path))}: {contents.bytes / 1e3:,.1f} KB", "bold"),
        _facts(contents, description or {}, vocabulary),
        _layers(contents),
        _parts(contents),
        _operators(contents),
        *(Text.assemble(("warning: ", "bold red"), decoded_text(problem)) for problem in problems),
        *([] if problems else [Text(f"No known problems on {ANDROID_RUNTIME}, the newest for Android.")]),
    )


def _facts(contents: Contents, description: dict, vocabulary: Sequence[str]) -> Table:
    """Signatures and description."""
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")

    def add(name, value):
        table.add_row(Text(name), Text(value))

    for signature in contents.signatures:
        add("signature" if signature.name else "main graph", signature.name or "(the file has no signatures)")
        add("  inputs", "\n".join(map(str, signature.inputs)) or "none")
        add("  outputs", "\n".join(map(str, signature.outputs)) or "none")
    for key in _DESCRIBED:
        value = description.get(key)
        if value not in (None, {}, [], ""):
            name = "scores of the Keras model" if key == "scores" else key.replace("_", " ")
            add(name, _one_line(value))
    if vocabulary:
        words = " ".join(vocabulary[:_WORDS_SHOWN])
        add("vocabulary", f"{len(vocabulary):,} tokens: {_one_line(words)} …")
    return table


def _one_line(value: object) -> str:
    """Any value of a description, short and printable."""
    if isinstance(value, dict):
        entries = [(str(key), item) for key, item in value.items() if item is not None][:20]
        text = ", ".join(f"{key.replace('_', ' ')} {_short(item)}" for key, item in entries)
    else:
        text = _short(value)
    text = decoded_text(text)
    return text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}…"


def _short(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    return f"{value:,}" if type(value) is int and abs(value) < 1 << 63 else str(value)[:_LONGEST_SHOWN]


def _layers(contents: Contents) -> Table:
    """A row for each layer, grouped by role; convolutions that are stored alike share a row."""
    table = new_table(None, "layer", "shape", "stored as", "loop", ">non-zero", ">zeros", ">KB")

    def add(name, constants, shape="", stored="", loop=""):
        """A row with the sums of some constants."""
        sums = _sums(constants)
        zeros = 1 - sums["nonzeros"] / sums["weights"] if sums["weights"] else 0.0
        numbers = (f"{sums['nonzeros']:,}", f"{zeros:.1%}", f"{sums['bytes'] / 1e3:,.1f}")
        table.add_row(*map(Text, (name, shape, stored, loop, *numbers)))

    role = None
    rows = layer_rows(contents.layers, lambda layer: (layer.stored, layer.behind, layer.in_loop))
    roles = list(dict.fromkeys(layer.role for layer in contents.layers))
    for name, shape, layers in sorted(rows, key=lambda row: roles.index(row[2][0].role)):
        layer = layers[0]
        if layer.role != role:
            role = layer.role
            table.add_row(Text(f"{role}:", "italic"))
        stored = " ".join([layer.stored, *(f"({name})" for name in layer.behind)])
        add(f"  {name}", layers, shape, stored, "yes" if layer.in_loop else "")
    table.add_section()
    add("all layers", contents.layers)
    if contents.other_constants:
        add(f"{len(contents.other_constants)} other constants (biases, …)", contents.other_constants)
    return table


def _parts(contents: Contents) -> Table:
    """The bytes of each part of the file."""
    table = new_table(None, "part of the file", ">KB", ">")
    details = {"associated files": contents.files, "metadata": contents.metadata}
    for name, size in contents.parts.items():
        if not size:
            continue
        names = list(details.get(name, ()))
        more = f" and {len(names) - 6} more" if len(names) > 6 else ""
        listed = f": {', '.join(names[:6])}{more}" if names else ""
        table.add_row(*map(Text, (name + listed, f"{size / 1e3:,.1f}", f"{size / contents.bytes:.1%}")))
    return table


def _operators(contents: Contents) -> Text:
    """Name, version and count of each operator."""
    listed = []
    for operator in contents.operators:
        uses = f"{operator.count}" if operator.count else "not used"
        if operator.in_loop:
            uses += ", in a loop" if operator.in_loop == operator.count else f", {operator.in_loop} in a loop"
        listed.append(f"{operator.name} v{operator.version} ({uses})")
    return Text(f"operators: {'; '.join(listed)}\n")
