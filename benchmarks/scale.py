"""python -m benchmarks.scale: seconds, memory and disk of training on a data set of MS-COCO's size.

Writes synthetic data sets in Karpathy's format to FOLDER (linked photographs; 0.1 GB at full size), and
measures the stages before and during an epoch of training at several sizes, each size in a process of its
own: reading and checking the caption file (index), the vocabulary, the tokens of all captions (batches), and
one epoch of batches from a cache of features (7 x 7 x 320, as of EfficientNet-Lite0; the file is empty,
3.9 GB at full size, and takes no space). CPU seconds are those of all threads, and do not depend on other
load. Memory is the peak beyond TensorFlow's own, without mapped files. "growth" is the exponent between the
smallest and the largest size, for which 1 is linear. Computing the cache is measured on few images and
extrapolated.

Then it measures the training step of Soft-Attention on these batches, and projects the seconds of an epoch on
k devices, each with the same batch size, from

    steps(k) * max(step + 2 * (k - 1) / k * bytes / bandwidth, input)
    steps(k) = captions / (batch size * k)

where `bytes` are those of the float32 gradients, of which a ring all-reduce sends 2 * (k - 1) / k from each
device, and `input` is the time of one batch of the measured epoch: each device has a host process of its own.

examples:
  python -m benchmarks.scale scale
      123 287 images and 1/4 and 1/16 of them
  python -m benchmarks.scale scale --images 8000 --cached 64
      less, to try it
"""

import argparse
import concurrent.futures
import json
import math
import multiprocessing
import shutil
import statistics
import threading
import time
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from rich.console import Console
from rich.table import Table

from benchmarks.coco_like import CAPTIONS_PER_IMAGE, COCO_IMAGES, disk_bytes, make_data_set
from tfsparsecap.command import parser, run, start_tensorflow
from tfsparsecap.errors import InputError, check_number

#: Shape of an image's features: EfficientNet-Lite0's last feature map.
FEATURES = (49, 320)
DEVICES = (1, 2, 4, 8)
STAGES = ("index", "vocabulary", "batches", "epoch of input")
_MAX_LENGTH, _MINIMUM_COUNT, _STEPS = 20, 5, 6


class _Stages:
    """Seconds, CPU seconds and peak of memory of stages that follow each other."""

    def __init__(self) -> None:
        self.rows: dict[str, dict[str, float]] = {}
        self._before = self._memory()

    def measure(self, name: str, function: Any) -> Any:
        """The result of the function."""
        done, peak = threading.Event(), [self._memory()]

        def watch() -> None:
            while not done.wait(0.05):
                peak.append(max(peak.pop(), self._memory()))

        watcher = threading.Thread(target=watch)
        watcher.start()
        began, cpu_began = time.perf_counter(), time.process_time()
        try:
            result = function()
        finally:
            seconds, cpu_seconds = time.perf_counter() - began, time.process_time() - cpu_began
            done.set()
            watcher.join()
        largest = max(*peak, self._memory()) - self._before
        self.rows[name] = {"seconds": seconds, "cpu_seconds": cpu_seconds, "megabytes": largest / 1e6}
        return result

    @staticmethod
    def _memory() -> int:
        """Bytes of this process, without mapped files."""
        memory = psutil.Process().memory_info()
        return memory.rss - getattr(memory, "shared", 0)


def measure_stages(folder: Path, batch_size: int, steps: int) -> dict[str, Any]:
    """Measures one data set.

    Args:
        folder: data set of `make_data_set`; an empty file of features is created in it, and removed.
        batch_size: captions per batch.
        steps: number of training steps to measure, or 0.

    Returns:
        `stages` (name -> `seconds`, `cpu_seconds`, `megabytes`), `images`, `captions`, `batches`,
        `disk_bytes`, and with steps the median seconds of a `step` and the bytes of its `gradients`.
    """
    start_tensorflow()
    from tfsparsecap.captioning.data import coco
    from tfsparsecap.captioning.data.feature_cache import FeatureCache
    from tfsparsecap.captioning.data.image_sources import FeatureCacheSource
    from tfsparsecap.captioning.data.pipeline import training_batches
    from tfsparsecap.captioning.data.tokenizers import WordTokenizer

    WordTokenizer.from_captions(["TensorFlow is loaded"])
    stages = _Stages()
    data = stages.measure("index", lambda: coco.load(folder))
    records = data.split("train")

    def vocabulary() -> WordTokenizer:
        captions = [caption for record in records for caption in record.captions]
        return WordTokenizer.from_captions(captions, _MINIMUM_COUNT)

    tokenizer = stages.measure("vocabulary", vocabulary)
    path = folder / "features.npy"
    try:
        features = _empty_features(path, len(data.records))
        rows = {record.image_id: row for row, record in enumerate(data.records)}

        def make_batches():
            source = FeatureCacheSource(records, FeatureCache(path, features, rows))
            return training_batches(source, records, tokenizer, batch_size=batch_size, max_length=_MAX_LENGTH)

        batches = stages.measure("batches", make_batches)
        count = stages.measure("epoch of input", lambda: sum(1 for _ in batches.epoch(0)))
        figures = {
            "stages": stages.rows,
            "images": len(data.records),
            "captions": batches.examples,
            "batches": count,
            "disk_bytes": disk_bytes(folder),
        }
        return {**figures, **(_training_step(batches, len(tokenizer), steps) if steps else {})}
    finally:
        path.unlink(missing_ok=True)


def _empty_features(path: Path, images: int) -> np.ndarray:
    """A mapped float16 array [images, *FEATURES] of zeros, whose file takes no space."""
    with path.open("wb") as file:
        header = {"descr": "<f2", "fortran_order": False, "shape": (images, *FEATURES)}
        np.lib.format.write_array_header_1_0(file, header)
        file.truncate(file.tell() + 2 * images * math.prod(FEATURES))
    return np.load(path, mmap_mode="r")


def _training_step(batches, vocabulary: int, steps: int) -> dict[str, float]:
    """Median seconds of a training step of Soft-Attention, and the bytes of its gradients."""
    import keras

    from tfsparsecap.captioning.models import SoftAttention
    from tfsparsecap.captioning.training.loop import Loop

    keras.utils.set_random_seed(0)
    captioner = SoftAttention(vocabulary, feature_size=FEATURES[1])
    captioner.compile(keras.optimizers.Adam(1e-3))
    loop, seconds = Loop(captioner), []
    for batch in batches.epoch(0).take(steps + 2):
        began = time.perf_counter()
        float(loop.train_step(batch)["loss"])
        seconds.append(time.perf_counter() - began)
    gradients = 4 * sum(math.prod(weight.shape) for weight in captioner.trainable_variables)
    return {"step": statistics.median(seconds[2:]), "gradients": gradients}  # the first two compile


def measure_cache(folder: Path, images: Sequence[int], size: int = 224) -> list[dict[str, float]]:
    """Encodes some images of a data set with EfficientNet-Lite0 (random weights).

    Args:
        folder: data set of `make_data_set`; the cache is written to it, and removed.
        images: numbers of images, in ascending order.
        size: of the images.

    Returns:
        `images`, `seconds`, and `bytes` on the disk, for each number.
    """
    start_tensorflow()
    from tfsparsecap.captioning.data import coco
    from tfsparsecap.captioning.data.feature_cache import cached_features
    from tfsparsecap.captioning.models import EfficientNetLiteEncoder

    encoder = EfficientNetLiteEncoder(0, "blocks.15.bn2", size, weights=None)
    records, rows, place = coco.load(folder).records, [], folder / "cache"
    try:
        for count in (min(images), *images):  # the first time compiles
            shutil.rmtree(place, ignore_errors=True)
            began = time.perf_counter()
            cached_features(records[:count], encoder, size, place, progress=False)
            seconds = time.perf_counter() - began
            rows.append({"images": count, "seconds": seconds, "bytes": disk_bytes(place)})
    finally:
        shutil.rmtree(place, ignore_errors=True)
    return rows[1:]


def projected_seconds(
    devices: int, *, captions: int, batch_size: int, step: float, input_batch: float, gradients: float,
    bandwidth: float,
) -> float:  # fmt: skip
    """Seconds of an epoch on several devices, by the formula above.

    Args:
        devices: number of devices `k`.
        captions: captions per epoch.
        batch_size: captions per step and device.
        step: seconds of a training step on one device.
        input_batch: seconds to prepare a batch.
        gradients: bytes of all gradients.
        bandwidth: bytes per second that a device sends.

    Examples:
        >>> projected_seconds(
        ...     2, captions=8000, batch_size=80, step=0.5, input_batch=0.1, gradients=1e8, bandwidth=1e9
        ... )
        30.0
    """
    reduced = 2 * (devices - 1) / devices * gradients / bandwidth
    return captions / (batch_size * devices) * max(step + reduced, input_batch)


def growth(sizes: Sequence[float], values: Sequence[float]) -> float:
    """Exponent of the growth between the first and the last size: 1 is linear.

    Examples:
        >>> growth([10, 100, 1000], [2, 20, 200])
        1.0
    """
    return math.log(max(values[-1], 1e-9) / max(values[0], 1e-9)) / math.log(sizes[-1] / sizes[0])


def measure(
    folder: Path,
    images: int,
    shares: Sequence[Fraction],
    cached: int,
    batch_size: int,
    bandwidth: float,
    step: float | None = None,
) -> dict[str, Any]:
    """Measures data sets of several sizes; see the module.

    Args:
        folder: for the data sets, which stay.
        images: number of images of the largest one.
        shares: of the images in each, in ascending order.
        cached: number of images to encode; also a quarter of them.
        batch_size: captions per batch and device.
        bandwidth: bytes per second that a device sends.
        step: seconds of a training step, if it is not the measured one.
    """
    sizes = []
    for share in shares:
        count = max(1, round(images * share))
        place = folder / str(count)
        make_data_set(place, count)
        steps = _STEPS if share == shares[-1] else 0
        # A process of its own, whose memory is that of these stages.
        with concurrent.futures.ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
            sizes.append(pool.submit(measure_stages, place, batch_size, steps).result())
            if share == shares[-1]:
                cache = pool.submit(measure_cache, place, [max(1, cached // 4), cached]).result()
    largest = sizes[-1]
    about = {
        "captions": largest["captions"],
        "batch_size": batch_size,
        "step": step or largest["step"],
        "input_batch": largest["stages"][STAGES[-1]]["seconds"] / largest["batches"],
        "gradients": largest["gradients"],
        "bandwidth": bandwidth,
    }
    epochs = {devices: projected_seconds(devices, **about) for devices in DEVICES}
    return {"sizes": sizes, "cache": cache, "projection": {**about, "seconds": epochs}}


def show(figures: dict[str, Any], images: int, console: Console) -> None:
    """Prints tables of what `measure` returns."""
    sizes = figures["sizes"]
    counts = [size["images"] for size in sizes]
    table = Table(title=f"batches of {figures['projection']['batch_size']}")
    for heading in ("", *(f"{count:,} images" for count in counts), "growth"):
        table.add_column(heading, justify="right" if heading else "left")
    for stage in STAGES:
        for unit, format in (
            ("seconds", "{:,.1f} s"),
            ("cpu_seconds", "{:,.1f} CPU s"),
            ("megabytes", "{:,.0f} MB"),
        ):
            values = [size["stages"][stage][unit] for size in sizes]
            exponent = "" if unit == "seconds" else f"{growth(counts, values):.2f}"
            name = stage if unit == "seconds" else ""
            table.add_row(name, *map(format.format, values), exponent)
    disk = [size["disk_bytes"] for size in sizes]
    table.add_row("files", *(f"{size / 1e6:,.0f} MB" for size in disk), f"{growth(counts, disk):.2f}")
    console.print(table)
    first, last = figures["cache"][0], figures["cache"][-1]
    # Without what does not depend on the number of images.
    per_image = max(0.0, last["seconds"] - first["seconds"]) / max(1, last["images"] - first["images"])
    size = last["bytes"] / last["images"] * images
    console.print(
        f"Cache of features: {first['images']:,} images in {first['seconds']:.1f} s, {last['images']:,} in"
        f" {last['seconds']:.1f} s; extrapolated to {images:,}: {per_image * images / 60:,.0f} minutes and"
        f" {size / 1e9:.2f} GB."
    )
    about = figures["projection"]
    console.print(
        f"A step of {about['batch_size']:,} captions takes {about['step']:.3f} s, preparing it"
        f" {about['input_batch']:.3f} s; {about['gradients'] / 1e6:.0f} MB of gradients at"
        f" {about['bandwidth'] / 1e9:g} GB/s."
    )
    table = Table(title="projected epoch")
    for heading in ("devices", "seconds", "speedup"):
        table.add_column(heading, justify="right")
    for devices, seconds in about["seconds"].items():
        table.add_row(str(devices), f"{seconds:,.0f}", f"{about['seconds'][1] / seconds:.2f}")
    console.print(table)


def main(argv: Sequence[str] | None = None) -> None:
    """Measures and prints tables.

    Raises:
        InputError: the folder is not writable, or an argument is out of range.
    """
    command = parser(__doc__)
    command.add_argument("folder", type=Path, metavar="FOLDER", help="folder for the data sets")
    for name, metavar, default, meaning in (
        ("images", "N", COCO_IMAGES, "number of images at full size"),
        ("cached", "N", 256, "number of images whose features are computed"),
        ("batch-size", "B", 128, "captions per step and device"),
    ):
        command.add_argument(
            f"--{name}", type=int, metavar=metavar, default=default, help=f"{meaning} (default: {default})"
        )
    command.add_argument(
        "--bandwidth",
        type=float,
        metavar="GB/S",
        default=1.25,
        help="gigabytes per second that a device sends (default: 1.25, 10 Gbit Ethernet)",
    )
    command.add_argument(
        "--step",
        type=float,
        metavar="S",
        help="seconds of a training step, for the projection of other devices (default: measured here)",
    )
    command.add_argument("--json", action="store_true", help="print everything as JSON")
    options: argparse.Namespace = command.parse_args(argv)
    for name in ("images", "cached", "batch_size"):
        check_number(f"--{name.replace('_', '-')}", getattr(options, name), at_least=1)
    check_number("--bandwidth", options.bandwidth, above=0)
    if options.step is not None:
        check_number("--step", options.step, above=0)
    least = 20 * options.batch_size // CAPTIONS_PER_IMAGE
    if options.images < least:
        raise InputError(
            f"--images is {options.images}: use at least {least} for batches of {options.batch_size}, or"
            " smaller batches with --batch-size"
        )
    shares = [Fraction(1, 16), Fraction(1, 4), Fraction(1)]
    bandwidth = 1e9 * options.bandwidth
    figures = measure(
        options.folder, options.images, shares, options.cached, options.batch_size, bandwidth, options.step
    )
    if options.json:
        print(json.dumps(figures))
        return
    show(figures, options.images, Console())


if __name__ == "__main__":
    run(main)
