"""python -m benchmarks.input_stream: what memory streamed region features take, and what time.

It makes files of its own, as many as asked for, and trains nothing.
"""

import argparse
import json
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import psutil
from rich.console import Console
from rich.table import Table
from tqdm import tqdm

from tfsparsecap.command import parser, run, start_tensorflow
from tfsparsecap.errors import InputError

_CAPTION = "a man riding a horse on a beach"


def make_files(folder: Path, images: int, size: int, seed: int = 0) -> list[str]:
    """Writes made-up bottom-up features, of 10 to 30 regions an image, and returns the images' ids.

    Args:
        folder: gets `cocobu_att/` and `cocobu_box_relative/`; files that are there are left as they are.
        images: how many.
        size: length of a feature, float16.
        seed: of the numbers.
    """
    random = np.random.default_rng(seed)
    for name in ("cocobu_att", "cocobu_box_relative"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    ids = [str(number) for number in range(images)]
    for image_id in tqdm(ids, desc="writing", unit="image", delay=3, leave=False):
        path = folder / "cocobu_att" / f"{image_id}.npy"
        if path.exists():
            continue
        regions = int(random.integers(10, 31))
        boxes = np.sort(random.random((regions, 2, 2), dtype=np.float32), axis=1).reshape(regions, 4)
        np.save(folder / "cocobu_box_relative" / f"{image_id}.npy", boxes)
        np.save(path, random.random((regions, size), dtype=np.float32).astype(np.float16))
    return ids


def stream(folder: Path, ids: Sequence[str], batch_size: int, epochs: int) -> list[dict]:
    """Streams all images as a training does, and measures what the process holds on the way.

    Args:
        folder: as `make_files` wrote it.
        ids: of the images.
        batch_size: images of a batch.
        epochs: how often all are read.

    Returns:
        For each stage its name, `seconds`, and `memory`, MB that the process holds after it.
    """
    from tfsparsecap.data.image_sources import RegionFeatureSource
    from tfsparsecap.data.pipeline import training_batches
    from tfsparsecap.data.records import Record
    from tfsparsecap.data.region_features import RegionFeatures
    from tfsparsecap.data.tokenizers import WordTokenizer

    stages = []

    def stage(name: str, began: float) -> None:
        memory = psutil.Process().memory_info().rss / 1e6
        stages.append({"stage": name, "seconds": time.perf_counter() - began, "memory": memory})

    began = time.perf_counter()
    tokenizer = WordTokenizer.from_captions([_CAPTION])
    records = [Record(image_id, Path(f"{image_id}.jpg"), (_CAPTION,), "train") for image_id in ids]
    stage("TensorFlow and records", began)
    began = time.perf_counter()
    features = RegionFeatures(folder, ids, need_boxes=True, need_pooled=False)
    stage("index", began)
    batches = training_batches(
        RegionFeatureSource(features), records, tokenizer, batch_size=batch_size, max_length=10
    )
    for epoch in range(epochs):
        began = time.perf_counter()
        bar = tqdm(batches.epoch(epoch), total=batches.steps_per_epoch, desc="streaming", leave=False)
        for inputs, _ in bar:
            assert inputs["features"].shape[0] == batch_size
        stage(f"epoch {epoch + 1}", began)
    return stages


def main(argv: Sequence[str] | None = None) -> None:
    """Measures as the command line says and prints a table.

    Raises:
        InputError: the folder cannot be written, or an argument is out of range.
    """
    command = parser(
        "python -m benchmarks.input_stream",
        "Writes made-up region features into FOLDER (100 000 images of 256 numbers a region: 1.6 GB),\n"
        "streams them as a training does, and says what memory the process holds after each epoch.",
        [("python -m benchmarks.input_stream features", "100 000 images, two epochs, minutes")],
    )
    command.add_argument("folder", type=Path, metavar="FOLDER", help="where the files go; made if absent")
    command.add_argument("--images", type=int, default=100_000, metavar="N", help="(default: 100000)")
    command.add_argument("--size", type=int, default=256, metavar="D", help="of a feature (default: 256)")
    command.add_argument("--batch-size", type=int, default=64, metavar="B", help="(default: 64)")
    command.add_argument("--epochs", type=int, default=2, metavar="E", help="(default: 2)")
    command.add_argument("--json", action="store_true", help="print the stages as JSON")
    given: argparse.Namespace = command.parse_args(argv)
    for name in ("images", "size", "batch_size", "epochs"):
        if getattr(given, name) < 1:
            raise InputError(f"--{name.replace('_', '-')} is {getattr(given, name)}: give at least 1")
    try:
        ids = make_files(given.folder, given.images, given.size)
    except (FileExistsError, NotADirectoryError) as error:
        raise InputError(f"cannot write into {given.folder}: it is a file; give a folder") from error
    start_tensorflow()
    stages = stream(given.folder, ids, given.batch_size, given.epochs)
    if given.json:
        print(json.dumps(stages))
        return
    table = Table(title=f"{given.images} images, batches of {given.batch_size}")
    for name in ("", "seconds", "MB held"):
        table.add_column(name, justify="left" if not name else "right")
    for row in stages:
        table.add_row(row["stage"], f"{row['seconds']:.1f}", f"{row['memory']:.0f}")
    Console().print(table)


if __name__ == "__main__":
    run(main)
