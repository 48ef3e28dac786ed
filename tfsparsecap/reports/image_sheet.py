"""A contact sheet: images with their captions in one PNG file."""

import io
import os
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from PIL import Image

from tfsparsecap.data.images import read_image
from tfsparsecap.errors import InputError
from tfsparsecap.files import atomic_write
from tfsparsecap.plotting import plain

_BLACK, _GREY, _GREEN, _RED = "#202124", "#6e7176", "#168039", "#c42b1c"
_SIDE, _DPI = 200, 100
# Characters in a line of text below an image.
_LINE = 27


@dataclass(frozen=True)
class CaptionedImage:
    """An image and its caption.

    Attributes:
        image: the image file.
        caption: the captioner's.
        correct: whether the caption is correct; None draws no mark.
        reference: a reference caption, shown if the caption is wrong.
    """

    image: Path
    caption: str
    correct: bool | None = None
    reference: str = ""


def draw_sheet(
    images: Sequence[CaptionedImage],
    path: str | os.PathLike,
    *,
    title: str,
    subtitle: str = "",
    columns: int = 4,
) -> None:
    """Writes a PNG with the images, each above its caption, marked correct or wrong.

    Args:
        images: at least one; they are resized to squares, as for the captioner.
        path: the file.
        title, subtitle: above the images.
        columns: images in a row, at least 1.

    Raises:
        InputError: there is no image, one cannot be read, or the file cannot be written.

    Example:
        >>> draw_sheet([CaptionedImage(Path("dog.jpg"), "a dog runs")], "sheet.png", title="One image")
    """
    from matplotlib.figure import Figure

    if not images or columns < 1:
        raise InputError(f"cannot draw {len(images)} images in {columns} columns: give at least one of each")
    columns = min(columns, len(images))
    texts = [_caption(image) for image in images]
    rows = -(-len(images) // columns)
    lines = [
        max(text.count("\n") for text, _ in texts[start : start + columns]) + 1
        for start in range(0, len(images), columns)
    ]
    heading = "\n".join(map(plain, textwrap.wrap(title, 20 * columns)))
    below = "\n".join(map(plain, textwrap.wrap(subtitle, 28 * columns)))
    height = (
        rows * (_SIDE + 20) + 18 * sum(lines) + 30 * heading.count("\n") + 20 * below.count("\n") + 90
    ) / _DPI
    figure = Figure(figsize=(columns * (_SIDE + 22) / _DPI, height), layout="constrained")
    figure.suptitle(heading, fontsize=15, fontweight="bold", color=_BLACK)
    grid = figure.subplots(
        rows, columns, squeeze=False, height_ratios=[_SIDE + 18 * count for count in lines]
    )
    for axes in grid.flat:
        axes.set_axis_off()
    for axes, image, (text, colour) in zip(grid.flat, images, texts, strict=False):
        axes.imshow(read_image(image.image, _SIDE))
        axes.text(0, -0.03, text, transform=axes.transAxes, fontsize=9.5, va="top", color=colour)
    if below:
        grid[0, 0].set_title(below, loc="left", fontsize=10.5, color=_GREY, pad=10)
    content = io.BytesIO()
    figure.savefig(content, format="png", dpi=_DPI)
    # A palette of 256 colours takes a third of the bytes and looks the same at this size.
    palette, written = (
        Image.open(content).convert("RGB").quantize(256, dither=Image.Dither.NONE),
        io.BytesIO(),
    )
    palette.save(written, "PNG", optimize=True)
    atomic_write(path, written.getvalue())


def _caption(image: CaptionedImage) -> tuple[str, str]:
    """Text below an image, and its colour."""
    mark, colour = {None: ("", _BLACK), True: ("✓ ", _GREEN), False: ("✗ ", _RED)}[image.correct]
    lines = textwrap.wrap(mark + (image.caption or "(no caption)"), _LINE)
    if image.correct is False and image.reference:
        lines += textwrap.wrap(f"(reference: {image.reference})", _LINE)
    return "\n".join(map(plain, lines)), colour
