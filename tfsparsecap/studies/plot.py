"""The figure of a study: score by sparsity, beside the curves that the papers published."""

import itertools
import math
import os
import re
import textwrap
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from tfsparsecap.errors import InputError
from tfsparsecap.plotting import (
    BLACK,
    BLUE,
    COLOURS,
    DARK_GREY,
    GREEN,
    LIGHT_GREY,
    ORANGE,
    PURPLE,
    SKY,
    VERMILLION,
    legend_below,
    make_figure,
    plain,
    png_path,
    shortened,
    style_axes,
    write_figure,
)
from tfsparsecap.studies.published_curves import is_about, published_file, read_published
from tfsparsecap.studies.table import Column, Panel, Result, column_label, panels
from tfsparsecap.text import one_line

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Scores far below all others would compress the rest of the plot; they are printed as numbers below the axis.
# That is done to at most this fraction of the values, if they are below this fraction of the best one, and
# the gap above them is at least this fraction of the range above it.
_MAX_OUTLIERS, _OUTLIER_LEVEL, _MIN_GAP = 0.35, 0.75, 0.4
_OUTLIER_ROW_HEIGHT = 0.1


@dataclass(frozen=True)
class Style:
    """How a method is drawn in all panels."""

    colour: str
    marker: str
    dashes: str = "-"


@dataclass
class Curve:
    """A line of a panel.

    Attributes:
        label: in the legend.
        style: None for a published method that the study does not have.
        points: score and standard deviation (or None) by column; the column None is a horizontal line.
    """

    label: str
    style: Style | None
    points: dict[Column | None, tuple[float, float | None]]


_DENSE, _UNKNOWN = Style(DARK_GREY, "", "--"), Style(LIGHT_GREY, "")
# By the key that `_key` makes of a label.
_STYLES = {
    "smp": Style(VERMILLION, "o"),
    "gradual": Style(BLUE, "s"),
    "hardclassblind": Style(GREEN, "^"),
    "hardclassuniform": Style(SKY, "v"),
    "hardclassdistribution": Style(ORANGE, "D"),
    "snip": Style(PURPLE, "P"),
    "lotteryclassblind": Style(BLACK, "X"),
    "lotteryclassuniform": Style(BLACK, "h", "--"),
    "lotterygradual": Style(BLACK, "*", ":"),
}
_DASHES = {"a": "-", "b": "--", "c": ":"}


def _key(label: str) -> tuple[str, str]:
    """Key and encoder scheme of a method; equal for our label and the papers': ("smp", "a")."""
    text = label.lower().replace("hard-blind", "hard (class-blind)")
    text = re.sub(r"\b(pruning|ticket)\b", "", text.replace("proposed", "smp").replace("baseline", "dense"))
    text, _, scheme = re.fullmatch(r"(.*?)(\(([abc])\))?\s*", text, re.DOTALL).groups()
    return re.sub(r"\W", "", text), scheme or ""


def plot(
    results: Sequence[Result],
    path: str | os.PathLike,
    *,
    score: str = "CIDEr",
    published: str | os.PathLike | None = None,
    title: str = "",
) -> list[Path]:
    """Draws a panel for each captioner: a line for each method over the sparsities, dense models dashed.

    Sparsities are evenly spaced. Error bars are sample standard deviations over seeds. If the study has
    variants they take the place of the sparsities. The layout follows Figures 3 to 5 of "End-to-End Supermask
    Pruning" (Tan et al., https://arxiv.org/abs/2110.03298).

    Args:
        results: at least one with the score.
        path: a .png file; an .svg file of the same name is written beside it.
        score: its name.
        published: a table of published scores (see `read_published`), or a folder of such tables, in which
            each captioner's is found by its name. Published curves get a panel beside the captioner's.
        title: above the figure.

    Returns:
        The two files.

    Raises:
        InputError: no result has the score, a table is damaged, or the files cannot be written.

    Example:
        >>> plot(results, "study.png", published="published_curves", title="Flickr8k")  # doctest: +SKIP
        [PosixPath('study.png'), PosixPath('study.svg')]
    """
    path = png_path(path)
    drawn = [panel for panel in panels(results) if _curves(panel, score, {})]
    if not drawn:
        raise InputError(f"no finished run has the score {score}: there is nothing to plot in {path}")
    styles = _styles(drawn)
    tables = [_table_of(published, panel, score, alone=len(drawn) == 1) for panel in drawn]
    columns = 2 if any(tables) or len(drawn) > 1 else 1
    rows = len(drawn) if any(tables) else math.ceil(len(drawn) / columns)
    figure = make_figure(2.7 * rows)
    axes = figure.subplots(rows, columns, squeeze=False)
    for unused in axes.flat:
        unused.set_axis_off()
    # With published curves each captioner has a row, without them all panels are filled one after the other.
    left = axes[:, 0] if any(tables) else axes.flat
    legend: dict[Style, Curve] = {}
    for place, panel, table in zip(left, drawn, tables, strict=False):
        ours, theirs = _curves(panel, score, styles), _published_curves(table, styles) if table else []
        columns_of_both = panel.columns
        if theirs:
            columns_of_both = sorted(
                {*panel.columns, *(at for curve in theirs for at in curve.points)} - {None}
            )
        heading = ": ".join(part for part in (panel.captioner, "this study" * any(tables)) if part)
        _draw_panel(place, columns_of_both, ours, score, heading)
        if theirs:
            heading = "published" + ", MS-COCO" * ("MS-COCO" in table.name)
            beside = axes[place.get_subplotspec().rowspan.start, 1]
            _draw_panel(beside, columns_of_both, theirs, score, heading)
        for curve in [*ours, *theirs]:
            legend.setdefault(curve.style or _UNKNOWN, curve)
    _draw_legend(figure, list(legend.values()))
    return write_figure(figure, path, title, describe(results, score=score))


def _styles(drawn: Iterable[Panel]) -> dict[str, Style]:
    """A different style for each line; methods without a fixed style get unused ones."""
    dense = {
        line: all(row.sparsity is None for (name, _), row in panel.cells.items() if name == line)
        for panel in drawn
        for line in panel.lines
    }
    known = {_STYLES[_key(line)[0]] for line in dense if _key(line)[0] in _STYLES}
    colours = {style.colour for style in known}
    free = [Style(c, m, d) for d in ("-", "--", ":", "-.") for c, m in zip(COLOURS, "os^DvPX", strict=True)]
    free = sorted((style for style in free if style not in known), key=lambda style: style.colour in colours)
    free, free_dense = (
        itertools.cycle(free),
        itertools.cycle(replace(_DENSE, dashes=d) for d in ("--", ":", "-.")),
    )
    by_key: dict[str, Style] = {}
    styles: dict[str, Style] = {}
    for line, is_dense in dense.items():
        key, scheme = _key(line)
        if key not in by_key:
            by_key[key] = _STYLES.get(key) or next(free_dense if is_dense else free)
        style = _with_scheme(by_key[key], scheme)
        styles[line] = next(free) if style in styles.values() else style
    return styles


def _with_scheme(style: Style, scheme: str) -> Style:
    return replace(style, dashes=_DASHES[scheme]) if scheme else style


def _curves(panel: Panel, score: str, styles: dict[str, Style]) -> list[Curve]:
    """The panel's lines with finite scores, in hundredths, as papers print scores."""
    points: dict[str, dict] = {line: {} for line in panel.lines}
    for (line, column), row in panel.cells.items():
        if math.isfinite(row.scores.get(score, math.nan)):
            deviation = row.deviations.get(score)
            points[line][column] = 100 * row.scores[score], None if deviation is None else 100 * deviation
    return [Curve(line, styles.get(line), found) for line, found in points.items() if found]


def _published_curves(table: Path, styles: dict[str, Style]) -> list[Curve]:
    """Published curves in the styles of our methods; others come first, so that they are drawn below."""
    curves = []
    for name, values in read_published(table).items():
        key, scheme = _key(name)
        style = next((style for line, style in styles.items() if _key(line)[0] == key), None)
        style = style or (_DENSE if key == "dense" else None)
        points: dict[Column | None, tuple[float, None]] = {at: (value, None) for at, value in values}
        if key == "dense" and len(set(points.values())) == 1:
            points = {None: (values[0][1], None)}
        curves.append(Curve(name, style and _with_scheme(style, scheme), points))
    return sorted(curves, key=lambda curve: curve.style is not None)


def _table_of(published: str | os.PathLike | None, panel: Panel, score: str, alone: bool) -> Path | None:
    """A captioner's table of published scores; None if there is none, or the columns are variants."""
    if published is None or any(isinstance(column, str) for column in panel.columns):
        return None
    published = Path(published)
    if published.is_file():
        return published if alone or is_about(published, panel.captioner) else None
    return published_file(published, panel.captioner, score)


def _draw_panel(
    axes: "Axes", columns: Sequence[Column], curves: Sequence[Curve], score: str, heading: str
) -> None:
    from matplotlib.ticker import MaxNLocator

    floor = _floor(curves)
    values = [point for curve in curves for point in curve.points.values() if point[0] >= floor]
    ends = [value + sign * (deviation or 0) for value, deviation in values for sign in (-1, 1)]
    margin = 0.06 * (max(ends) - min(ends)) or 1.0
    low, high = min(ends) - margin, max(ends) + margin
    below = Counter(at for curve in curves for at, (value, _) in curve.points.items() if value < floor)
    row = _OUTLIER_ROW_HEIGHT * (high - low)
    bottom = low - row * max(below.values(), default=0)
    axes.set_axis_on()
    axes.set_ylim(bottom, high)
    axes.set_yticks([tick for tick in MaxNLocator(6).tick_values(low, high) if low <= tick <= high])
    _label_columns(axes, columns)
    style_axes(axes)
    axes.set_ylabel(plain(f"{score} \N{MULTIPLICATION SIGN} 100"))
    width = 76 if axes.get_gridspec().ncols == 1 else 44
    title = textwrap.wrap(one_line(heading), width, max_lines=2, placeholder=" …")
    axes.set_title("\n".join(map(plain, title)), fontsize=10.5, loc="left", fontweight="bold")

    deviations = any(deviation is not None for _, deviation in values)
    used: Counter[Column] = Counter()
    for number, curve in enumerate(curves):
        # Shifted, so that error bars do not hide each other.
        shift = 0.03 * (number - (len(curves) - 1) / 2) if deviations else 0.0
        _draw_curve(axes, curve, {at: x + shift for x, at in enumerate(columns)}, floor, low)
        style = curve.style or _UNKNOWN
        for x, column in enumerate(columns):
            value, _ = curve.points.get(column, (math.inf, None))
            if value < floor:
                used[column] += 1
                y = low - row * (used[column] - 0.5)
                axes.annotate(f"  {value:.1f}", (x, y), fontsize=8, color=DARK_GREY, va="center")
                axes.plot(x, y, style.marker or "v", color=style.colour, markersize=5)
    if below:
        axes.axhspan(bottom, low, color="#F3F3F3", linewidth=0, zorder=0)


def _floor(curves: Sequence[Curve]) -> float:
    """The lowest value to plot on the axis; values below it are printed as numbers."""
    values = sorted(value for curve in curves for value, _ in curve.points.values())
    dense = min((curve.points[None][0] for curve in curves if None in curve.points), default=math.inf)
    gaps = {}
    for count in range(1, int(_MAX_OUTLIERS * len(values)) + 1):
        under, over = values[count - 1 : count + 1]
        if under < _OUTLIER_LEVEL * values[-1] and over <= dense:
            gaps[over] = (over - under) / (values[-1] - over or 1.0)
    floor = max(gaps, key=gaps.get, default=None)
    return floor if floor is not None and gaps[floor] > _MIN_GAP and len(curves) > 2 else values[0]


def _draw_curve(axes: "Axes", curve: Curve, places: dict[Column, float], floor: float, low: float) -> None:
    from matplotlib.patches import Rectangle

    style = curve.style or _UNKNOWN
    look = {"color": style.colour, "zorder": 3 if curve.style else 2}
    line = {**look, "linestyle": style.dashes, "linewidth": 1.7 if curve.style else 0.9}
    if None in curve.points:
        value, deviation = curve.points[None]
        axes.axhline(value, **line)
        if deviation is not None:
            axes.axhspan(value - deviation, value + deviation, color=style.colour, alpha=0.12, linewidth=0)
    points = [(x, *curve.points[at]) for at, x in places.items() if at in curve.points]
    if not points:
        return
    (drawn,) = axes.plot([x for x, _, _ in points], [value for _, value, _ in points], **line)
    if any(value < floor for _, value, _ in points):
        drawn.set_clip_path(Rectangle((-1, low), len(places) + 1, 1e9, transform=axes.transData))
    points = [point for point in points if point[1] >= floor]
    if points and curve.style:
        x, values, deviations = zip(*points, strict=True)
        bars = [deviation if deviation is not None else math.nan for deviation in deviations]
        axes.errorbar(
            x, values, yerr=bars if any(deviations) else None, fmt=style.marker or "none", markersize=6.5,
            markeredgecolor="white", markeredgewidth=0.6, elinewidth=1.1, capsize=2.5, **look,
        )  # fmt: skip


def _label_columns(axes: "Axes", columns: Sequence[Column]) -> None:
    labels = [plain(shortened(column_label(column), 30)) for column in columns]
    axes.set_xlim(-0.4, max(1, len(columns)) - 0.6)
    too_long = len("  ".join(labels)) > 96 / axes.get_gridspec().ncols
    turned = {"rotation": 30, "ha": "right", "rotation_mode": "anchor"} if too_long else {}
    axes.set_xticks(range(len(columns)), labels, **turned)
    if columns and not isinstance(columns[0], str):
        axes.set_xlabel("sparsity")


def _draw_legend(figure: "Figure", curves: Sequence[Curve]) -> None:
    from matplotlib.lines import Line2D

    handles, labels = [], []
    for curve in sorted(curves, key=lambda curve: curve.style is None):
        style = curve.style or _UNKNOWN
        handles.append(
            Line2D(
                [], [], color=style.colour, linestyle=style.dashes, marker=style.marker, markersize=6.5,
                markeredgecolor="white", markeredgewidth=0.6, linewidth=1.7 if curve.style else 0.9,
            )
        )  # fmt: skip
        labels.append(plain(curve.label) if curve.style else "published, not part of this study")
    legend_below(figure, handles, labels)


def describe(results: Sequence[Result], *, score: str = "CIDEr") -> str:
    """What `plot` shows in words, for screen readers: the ranking of the methods at each sparsity.

    Returns:
        A sentence for each captioner, in which sparsities with the same ranking are combined.

    Example:
        >>> found = {"SMP": 0.3, "SNIP": 0.4}
        >>> runs = [Result("ORT", m, 0.9, 1, {"CIDEr": c}, 0.9, 1, 10, 1.0, "") for m, c in found.items()]
        >>> describe(runs)
        'ORT, by decreasing CIDEr: SNIP, SMP at 90 %.'
    """
    sentences = []
    for panel in panels(results):
        rankings: dict[tuple[str, ...], list[str]] = {}
        curves = _curves(panel, score, {})
        for column in panel.columns:
            there = [curve for curve in curves if column in curve.points]
            ranked = sorted(there, key=lambda curve: -curve.points[column][0])
            rankings.setdefault(tuple(curve.label for curve in ranked), []).append(column_label(column))
        parts = [f"{', '.join(order)} at {', '.join(at)}" for order, at in rankings.items() if order]
        dense = [f"{curve.label}: {curve.points[None][0]:.1f}" for curve in curves if None in curve.points]
        if parts:
            parts[0] = f"by decreasing {score}: {parts[0]}"
        if parts or dense:
            name = f"{panel.captioner}{', ' if parts else ': '}" if panel.captioner else ""
            sentences.append(f"{name}{'; '.join([*parts, *dense])}.")
    return one_line(" ".join(sentences))
