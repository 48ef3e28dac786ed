"""Exported files of runs in a report: how large they are, and how long they take on this machine."""

import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tfsparsecap.data.images import read_image
from tfsparsecap.errors import InputError
from tfsparsecap.inference.bundle import TFLiteCaptioner, read_bundle
from tfsparsecap.reports.runs import NOTHING, Cell, ReportRun, Table
from tfsparsecap.text import one_line

_WARM_UP, _TIMED = 2, 9


@dataclass(frozen=True)
class Exported:
    """An exported file.

    Attributes:
        label: of its run.
        dense: whether its run is not pruned.
        megabytes: 10^6 bytes.
        form: how it was exported, as the file says.
        tokens: how many a caption of it has at most; None where the file does not say.
        milliseconds: of a caption, the median of several; None where it was not timed.
        damage: why it cannot be read, or "".
    """

    label: str
    path: Path
    dense: bool
    megabytes: float
    form: str = ""
    tokens: int | None = None
    milliseconds: float | None = None
    damage: str = ""


def exported_files(runs: Sequence[ReportRun], picture: Path | None, latency: bool) -> list[Exported]:
    """The `.tflite` files that lie in the folders of runs.

    Args:
        picture: what they caption when they are timed; None takes a grey one.
        latency: time them, which takes a few seconds each.
    """
    return [
        _exported(run, path, picture, latency)
        for run in runs
        for path in sorted(run.folder.path.glob("*.tflite"))
    ]


def _exported(run: ReportRun, path: Path, picture: Path | None, latency: bool) -> Exported:
    dense = run.config.pruning is None
    try:
        megabytes = path.stat().st_size / 1e6
        description, _ = read_bundle(path)
        milliseconds = _milliseconds(path, picture) if latency else None
    except InputError as error:
        return Exported(run.label, path, dense, megabytes, damage=one_line(str(error)))
    form = one_line(str(description.get("export_format", "")))
    if description.get("int8"):
        form += ", int8"
    tokens = description.get("max_length")
    return Exported(
        run.label, path, dense, megabytes, form, tokens if isinstance(tokens, int) else None, milliseconds
    )


def _milliseconds(path: Path, picture: Path | None) -> float:
    captioner = TFLiteCaptioner(path)
    if captioner.image_size is not None:
        size = captioner.image_size
        image = np.full((size, size, 3), 128, "uint8") if picture is None else read_image(picture, size)
        inputs = {"image": image}
    else:
        inputs = _features(captioner)
    times = []
    for _ in range(_WARM_UP + _TIMED):
        began = time.perf_counter()
        captioner.token_ids(**inputs)
        times.append(1000 * (time.perf_counter() - began))
    return statistics.median(times[_WARM_UP:])


def _features(captioner: TFLiteCaptioner) -> dict[str, np.ndarray]:
    """Features of made-up regions, as many as the file takes."""
    draw = np.random.default_rng(0)
    regions, size = captioner.features_shape
    made = {"features": draw.random((regions, size), "float32")}
    for name in captioner.input_names:
        if name == "boxes":
            corners = np.sort(draw.random((regions, 2, 2), "float32"), axis=1)
            made[name] = corners.reshape(regions, 4)
        elif name == "pooled":
            made[name] = made["features"].mean(axis=0)
        elif name == "mask":
            made[name] = np.ones(regions, bool)
    return made


def files_table(files: Sequence[Exported], latency: bool) -> Table:
    """Size and latency of the files; beside each its share of the smallest file of a dense run."""
    dense = [one for one in files if one.dense and not one.damage]
    size = min((one.megabytes for one in dense), default=None)
    rows = []
    for one in files:
        cells = [Cell(one_line(one.path.name)), Cell(f"{one.megabytes:.2f}")]
        cells.append(Cell(f"{one.megabytes / size:.1%}" if size else NOTHING))
        if one.damage:
            cells += [Cell(f"cannot be used: {one.damage}"), Cell(NOTHING)]
        else:
            cells += [Cell(one.form or NOTHING), Cell(str(one.tokens or NOTHING))]
        if latency:
            cells.append(Cell(NOTHING if one.milliseconds is None else f"{one.milliseconds:.1f}"))
        rows.append((one.label, cells))
    columns = ["run", "file", "MB", "size against dense", "format", "tokens at most"]
    caption = "Exported files"
    if latency:
        columns.append("ms a caption")
        caption += f"; time on this machine, one thread, the median of {_TIMED} captions of one picture"
    return Table(caption, columns, rows)
