"""python -m benchmarks.input_stream: memory and time of streaming region features.

Writes random region features to FOLDER (1.6 GB by default), streams them as a training does, and prints
time and memory of each epoch.

examples:
  python -m benchmarks.input_stream features
      100 000 images, two epochs, minutes
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
from tfsparsecap.errors import InputError, check_number

_CAPTION = "a man riding a horse on a beach"


def make_files(folder: Path, images: int, size: int, seed: int = 0) -> list[str]:
    """Writes random bottom-up features of 10 to 30 regions per image, and returns the ids of the images.

    Args:
        folder: `cocobu_att/` and `cocobu_box_relative/` are created in it; existing files are kept.
        images: number of images.
        size: length of a region feature, float16.
        seed: of the random numbers.
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
    """Streams all images as a training does.

    Args:
        folder: as written by `make_files`.
        ids: of the images.
        batch_size: images per batch.
        epochs: how often all images are read.

    Returns:
        A dictionary per stage: its name, its `seconds`, and the `memory` of the process after it in MB.
    """
    from tfsparsecap.captioning.data.image_sources import RegionFeatureSource
    from tfsparsecap.captioning.data.pipeline import training_batches
    from tfsparsecap.captioning.data.records import Record
    from tfsparsecap.captioning.data.region_features import RegionFeatures
    from tfsparsecap.captioning.data.tokenizers import WordTokenizer

    stages, began = [], time.perf_counter()

    def end_stage(name: str) -> None:
        nonlocal began
        memory, now = psutil.Process().memory_info().rss / 1e6, time.perf_counter()
        stages.append({"stage": name, "seconds": now - began, "memory": memory})
        began = now

    tokenizer = WordTokenizer.from_captions([_CAPTION])
    records = [Record(image_id, Path(f"{image_id}.jpg"), (_CAPTION,), "train") for image_id in ids]
    end_stage("TensorFlow and records")
    source = RegionFeatureSource(RegionFeatures(folder, ids, need_boxes=True, need_pooled=False))
    end_stage("index")
    batches = training_batches(source, records, tokenizer, batch_size=batch_size, max_length=10)
    for epoch in range(epochs):
        for _ in tqdm(batches.epoch(epoch), total=batches.steps_per_epoch, desc="streaming", leave=False):
            pass
        end_stage(f"epoch {epoch + 1}")
    return stages


def main(argv: Sequence[str] | None = None) -> None:
    """Measures and prints a table.

    Raises:
        InputError: the folder is not writable, or an argument is out of range.
    """
    command = parser(__doc__)
    command.add_argument("folder", type=Path, metavar="FOLDER", help="folder of the files; created if absent")
    for name, metavar, default, meaning in (
        ("images", "N", 100_000, "number of images"),
        ("size", "D", 256, "length of a region feature"),
        ("batch-size", "B", 64, "images per batch"),
        ("epochs", "E", 2, "epochs"),
    ):
        command.add_argument(
            f"--{name}", type=int, metavar=metavar, default=default, help=f"{meaning} (default: {default})"
        )
    command.add_argument("--json", action="store_true", help="print the stages as JSON")
    options: argparse.Namespace = command.parse_args(argv)
    for name in ("images", "size", "batch_size", "epochs"):
        check_number(f"--{name.replace('_', '-')}", getattr(options, name), at_least=1)
    try:
        ids = make_files(options.folder, options.images, options.size)
    except (FileExistsError, NotADirectoryError) as error:
        raise InputError(f"cannot write to {options.folder}: it is a file; give a folder") from error
    start_tensorflow()
    stages = stream(options.folder, ids, options.batch_size, options.epochs)
    if options.json:
        print(json.dumps(stages))
        return
    table = Table(title=f"{options.images} images, batches of {options.batch_size}")
    for name in ("", "seconds", "memory (MB)"):
        table.add_column(name, justify="left" if not name else "right")
    for row in stages:
        table.add_row(row["stage"], f"{row['seconds']:.1f}", f"{row['memory']:.0f}")
    Console().print(table)


if __name__ == "__main__":
    run(main)
