"""Synthetic files in the layout of MS-COCO, of any number of images."""

import json
import os
from pathlib import Path

import numpy as np
from PIL import Image

from tfsparsecap.errors import InputError

#: Images of MS-COCO in Karpathy's splits, and captions per image.
COCO_IMAGES, CAPTIONS_PER_IMAGE = 123_287, 5
#: A file system may allow 65 000 links of a file, or none.
_LINKS_PER_FILE = 10_000
_WORDS = 25_000  # different words in the captions of MS-COCO


def make_data_set(folder: Path, images: int, seed: int = 0) -> None:
    """Writes `dataset_coco.json` and `val2014/COCO_val2014_….jpg`; an existing data set is kept.

    One photograph of noise is linked under up to 10 000 names. Captions have 8 to 13 words, whose frequencies
    fall with their rank as in a language. 4 % of the images are for validation and 4 % for test.

    Args:
        folder: created if it is missing.
        images: number of images.
        seed: of the random numbers.

    Raises:
        InputError: the folder cannot be written.
    """
    file, photographs = folder / "dataset_coco.json", folder / "val2014"
    if file.exists():
        return
    try:
        photographs.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"cannot write to {folder}: {error.strerror}; give another folder") from error
    random = np.random.default_rng(seed)
    words = np.array([f"w{number:x}" for number in range(_WORDS)])
    probabilities = 1 / np.arange(1, _WORDS + 1)
    drawn = random.choice(words, (images, CAPTIONS_PER_IMAGE, 13), p=probabilities / probabilities.sum())
    lengths = random.integers(8, 14, (images, CAPTIONS_PER_IMAGE))
    splits = random.choice(["train", "restval", "val", "test"], images, p=[0.67, 0.25, 0.04, 0.04])
    entries = []
    for number in range(images):
        name = f"COCO_val2014_{number:012d}.jpg"
        _link(photographs, name, number, random)
        sentences = [
            {
                "raw": " ".join(drawn[number, i, : lengths[number, i]]),
                "imgid": number,
                "sentid": 5 * number + i,
            }
            for i in range(CAPTIONS_PER_IMAGE)
        ]
        entries.append(
            {
                "filepath": "val2014",
                "filename": name,
                "cocoid": number,
                "imgid": number,
                "split": str(splits[number]),
                "sentences": sentences,
            }
        )
    partial = file.with_suffix(".partial")
    partial.write_text(json.dumps({"images": entries, "dataset": "coco"}), encoding="utf-8")
    partial.rename(file)


def disk_bytes(folder: Path) -> int:
    """Bytes of the files in a folder on the disk; linked files count once."""
    seen = {}
    for place, _, names in os.walk(folder):
        for name in names:
            status = os.stat(os.path.join(place, name))
            seen[status.st_dev, status.st_ino] = status.st_blocks * 512
    return sum(seen.values())


def _link(folder: Path, name: str, number: int, random: np.random.Generator) -> None:
    """Another name for the current photograph, or a new photograph of 640 x 480 pixels."""
    path, first = (
        folder / name,
        folder / f"COCO_val2014_{number // _LINKS_PER_FILE * _LINKS_PER_FILE:012d}.jpg",
    )
    if path.exists():
        return
    if number % _LINKS_PER_FILE:
        os.link(first, path)
        return
    colours = Image.fromarray(random.integers(0, 256, (24, 32, 3), np.uint8))
    colours.resize((640, 480), Image.Resampling.BICUBIC).save(path, quality=90)
