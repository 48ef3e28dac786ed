"""The figure of a study: score by sparsity, and beside it the curves that a paper published."""

import csv
import math
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tfsparsecap.captioning import plotting
from tfsparsecap.core.files import atomic_write, read_bytes
from tfsparsecap.errors import InputError
from tfsparsecap.papers.score_table import Column, Result, column_label, panels

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: Score and standard deviation by column; the column None is a horizontal line.
Curve = dict[Column | None, tuple[float, float]]
# Scores below this share of the best one are cut off, but at most half of a panel's scores.
_SHOWN = 0.75
_OTHERS = "published, not part of this study"
#: The papers' own method, which their figures call "Proposed".
_PROPOSED = "SMP (papers)"
_MAX_BYTES = 1 << 20


def read_published(path: str | os.PathLike) -> dict[str, Curve]:
    """Reads published scores by sparsity.

    Args:
        path: a tab-separated table with a column `Sparsity` (0 to 1), optionally `NNZ`, and a column of
            scores for each method. Empty cells are skipped.

    Returns:
        The curve of each method; a dense model whose scores are all equal is a horizontal line.

    Raises:
        InputError: the file cannot be read or is not such a table.

    Examples:
        >>> read_published("performance__Pruning_ORT_MS-COCO_CIDEr.tsv")["SNIP"]  # doctest: +SKIP
        {0.95: (47.2, 0.0), 0.975: (44.0, 0.0), 0.988: (37.3, 0.0)}
    """
    advice = "give a tab-separated table with a column Sparsity, and a column of scores for each method"
    curves: dict[str, Curve] = {}
    content = read_bytes(path, advice, _MAX_BYTES)
    try:
        lines = content.decode("utf-8-sig").splitlines()
        for row in csv.DictReader(lines, delimiter="\t", quoting=csv.QUOTE_NONE, strict=True):
            sparsity = float(row.pop("Sparsity"))
            for method, text in row.items():
                if text and method != "NNZ":
                    score = float(text)
                    if not (0 <= score < math.inf and 0 <= sparsity <= 1):
                        raise ValueError(f"{method} is {text} at sparsity {sparsity}")
                    curves.setdefault(method, {})[sparsity] = score, 0.0
    except (ValueError, TypeError, KeyError, csv.Error) as error:
        raise InputError(f"cannot read {path} ({error!r}): {advice}") from error
    if not curves:
        raise InputError(f"{path} has no scores: {advice}")
    for method, curve in curves.items():
        if _key(method) == "dense" and len(set(curve.values())) == 1:
            curves[method] = {None: next(iter(curve.values()))}
    return curves


def _key(label: str) -> str:
    """Equal for our label of a method and the papers'."""
    text = label.lower().replace("proposed", _PROPOSED.lower()).replace("baseline", "dense")
    text = re.sub(r"\b(pruning|ticket)\b", "", text.replace("hard-blind", "hard (class-blind)"))
    return re.sub(r"\W", "", text)


def plot(
    results: Sequence[Result],
    path: str | os.PathLike,
    *,
    score: str = "CIDEr",
    published: str | os.PathLike | None = None,
    title: str = "",
) -> Path:
    """Draws a panel for each captioner: a line for each method over the sparsities, dense models dashed.

    Sparsities are evenly spaced. Error bars are sample standard deviations over seeds. If the study has
    variants they take the place of the sparsities. Lines leave the panel at scores far below all others.

    Args:
        results: at least one with the score.
        path: the .png file.
        score: its name.
        published: a table of published scores (see `read_published`), which get a panel of their own.
        title: above the figure.

    Returns:
        The file.

    Raises:
        InputError: no result has the score, the table is damaged, or the file cannot be written.

    Examples:
        >>> plot(results, "study.png", published="curves.tsv", title="Flickr8k")  # doctest: +SKIP
        PosixPath('study.png')
    """
    drawn = [
        (panel.captioner, curves) for panel in panels(results) if (curves := _curves(panel.lines, score))
    ]
    if not drawn:
        raise InputError(f"no finished run has the score {score}: there is nothing to plot in {path}")
    names = dict.fromkeys(label for _, curves in drawn for label in curves)
    columns: list[Any] = list(dict.fromkeys(column for panel in panels(results) for column in panel.columns))
    by_variant = any(isinstance(column, str) for column in columns)
    if published is not None and not by_variant:
        ours = {_key(_PROPOSED): _PROPOSED} | {_key(label): label for label in names}
        theirs = {ours.get(_key(label), label): curve for label, curve in read_published(published).items()}
        drawn.append(("published", theirs))
        names |= dict.fromkeys(label for label in theirs if label == _PROPOSED)
        columns += {column for curve in theirs.values() for column in curve if column is not None}
    looks = _looks(names)
    columns = columns if by_variant else sorted(set(columns))
    width = min(2, len(drawn))
    height = math.ceil(len(drawn) / width)
    figure = plotting.make_figure(3.4 * height + 0.2 * len(looks))
    grid = figure.subplots(height, width, squeeze=False)
    for axes in grid.flat[len(drawn) :]:
        axes.set_visible(False)
    artists: dict[str, Any] = {}
    for axes, (heading, curves) in zip(grid.flat, drawn, strict=False):
        axes.set_title(plotting.shortened(heading, 44), fontsize=10.5, loc="left", fontweight="bold")
        axes.set_ylabel(plotting.shortened(f"{score} \N{MULTIPLICATION SIGN} 100"))
        axes.set_xlabel("" if by_variant else "sparsity")
        labels = [plotting.shortened(column_label(column), 30) for column in columns]
        turned: dict[str, Any] = {"rotation": 30, "ha": "right"} if sum(map(len, labels)) > 44 else {}
        axes.set_xticks(range(len(columns)), labels, **turned)
        axes.set_xlim(-0.4, max(1, len(columns)) - 0.6)
        artists |= _draw(axes, curves, columns, looks)
    plotting.legend_below(figure, artists)
    atomic_write(path, plotting.as_png(figure, title))
    return Path(path)


def _curves(lines: Mapping[str, Mapping], score: str) -> dict[str, Curve]:
    """The lines with finite scores, in hundredths, as papers print scores."""
    curves = {
        label: {
            column: (100 * row.scores[score], 100 * row.deviations.get(score, 0.0))
            for column, row in line.items()
            if math.isfinite(row.scores.get(score, math.nan))
        }
        for label, line in lines.items()
    }
    return {label: curve for label, curve in curves.items() if curve}


def _looks(labels: Iterable[str]) -> dict[str, dict[str, Any]]:
    """Colour, marker and dashes of each method of the study."""
    markers = dict(zip(plotting.COLOURS, "os^DvPX", strict=True))
    methods = [label for label in labels if _key(label) != "dense"]
    looks = {
        label: {**look, "marker": markers[look["color"]]}
        for label, look in zip(methods, plotting.line_looks(methods), strict=True)
    }
    dense = {"color": plotting.DARK_GREY, "linestyle": "--"}
    return {label: looks.get(label, dense) for label in labels}


def _draw(
    axes: "Axes", curves: Mapping[str, Curve], columns: Sequence[Column], looks: Mapping[str, dict[str, Any]]
) -> dict[str, Any]:
    """Draws the curves of a panel; returns the artists for the legend by label."""
    artists: dict[str, Any] = {}
    for number, (label, curve) in enumerate(curves.items()):
        name = label if label in looks else _OTHERS
        look = looks.get(label, {"color": plotting.LIGHT_GREY, "linewidth": 0.9})
        if None in curve:
            value, deviation = curve[None]
            line = {key: option for key, option in look.items() if key != "marker"}
            artists[name] = axes.axhline(value, **line)
            axes.axhspan(value - deviation, value + deviation, color=look["color"], alpha=0.12, linewidth=0)
        # Shifted, so that error bars do not hide each other.
        shift = 0.03 * (number - (len(curves) - 1) / 2)
        points = [(at + shift, *curve[column]) for at, column in enumerate(columns) if column in curve]
        if points:
            at, values, deviations = zip(*points, strict=True)
            errors: dict[str, Any] = {"yerr": deviations, "capsize": 2.5} if any(deviations) else {}
            artists[name] = axes.errorbar(at, values, markersize=6, **errors, **look)[0]
    scores = sorted(value for curve in curves.values() for value, _ in curve.values())
    bottom = max(scores[0], min(_SHOWN * scores[-1], scores[len(scores) // 2]))
    margin = 0.06 * (scores[-1] - bottom) or 1.0
    margin += max(deviation for curve in curves.values() for _, deviation in curve.values())
    axes.set_ylim(bottom - margin, scores[-1] + margin)
    plotting.style_axes(axes)
    return artists
