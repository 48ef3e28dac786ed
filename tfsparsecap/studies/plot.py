"""Pictures of a study: score against sparsity, beside the curves that the papers published."""

import itertools
import math
import os
import re
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from tfsparsecap.errors import InputError
from tfsparsecap.plotting import (
    BLACK,
    BLUE,
    COLOURS,
    FAINT,
    GREEN,
    INK,
    ORANGE,
    PURPLE,
    SKY,
    VERMILLION,
    legend_below,
    make_figure,
    plain,
    png_path,
    shortened,
    write_figure,
)
from tfsparsecap.studies.published_curves import is_about, published_file, read_published
from tfsparsecap.studies.table import Column, Lines, Result, Row, column_label, lines
from tfsparsecap.text import one_line

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Published = str | os.PathLike | Mapping[str, str | os.PathLike]

# At most a share of the values is written at the foot of a panel: those that have not this share of the best
# left, under a gap that is this share of what lies over it. A row there takes a tenth of what lies over it.
_FEW, _LEFT, _GAP, _FOOT_ROW = 0.35, 0.75, 0.4, 0.1


@dataclass(frozen=True)
class Style:
    """How a method is drawn, everywhere alike."""

    colour: str
    marker: str
    dashes: str = "-"


@dataclass
class Curve:
    """A line of a panel.

    Attributes:
        label: in the legend.
        style: None where only the papers have it.
        points: mean and deviation (None where there is none) by column; the key None is a line's that has
            the same value in all columns.
    """

    label: str
    style: Style | None
    points: dict[Column | None, tuple[float, float | None]]


_DENSE, _UNKNOWN = Style(INK, "", "--"), Style(FAINT, "")
# By what `_key` makes of a label.
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
    """What a label and the papers' word for the same thing have in common, and a variant: ("smp", "a")."""
    text = label.lower().replace("hard-blind", "hard (class-blind)")
    text = re.sub(r"\b(pruning|ticket)\b", "", text.replace("proposed", "smp").replace("baseline", "dense"))
    text, _, variant = re.fullmatch(r"(.*?)(\(([abc])\))?\s*", text, re.DOTALL).groups()
    return re.sub(r"\W", "", text), variant or ""


def plot(
    results: Sequence[Result],
    path: str | os.PathLike,
    *,
    score: str = "CIDEr",
    published: Published | None = None,
    title: str = "",
) -> list[Path]:
    """Draws a panel for each captioner: a line for each method over the sparsities, dense as a dashed one.

    Sparsities stand at even distances, as 80, 90, 95 and 97.5 %, each of which keeps half as much as the one
    before, would on a logarithmic axis of what is kept. Bars are sample standard deviations over seeds. Runs
    with settings stand over those instead. Scores far below all others are written at the foot of the panel,
    so that the others keep room. The form is that of "End-to-End Supermask Pruning" (Tan et al.,
    https://arxiv.org/abs/2110.03298, figures 3 to 5).

    Args:
        results: some that have the score.
        path: a .png file; an .svg file of the same name is written beside it.
        score: which one.
        published: a folder of tables such as `performance__Pruning_ORT_MS-COCO_CIDEr.tsv` (see
            `read_published`), one such file, or one for each label of a captioner: what it says is drawn to
            the right of the captioner's panel, over the same columns, in the same colours. None, or nothing
            there: no such panel.
        title: over the picture.

    Returns:
        The two files.

    Raises:
        InputError: there is nothing to draw, a table is damaged, or the files cannot be written.

    Example:
        >>> plot(results, "study.png", published="published_curves", title="Flickr8k")  # doctest: +SKIP
        [PosixPath('study.png'), PosixPath('study.svg')]
    """
    path = png_path(path)
    grids = [grid for grid in lines(results) if _ours(grid, score, {})]
    if not grids:
        raise InputError(f"no finished run has the score {score}: there is nothing to draw in {path}")
    styles = _styles(grids)
    tables = [_table_of(published, grid, score, alone=len(grids) == 1) for grid in grids]
    with_published = any(tables)
    columns = 2 if with_published or len(grids) > 1 else 1
    rows = len(grids) if with_published else math.ceil(len(grids) / columns)
    figure = make_figure(2.7 * rows)
    panels = iter(figure.subplots(rows, columns, squeeze=False).flat)
    legend: dict[Style, Curve] = {}
    for grid, table in zip(grids, tables, strict=True):
        ours, theirs = _ours(grid, score, styles), [] if table is None else _theirs(table, styles)
        places = grid.columns
        if theirs:
            places = sorted(
                {*places, *(place for curve in theirs for place in curve.points if place is not None)}
            )
        heading = [part for part in (grid.captioner, "this study" if with_published else "") if part]
        _panel(next(panels), places, ours, score, ": ".join(heading))
        if theirs:
            _panel(next(panels), places, theirs, score, "published" + ", MS-COCO" * ("MS-COCO" in table.name))
        elif with_published:
            next(panels).set_axis_off()
        for curve in [*ours, *theirs]:
            legend.setdefault(curve.style or _UNKNOWN, curve)
    for axes in panels:
        axes.set_axis_off()
    _legend(figure, list(legend.values()))
    return write_figure(figure, path, title, describe(results, score=score))


def _styles(grids: Iterable[Lines]) -> dict[str, Style]:
    """A style of its own for each of our lines; methods that are not known get what is free."""
    pruned = {
        name: any(row.sparsity is not None for row in _rows(grid, name).values())
        for grid in grids
        for name in grid.names
    }
    known = {_STYLES[_key(name)[0]] for name in pruned if _key(name)[0] in _STYLES}
    colours = {style.colour for style in known}
    free = [Style(c, m, d) for d in ("-", "--", ":", "-.") for c, m in zip(COLOURS, "os^DvPX", strict=True)]
    free = sorted((style for style in free if style not in known), key=lambda style: style.colour in colours)
    free = itertools.cycle(free)
    unpruned = itertools.cycle(Style(INK, "", dashes) for dashes in ("--", ":", "-."))
    bases: dict[str, Style] = {}
    styles: dict[str, Style] = {}
    for name, is_pruned in pruned.items():
        key, variant = _key(name)
        if key not in bases:
            bases[key] = _STYLES[key] if key in _STYLES else next(free if is_pruned else unpruned)
        style = _varied(bases[key], variant)
        # Two labels that differ in marks only.
        styles[name] = next(free) if style in styles.values() else style
    return styles


def _varied(style: Style, variant: str) -> Style:
    return replace(style, dashes=_DASHES[variant]) if variant else style


def _style_of_published(styles: dict[str, Style], label: str) -> Style | None:
    """That of the same method of ours; None where we did not run it."""
    key, variant = _key(label)
    ours = (style for name, style in styles.items() if _key(name)[0] == key)
    style = next(ours, _DENSE if key == "dense" else None)
    return style and _varied(style, variant)


def _rows(grid: Lines, name: str) -> dict[Column | None, Row]:
    found = {column: grid.rows[name, column] for column in grid.columns if (name, column) in grid.rows}
    return {None: grid.constant[name], **found} if name in grid.constant else found


def _ours(grid: Lines, score: str, styles: dict[str, Style]) -> list[Curve]:
    """A curve for each line, in hundredths as papers print scores; scores that are no number are left out."""
    curves = []
    for name in grid.names:
        points = {}
        for column, row in _rows(grid, name).items():
            if math.isfinite(row.scores.get(score, math.nan)):
                spread = row.spreads.get(score)
                points[column] = 100 * row.scores[score], None if spread is None else 100 * spread
        if points:
            curves.append(Curve(name, styles.get(name), points))
    return curves


def _theirs(table: Path, styles: dict[str, Style]) -> list[Curve]:
    """The curves of a paper; those of methods that we did not run come first, to lie below the others."""
    curves = []
    for name, values in read_published(table).items():
        points = {place: (value, None) for place, value in values}
        if _key(name)[0] == "dense" and len({value for _, value in values}) == 1:
            points = {None: (values[0][1], None)}
        curves.append(Curve(name, _style_of_published(styles, name), points))
    return sorted(curves, key=lambda curve: curve.style is not None)


def _table_of(published: Published | None, grid: Lines, score: str, alone: bool) -> Path | None:
    """The table of a captioner's published curves; None where there is none, or the axis is of settings."""
    if published is None or any(isinstance(column, str) for column in grid.columns):
        return None
    if isinstance(published, Mapping):
        file = published.get(grid.captioner)
        return Path(file) if file is not None and Path(file).is_file() else None
    published = Path(published)
    if published.is_file():
        return published if alone or is_about(published, grid.captioner) else None
    return published_file(published, grid.captioner, score)


def _panel(axes: "Axes", places: Sequence[Column], curves: Sequence[Curve], score: str, heading: str) -> None:
    from matplotlib.ticker import MaxNLocator
    from matplotlib.transforms import offset_copy

    foot = _foot(curves)
    ends = [
        v + sign * (s or 0) for c in curves for v, s in c.points.values() if v >= foot for sign in (-1, 1)
    ]
    room = 0.06 * (max(ends) - min(ends)) or 1.0
    low, high = min(ends) - room, max(ends) + room
    below = [curve for curve in curves if any(value < foot for value, _ in curve.points.values())]
    row = _FOOT_ROW * (high - low)
    axes.set_ylim(low - row * len(below), high)
    axes.set_yticks([tick for tick in MaxNLocator(6).tick_values(low, high) if low <= tick <= high])
    _columns(axes, places)
    axes.grid(alpha=0.25, linewidth=0.6)
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_ylabel(plain(f"{score} \N{MULTIPLICATION SIGN} 100"))
    letters = 76 if axes.get_gridspec().ncols == 1 else 44
    title = textwrap.wrap(one_line(heading), letters, max_lines=2, placeholder=" …")
    axes.set_title("\n".join(map(plain, title)), fontsize=10.5, loc="left", fontweight="bold")

    spreads = any(spread is not None for curve in curves for _, spread in curve.points.values())
    for number, curve in enumerate(curves):
        # Bars at the same place would hide each other.
        shift = 0.03 * (number - (len(curves) - 1) / 2) if spreads else 0.0
        _draw(axes, curve, {place: x + shift for x, place in enumerate(places)}, foot, low if below else None)
    if below:
        axes.axhspan(low - row * len(below), low, color="#F3F3F3", linewidth=0, zorder=1)
    for number, curve in enumerate(below):
        style, y = curve.style or _UNKNOWN, low - row * (number + 0.5)
        for x, place in enumerate(places):
            value, _ = curve.points.get(place, (math.inf, None))
            if value < foot:
                here = {"xy": (x, y), "textcoords": "offset points", "va": "center"}
                axes.annotate(f"{value:.1f}", xytext=(-3, 0), fontsize=8, color=INK, **here)
                left = offset_copy(axes.transData, axes.figure, x=-8, units="points")
                axes.plot(x, y, style.marker or "v", color=style.colour, markersize=5, transform=left)


def _foot(curves: Sequence[Curve]) -> float:
    """The lowest value that an axis has to show: a few that lie far below would press the others together."""
    values = sorted(value for curve in curves for value, _ in curve.points.values())
    constants = [curve.points[None][0] for curve in curves if None in curve.points]
    gaps = {}
    for count in range(1, int(_FEW * len(values)) + 1):
        under, over = values[count - 1 : count + 1]
        if under < _LEFT * values[-1] and over <= min(constants, default=math.inf):
            gaps[over] = (over - under) / (values[-1] - over or 1.0)
    foot = max(gaps, key=gaps.get, default=None)
    return foot if foot is not None and gaps[foot] > _GAP and len(curves) > 2 else values[0]


def _draw(axes: "Axes", curve: Curve, at: dict[Column, float], foot: float, floor: float | None) -> None:
    """A curve down to the floor, with markers and bars of the values that are not below the foot."""
    style = curve.style or _UNKNOWN
    over = {"color": style.colour, "zorder": 3 if curve.style else 2}
    look = {**over, "linestyle": style.dashes, "linewidth": 1.7 if curve.style else 0.9}
    if None in curve.points:
        value, spread = curve.points[None]
        axes.axhline(value, **look)
        if spread is not None:
            axes.axhspan(value - spread, value + spread, color=style.colour, alpha=0.12, linewidth=0)
    points = [(x, *curve.points[place]) for place, x in at.items() if place in curve.points]
    if not points:
        return
    lines = axes.plot([x for x, _, _ in points], [value for _, value, _ in points], **look)
    if floor is not None:
        from matplotlib.patches import Rectangle

        # What lies under the floor is for the numbers.
        lines[0].set_clip_path(Rectangle((-1, floor), len(at) + 1, 1e9, transform=axes.transData))
    marked = [(x, value, spread) for x, value, spread in points if value >= foot]
    if marked and curve.style:
        x, values, spreads = zip(*marked, strict=True)
        bars = None if not any(spreads) else [math.nan if spread is None else spread for spread in spreads]
        axes.errorbar(
            x, values, yerr=bars, fmt=style.marker or "none", markersize=6.5, markeredgecolor="white",
            markeredgewidth=0.6, elinewidth=1.1, capsize=2.5, **over,
        )  # fmt: skip


def _columns(axes: "Axes", places: Sequence[Column]) -> None:
    """The axis to the right; labels that would touch each other are turned."""
    labels = [plain(shortened(column_label(place), 30)) for place in places]
    axes.set_xlim(-0.4, max(1, len(places)) - 0.6)
    room = 96 / axes.get_gridspec().ncols
    turned = (
        {"rotation": 30, "ha": "right", "rotation_mode": "anchor"} if len("  ".join(labels)) > room else {}
    )
    axes.set_xticks(range(len(places)), labels, **turned)
    if places and not isinstance(places[0], str):
        axes.set_xlabel("sparsity")


def _legend(figure: "Figure", curves: Sequence[Curve]) -> None:
    """Below the panels: in them it would lie over lines."""
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
        labels.append(plain(curve.label) if curve.style else "published, not run here")
    legend_below(figure, handles, labels)


def describe(results: Sequence[Result], *, score: str = "CIDEr") -> str:
    """What `plot` shows, in words for those who do not see it: the order of the methods at each sparsity.

    Returns:
        A sentence for each captioner, in which sparsities of the same order share one list; "" where no run
        has the score.

    Example:
        >>> found = {"SMP": 0.3, "SNIP": 0.4}
        >>> runs = [Result("ORT", m, 0.9, 1, {"CIDEr": c}, 0.9, 1, 10, 1.0, "") for m, c in found.items()]
        >>> describe(runs)
        'ORT, from the best CIDEr to the worst: SNIP, SMP at 90 %.'
    """
    sentences = []
    for grid in lines(results):
        orders: dict[tuple[str, ...], list[str]] = {}
        curves = _ours(grid, score, {})
        for column in grid.columns:
            there = [curve for curve in curves if column in curve.points]
            ranked = sorted(there, key=lambda curve: -curve.points[column][0])
            orders.setdefault(tuple(curve.label for curve in ranked), []).append(column_label(column))
        parts = [f"{', '.join(order)} at {', '.join(where)}" for order, where in orders.items() if order]
        flat = [f"{c.label} has {c.points[None][0]:.1f}" for c in curves if None in c.points]
        if parts:
            parts[0] = f"from the best {score} to the worst: {parts[0]}"
        if parts or flat:
            about = f"{grid.captioner}{', ' if parts else ': '}" if grid.captioner else ""
            sentences.append(f"{about}{'; '.join([*parts, *flat])}.")
    return one_line(" ".join(sentences))
