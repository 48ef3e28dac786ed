"""python -m tfsparsecap.studies.layers: which layers of a finished run lost how much."""

import argparse
import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from rich.box import SIMPLE
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from tfsparsecap.command import only_json_on_stdout, parser, run, start_tensorflow
from tfsparsecap.errors import InputError
from tfsparsecap.plotting import (
    COLOURS,
    INK,
    legend_below,
    make_figure,
    plain,
    png_path,
    shortened,
    write_figure,
)
from tfsparsecap.studies.published_curves import read_layers
from tfsparsecap.text import one_line, short_count

if TYPE_CHECKING:
    import keras

# Ours and theirs, in the order of their figure. They count both matrices of an LSTM as one, and both of the
# state before the first word; their keys and values are projected each, our values are the features.
_PUBLISHED = (
    (r"embedding/embeddings", "embedding_map"),
    (r"attention_query/kernel", "MultiHeadAdd/query_layer/kernel"),
    (r"attention_features/kernel", "memory_layer/kernel"),
    (r"attention_score/kernel", "MultiHeadAdd/attention_v"),
    (r"initial_(hidden|carry)/kernel", "rnn_initial_state/kernel"),
    (r"lstm/(recurrent_)?kernel", "basic_lstm_cell/kernel"),
    (r"output/kernel", "output_projection/kernel"),
    # MobileNet-V1 by Keras's names, Inception-V1 by the published ones without their slashes.
    (r"(.*/)?conv1/kernel", "Conv2d_0/weights"),
    (r"(.*/)?conv_dw_(?P<number>\d+)/kernel", "Conv2d_{number}_depthwise/depthwise_weights"),
    (r"(.*/)?conv_pw_(?P<number>\d+)/kernel", "Conv2d_{number}_pointwise/weights"),
    (r"(.*/)?(?P<name>Conv2d_\w+)/kernel", "{name}/weights"),
    (
        r"(.*/)?(?P<block>Mixed_\w\w)_(?P<branch>Branch_\d)_(?P<name>\w+)/kernel",
        "{block}/{branch}/{name}/weights",
    ),
)


_TITLE = "Pruned weights of each layer"
_HATCHES = "/\\.x"
# More would make a picture too long to be looked at.
_MOST_NUMBERS = 60


class Layer(NamedTuple):
    """A kernel or an embedding table: its name, the share of its weights that are zero, how many it has."""

    name: str
    sparsity: float
    weights: int


def layerwise(run_or_model: "str | os.PathLike | keras.Model", with_encoder: bool = False) -> list[Layer]:
    """Sparsities of all kernels and embedding tables, in the order of the model; biases are left out.

    Args:
        run_or_model: the folder of a finished run, or a model without gates.
        with_encoder: count a captioner's encoder; that of a run is counted where the run pruned it.

    Raises:
        InputError: the run is not finished or damaged; the model is still being pruned.

    Example:
        >>> import keras
        >>> dense = keras.layers.Dense(2, kernel_initializer="zeros", name="dense")
        >>> layerwise(keras.Sequential([keras.Input((3,)), dense], name="model"))
        [Layer(name='dense/kernel', sparsity=1.0, weights=6)]
    """
    # A command reads its arguments before TensorFlow takes its seconds.
    from tfsparsecap.gates import gates
    from tfsparsecap.summary.nonzeros import prunable_weights

    model = run_or_model
    if isinstance(model, str | os.PathLike):
        from tfsparsecap.inference.finished_run import FinishedRun

        trained = FinishedRun.load(model)
        model = trained.captioner
        with_encoder |= trained.config.pruning is not None and trained.config.pruning.encoder
    if gates(model):
        raise InputError(f"{model.name} is still being pruned: call strip_pruning on it first")
    return [
        Layer(
            weight.variable.path.removeprefix(f"{model.name}/"),
            1 - weight.nonzeros() / max(1, weight.size),
            weight.size,
        )
        for weight in prunable_weights(model, with_encoder)
    ]


def order(layers: Iterable[Layer]) -> list[str]:
    """Names from the least pruned layer to the most pruned one.

    Example:
        >>> order([Layer("a", 0.9, 10), Layer("b", 0.5, 10)])
        ['b', 'a']
    """
    return [layer.name for layer in sorted(layers, key=lambda layer: layer.sparsity)]


def by_published_name(layers: Iterable[Layer], known: Iterable[str]) -> list[Layer]:
    """Layers under the names that the papers have for them; what the papers count as one is put together.

    Args:
        known: the names in the paper; a layer that has none of them keeps its own.

    Example:
        >>> ours = [Layer("lstm/kernel", 0.5, 300), Layer("lstm/recurrent_kernel", 0.9, 100)]
        >>> by_published_name(ours, ["basic_lstm_cell/kernel"])
        [Layer(name='basic_lstm_cell/kernel', sparsity=0.6, weights=400)]
    """
    known = set(known)
    zeros: dict[str, float] = {}
    weights: dict[str, int] = {}
    for layer in layers:
        name = _published_name(layer.name)
        name = name if name in known else layer.name
        zeros[name] = zeros.get(name, 0.0) + layer.sparsity * layer.weights
        weights[name] = weights.get(name, 0) + layer.weights
    return [Layer(name, zeros[name] / max(1, weights[name]), weights[name]) for name in weights]


def _published_name(name: str) -> str:
    for ours, theirs in _PUBLISHED:
        found = re.fullmatch(ours, name)
        if found:
            return theirs.format(**found.groupdict())
    return name


class Comparison(NamedTuple):
    """Layers of runs, and of published methods, under the same names.

    Attributes:
        shares: sparsity by label and name of a layer, ours first.
        ours: how many of the labels are ours.
        names: of all layers, those that are published first.
        weights: of each layer that a run has, by name.
    """

    shares: dict[str, dict[str, float]]
    ours: int
    names: list[str]
    weights: dict[str, int]


def compare(runs: Mapping[str, Sequence[Layer]], published: str | os.PathLike | None = None) -> Comparison:
    """Puts runs beside each other and beside a table of published sparsities; see `plot_layerwise`.

    Raises:
        InputError: the table is damaged.
    """
    theirs = {} if published is None else read_layers(published)
    known = dict.fromkeys(name for shares in theirs.values() for name in shares)
    ours = {label: by_published_name(layers, known) for label, layers in runs.items()}
    weights = {layer.name: layer.weights for layers in ours.values() for layer in layers}
    shares = {label: {layer.name: layer.sparsity for layer in layers} for label, layers in ours.items()}
    for method, of_layers in theirs.items():
        shares[f"{method}, published"] = of_layers
    return Comparison(shares, len(ours), list({**known, **dict.fromkeys(weights)}), weights)


def plot_layerwise(
    runs: Mapping[str, Sequence[Layer]],
    path: str | os.PathLike,
    *,
    published: str | os.PathLike | None = None,
    title: str = "",
) -> list[Path]:
    """Draws a bar for each layer and run, after figure 8 of "End-to-End Supermask Pruning" (Tan et al.).

    Args:
        runs: what `layerwise` says of each, by label.
        path: a .png file; an .svg file of the same name is written beside it.
        published: a table such as `layerwise__Layer-wise_Sparsities_of_Soft-Attention_LSTM_MS-COCO_.tsv`, the
            bars of which stand beside ours; layers then bear its names.
        title: over the picture.

    Returns:
        The two files.

    Raises:
        InputError: there is nothing to draw, the table is damaged, or the files cannot be written.

    Example:
        >>> plot_layerwise({"SMP": layerwise("runs/smp")}, "layers.png")  # doctest: +SKIP
        [PosixPath('layers.png'), PosixPath('layers.svg')]
    """
    from matplotlib.patches import Patch

    path = png_path(path)
    shares, ours, names, _ = compare(runs, published)
    if not names:
        raise InputError(f"no layer is given: there is nothing to draw in {path}")
    looks = [_look(number, True) for number in range(ours)]
    looks += [_look(number, False) for number in range(len(shares) - ours)]
    numbers = len(names) * len(shares) <= _MOST_NUMBERS
    bar = 0.84 / len(shares)
    figure = make_figure(0.6 + len(names) * (0.12 + (0.16 if numbers else 0.1) * len(shares)))
    axes = figure.add_subplot()
    least = min(share for of_layers in shares.values() for share in of_layers.values())
    low = 0 if least < 0.5 else 10 * int(10 * least)
    for number, (of_layers, look) in enumerate(zip(shares.values(), looks, strict=True)):
        for place, name in enumerate(names):
            if name in of_layers:
                y, share = place + (number - (len(shares) - 1) / 2) * bar, 100 * of_layers[name]
                axes.barh(y, share - low, 0.88 * bar, left=low, **look)
                if numbers:
                    at = {"xytext": (3, 0), "textcoords": "offset points", "va": "center"}
                    axes.annotate(f"{share:.1f}", (100, y), fontsize=8, color=INK, **at)
    axes.set_yticks(range(len(names)), [plain(shortened(name, 60)) for name in names], fontsize=9)
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.set_xlim(low, 100)
    axes.set_xlabel("pruned weights of the layer, %" + (f" (the axis starts at {low} %)" if low else ""))
    axes.grid(axis="x", alpha=0.3, linewidth=0.6)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    legend_below(figure, [Patch(**look) for look in looks], [plain(label) for label in shares])
    return write_figure(figure, path, title, describe(runs))


def _look(number: int, ours: bool) -> dict:
    """Full bars are ours, hatched ones are published: that is seen without colours."""
    colour = COLOURS[number % len(COLOURS)]
    if ours:
        return {"facecolor": colour, "edgecolor": "white", "linewidth": 0.4}
    hatch = 4 * _HATCHES[number % len(_HATCHES)]
    return {"facecolor": "white", "edgecolor": colour, "linewidth": 0.8, "hatch": hatch}


def describe(runs: Mapping[str, Sequence[Layer]]) -> str:
    """In words, for those who do not see the picture: the layers of each run, least pruned first."""
    return one_line(
        " ".join(
            f"{label}, from the least pruned layer to the most pruned: {', '.join(order(layers))}."
            for label, layers in runs.items()
        )
    )


def _labels(paths: Sequence[str]) -> list[str]:
    """Names of the folders, or where those are equal the paths."""
    names = [Path(path).resolve().name for path in paths]
    return names if len(set(names)) == len(names) else list(paths)


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    command = parser(
        "python -m tfsparsecap.studies.layers",
        "Shows how sparse each layer of finished runs is, beside published sparsities where a table of them\n"
        "is given, as a table and as a picture.",
        [
            ("python -m tfsparsecap.studies.layers runs/smp runs/gradual", "two runs side by side"),
            (
                "python -m tfsparsecap.studies.layers runs/smp --published layerwise__LSTM.tsv "
                "--output layers.png",
                "beside the papers' figure 8",
            ),
        ],
    )
    command.add_argument("runs", nargs="+", metavar="RUN", help="folders of finished runs")
    command.add_argument("--published", metavar="FILE.tsv", help="published layer-wise sparsities")
    command.add_argument("--output", metavar="PICTURE.png", help="draw them, as .svg too")
    command.add_argument("--json", action="store_true", help="print the sparsities as JSON")
    return command.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> None:
    """Counts as the command line says and prints a table."""
    options = _arguments(argv)
    if options.output:
        png_path(options.output)
    paths = list(dict.fromkeys(options.runs))
    with only_json_on_stdout(options.json):
        start_tensorflow()
        runs = {label: layerwise(path) for label, path in zip(_labels(paths), paths, strict=True)}
        compared = compare(runs, options.published)
        if options.output:
            plot_layerwise(runs, options.output, published=options.published, title=_TITLE)
    if options.json:
        print(json.dumps({label: [layer._asdict() for layer in layers] for label, layers in runs.items()}))
        return
    table = Table(title=_TITLE, title_justify="left", box=SIMPLE, padding=(0, 1, 0, 0))
    table.add_column("layer", overflow="fold")
    for label in ("weights", *compared.shares):
        table.add_column(escape(one_line(label)), justify="right", overflow="fold")
    for name in compared.names:
        found = (of_layers.get(name) for of_layers in compared.shares.values())
        weights = short_count(compared.weights[name]) if name in compared.weights else ""
        table.add_row(escape(name), weights, *("" if share is None else f"{share:.2%}" for share in found))
    console = Console()
    console.print(table)
    orders = {label: order(layers) for label, layers in runs.items()}
    published = {label: shares for label, shares in compared.shares.items() if label not in runs}
    orders |= {label: sorted(shares, key=shares.get) for label, shares in published.items()}
    for label, names in orders.items():
        said = f"{label}, from the least pruned layer to the most pruned: {', '.join(names)}"
        console.print(said, markup=False, highlight=False)
    if options.output:
        console.print(f"drawn in {options.output}", markup=False, highlight=False)


if __name__ == "__main__":
    run(main)
