"""What all figures share: colours, labels, and output as PNG."""

import io
import itertools
import textwrap
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from tfsparsecap.core.text import one_line

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: The colours of Okabe and Ito, which people with red-green colour blindness can distinguish.
COLOURS = ("#D55E00", "#0072B2", "#009E73", "#E69F00", "#56B4E9", "#CC79A7", "#000000")
#: Those of the two forms of Supermask Pruning; no other line has them.
SMP_COLOURS = {"SMP (papers)": "#000000", "SMP on a schedule": "#0072B2"}
_STYLES = ("-", "--", ":", "-.")
LIGHT_GREY, DARK_GREY = "#B0B0B0", "#404040"
#: Inches; with it, text of 11 points is readable when the image is shown 800 pixels wide.
WIDTH = 8.0
_DPI = 200


def shortened(text: str, length: int = 200) -> str:
    """One line of text that matplotlib draws as it is, cut to a number of characters.

    Examples:
        >>> print(shortened("$x$ and more", 6))
        \\$x\\$ a…
    """
    text = one_line(text)
    text = text if len(text) <= length else text[: length - 1] + "…"
    # Dollar signs would start a formula.
    return text.replace("$", r"\$")


def line_looks(names: Iterable[str]) -> list[dict[str, str]]:
    """Colour and line style of each line, as matplotlib's options: lines of one colour differ in their style.

    Names that contain one of `SMP_COLOURS` have its colour, up to four of each.

    Examples:
        >>> [look["color"] for look in line_looks(["Hard", "SMP (papers) (A)", "SMP (papers) (B)"])]
        ['#D55E00', '#000000', '#000000']
    """
    others = itertools.cycle(colour for colour in COLOURS if colour not in SMP_COLOURS.values())
    used, looks = Counter[str](), []
    for name in names:
        own = [colour for form, colour in SMP_COLOURS.items() if form in name]
        colour = own[0] if own and used[own[0]] < len(_STYLES) else next(others)
        looks.append({"color": colour, "linestyle": _STYLES[used[colour] % len(_STYLES)]})
        used[colour] += 1
    return looks


def make_figure(height: float) -> "Figure":
    """A figure of width `WIDTH` and the given height in inches."""
    from matplotlib.figure import Figure

    return Figure(figsize=(WIDTH, height), layout="constrained")


def style_axes(axes: "Axes") -> None:
    """A light grid behind the data, and no frame at the top and right."""
    axes.grid(alpha=0.3, linewidth=0.6)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


def legend_below(figure: "Figure", artists: Mapping[str, "Artist"]) -> None:
    """A legend of artists by label below all panels, with as many columns as fit."""
    # Matplotlib leaves out labels that begin with an underscore.
    labels = [" " * label.startswith("_") + shortened(label, 80) for label in artists]
    columns = min(len(labels), max(1, int(WIDTH / (0.6 + 0.075 * max(map(len, labels))))))
    figure.legend(
        [*artists.values()], labels, loc="outside lower center", ncols=columns, fontsize=9.5, frameon=False
    )


def as_png(figure: "Figure", title: str = "") -> bytes:
    """The figure as a PNG file; equal figures give equal bytes.

    Args:
        title: above the figure; "" for none.
    """
    if title:
        figure.suptitle("\n".join(shortened(line) for line in textwrap.wrap(one_line(title), 75)))
    content = io.BytesIO()
    figure.savefig(content, format="png", dpi=_DPI)
    return content.getvalue()
