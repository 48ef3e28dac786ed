"""Figures of a report: training progression, layer-wise sparsity, density of the remaining weights."""

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tfsparsecap.models.captioner import Captioner
from tfsparsecap.plotting import COLOURS, legend_below, make_figure, plain, write_figure
from tfsparsecap.reports.runs import NOTHING, Cell, ReportRun, Table
from tfsparsecap.studies.layers import Layer, order, plot_layerwise

# Column of history.csv, what the panel is called, what its values are multiplied with.
_EXPECTED = (
    ("loss", "training loss", 1),
    ("sparsity", "sparsity, %", 100),
    ("validation_CIDEr", "CIDEr, validation split", 1),
    ("mean_gate", "mean gate value", 1),
)
# Only some methods of training and pruning have these.
_PANELS = (*_EXPECTED, ("sparsity_loss", "sparsity loss", 1), ("reward", "reward", 1))
_DASHES = ("-", "--", ":", "-.")
_BINS = 160
# The few weights that lie further out would make the rest a needle.
_SHOWN = 0.998


@dataclass(frozen=True)
class FigureFile:
    """A figure as it is shown.

    Attributes:
        name: of its files, without suffix.
        png, svg: content of the files.
        alt: what is to be seen on it, in words.
        table: its numbers, for those who cannot read them off.
    """

    name: str
    png: bytes
    svg: bytes
    alt: str
    table: Table


@dataclass(frozen=True)
class Remaining:
    """The weights of a run that are left.

    Attributes:
        values: float32 [N], none of them zero.
        weights: how many there were with the zeros.
    """

    values: np.ndarray
    weights: int


def remaining_weights(captioner: Captioner, with_encoder: bool = False) -> Remaining:
    """Non-zero weights of kernels and embedding tables, as `study_layers.layerwise` counts them.

    Args:
        captioner: without gates.
        with_encoder: count those of the encoder, too.
    """
    encoder = captioner.encoder
    left_out = {id(variable) for variable in encoder.variables} if encoder and not with_encoder else set()
    kept, weights = [], 0
    for variable in captioner.weights:
        if id(variable) in left_out or len(variable.shape) < 2 or variable.path.endswith("bias"):
            continue
        values = np.ravel(np.asarray(variable, "float32"))
        kept.append(values[values != 0])
        weights += values.size
    return Remaining(np.concatenate([np.zeros(0, "float32"), *kept]), weights)


def progression(runs: Sequence[ReportRun]) -> FigureFile | None:
    """Losses, sparsity, validation scores and mean gates of all runs over their epochs; None where there are
    none. After figure 7 of "End-to-End Supermask Pruning" (Tan et al., https://arxiv.org/abs/2110.03298).

    Panels of what no run has logged are left out; `not_logged` names them.
    """
    panels = [panel for panel in _PANELS if any(panel[0] in row for run in runs for row in run.history)]
    drawn = [run for run in runs if any(name in row for row in run.history for name, *_ in panels)]
    if not drawn:
        return None
    rows = -(-len(panels) // 2)
    figure = make_figure(2.6 * rows)
    grid = figure.subplots(rows, min(2, len(panels)), squeeze=False)
    for axes in grid.flat[len(panels) :]:
        axes.set_visible(False)
    handles = {}
    for axes, (name, title, scale) in zip(grid.flat, panels, strict=False):
        for number, run in enumerate(drawn):
            points = [(row["epoch"], scale * row[name]) for row in run.history if name in row]
            if points:
                look = {"color": COLOURS[number % len(COLOURS)], "linestyle": _DASHES[number % 4]}
                (line,) = axes.plot(*zip(*points, strict=True), marker="o", markersize=3, **look)
                handles.setdefault(run.label, line)
        axes.set_title(title, fontsize=10)
        axes.set_xlabel("epoch", fontsize=9)
        axes.xaxis.get_major_locator().set_params(integer=True)
        axes.grid(alpha=0.3, linewidth=0.6)
        axes.spines[["top", "right"]].set_visible(False)
        axes.tick_params(labelsize=9)
    labels = list(handles)
    legend_below(figure, list(handles.values()), [plain(label) for label in labels])
    sentences = []
    for run in drawn:
        parts = []
        for name, title, scale in panels:
            values = [scale * row[name] for row in run.history if name in row]
            if values:
                parts.append(f"{title} from {values[0]:.3g} to {values[-1]:.3g}")
        sentences.append(f"{run.label}, {len(run.history)} epochs: {'; '.join(parts)}.")
    table = Table(
        "Values of each epoch",
        ["run, epoch", *(title for _, title, _ in panels)],
        [
            (
                f"{run.label}, {row['epoch']:g}",
                [Cell(f"{scale * row[name]:.4g}" if name in row else NOTHING) for name, _, scale in panels],
            )
            for run in drawn
            for row in run.history
        ],
    )
    return _written(figure, "progression", "Training progression", " ".join(sentences), table)


def not_logged(runs: Sequence[ReportRun]) -> list[str]:
    """What the figure of the progression would show, and no run has logged."""
    return [
        title for name, title, _ in _EXPECTED if not any(name in row for run in runs for row in run.history)
    ]


def layers_figure(layers: Mapping[str, Sequence[Layer]]) -> FigureFile | None:
    """Sparsity of each layer, a bar a run, after figure 8 of the same paper; None where there is no layer.

    Args:
        layers: what `study_layers.layerwise` says, by the run's label.
    """
    names = list(dict.fromkeys(layer.name for of_run in layers.values() for layer in of_run))
    if not names:
        return None
    shares = {label: {layer.name: layer.sparsity for layer in of_run} for label, of_run in layers.items()}
    rows = [
        (
            name,
            [Cell(f"{of_run[name]:.2%}" if name in of_run else NOTHING) for of_run in shares.values()],
        )
        for name in names
    ]
    sentences = []
    for label, of_run in layers.items():
        if all(layer.sparsity == 0 for layer in of_run):
            sentences.append(f"{label}: no layer has lost a weight.")
            continue
        by_name = shares[label]
        ranked = ", ".join(f"{name} {by_name[name]:.1%}" for name in order(of_run))
        sentences.append(f"{label}, from the least pruned layer to the most pruned: {ranked}.")
    table = Table("Pruned weights of each layer", ["layer", *layers], rows)
    with tempfile.TemporaryDirectory() as folder:
        png, svg = plot_layerwise(layers, Path(folder) / "layers.png", title="Pruned weights of each layer")
        return FigureFile("layers", png.read_bytes(), svg.read_bytes(), " ".join(sentences), table)


def density(remaining: Mapping[str, Remaining]) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """How often remaining weights have which value: each curve has an area of 1 over all its weights.

    Returns:
        Edges of the bins, float64 [B + 1], around zero; by label the density in each, float64 [B]. Weights
        outside the edges count in the area.
    """
    far = max(
        (float(np.quantile(np.abs(one.values), _SHOWN)) for one in remaining.values() if one.values.size),
        default=0.0,
    )
    edges = np.linspace(-(far or 1.0), far or 1.0, _BINS + 1)
    width = edges[1] - edges[0]
    return edges, {
        label: np.histogram(one.values, edges)[0] / (max(1, one.values.size) * width)
        for label, one in remaining.items()
    }


def density_figure(remaining: Mapping[str, Remaining]) -> FigureFile | None:
    """Density of the remaining weights of each run, after figure 9 of the same paper; None without weights.

    Args:
        remaining: what `remaining_weights` gives, by the run's label.
    """
    there = {label: one for label, one in remaining.items() if one.values.size}
    if not there:
        return None
    edges, curves = density(there)
    middles = (edges[1:] + edges[:-1]) / 2
    figure = make_figure(3.4)
    axes = figure.add_subplot()
    handles = []
    for number, curve in enumerate(curves.values()):
        look = {"color": COLOURS[number % len(COLOURS)], "linestyle": _DASHES[number % 4]}
        handles += axes.plot(middles, curve, linewidth=1.4, **look)
    axes.set_xlabel("value of the weight")
    axes.set_ylabel("density")
    axes.set_xlim(edges[0], edges[-1])
    axes.set_ylim(bottom=0)
    axes.grid(alpha=0.3, linewidth=0.6)
    axes.spines[["top", "right"]].set_visible(False)
    legend_below(figure, handles, [plain(label) for label in curves])
    rows, sentences = [], []
    for label, one in there.items():
        low, middle, high = np.quantile(np.abs(one.values), [0.05, 0.5, 0.95])
        spread = float(np.std(one.values, dtype="float64"))
        rows.append(
            (
                label,
                [
                    Cell(f"{one.values.size:,} of {one.weights:,}"),
                    *(Cell(f"{x:.3g}") for x in (spread, low, middle, high)),
                ],
            )
        )
        sentences.append(
            f"{label}: half of its {one.values.size:,} remaining weights are further than {middle:.3g} from"
            f" zero, standard deviation {spread:.3g}."
        )
    headings = ["run", "weights left", "standard deviation", "5 % below", "half below", "95 % below"]
    table = Table("Absolute values of the remaining weights", headings, rows)
    return _written(figure, "density", "Density of the remaining weights", " ".join(sentences), table)


def _written(figure, name: str, title: str, alt: str, table: Table) -> FigureFile:
    with tempfile.TemporaryDirectory() as folder:
        png, svg = write_figure(figure, Path(folder) / f"{name}.png", title, alt)
        return FigureFile(name, png.read_bytes(), svg.read_bytes(), alt, table)
