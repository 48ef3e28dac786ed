"""What is in .tflite files: layer by layer how it is stored, and what a phone will make of it.

python -m tfsparsecap_export.inspect model.tflite
"""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

from rich import box
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from tfsparsecap.command import DONE, WRONG_INPUT, fail, parser, run
from tfsparsecap.errors import InputError
from tfsparsecap_export.flatbuffer.contents import Contents, read_contents
from tfsparsecap_export.flatbuffer.stored import CONVOLUTION, FULLY_CONNECTED, OTHER, Constant, readable
from tfsparsecap_export.verify.portability import ANDROID_RUNTIME, warnings

_DESCRIPTION = """\
Shows what is in .tflite files, this package's or anybody's: what they take and give, how each layer is
stored, its zeros and its bytes, and what a phone would refuse or get wrong.

Nothing in a file is run. A layer is a constant that multiplies, convolves or is looked up; what loops or
signatures share counts once. "csr", "1x4" and "int8 1x16" are sparse weights that are multiplied as they
are; what is followed by (DENSIFY) or (DEQUANTIZE) is made dense, or float, before it is used.
"""

_EXAMPLES = [
    ("python -m tfsparsecap_export.inspect model.tflite", "tables for people"),
    ("python -m tfsparsecap_export.inspect mine.tflite theirs.tflite", "one after the other"),
    ("python -m tfsparsecap_export.inspect model.tflite --json", "everything, for a program"),
]

#: What of a bundle's description is shown, and as what.
_DESCRIBED = {
    "model": "model",
    "run": "run",
    "trained_on": "trained on",
    "scores": "scores",
    "sparsity": "sparsity",
    "export_format": "format",
    "input": "input",
    "beam": "beam",
    "max_length": "words at most",
    "verification": "verified",
}
_WORDS_SHOWN, _LONGEST_SHOWN = 8, 300


def as_dict(contents: Contents) -> dict:
    """Everything that is known of a file as plain values, for JSON."""
    return {
        "path": str(contents.path),
        "bytes": contents.bytes,
        "description": contents.description,
        "vocabulary": {
            "size": len(contents.vocabulary),
            "first": list(contents.vocabulary[:_WORDS_SHOWN]),
        },
        "signatures": [
            {
                "name": signature.name,
                **{
                    side: [
                        {"name": value.name, "shape": list(value.shape), "dtype": value.dtype}
                        for value in values
                    ]
                    for side, values in (("inputs", signature.inputs), ("outputs", signature.outputs))
                },
            }
            for signature in contents.signatures
        ],
        "layers": [_constant_dict(layer) for layer in contents.layers],
        "other_constants": _sum_dict([c for c in contents.constants if c.role == OTHER]),
        "total": _sum_dict(contents.layers),
        "parts": {part.name: part.bytes for part in contents.parts},
        "files": {part.name: part.bytes for part in contents.files},
        "metadata": {part.name: part.bytes for part in contents.metadata},
        "operators": [
            {"name": o.name, "version": o.version, "count": o.count, "in_loop": o.in_loop}
            for o in contents.operators
        ],
        "warnings": warnings(contents),
    }


def _constant_dict(constant: Constant) -> dict:
    return {
        "name": constant.name,
        "role": constant.role,
        "shape": list(constant.shape),
        "dtype": constant.dtype,
        "stored": constant.stored,
        "behind": list(constant.through),
        "sparse": constant.sparse,
        "block": constant.block,
        "weights": constant.weights,
        "nonzeros": constant.nonzeros,
        "sparsity": constant.sparsity,
        "bytes": constant.bytes,
        "value_bytes": constant.value_bytes,
        "index_bytes": constant.index_bytes,
        "scale_bytes": constant.scale_bytes,
        "in_loop": constant.in_loop,
    }


def _sum_dict(constants: Sequence[Constant]) -> dict:
    return {
        "count": len(constants),
        **{
            name: sum(getattr(constant, name) for constant in constants)
            for name in ("weights", "nonzeros", "bytes", "value_bytes", "index_bytes", "scale_bytes")
        },
    }


def shown(contents: Contents) -> RenderableType:
    """Everything that is known of a file as tables, for the terminal."""
    parts: list[RenderableType] = [
        Text(f"{readable(str(contents.path))}: {contents.bytes / 1e3:,.1f} KB", "bold")
    ]
    parts += [_facts(contents), _layers(contents), _bytes(contents), _operators(contents)]
    found = warnings(contents)
    for sentence in found:
        parts.append(Text.assemble(("warning: ", "bold red"), readable(sentence)))
    if not found:
        parts.append(Text(f"Nothing in it is known to trouble {ANDROID_RUNTIME}, the newest for Android."))
    return Group(*parts)


def _table(**options) -> Table:
    return Table(box=box.SIMPLE_HEAD, padding=0, pad_edge=False, title_justify="left", **options)


def _facts(contents: Contents) -> Table:
    """Signatures and description."""
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")

    def add(name, value):
        table.add_row(Text(name), Text(value))

    for signature in contents.signatures:
        add("signature" if signature.name else "main graph", signature.name or "(the file has no signatures)")
        add("  takes", "\n".join(map(str, signature.inputs)) or "nothing")
        add("  gives", "\n".join(map(str, signature.outputs)) or "nothing")
    for key, name in _DESCRIBED.items():
        value = (contents.description or {}).get(key)
        if value not in (None, {}, [], ""):
            add(name, _one_line(value))
    if contents.vocabulary:
        words = " ".join(contents.vocabulary[:_WORDS_SHOWN])
        add("vocabulary", f"{len(contents.vocabulary):,} tokens: {_one_line(words)} …")
    return table


def _one_line(value: object) -> str:
    """A value of a description, whatever it is, short and printable."""
    if isinstance(value, dict):
        text = ", ".join(f"{key} {_short(item)}" for key, item in list(value.items())[:20])
    else:
        text = _short(value)
    text = readable(text)
    return text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}…"


def _short(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    return str(value)[:_LONGEST_SHOWN]


def _layers(contents: Contents) -> Table:
    """A row a layer under the name of its role, convolutions that are stored alike in one row."""
    table = _table()
    table.add_column("layer", overflow="fold")
    table.add_column("shape", no_wrap=True)
    table.add_column("stored as", overflow="fold")
    table.add_column("loop")
    for name in ("non-zero", "zeros", "KB"):
        table.add_column(name, justify="right", no_wrap=True)
    groups: dict[str, dict[object, list[Constant]]] = {}
    for number, layer in enumerate(contents.layers):
        key = (layer.stored, layer.through, layer.in_loop) if layer.role == CONVOLUTION else number
        groups.setdefault(layer.role, {}).setdefault(key, []).append(layer)
    first = {layer.name.split("/")[0] for layer in contents.layers if layer.role == FULLY_CONNECTED}
    prefix = f"{next(iter(first))}/" if len(first) == 1 else ""
    for role, rows in groups.items():
        table.add_row(Text(f"{role}:", "italic"))
        for layers in rows.values():
            name = layers[0].name.split(";")[0].removeprefix(prefix)
            _add(table, f"  {name if len(layers) == 1 else f'{len(layers)} of them'}", layers)
    table.add_section()
    _add(table, "all layers", contents.layers, sums_only=True)
    others = [constant for constant in contents.constants if constant.role == OTHER]
    if others:
        _add(table, f"{len(others)} other constants (biases, …)", others, sums_only=True)
    return table


def _add(table: Table, name: str, constants: Sequence[Constant], sums_only: bool = False) -> None:
    """A row about constants: what is true of all of them, and sums."""
    totals = _sum_dict(constants)
    zeros = 1 - totals["nonzeros"] / totals["weights"] if totals["weights"] else 0.0
    shapes = {"x".join(map(str, constant.shape)) for constant in constants}
    how = {" ".join([c.stored, *(f"({name})" for name in c.through)]) for c in constants}
    cells = (
        name,
        shapes.pop() if len(shapes) == 1 and not sums_only else "",
        how.pop() if len(how) == 1 and not sums_only else "",
        "yes" if not sums_only and all(constant.in_loop for constant in constants) else "",
        f"{totals['nonzeros']:,}",
        f"{zeros:.1%}",
        f"{totals['bytes'] / 1e3:,.1f}",
    )
    table.add_row(*map(Text, cells))


def _bytes(contents: Contents) -> Table:
    table = _table()
    table.add_column("the file consists of", overflow="fold")
    table.add_column("KB", justify="right")
    table.add_column("", justify="right")
    details = {"associated files": contents.files, "metadata": contents.metadata}
    for part in contents.parts:
        if not part.bytes:
            continue
        names = [inner.name for inner in details.get(part.name, ())]
        more = f" and {len(names) - 6} more" if len(names) > 6 else ""
        listed = f": {', '.join(names[:6])}{more}" if names else ""
        cells = (part.name + listed, f"{part.bytes / 1e3:,.1f}", f"{part.bytes / contents.bytes:.1%}")
        table.add_row(*map(Text, cells))
    return table


def _operators(contents: Contents) -> Text:
    """Name, version and number of each operator."""
    listed = []
    for operator in contents.operators:
        uses = f"{operator.count}" if operator.count else "not used"
        if operator.in_loop:
            loop = (
                "in a loop" if operator.in_loop == operator.count else f"of them {operator.in_loop} in a loop"
            )
            uses += f", {loop}"
        listed.append(f"{operator.name} v{operator.version} ({uses})")
    return Text(f"operators: {'; '.join(listed)}\n")


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    options = parser("python -m tfsparsecap_export.inspect", _DESCRIPTION, _EXAMPLES)
    options.add_argument("files", nargs="+", type=Path, metavar="FILE.tflite", help="files to look into")
    options.add_argument(
        "--json", action="store_true", help="print a JSON list with everything that is known"
    )
    return options.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    """Shows the files; one that cannot be read is named, the others are shown all the same."""
    options = _arguments(argv)
    code, results = DONE, []
    console = Console(highlight=False)
    for path in options.files:
        try:
            contents = read_contents(path)
        except InputError as error:
            fail(readable(str(error)))
            code = WRONG_INPUT
            results.append({"path": str(path), "error": str(error)})
            continue
        if options.json:
            results.append(as_dict(contents))
        else:
            console.print(shown(contents))
    if options.json:
        print(json.dumps(results))
    return code


if __name__ == "__main__":
    run(main)
