"""Figures of a report: training progression, layer-wise sparsity, distribution of the non-zero weights."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tfsparsecap.model_summary.nonzeros import prunable_weights
from tfsparsecap.models.captioner import Captioner
from tfsparsecap.plotting import COLOURS, legend_below, make_figure, render, style_axes
from tfsparsecap.reports.runs import NOTHING, ReportRun, Table
from tfsparsecap.studies.layers import TITLE, Layer, compare, layers_figure

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.figure import Figure

# Column of history.csv, title of the panel, factor.
_PANELS = (
    ("loss", "training loss", 1),
    ("sparsity", "sparsity, %", 100),
    ("validation_CIDEr", "CIDEr, validation split", 1),
    ("mean_gate", "mean gate value", 1),
    ("sparsity_loss", "sparsity loss", 1),
    ("reward", "reward", 1),
)
# Only some training and pruning methods log the others.
_ALWAYS_EXPECTED = 4
_DASHES = ("-", "--", ":", "-.")
_BINS = 160
# The histogram leaves out the largest weights, which would make the rest of it very narrow.
_SHOWN = 0.998


@dataclass(frozen=True)
class FigureFile:
    """A rendered figure.

    Attributes:
        name: of its files, without suffix.
        files: content by suffix, ".png" and ".svg".
        title: of the figure.
        table: its numbers.
    """

    name: str
    files: dict[str, bytes]
    title: str
    table: Table


@dataclass(frozen=True)
class NonzeroWeights:
    """The non-zero prunable weights of a run.

    Attributes:
        values: float32 [N].
        total: number of prunable weights, zeros included.
    """

    values: np.ndarray
    total: int


def nonzero_weights(captioner: Captioner, with_encoder: bool = False) -> NonzeroWeights:
    """Collects the non-zero weights of kernels and embedding tables.

    Args:
        with_encoder: whether to include the encoder's.
    """
    weights = [np.ravel(weight.values()) for weight in prunable_weights(captioner, with_encoder)]
    every = np.concatenate([np.zeros(0, "float32"), *weights])
    return NonzeroWeights(every[every != 0], every.size)


def _look(number: int) -> dict:
    return {"color": COLOURS[number % len(COLOURS)], "linestyle": _DASHES[number % 4]}


def progression(runs: Sequence[ReportRun]) -> FigureFile | None:
    """Losses, sparsity, validation scores and gate values by epoch; None if nothing was logged.

    Like Figure 7 of "End-to-End Supermask Pruning" (Tan et al., https://arxiv.org/abs/2110.03298). Values
    that no run has logged have no panel; `not_logged` lists them.
    """
    panels = [panel for panel in _PANELS if any(panel[0] in row for run in runs for row in run.history)]
    drawn = [run for run in runs if any(name in row for row in run.history for name, *_ in panels)]
    if not drawn:
        return None
    height = -(-len(panels) // 2)
    figure = make_figure(2.6 * height)
    grid = figure.subplots(height, min(2, len(panels)), squeeze=False)
    for axes in grid.flat[len(panels) :]:
        axes.set_visible(False)
    handles: dict[str, Artist] = {}
    for number, run in enumerate(drawn):
        for axes, (name, _, factor) in zip(grid.flat, panels, strict=False):
            points = [(row["epoch"], factor * row[name]) for row in run.history if name in row]
            if points:
                (line,) = axes.plot(*zip(*points, strict=True), marker="o", markersize=3, **_look(number))
                handles.setdefault(run.label, line)
    for axes, (_, title, _) in zip(grid.flat, panels, strict=False):
        axes.set_title(title, fontsize=10)
        axes.set_xlabel("epoch", fontsize=9)
        axes.xaxis.get_major_locator().set_params(integer=True)
        axes.tick_params(labelsize=9)
        style_axes(axes)
    legend_below(figure, handles)
    rows = [
        [
            f"{run.label}, {row['epoch']:g}",
            *(f"{factor * row[name]:.4g}" if name in row else NOTHING for name, _, factor in panels),
        ]
        for run in drawn
        for row in run.history
    ]
    table = Table("Values of each epoch", ["run, epoch", *(title for _, title, _ in panels)], rows)
    return _figure_file(figure, "progression", "Training progression", table)


def not_logged(runs: Sequence[ReportRun]) -> list[str]:
    """Titles of the panels that `progression` leaves out because no run has logged the values."""
    logged = {name for run in runs for row in run.history for name in row}
    return [title for name, title, _ in _PANELS[:_ALWAYS_EXPECTED] if name not in logged]


def layer_sparsities(layers: Mapping[str, Sequence[Layer]]) -> FigureFile | None:
    """Sparsity of each layer, like Figure 8 of the same paper; None without layers.

    Args:
        layers: from `studies.layers.layerwise`, by the run's label.
    """
    compared = compare(layers)
    if not compared.names:
        return None
    rows = [
        [
            name,
            *(f"{found[name]:.2%}" if name in found else NOTHING for found in compared.sparsities.values()),
        ]
        for name in compared.names
    ]
    table = Table("Sparsity of each layer", ["layer", *layers], rows)
    return _figure_file(layers_figure(compared), "layers", TITLE, table)


def densities(weights: Mapping[str, NonzeroWeights]) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Histograms of the non-zero weights, each with an area of 1.

    Returns:
        Edges of the bins, float64 [B + 1], symmetric about zero; the density in each bin by label, float64
        [B]. Weights outside the edges are part of the area.
    """
    far = max((float(np.quantile(np.abs(one.values), _SHOWN)) for one in weights.values()), default=1.0)
    edges = np.linspace(-far, far, _BINS + 1)
    width = edges[1] - edges[0]
    return edges, {
        label: np.histogram(one.values, edges)[0] / (one.values.size * width)
        for label, one in weights.items()
    }


def weight_distribution(weights: Mapping[str, NonzeroWeights]) -> FigureFile | None:
    """Distribution of the non-zero weights, like Figure 9 of the same paper; None if there are none.

    Args:
        weights: from `nonzero_weights`, by the run's label.
    """
    weights = {label: one for label, one in weights.items() if one.values.size}
    if not weights:
        return None
    edges, curves = densities(weights)
    figure = make_figure(3.4)
    axes = figure.add_subplot()
    centres = (edges[1:] + edges[:-1]) / 2
    handles = {
        label: axes.plot(centres, curve, linewidth=1.4, **_look(number))[0]
        for number, (label, curve) in enumerate(curves.items())
    }
    axes.set(xlabel="value of the weight", ylabel="density", xlim=(edges[0], edges[-1]))
    axes.set_ylim(bottom=0)
    style_axes(axes)
    legend_below(figure, handles)
    rows = []
    for label, one in weights.items():
        deviation = float(np.std(one.values, dtype="float64"))
        numbers = [deviation, *np.quantile(np.abs(one.values), [0.05, 0.5, 0.95])]
        rows.append([label, f"{one.values.size:,} of {one.total:,}", *(f"{x:.3g}" for x in numbers)])
    percentiles = ["5th percentile", "median", "95th percentile"]
    headings = ["run", "non-zero weights", "standard deviation", *percentiles]
    table = Table("Absolute values of the non-zero weights", headings, rows)
    return _figure_file(figure, "density", "Distribution of the non-zero weights", table)


def _figure_file(figure: "Figure", name: str, title: str, table: Table) -> FigureFile:
    return FigureFile(name, render(figure, title, f"{title}; the report has the numbers."), title, table)
