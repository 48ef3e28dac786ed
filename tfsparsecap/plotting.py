"""Pictures that runs and studies are shown in: colours, labels, a PNG and an SVG of each."""

import math
import os
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING

from tfsparsecap.errors import InputError
from tfsparsecap.files import atomic_path
from tfsparsecap.text import one_line

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: Okabe and Ito's colours, which people who confuse red and green tell apart.
VERMILLION, BLUE, GREEN, ORANGE = "#D55E00", "#0072B2", "#009E73", "#E69F00"
SKY, PURPLE, BLACK = "#56B4E9", "#CC79A7", "#000000"
COLOURS = (VERMILLION, BLUE, GREEN, ORANGE, SKY, PURPLE, BLACK)
FAINT, INK = "#B0B0B0", "#404040"
#: Inches, so that eleven points are readable where the picture is shown 800 pixels wide.
WIDTH = 8.0
_DPI = 200


def plain(text: str) -> str:
    """One line of a label that is drawn as it is: dollars start no formula."""
    return one_line(text).replace("$", r"\$")


def png_path(path: str | os.PathLike) -> Path:
    """Raises InputError where no picture can be written to `path`."""
    path = Path(path)
    if path.suffix.lower() != ".png":
        raise InputError(f"{path} is not named as a PNG: name a .png file, an .svg is written beside it")
    if not path.parent.is_dir():
        raise InputError(f"there is no folder {path.parent} for {path.name}: make it first")
    return path


def make_figure(height: float) -> "Figure":
    """A figure that is `WIDTH` wide and `height` high, in inches; title and legend make it higher."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(WIDTH, height), layout="constrained")
    figure.get_layout_engine().set(w_pad=0.08, h_pad=0.08)
    return figure


def legend_below(figure: "Figure", handles: list, labels: list[str]) -> None:
    """A legend under all panels, in as many columns as its labels leave room for."""
    # Matplotlib leaves out what begins with an underscore.
    labels = [shortened(f" {label}" if label.startswith("_") else label, 80) for label in labels]
    columns = min(len(labels), max(1, int(WIDTH / (0.6 + 0.075 * max(map(len, labels))))))
    figure.set_figheight(figure.get_figheight() + 0.3 + 0.19 * math.ceil(len(labels) / columns))
    figure.legend(
        handles, labels, loc="outside lower center", ncols=columns, fontsize=9.5, frameon=False
    )  # fmt: skip


def shortened(text: str, most: int) -> str:
    """Text of at most so many letters."""
    return text if len(text) <= most else text[: most - 1] + "…"


def write_figure(figure: "Figure", path: Path, title: str, description: str) -> list[Path]:
    """Writes a figure as a PNG and as an SVG beside it, each whole or not at all.

    Equal figures give equal files.

    Args:
        path: of the PNG.
        title: over the picture; "" for none.
        description: for those who do not see it; it is kept in the files.

    Returns:
        The two files.
    """
    import matplotlib

    headings = textwrap.wrap(one_line(title), 75)
    if headings:
        figure.set_figheight(figure.get_figheight() + 0.25 * len(headings))
        figure.suptitle("\n".join(map(plain, headings)))
    about = {"Title": one_line(title), "Description": one_line(description)}
    paths = [path, path.with_suffix(".svg")]
    # Letters stay letters in the SVG: they can be found and read aloud.
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "tfsparsecap"}):
        for file, metadata in zip(paths, (about, {**about, "Date": None}), strict=True):
            with atomic_path(file) as temporary:
                figure.savefig(temporary, dpi=_DPI, metadata=metadata)
    return paths
