"""Pictures with what a captioner says about them, side by side on one sheet to look at."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import matplotlib
from PIL import Image, ImageDraw, ImageFont

from tfsparsecap.data.images import read_image
from tfsparsecap.errors import InputError
from tfsparsecap.files import atomic_path

_PAPER, _INK, _FAINT = (255, 255, 255), (32, 33, 36), (110, 113, 118)
# Told apart by their form as well, for those who do not see the colours apart.
_RIGHT, _WRONG = (22, 128, 57), (196, 43, 28)
_SIDE, _GAP, _MARK = 200, 22, 15


@dataclass(frozen=True)
class Captioned:
    """A picture and what was said about it.

    Attributes:
        image: file of the picture.
        caption: what the captioner says.
        right: whether that is right; None where nobody can tell, and no mark is drawn.
        reference: what a person says; shown where the caption is wrong.
    """

    image: Path
    caption: str
    right: bool | None = None
    reference: str = ""


def draw_sheet(
    pictures: Sequence[Captioned],
    path: str | os.PathLike,
    *,
    title: str,
    subtitle: str = "",
    columns: int = 4,
) -> None:
    """Writes the pictures as a PNG, row by row, each over its caption and marked right or wrong.

    Args:
        pictures: any number, at least one. They are squashed to squares, which is how a captioner sees them.
        path: the file; what is there is replaced whole or not at all.
        title, subtitle: lines over the pictures.
        columns: pictures in a row, at least 1.

    Raises:
        InputError: there is no picture, one cannot be read, or the file cannot be written.

    Example:
        >>> draw_sheet([Captioned(Path("dog.jpg"), "a dog runs on grass")], "sheet.png", title="One picture")
    """
    if not pictures or columns < 1:
        raise InputError(
            f"cannot draw {len(pictures)} pictures in {columns} columns: give at least one of each"
        )
    columns = min(columns, len(pictures))
    words, small, large = _font(14), _font(12), _font(20, bold=True)
    said = [_wrapped(picture.caption or "(nothing)", words, _SIDE - _MARK - 6) for picture in pictures]
    meant = [
        _wrapped(f"it is {picture.reference}", small, _SIDE - _MARK - 6)
        if picture.right is False and picture.reference
        else []
        for picture in pictures
    ]
    rows = [slice(start, start + columns) for start in range(0, len(pictures), columns)]
    heights = [
        _SIDE + 8 + max(19 * len(a) + 16 * len(b) for a, b in zip(said[row], meant[row], strict=True)) + _GAP
        for row in rows
    ]
    width = _GAP + columns * (_SIDE + _GAP)
    heading = _wrapped(title, large, width - 2 * _GAP)
    below = _wrapped(subtitle, words, width - 2 * _GAP) if subtitle else []
    top = _GAP + 27 * len(heading) + 20 * len(below) + 12

    sheet = Image.new("RGB", (width, top + sum(heights)), _PAPER)
    draw = ImageDraw.Draw(sheet)
    _write(draw, (_GAP, _GAP - 4), heading, large, 27, _INK)
    _write(draw, (_GAP, _GAP + 27 * len(heading)), below, words, 20, _FAINT)
    for row, height in zip(rows, heights, strict=True):
        for column, index in enumerate(range(*row.indices(len(pictures)))):
            x, y = _GAP + column * (_SIDE + _GAP), top
            sheet.paste(Image.fromarray(read_image(pictures[index].image, _SIDE)), (x, y))
            y += _SIDE + 8
            if pictures[index].right is not None:
                _mark(draw, x, y + 2, pictures[index].right)
            _write(draw, (x + _MARK + 6, y), said[index], words, 19, _INK)
            _write(draw, (x + _MARK + 6, y + 19 * len(said[index])), meant[index], small, 16, _FAINT)
        top += height
    # 256 colours are a third of the bytes and look the same at this size.
    with atomic_path(path) as temporary:
        sheet.quantize(256, dither=Image.Dither.NONE).save(temporary, "PNG", optimize=True)


def _font(size: int, bold: bool = False) -> ImageFont.FreeTypeFont:
    """DejaVu, which matplotlib brings along: it has the letters of most languages."""
    name = "DejaVuSans-Bold.ttf" if bold else "DejaVuSans.ttf"
    return ImageFont.truetype(Path(matplotlib.get_data_path()) / "fonts" / "ttf" / name, size)


def _wrapped(text: str, font: ImageFont.FreeTypeFont, width: int) -> list[str]:
    """Lines no wider than `width` pixels, broken between words, or inside a word that is wider itself."""
    lines = [""]
    for word in text.split():
        if lines[-1] and font.getlength(f"{lines[-1]} {word}") <= width:
            lines[-1] += f" {word}"
            continue
        if lines[-1]:
            lines.append("")
        for letter in word:
            if lines[-1] and font.getlength(lines[-1] + letter) > width:
                lines.append("")
            lines[-1] += letter
    return lines


def _write(
    draw: ImageDraw.ImageDraw, place: tuple[int, int], lines: list[str], font, step: int, colour
) -> None:
    for number, line in enumerate(lines):
        draw.text((place[0], place[1] + number * step), line, fill=colour, font=font)


def _mark(draw: ImageDraw.ImageDraw, x: int, y: int, right: bool) -> None:
    """A tick or a cross."""
    if right:
        draw.line([(x + 1, y + 7), (x + 5, y + 12), (x + 13, y + 1)], fill=_RIGHT, width=3, joint="curve")
    else:
        draw.line([(x + 2, y + 2), (x + 12, y + 12)], fill=_WRONG, width=3)
        draw.line([(x + 12, y + 2), (x + 2, y + 12)], fill=_WRONG, width=3)
