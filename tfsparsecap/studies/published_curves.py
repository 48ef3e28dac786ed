"""Published results, read from tab-separated tables: scores by sparsity, and sparsities of layers."""

import csv
import glob
import os
import re
from pathlib import Path

from tfsparsecap.errors import InputError
from tfsparsecap.files import read_bytes

_MAX_BYTES = 1 << 20
_ALIASES = {"objectrelationtransformer": "ort", "updownlstm": "updown", "ud": "updown"}


def read_published(path: str | os.PathLike) -> dict[str, list[tuple[float, float]]]:
    """Reads scores by sparsity from a table such as `performance__Pruning_ORT_MS-COCO_CIDEr.tsv`.

    Args:
        path: a table with a column `Sparsity` (0 to 1), optionally `NNZ`, and a column of scores for each
            method. Empty cells are skipped.

    Returns:
        (sparsity, score) pairs of each method, in the order of the file; the dense model is called
        "Baseline".

    Raises:
        InputError: the file cannot be read or is not such a table.

    Examples:
        >>> read_published("performance__Pruning_ORT_MS-COCO_CIDEr.tsv")["SNIP"]  # doctest: +SKIP
        [(0.95, 47.2), (0.975, 44.0), (0.988, 37.3)]
    """
    return {
        method: [(_number(path, "Sparsity", key, 1), _number(path, method, text)) for key, text in cells]
        for method, cells in _columns(path, "Sparsity").items()
        if method != "NNZ"
    }


def read_layers(path: str | os.PathLike) -> dict[str, dict[str, float]]:
    """Reads sparsities of layers from a table such as `layerwise__…_LSTM_MS-COCO_.tsv`.

    Args:
        path: a table with a column `Layer` and a column of sparsities (0 to 1) for each method.

    Returns:
        Sparsity by method and layer, in the order of the file, without the suffix `/mask` of the names.

    Raises:
        InputError: the file cannot be read or is not such a table.
    """
    return {
        method: {layer.removesuffix("/mask"): _number(path, method, text, 1) for layer, text in cells}
        for method, cells in _columns(path, "Layer").items()
    }


def published_file(path: str | os.PathLike, captioner: str, score: str) -> Path | None:
    """The table of a captioner's scores; None if there is none.

    Args:
        path: the table, or a folder that holds it as `performance__Pruning_CAPTIONER_MS-COCO_SCORE.tsv`.
        captioner: such as "Soft-Attention LSTM", "Up-Down" or "ORT"; punctuation and case are ignored.
        score: such as "CIDEr".
    """
    if Path(path).is_file():
        return Path(path)
    wanted = _ALIASES.get(_letters(captioner), _letters(captioner))
    for file in sorted(Path(path).glob(f"performance__*_{glob.escape(score)}.tsv")):
        match = re.fullmatch(r"performance__(?:Pruning_)?(.+?)(?:_MS-COCO)?_[^_]+", file.stem)
        if match and _letters(match[1]) == wanted:
            return file
    return None


def _letters(text: str) -> str:
    return re.sub(r"[\W_]", "", text.lower())


def _columns(path: str | os.PathLike, key: str) -> dict[str, list[tuple[str, str]]]:
    """(key, cell) pairs of each other column that has any."""
    advice = f"give a tab-separated table whose first column is {key}"
    content = read_bytes(path, advice, _MAX_BYTES)
    try:
        lines = content.decode("utf-8-sig").splitlines()
        header, *rows = csv.reader(lines, delimiter="\t", quoting=csv.QUOTE_NONE, strict=True)
    except (ValueError, csv.Error) as error:
        raise InputError(f"cannot read {path} ({error}): {advice}") from error
    header = [name.strip() for name in header]
    rows = [[cell.strip() for cell in row] for row in rows if any(map(str.strip, row))]
    if header[:1] != [key] or len(set(header)) < max(2, len(header)) or not all(header) or not rows:
        raise InputError(f"{path} begins with {header[:4]} and has {len(rows)} rows: {advice}")
    keys = [row[0] for row in rows]
    for row in rows:
        if len(row) > len(header) or keys.count(row[0]) > 1:
            raise InputError(
                f"{path}: the row {row[0]!r} is repeated or has more cells than the header: {advice}"
            )
    columns = {
        name: [(row[0], row[place]) for row in rows if place < len(row) and row[place]]
        for place, name in enumerate(header)
    }
    return {name: cells for name, cells in columns.items() if name != key and cells}


def _number(path: str | os.PathLike, column: str, text: str, most: float = 1e6) -> float:
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not 0 <= number <= most:
        raise InputError(f"{path}: {column} is {text[:40]!r}; write a number from 0 to {most:g}")
    return number
