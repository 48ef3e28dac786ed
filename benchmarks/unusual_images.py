"""python -m benchmarks.unusual_images: is a captioner's confidence right on unusual images?

Writes 100 images with reference captions, 20 of each kind, as FOLDER/captions.jsonl and FOLDER/images/, which
data.kind=table reads (all in the split test, with a key "kind"): drawings, screenshots, pages of text, dark
photographs (night), and synthetic X-rays. Captions them, and prints for each kind and in total the mean
confidence, the share of good captions, the difference of the two, and how many of the captions with a
confidence of at least 50 % are not good; in total also the expected calibration error.

examples:
  python -m benchmarks.unusual_images unusual --photographs COCO_EVERYDAY
  python -m benchmarks.unusual_images unusual --photographs COCO_EVERYDAY --captioner runs/NAME/model.tflite
"""

import io
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageOps
from rich import box
from rich.console import Console
from rich.table import Table

import tfsparsecap as sc
from benchmarks.unusual_drawings import Drawn, Random, drawing
from benchmarks.unusual_photographs import night, x_ray
from benchmarks.unusual_screens import page, screenshot
from tfsparsecap.captioning import data as sources
from tfsparsecap.captioning.data.images import read_image
from tfsparsecap.captioning.data.records import Record
from tfsparsecap.captioning.inference.confidence import NOT_SURE, is_good, reliability
from tfsparsecap.command import only_json_on_stdout, parser, print_json, run
from tfsparsecap.core.files import atomic_write, make_folder
from tfsparsecap.errors import InputError, check_number

#: Images of each kind.
IMAGES = 20
_DRAWN = {"drawing": drawing, "screenshot": screenshot, "page": page, "x-ray": x_ray}
KINDS = ("drawing", "screenshot", "page", "night", "x-ray")
# Longer side of a photograph at night.
_SIDE = 640


@dataclass(frozen=True)
class Captioned:
    """An image's kind and caption, the confidence of the caption, and whether it is good."""

    image: str
    kind: str
    caption: str
    confidence: float
    good: bool


def main(argv: Sequence[str] | None = None) -> None:
    """Writes the images, captions them and prints a table.

    Raises:
        InputError: a folder is missing, there are too few photographs, or the captioner gives no confidence.
    """
    command = parser(__doc__)
    command.add_argument("folder", type=Path, metavar="FOLDER", help="where to write the images")
    command.add_argument(
        "--photographs",
        type=Path,
        required=True,
        metavar="FOLDER",
        help="table of photographs: its test split",
    )
    command.add_argument("--captioner", default="good", metavar="FILE", help="good, small or FILE.tflite")
    command.add_argument("--seed", type=int, default=0, metavar="N", help="of the images (default: 0)")
    command.add_argument("--json", action="store_true", help="print all figures and captions as JSON")
    options = command.parse_args(argv)
    check_number("--seed", options.seed, at_least=0)
    with only_json_on_stdout(options.json):
        captioner = sc.load(options.captioner)
        write_images(options.folder, sources.load("table", options.photographs).split("test"), options.seed)
        images = caption(captioner, options.folder)
        result = figures(images)
        if not options.json:
            Console().print(table(f"Captions of {options.captioner}", result))
            error, chance = (result["total"][name] for name in ("calibration_error", "chance"))
            print(f"calibration error of all captions: {error:.3f} ({chance:.3f} by chance)")
    if options.json:
        print_json(
            {"captioner": options.captioner, **result, "captions": [vars(image) for image in images]},
            indent=1,
        )


def write_images(folder: Path, photographs: Sequence[Record], seed: int = 0) -> None:
    """Writes `captions.jsonl` and the images, `IMAGES` of each kind, which are the same for the same seed.

    Args:
        folder: created if missing.
        photographs: with captions; some of them are made dark.
        seed: of everything that is random.

    Raises:
        InputError: there are fewer photographs than `IMAGES`, one cannot be read, or a file not be written.
    """
    if len(photographs) < IMAGES:
        raise InputError(
            f"there are {len(photographs)} test photographs with captions: give at least {IMAGES}"
        )
    rows = []
    for kind, number, (image, references) in _images(photographs, seed):
        lossless = kind in ("drawing", "screenshot")
        name, buffer = f"images/{kind}/{number:02}.{'png' if lossless else 'jpg'}", io.BytesIO()
        image.save(buffer, "PNG" if lossless else "JPEG", quality=90)
        make_folder((folder / name).parent)
        atomic_write(folder / name, buffer.getvalue())
        rows.append({"image": name, "captions": references, "split": "test", "kind": kind})
    atomic_write(
        folder / "captions.jsonl", "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    )


def _images(photographs: Sequence[Record], seed: int) -> Iterator[tuple[str, int, Drawn]]:
    """Kind, number, image and references of all images."""
    for index, kind in enumerate(KINDS):
        chosen = np.random.default_rng([seed, index]).permutation(len(photographs))
        for number in range(IMAGES):
            random = np.random.default_rng([seed, index, number])
            drawn = (
                _DRAWN[kind](number, random) if kind in _DRAWN else _dark(photographs[chosen[number]], random)
            )
            yield kind, number, drawn


def _dark(record: Record, random: Random) -> Drawn:
    pixels = Image.fromarray(read_image(record.image, _SIDE))
    with Image.open(record.image) as image:
        size = ImageOps.contain(ImageOps.exif_transpose(image), (_SIDE, _SIDE)).size
    texts = [text.rstrip(" .") for text in record.captions]
    return night(pixels.resize(size), random), [*texts, *(f"{text} at night" for text in texts)]


def caption(captioner: Any, folder: Path) -> list[Captioned]:
    """The best captions of the images that `write_images` wrote.

    Raises:
        InputError: the captioner gives no confidence, or takes no images.
    """
    rows = [json.loads(line) for line in (folder / "captions.jsonl").read_text(encoding="utf-8").splitlines()]
    images = []
    for row, captions in zip(rows, captioner.stream([folder / row["image"] for row in rows]), strict=True):
        if captions.error is not None:
            raise captions.error
        # A search may find none, which is neither sure nor good.
        text, confidence = (captions[0].text, captions[0].confidence) if captions else ("", 0.0)
        if confidence is None:
            raise InputError(
                f"the captions of {captioner.label} have no confidence: give a .tflite file that"
                " tfsparsecap-export wrote with validation images"
            )
        good = is_good(text, row["captions"])
        images.append(Captioned(row["image"], row["kind"], text, confidence, good))
    return images


def figures(images: Sequence[Captioned]) -> dict[str, Any]:
    """The figures of each kind (`kinds`) and of all captions (`total`).

    Returns:
        For each: `images`; `confidence`, the mean; `good`, the share of good captions; `difference`,
        |confidence - good|; `sure`, the number of captions with a confidence of at least `NOT_SURE`;
        `sure_not_good`, how many of them are not good. `total` also has the `calibration_error`, and
        what it is by `chance` if the confidences are right.
    """
    kinds = {
        kind: _row([image for image in images if image.kind == kind])
        for kind in dict.fromkeys(image.kind for image in images)
    }
    calibration = reliability([image.confidence for image in images], [image.good for image in images])
    errors = {"calibration_error": calibration["error"], "chance": calibration["chance"]}
    return {"kinds": kinds, "total": {**_row(images), **errors}}


def _row(images: Sequence[Captioned]) -> dict[str, float]:
    confidence = sum(image.confidence for image in images) / len(images)
    good = sum(image.good for image in images) / len(images)
    sure = [image for image in images if image.confidence >= NOT_SURE]
    row = {
        "images": len(images),
        "confidence": confidence,
        "good": good,
        "difference": abs(confidence - good),
    }
    return {**row, "sure": len(sure), "sure_not_good": sum(not image.good for image in sure)}


def table(title: str, result: dict[str, Any]) -> Table:
    """What `figures` returns, one row for each kind and the last for all."""
    shown = Table(title=title, box=box.SIMPLE_HEAD, title_justify="left")
    shown.add_column("images")
    for name in ("", "mean confidence", "good", "difference", f"not good, of those at ≥ {NOT_SURE:.0%}"):
        shown.add_column(name, justify="right")
    for kind, row in {**result["kinds"], "total": result["total"]}.items():
        shares = [f"{row[name]:.0%}" for name in ("confidence", "good", "difference")]
        wrong, sure = row["sure_not_good"], row["sure"]
        share = f" ({wrong / sure:.0%})" if sure else ""
        shown.add_row(kind, str(row["images"]), *shares, f"{wrong} of {sure}{share}")
    return shown


if __name__ == "__main__":
    run(main)
