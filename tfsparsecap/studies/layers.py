"""Layer-wise sparsities of finished runs, beside published ones."""

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import keras

from tfsparsecap import plotting
from tfsparsecap.errors import InputError
from tfsparsecap.inference.finished_run import FinishedRun
from tfsparsecap.model_summary.nonzeros import prunable_weights
from tfsparsecap.runs.run_folder import labelled_folders
from tfsparsecap.studies.published_curves import read_layers
from tfsparsecap.text import one_line

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TITLE = "Layer-wise sparsity"
# Names here (regular expressions) and in the papers, in the order of their figure. The papers count both
# matrices of an LSTM as one layer, and both initial states; they always project the values, whereas
# here that is an option (`model.value_size`).
_PUBLISHED_NAMES = (
    (r"embedding/embeddings", "embedding_map"),
    (r"attention_query/kernel", "MultiHeadAdd/query_layer/kernel"),
    (r"attention_features/kernel", "memory_layer/kernel"),
    (r"attention_values/kernel", "value_layer/kernel"),
    (r"attention_score/kernel", "MultiHeadAdd/attention_v"),
    (r"initial_(hidden|carry)/kernel", "rnn_initial_state/kernel"),
    (r"lstm/(recurrent_)?kernel", "basic_lstm_cell/kernel"),
    (r"output/kernel", "output_projection/kernel"),
    # Keras's names of MobileNet-V1, and the published names of Inception-V1 without slashes.
    (r"(.*/)?conv1/kernel", "Conv2d_0/weights"),
    (r"(.*/)?conv_dw_(?P<number>\d+)/kernel", "Conv2d_{number}_depthwise/depthwise_weights"),
    (r"(.*/)?conv_pw_(?P<number>\d+)/kernel", "Conv2d_{number}_pointwise/weights"),
    (r"(.*/)?(?P<name>Conv2d_\w+)/kernel", "{name}/weights"),
    (
        r"(.*/)?(?P<block>Mixed_\w\w)_(?P<branch>Branch_\d)_(?P<name>\w+)/kernel",
        "{block}/{branch}/{name}/weights",
    ),
)
_HATCHES = "/\\.x"
# With more bars, printing the numbers would make the figure too tall.
_MAX_NUMBERS = 60


class Layer(NamedTuple):
    """A kernel or an embedding table: name, fraction of its weights that are zero, number of weights."""

    name: str
    sparsity: float
    weights: int


def layerwise(model: keras.Model, with_encoder: bool = True) -> list[Layer]:
    """Sparsity of each kernel and embedding table, in order of creation.

    Weights behind closed gates count as zero.

    Args:
        model: any Keras model.
        with_encoder: whether to include a captioner's encoder.

    Examples:
        >>> dense = keras.layers.Dense(2, kernel_initializer="zeros", name="dense")
        >>> layerwise(keras.Sequential([keras.Input((3,)), dense], name="model"))
        [Layer(name='dense/kernel', sparsity=1.0, weights=6)]
    """
    return [
        Layer(
            weight.variable.path.removeprefix(f"{model.name}/"),
            1 - weight.nonzeros() / max(1, weight.size),
            weight.size,
        )
        for weight in prunable_weights(model, with_encoder)
    ]


def layers_of_runs(folders: Sequence[str | os.PathLike]) -> dict[str, list[Layer]]:
    """`layerwise` of finished runs by folder name, or by path if two names are equal.

    The encoder is included if the run pruned it.

    Raises:
        InputError: a folder is not a finished run, or is damaged.
    """
    found = {}
    for label, path in labelled_folders(folders).items():
        run = FinishedRun.load(path)
        found[label] = layerwise(run.captioner, bool(run.config.pruning and run.config.pruning.encoder))
    return found


def by_published_name(layers: Iterable[Layer], known: Iterable[str]) -> list[Layer]:
    """Renames layers to the papers' names and merges those that the papers count as one.

    Args:
        known: names in the paper; a layer with none of them keeps its own.

    Examples:
        >>> ours = [Layer("lstm/kernel", 0.5, 300), Layer("lstm/recurrent_kernel", 0.9, 100)]
        >>> by_published_name(ours, ["basic_lstm_cell/kernel"])
        [Layer(name='basic_lstm_cell/kernel', sparsity=0.6, weights=400)]
    """
    known = set(known)
    merged: dict[str, Layer] = {}
    for layer in layers:
        name = _published_name(layer.name)
        name = name if name in known else layer.name
        _, sparsity, weights = merged.get(name, Layer(name, 0.0, 0))
        total = max(1, weights + layer.weights)
        zeros = sparsity * weights + layer.sparsity * layer.weights
        merged[name] = Layer(name, zeros / total, weights + layer.weights)
    return list(merged.values())


def _published_name(name: str) -> str:
    for pattern, published in _PUBLISHED_NAMES:
        match = re.fullmatch(pattern, name)
        if match:
            return published.format(**match.groupdict())
    return name


class Comparison(NamedTuple):
    """Layers of runs and of published methods under the same names.

    Attributes:
        sparsities: by label and layer, runs first.
        runs: number of labels that are runs.
        names: of all layers, published ones first.
        weights: number of weights of each layer that a run has.
    """

    sparsities: dict[str, dict[str, float]]
    runs: int
    names: list[str]
    weights: dict[str, int]


def compare(runs: Mapping[str, Sequence[Layer]], published: str | os.PathLike | None = None) -> Comparison:
    """Puts runs side by side, and beside a table of published sparsities.

    Args:
        runs: layers by label.
        published: a table such as `layerwise__Layer-wise_Sparsities_of_Soft-Attention_LSTM_MS-COCO_.tsv`.

    Raises:
        InputError: the table is damaged.
    """
    theirs = {} if published is None else read_layers(published)
    known = dict.fromkeys(name for layers in theirs.values() for name in layers)
    ours = {label: by_published_name(layers, known) for label, layers in runs.items()}
    weights = {layer.name: layer.weights for layers in ours.values() for layer in layers}
    sparsities = {label: {layer.name: layer.sparsity for layer in layers} for label, layers in ours.items()}
    sparsities |= {f"{method}, published": layers for method, layers in theirs.items()}
    return Comparison(sparsities, len(ours), list({**known, **dict.fromkeys(weights)}), weights)


def layers_figure(comparison: Comparison) -> "Figure":
    """A bar for each layer and label, like Figure 8 of "End-to-End Supermask Pruning" (Tan et al., 2022).

    Published sparsities are hatched.
    """
    from matplotlib.patches import Patch

    sparsities, runs, names, _ = comparison
    show_numbers = len(names) * len(sparsities) <= _MAX_NUMBERS
    figure = plotting.make_figure(
        0.6 + len(names) * (0.12 + (0.16 if show_numbers else 0.1) * len(sparsities))
    )
    axes = figure.add_subplot()
    lowest = min(sparsity for layers in sparsities.values() for sparsity in layers.values())
    low = 0 if lowest < 0.5 else 10 * int(10 * lowest)
    height, patches = 0.84 / len(sparsities), {}
    for number, (label, layers) in enumerate(sparsities.items()):
        colour = plotting.COLOURS[(number if number < runs else number - runs) % len(plotting.COLOURS)]
        look: dict[str, Any] = {"facecolor": colour, "edgecolor": "white", "linewidth": 0.4}
        if number >= runs:
            hatch = 4 * _HATCHES[(number - runs) % len(_HATCHES)]
            look = {"facecolor": "white", "edgecolor": colour, "linewidth": 0.8, "hatch": hatch}
        patches[label] = Patch(**look)
        y = [names.index(name) + (number - (len(sparsities) - 1) / 2) * height for name in layers]
        widths = [100 * sparsity - low for sparsity in layers.values()]
        axes.barh(y, widths, 0.88 * height, left=low, **look)
        for at, width in zip(y, widths, strict=True) if show_numbers else ():
            axes.annotate(
                f"{low + width:.1f}", (100, at), xytext=(3, 0), textcoords="offset points",
                fontsize=8, color=plotting.DARK_GREY, va="center",
            )  # fmt: skip
    axes.set_yticks(
        range(len(names)), [plotting.plain(plotting.shortened(name, 60)) for name in names], fontsize=9
    )
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.set_xlim(low, 100)
    axes.set_xlabel("sparsity of the layer, %" + (f" (the axis starts at {low} %)" if low else ""))
    plotting.style_axes(axes, "x")
    plotting.legend_below(figure, patches)
    return figure


def plot_layerwise(
    runs: Mapping[str, Sequence[Layer]],
    path: str | os.PathLike,
    *,
    published: str | os.PathLike | None = None,
    title: str = TITLE,
) -> list[Path]:
    """Writes `layers_figure` as .png and .svg.

    Args:
        runs, published: as in `compare`.
        path: a .png file; an .svg file of the same name is written beside it.
        title: above the figure.

    Returns:
        The two files.

    Raises:
        InputError: there is no layer, the table is damaged, or the files cannot be written.

    Examples:
        >>> plot_layerwise(layers_of_runs(["runs/smp"]), "layers.png")  # doctest: +SKIP
        [PosixPath('layers.png'), PosixPath('layers.svg')]
    """
    path, comparison = plotting.png_path(path), compare(runs, published)
    if not comparison.names:
        raise InputError(f"there are no layers to plot in {path}: give at least one run")
    return plotting.write_figure(layers_figure(comparison), path, title, describe(comparison))


def describe(comparison: Comparison) -> str:
    """The figure in words, for screen readers: the layers of each label by sparsity."""
    sentences = []
    for label, layers in comparison.sparsities.items():
        ranked = sorted(layers, key=layers.__getitem__)
        listed = ", ".join(f"{name} {layers[name]:.1%}" for name in ranked)
        dense = not any(layers.values())
        sentences.append(f"{label}: dense." if dense else f"{label}, by increasing sparsity: {listed}.")
    return one_line(" ".join(sentences))
