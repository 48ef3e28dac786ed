"""A contact sheet: images with their captions in one PNG file."""

import io
import os
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from PIL import Image

from tfsparsecap.captioning.data.images import read_image
from tfsparsecap.captioning.plotting import shortened
from tfsparsecap.core.files import atomic_write

_BLACK, _GREY, _GREEN, _RED = "#202124", "#6e7176", "#168039", "#c42b1c"
# Pixels; characters in a line of text below an image.
_SIDE, _GAP, _DPI, _LINE = 200, 22, 100, 29


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
        InputError: an image cannot be read, or the file cannot be written.

    Examples:
        >>> keras.utils.save_img("dog.png", np.zeros((8, 8, 3)))
        >>> draw_sheet([CaptionedImage(Path("dog.png"), "a dog runs")], "sheet.png", title="One image")
    """
    from matplotlib.figure import Figure

    columns = min(columns, len(images))
    heading, below = textwrap.wrap(title, 16 * columns), textwrap.wrap(subtitle, 27 * columns)
    width, top = _GAP + columns * (_SIDE + _GAP), _GAP + 27 * len(heading) + 20 * len(below) + 10
    texts = [_caption(image) for image in images]
    rows = [slice(start, start + columns) for start in range(0, len(images), columns)]
    heights = [_SIDE + 10 + 17 * max(len(lines) for lines, _ in texts[row]) + _GAP for row in rows]
    height = top + sum(heights)
    figure = Figure(figsize=(width / _DPI, height / _DPI), dpi=_DPI)

    def write(x: int, y: int, lines: list[str], size: float, colour: str, **style) -> None:
        text = "\n".join(map(shortened, lines))
        figure.text(x / width, 1 - y / height, text, fontsize=size, color=colour, va="top", **style)

    write(_GAP, _GAP, heading, 15, _BLACK, fontweight="bold")
    write(_GAP, _GAP + 27 * len(heading), below, 10.5, _GREY)
    for row, row_height in zip(rows, heights, strict=True):
        for column, (image, (lines, colour)) in enumerate(zip(images[row], texts[row], strict=True)):
            x = _GAP + column * (_SIDE + _GAP)
            box = (x / width, 1 - (top + _SIDE) / height, _SIDE / width, _SIDE / height)
            axes = figure.add_axes(box, frameon=False, xticks=[], yticks=[])
            axes.imshow(read_image(image.image, _SIDE))
            write(x, top + _SIDE + 8, lines, 9.5, colour)
        top += row_height
    content = io.BytesIO()
    figure.savefig(content, format="png", dpi=_DPI)
    # A palette of 256 colours takes a third of the bytes and looks the same at this size.
    palette = Image.open(content).convert("RGB").quantize(256, dither=Image.Dither.NONE)
    written = io.BytesIO()
    palette.save(written, "PNG", optimize=True)
    atomic_write(path, written.getvalue())


def _caption(image: CaptionedImage) -> tuple[list[str], str]:
    """Lines of text below an image, and their colour."""
    mark, colour = {None: ("", _BLACK), True: ("✓ ", _GREEN), False: ("✗ ", _RED)}[image.correct]
    lines = textwrap.wrap(mark + (image.caption or "(no caption)"), _LINE)
    if image.correct is False and image.reference:
        lines += textwrap.wrap(f"(reference: {image.reference})", _LINE)
    return lines, colour
