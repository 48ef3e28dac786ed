"""Exported files of runs: their sizes and latencies on this machine."""

import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tfsparsecap.data.images import read_image
from tfsparsecap.errors import InputError
from tfsparsecap.inference.bundle import TFLiteCaptioner, has_digest, read_bundle
from tfsparsecap.reports.runs import NOTHING, ReportRun, Table
from tfsparsecap.text import one_line

_WARM_UP, _TIMED = 2, 9


@dataclass(frozen=True)
class ExportedFile:
    """An exported file.

    Attributes:
        label: of its run.
        dense: whether its run is dense.
        megabytes: 10^6 bytes.
        export_format: as stored in the file.
        max_length: tokens of a caption at most; None if the file does not store it.
        milliseconds: median latency of a caption; None if not measured, or without a digest.
        error: why the file cannot be read, or "".
    """

    label: str
    path: Path
    dense: bool
    megabytes: float
    export_format: str = ""
    max_length: int | None = None
    milliseconds: float | None = None
    error: str = ""


def exported_files(runs: Sequence[ReportRun], image: Path | None, latency: bool) -> list[ExportedFile]:
    """The `.tflite` files in the folders of runs.

    Args:
        image: captioned to measure the latency; None takes a grey image.
        latency: measure the latency, which takes a few seconds for each file.
    """
    return [
        _exported_file(run, path, image, latency)
        for run in runs
        for path in sorted(run.folder.path.glob("*.tflite"))
    ]


def _exported_file(run: ReportRun, path: Path, image: Path | None, latency: bool) -> ExportedFile:
    about = (run.label, path, run.config.pruning is None, path.stat().st_size / 1e6)
    try:
        description, _ = read_bundle(path)
        milliseconds = _latency(path, image) if latency and has_digest(path) else None
    except InputError as error:
        return ExportedFile(*about, error=one_line(str(error)))
    export_format = one_line(str(description.get("export_format", "")))
    if description.get("int8"):
        export_format += ", int8"
    length = description.get("max_length")
    return ExportedFile(*about, export_format, length if isinstance(length, int) else None, milliseconds)


def _latency(path: Path, image: Path | None) -> float:
    captioner = TFLiteCaptioner(path)
    size = captioner.image_size
    if size is None:
        inputs = _random_features(captioner)
    else:
        inputs = {
            "image": np.full((size, size, 3), 128, "uint8") if image is None else read_image(image, size)
        }
    times = []
    for _ in range(_WARM_UP + _TIMED):
        start = time.perf_counter()
        captioner.token_ids(**inputs)
        times.append(1000 * (time.perf_counter() - start))
    return statistics.median(times[_WARM_UP:])


def _random_features(captioner: TFLiteCaptioner) -> dict[str, np.ndarray]:
    random = np.random.default_rng(0)
    assert captioner.features_shape is not None  # a captioner takes images or features
    regions, size = captioner.features_shape
    features = random.random((regions, size), "float32")
    corners = np.sort(random.random((regions, 2, 2), "float32"), axis=1)
    inputs = {
        "features": features,
        "boxes": corners.reshape(regions, 4),
        "pooled": features.mean(axis=0),
        "mask": np.ones(regions, bool),
    }
    return {name: inputs[name] for name in {"features", *captioner.input_names}}


def files_table(files: Sequence[ExportedFile], latency: bool) -> Table:
    """Sizes and latencies; sizes are compared with the smallest file of a dense run."""
    dense = min((one.megabytes for one in files if one.dense and not one.error), default=None)
    columns = ["run", "file", "MB", "size relative to dense", "format", "max. tokens"]
    caption = "Exported files"
    if latency:
        columns.append("ms per caption")
        caption += f"; latency on this machine, one thread, median of {_TIMED} captions of one image"
    rows = []
    for one in files:
        row = [one.label, one_line(one.path.name), f"{one.megabytes:.2f}"]
        row.append(f"{one.megabytes / dense:.1%}" if dense else NOTHING)
        row.append(f"cannot be used: {one.error}" if one.error else one.export_format or NOTHING)
        row.append(str(one.max_length or NOTHING))
        if latency:
            row.append(NOTHING if one.milliseconds is None else f"{one.milliseconds:.1f}")
        rows.append(row)
    return Table(caption, columns, rows)
