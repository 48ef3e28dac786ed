"""What papers published, read from tables (.tsv): scores over sparsities, and sparsities of layers."""

import csv
import glob
import math
import os
import re
from pathlib import Path

from tfsparsecap.errors import InputError

_LARGEST_FILE = 1 << 20
_ALSO_CALLED = {"objectrelationtransformer": "ort", "updownlstm": "updown", "ud": "updown"}


def read_published(path: str | os.PathLike) -> dict[str, list[tuple[float, float]]]:
    """Reads scores over sparsities, such as `performance__Pruning_ORT_MS-COCO_CIDEr.tsv`.

    Args:
        path: a table with a column `Sparsity` (0 to 1), perhaps one `NNZ`, and one of scores for each method.
            Empty cells are left out.

    Returns:
        (sparsity, score) of each method in the order of the rows; the dense captioner is called "Baseline".

    Raises:
        InputError: the file cannot be read or is no such table; the sentence names the line.

    Example:
        >>> read_published("performance__Pruning_ORT_MS-COCO_CIDEr.tsv")["SNIP"]  # doctest: +SKIP
        [(0.95, 47.2), (0.975, 44.0), (0.988, 37.3)]
    """
    path = Path(path)
    header, rows = _read(path, "Sparsity")
    methods = [name for name in header[1:] if name != "NNZ"]
    curves: dict[str, list[tuple[float, float]]] = {method: [] for method in methods}
    seen = set()
    for line, row in rows:
        sparsity = _share(row["Sparsity"], path, line, "Sparsity")
        if sparsity in seen:
            raise InputError(f"{path} line {line} repeats the sparsity {sparsity:g}: leave one of them out")
        seen.add(sparsity)
        for method in methods:
            if row[method]:
                curves[method].append((sparsity, _number(row[method], path, line, method)))
    return {method: curve for method, curve in curves.items() if curve}


def read_layers(path: str | os.PathLike) -> dict[str, dict[str, float]]:
    """Reads layer-wise sparsities, such as `layerwise__Layer-wise_Sparsities_of_…_LSTM_MS-COCO_.tsv`.

    Args:
        path: a table with a column `Layer` and one of sparsities (0 to 1) for each method.

    Returns:
        The sparsity by method and layer, in the order of the file; what names end in, `/mask`, is taken off.

    Raises:
        InputError: the file cannot be read or is no such table; the sentence names the line.
    """
    path = Path(path)
    header, rows = _read(path, "Layer")
    found: dict[str, dict[str, float]] = {method: {} for method in header[1:]}
    seen = set()
    for line, row in rows:
        layer = row["Layer"].removesuffix("/mask")
        if not layer or layer in seen:
            raise InputError(f'{path} line {line} names no new layer ("{layer}"): name each layer once')
        seen.add(layer)
        for method in header[1:]:
            if row[method]:
                found[method][layer] = _share(row[method], path, line, method)
    return {method: layers for method, layers in found.items() if layers}


def published_file(folder: str | os.PathLike, captioner: str, score: str) -> Path | None:
    """The table of a captioner's scores in a folder, found by its name; None where there is none.

    Args:
        captioner: such as "Soft-Attention LSTM", "Up-Down" or "ORT"; marks and case do not matter.
        score: such as "CIDEr".
    """
    for file in sorted(Path(folder).glob(f"performance__*_{glob.escape(score)}.tsv")):
        if is_about(file, captioner):
            return file
    return None


def is_about(file: Path, captioner: str) -> bool:
    """Whether a table bears the name of a captioner: `performance__Pruning_CAPTIONER_MS-COCO_SCORE.tsv`."""
    about = re.fullmatch(r"performance__(?:Pruning_)?(.+?)(?:_MS-COCO)?_[^_]+", file.stem)
    name = _letters(captioner)
    return about is not None and _letters(about[1]) == _ALSO_CALLED.get(name, name)


def _letters(text: str) -> str:
    return re.sub(r"[\W_]", "", text.lower())


def _read(path: Path, first: str) -> tuple[list[str], list[tuple[int, dict[str, str]]]]:
    """Header, and number and cells of each line; short lines are filled with empty cells."""
    advice = f"give a table of tabs whose first column is {first}"
    try:
        with path.open("rb") as file:
            content = file.read(_LARGEST_FILE + 1)
    except OSError as error:
        raise InputError(f"cannot read {path} ({error.strerror}): {advice}") from error
    if len(content) > _LARGEST_FILE:
        raise InputError(f"{path} is larger than such a table can be ({_LARGEST_FILE} bytes): {advice}")
    try:
        text = content.decode("utf-8-sig").splitlines()
        # Cells hold no quoted text: a quotation mark is one.
        table = list(csv.reader(text, delimiter="\t", quoting=csv.QUOTE_NONE))
    except (UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"{path} is no text with tabs ({error}): {advice}") from error
    header = [cell.strip() for cell in table[0]] if table else []
    if len(header) < 2 or header[0] != first or len(set(header)) < len(header) or not all(header):
        begin = ", ".join(header)[:80]
        raise InputError(f'{path} begins with "{begin}": {advice} and has others, each with its own name')
    rows = []
    for line, cells in enumerate(table[1:], start=2):
        cells = [cell.strip() for cell in cells]
        if len(cells) > len(header):
            raise InputError(
                f"{path} line {line} has {len(cells)} cells for {len(header)} columns: take out what is too "
                "many"
            )
        if any(cells):
            cells += [""] * (len(header) - len(cells))
            rows.append((line, dict(zip(header, cells, strict=True))))
    if not rows:
        raise InputError(f"{path} has no line below its header: {advice}")
    return header, rows


def _number(text: str, path: Path, line: int, column: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise InputError(f'{path} line {line} has "{text[:40]}" under {column}: write a number there')
    return number


def _share(text: str, path: Path, line: int, column: str) -> float:
    share = _number(text, path, line, column)
    if not 0 <= share <= 1:
        raise InputError(f"{path} line {line} has {share:g} under {column}: write a share from 0 to 1 there")
    return share
