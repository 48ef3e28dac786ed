"""The figure of a study: score by sparsity, beside the curves that the papers published."""

import itertools
import math
import os
import re
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tfsparsecap import plotting
from tfsparsecap.errors import InputError
from tfsparsecap.studies.published_curves import published_file, read_published
from tfsparsecap.studies.table import Column, Panel, Result, column_label, panels
from tfsparsecap.text import one_line

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes

# Scores far below all others would compress the rest of the plot, so the axis may end above them. That
# applies to at most this fraction of the values, if they are below this fraction of the best one, and if the
# gap to the others is at least this fraction of the others' range.
_MAX_OUTLIERS, _OUTLIER_LEVEL, _MIN_GAP = 0.35, 0.75, 0.4


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
        points: score and standard deviation by column; the column None is a horizontal line.
    """

    label: str
    points: dict[Column | None, tuple[float, float]]


_OTHERS = "published, not part of this study"
# By the key that `_key` makes of a label.
_STYLES = {
    "dense": Style(plotting.DARK_GREY, "", "--"),
    "smp": Style(plotting.VERMILLION, "o"),
    "gradual": Style(plotting.BLUE, "s"),
    "hardclassblind": Style(plotting.GREEN, "^"),
    "hardclassuniform": Style(plotting.SKY, "v"),
    "hardclassdistribution": Style(plotting.ORANGE, "D"),
    "snip": Style(plotting.PURPLE, "P"),
    "lotteryclassblind": Style(plotting.BLACK, "X"),
    "lotteryclassuniform": Style(plotting.BLACK, "h", "--"),
    "lotterygradual": Style(plotting.BLACK, "*", ":"),
}
_DASHES = {"a": "-", "b": "--", "c": ":"}


def _key(label: str) -> tuple[str, str]:
    """Key and encoder scheme of a method, such as ("smp", "a"); equal for our label and the papers'."""
    text = label.lower().replace("hard-blind", "hard (class-blind)")
    text = re.sub(r"\b(pruning|ticket)\b", "", text.replace("proposed", "smp").replace("baseline", "dense"))
    match = re.fullmatch(r"(.*?)(\(([abc])\))?\s*", text, re.DOTALL)
    assert match is not None
    text, _, scheme = match.groups()
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
    variants they take the place of the sparsities. Lines leave the panel at scores far below all others. The
    layout follows Figures 3 to 5 of "End-to-End Supermask Pruning" (Tan et al.,
    https://arxiv.org/abs/2110.03298).

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

    Examples:
        >>> plot(results, "study.png", published="published_curves", title="Flickr8k")  # doctest: +SKIP
        [PosixPath('study.png'), PosixPath('study.svg')]
    """
    path = plotting.png_path(path)
    drawn = [panel for panel in panels(results) if _curves(panel, score)]
    if not drawn:
        raise InputError(f"no finished run has the score {score}: there is nothing to plot in {path}")
    tables = [
        published_file(published, panel.captioner, score)
        if published is not None and not any(isinstance(column, str) for column in panel.columns)
        else None
        for panel in drawn
    ]
    columns = 2 if any(tables) or len(drawn) > 1 else 1
    rows = len(drawn) if any(tables) else math.ceil(len(drawn) / columns)
    figure = plotting.make_figure(2.7 * rows)
    grid = figure.subplots(rows, columns, squeeze=False)
    for axes in grid.flat:
        axes.set_axis_off()
    styles = _styles(line for panel in drawn for line in panel.lines)
    legend: dict[str, Artist] = {}
    for number, (panel, table) in enumerate(zip(drawn, tables, strict=True)):
        ours, theirs = _curves(panel, score), _published_curves(table, styles) if table else []
        at: Sequence[Column] = panel.columns
        if theirs:
            at = sorted(
                {column for curve in [*ours, *theirs] for column in curve.points if column is not None}
            )
        place = (number, 0) if any(tables) else divmod(number, columns)
        heading = ": ".join(part for part in (panel.captioner, "this study" * any(tables)) if part)
        artists = _draw_panel(grid[place], at, ours, styles, score, heading)
        if table is not None and theirs:
            heading = "published" + ", MS-COCO" * ("MS-COCO" in table.name)
            artists = {**artists, **_draw_panel(grid[number, 1], at, theirs, styles, score, heading)}
        legend = {**legend, **artists}
    # Published curves of other methods come last.
    plotting.legend_below(figure, dict(sorted(legend.items(), key=lambda item: item[0] == _OTHERS)))
    return plotting.write_figure(figure, path, title, f"{score} by sparsity; table.md has the numbers.")


def _styles(lines: Iterable[str]) -> dict[str, Style]:
    """A different style for each method; those without a fixed style get unused ones."""
    fixed = {line: _style_of(*_key(line)) for line in lines}
    every = (
        Style(c, m, d)
        for d in ("-", "--", ":", "-.")
        for c, m in zip(plotting.COLOURS, "os^DvPX", strict=True)
    )
    unused = itertools.cycle(style for style in every if style not in fixed.values())
    styles: dict[str, Style] = {}
    for line, style in fixed.items():
        styles[line] = style if style and style not in styles.values() else next(unused)
    return styles


def _style_of(key: str, scheme: str) -> Style | None:
    style = _STYLES.get(key)
    return replace(style, dashes=_DASHES[scheme]) if style and scheme else style


def _curves(panel: Panel, score: str) -> list[Curve]:
    """The panel's lines with finite scores, in hundredths, as papers print scores."""
    points: dict[str, dict] = {line: {} for line in panel.lines}
    for (line, column), row in panel.cells.items():
        if math.isfinite(row.scores.get(score, math.nan)):
            points[line][column] = 100 * row.scores[score], 100 * row.deviations.get(score, 0.0)
    return [Curve(line, found) for line, found in points.items() if found]


def _published_curves(table: Path, styles: dict[str, Style]) -> list[Curve]:
    """Published curves, with our labels for our methods; adds the styles of other encoder schemes."""
    ours, curves = {_key(line): line for line in styles}, []
    for name, values in read_published(table).items():
        key, label = _key(name), ours.get(_key(name), name)
        if label not in styles and key[0] in {"dense", *(known for known, _ in ours)}:
            style = _style_of(*key)
            if style is not None:
                styles[label] = style
        points: dict[Column | None, tuple[float, float]] = {at: (value, 0.0) for at, value in values}
        if key[0] == "dense" and len(set(points.values())) == 1:
            points = {None: (values[0][1], 0.0)}
        curves.append(Curve(label, points))
    return curves


def _draw_panel(
    axes: "Axes",
    columns: Sequence[Column],
    curves: Sequence[Curve],
    styles: Mapping[str, Style],
    score: str,
    heading: str,
) -> "dict[str, Artist]":
    """Draws the curves; returns the artists for the legend by label."""
    floor = _floor(curves)
    drawn: dict[str, Artist] = {}
    shown = [point for curve in curves for point in curve.points.values() if point[0] >= floor]
    ends = [value + sign * deviation for value, deviation in shown for sign in (-1, 1)]
    margin = 0.06 * (max(ends) - min(ends)) or 1.0
    deviations = any(deviation for _, deviation in shown)
    for number, curve in enumerate(curves):
        style = styles.get(curve.label)
        look: dict[str, Any] = {"color": plotting.LIGHT_GREY, "linewidth": 0.9, "zorder": 2}
        if style:
            look = {"color": style.colour, "linestyle": style.dashes, "linewidth": 1.7, "zorder": 3}
        label = curve.label if style else _OTHERS
        if None in curve.points:
            value, deviation = curve.points[None]
            drawn[label] = axes.axhline(value, **look)
            if deviation:
                band = value - deviation, value + deviation
                axes.axhspan(*band, color=look["color"], alpha=0.12, linewidth=0)
        # Shifted, so that error bars do not hide each other.
        shift = 0.03 * (number - (len(curves) - 1) / 2) if deviations else 0.0
        points = [(x + shift, *curve.points[at]) for x, at in enumerate(columns) if at in curve.points]
        if points:
            x, values, bars = zip(*points, strict=True)
            marker: dict[str, Any] = (
                {"marker": style.marker, "markeredgecolor": "white", "markeredgewidth": 0.6} if style else {}
            )
            errors: dict[str, Any] = {"yerr": bars, "elinewidth": 1.1, "capsize": 2.5} if any(bars) else {}
            drawn[label] = axes.errorbar(x, values, markersize=6.5, **marker, **errors, **look)[0]
    axes.set_axis_on()
    axes.set_ylim(min(ends) - margin, max(ends) + margin)
    plotting.style_axes(axes)
    axes.set_ylabel(plotting.plain(f"{score} \N{MULTIPLICATION SIGN} 100"))
    grid = axes.get_gridspec()
    alone = grid is None or grid.ncols == 1
    title = textwrap.wrap(one_line(heading), 76 if alone else 44, max_lines=2, placeholder=" …")
    axes.set_title("\n".join(map(plotting.plain, title)), fontsize=10.5, loc="left", fontweight="bold")
    labels = [plotting.plain(plotting.shortened(column_label(column), 30)) for column in columns]
    axes.set_xlim(-0.4, max(1, len(columns)) - 0.6)
    too_long = len("  ".join(labels)) > (96 if alone else 48)
    turned: dict[str, Any] = {"rotation": 30, "ha": "right", "rotation_mode": "anchor"} if too_long else {}
    axes.set_xticks(range(len(columns)), labels, **turned)
    if columns and not isinstance(columns[0], str):
        axes.set_xlabel("sparsity")
    return drawn


def _floor(curves: Sequence[Curve]) -> float:
    """The lowest value that the axis has to show."""
    values = sorted(value for curve in curves for value, _ in curve.points.values())
    dense = min((curve.points[None][0] for curve in curves if None in curve.points), default=math.inf)
    gaps = {}
    for count in range(1, int(_MAX_OUTLIERS * len(values)) + 1):
        under, over = values[count - 1 : count + 1]
        if under < _OUTLIER_LEVEL * values[-1] and over <= dense:
            gaps[over] = (over - under) / (values[-1] - over or 1.0)
    floor = max(gaps, key=gaps.__getitem__, default=None)
    return floor if floor is not None and gaps[floor] > _MIN_GAP and len(curves) > 2 else values[0]
