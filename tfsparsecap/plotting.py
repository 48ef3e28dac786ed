"""What all figures share: colours, labels, and output as PNG and SVG."""

import io
import math
import os
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from tfsparsecap.errors import InputError
from tfsparsecap.files import atomic_write
from tfsparsecap.text import one_line

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: The colours of Okabe and Ito, which people with red-green colour blindness can distinguish.
VERMILLION, BLUE, GREEN, ORANGE = "#D55E00", "#0072B2", "#009E73", "#E69F00"
SKY, PURPLE, BLACK = "#56B4E9", "#CC79A7", "#000000"
COLOURS = (VERMILLION, BLUE, GREEN, ORANGE, SKY, PURPLE, BLACK)
LIGHT_GREY, DARK_GREY = "#B0B0B0", "#404040"
#: Inches; with it, text of 11 points is readable when the image is shown 800 pixels wide.
WIDTH = 8.0
_DPI = 200


def plain(text: str) -> str:
    """One line of text that matplotlib draws as it is: dollar signs do not start a formula."""
    return one_line(text).replace("$", r"\$")


def png_path(path: str | os.PathLike) -> Path:
    """Raises InputError unless `path` is a .png file in an existing folder."""
    path = Path(path)
    if path.suffix.lower() != ".png":
        raise InputError(f"{path} does not end in .png: name a .png file, an .svg file is written beside it")
    if not path.parent.is_dir():
        raise InputError(f"there is no folder {path.parent} for {path.name}: create it first")
    return path


def make_figure(height: float) -> "Figure":
    """A figure of width `WIDTH` and the given height in inches; title and legend are added to the height."""
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    return Figure(figsize=(WIDTH, height), layout=ConstrainedLayoutEngine(w_pad=0.08, h_pad=0.08))


def style_axes(axes: "Axes", grid: Literal["both", "x", "y"] = "both") -> None:
    """A light grid behind the data, and no frame at the top and right."""
    axes.grid(axis=grid, alpha=0.3, linewidth=0.6)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


def legend_below(figure: "Figure", artists: Mapping[str, "Artist"]) -> None:
    """A legend of artists by label below all panels, with as many columns as fit."""
    # Matplotlib leaves out labels that begin with an underscore.
    labels = [shortened(" " * label.startswith("_") + plain(label), 80) for label in artists]
    columns = min(len(labels), max(1, int(WIDTH / (0.6 + 0.075 * max(map(len, labels))))))
    figure.set_figheight(figure.get_figheight() + 0.3 + 0.19 * math.ceil(len(labels) / columns))
    figure.legend(
        [*artists.values()], labels, loc="outside lower center", ncols=columns, fontsize=9.5, frameon=False
    )


def shortened(text: str, length: int) -> str:
    """Text cut to a number of characters."""
    return text if len(text) <= length else text[: length - 1] + "…"


def render(figure: "Figure", title: str, description: str) -> dict[str, bytes]:
    """The figure as image files; equal figures give equal bytes.

    Args:
        title: above the figure; "" for none.
        description: for screen readers; stored in the files' metadata.

    Returns:
        Content by suffix, ".png" and ".svg".
    """
    import matplotlib

    headings = textwrap.wrap(one_line(title), 75)
    if headings:
        figure.set_figheight(figure.get_figheight() + 0.25 * len(headings))
        figure.suptitle("\n".join(map(plain, headings)))
    metadata = {"Title": one_line(title), "Description": one_line(description)}
    files = {}
    # Text remains text in the SVG, so that it can be searched and read aloud.
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "tfsparsecap"}):
        for suffix, more in ((".png", {}), (".svg", {"Date": None})):
            content = io.BytesIO()
            figure.savefig(content, format=suffix[1:], dpi=_DPI, metadata={**metadata, **more})
            files[suffix] = content.getvalue()
    return files


def write_figure(figure: "Figure", path: Path, title: str, description: str) -> list[Path]:
    """Writes what `render` returns, each file atomically.

    Args:
        path: of the .png file; the .svg file is written beside it.

    Returns:
        The two files.
    """
    paths = [path, path.with_suffix(".svg")]
    for file, content in zip(paths, render(figure, title, description).values(), strict=True):
        atomic_write(file, content)
    return paths
