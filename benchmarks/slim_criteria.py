"""python -m benchmarks.slim_criteria: importance criteria of structured pruning, without training after it.

Removes a share of a network with each importance criterion of `sc.slim`, with and without samples, and
shows what is left of the network: the mean squared error of an encoder's feature map, relative to its
variance, on photographs; or the accuracy of an image classifier on CIFAR-10. Means and standard deviations
over several random choices of the samples. Both kinds of network have the options --ratios, --budget,
--multiple and --draws, which `encoder --help` explains.

examples:
  python -m benchmarks.slim_criteria encoder FOLDER network=tiny_vit_5m --ratios 0.1
      TinyViT-5M with its published weights, photographs in FOLDER; other settings below model.encoder, too
  python -m benchmarks.slim_criteria classifier runs/slim_training/dense-5-1-63953869.keras --multiple 2
      ResNet-32, trained by benchmarks.slim_training
"""

import argparse
import itertools
import statistics
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rich import box
from rich.console import Console
from rich.table import Table

from tfsparsecap.command import parser, run, start_tensorflow
from tfsparsecap.errors import InputError, check_number
from tfsparsecap.slim_captioner import BUDGETS

#: Photographs among which samples are drawn, photographs for the error, and samples of each draw.
PHOTOGRAPHS, HELD_OUT, SAMPLES = 128, 64, 64
#: Training images of CIFAR-10 in each draw.
IMAGES = 512
_BATCH = 32
#: Criterion and whether it gets samples -> ratio -> one value for each draw.
Results = dict[tuple[str, bool], dict[float, list[float]]]


def criteria() -> list[tuple[str, bool]]:
    """The criteria, and whether they get samples: "taylor" always needs some."""
    from tfsparsecap.slimming.importance import CRITERIA

    pairs = itertools.product(CRITERIA, (False, True))
    return [(name, with_samples) for name, with_samples in pairs if with_samples or name != "taylor"]


def table(title: str, results: Results, digits: int) -> Table:
    """Mean and sample standard deviation over the draws of each criterion (rows) and ratio (columns)."""
    grid = Table(title=title, box=box.SIMPLE_HEAD)
    grid.add_column("criterion")
    grid.add_column("samples")
    for ratio in next(iter(results.values())):
        grid.add_column(f"{ratio:.0%} removed", justify="right")
    for (name, with_samples), columns in results.items():
        cells = []
        for values in columns.values():
            spread = f" ± {statistics.stdev(values):.{digits}f}" if len(values) > 1 else ""
            cells.append(f"{statistics.fmean(values):.{digits}f}{spread}")
        grid.add_row(name, "yes" if with_samples else "no", *cells)
    return grid


def compare(
    network: Any,
    draw: Callable[[np.random.Generator], np.ndarray],
    measure: Callable[[Any], float],
    options: argparse.Namespace,
) -> Results:
    """What `measure` returns after each removal.

    Args:
        network: the Keras model to remove channels from.
        draw: random samples [N, ...], as the model takes them.
        measure: of the slim model.
        options: `ratios`, `budget`, `multiple` and `draws`.

    Raises:
        InputError: the model cannot lose so much.
    """
    import tfsparsecap as sc

    # Before hours of work; what can be removed does not depend on the criterion.
    sc.slim_plan(network, max(options.ratios), budget=options.budget, multiple=options.multiple)
    results: Results = {}
    for name, with_samples in criteria():
        columns = results[name, with_samples] = {}
        for ratio in options.ratios:
            arguments = {"criterion": name, "budget": options.budget, "multiple": options.multiple}
            values = columns[ratio] = []
            # Without samples nothing is random.
            for seed in range(options.draws if with_samples else 1):
                if with_samples:
                    chosen = draw(np.random.default_rng(seed))
                    arguments["samples"] = np.array_split(chosen, max(1, len(chosen) // _BATCH))
                values.append(measure(sc.slim(network, ratio, **arguments)))
            print(f"{name}, {'with' if with_samples else 'no'} samples, {ratio:.0%}: {values}", flush=True)
    return results


def compare_encoders(options: argparse.Namespace) -> Table:
    """The table of an image encoder.

    Raises:
        InputError: the settings, or the photographs, cannot be used.
    """
    from tfsparsecap.captioning.data.images import read_image
    from tfsparsecap.captioning.data.records import check_folder, images_in
    from tfsparsecap.captioning.settings.build import make_encoder
    from tfsparsecap.captioning.settings.config_files import load_config

    check_folder(options.photographs, "photographs")
    config = load_config(None, [f"model.encoder.{setting}" for setting in options.settings])
    if config.model.encoder.weights is None:
        print("note: the network has random weights: weights=imagenet loads published ones")
    encoder = make_encoder(config.model.encoder, "float32")
    paths = images_in(options.photographs)
    if len(paths) < PHOTOGRAPHS + HELD_OUT:
        raise InputError(
            f"{options.photographs} contains {len(paths)} images: give a folder with at least"
            f" {PHOTOGRAPHS + HELD_OUT}"
        )
    order = np.random.default_rng(0).permutation(len(paths))[: PHOTOGRAPHS + HELD_OUT]
    images = np.stack([read_image(paths[index], encoder.image_size) for index in order])
    inputs = np.asarray(encoder.preprocess(images.astype("float32")))
    held_out, pool = inputs[:HELD_OUT], inputs[HELD_OUT:]
    expected = encoder.backbone.predict(held_out, _BATCH, verbose=0)

    def measure(small: Any) -> float:
        error = small.predict(held_out, _BATCH, verbose=0) - expected
        return float((error**2).mean() / expected.var())

    results = compare(encoder.backbone, lambda rng: rng.permutation(pool)[:SAMPLES], measure, options)
    title = f"{config.model.encoder.network}, {options.budget}: relative error of the feature map"
    return table(title, results, 2)


def compare_classifiers(options: argparse.Namespace) -> Table:
    """The table of a classifier of CIFAR-10's images.

    Raises:
        InputError: the model or the data are missing or damaged.
    """
    from benchmarks.image_data import load
    from tfsparsecap.core.saved_models import load_model

    (images, _), (test_images, labels) = load("cifar10", options.data)
    network = load_model(options.model, "give the file of an image classifier")
    if network.input_shape[1:] != images.shape[1:]:
        raise InputError(
            f"{options.model} takes inputs of shape {network.input_shape}: give a classifier of CIFAR-10's"
            " images, such as benchmarks.slim_training saves"
        )

    def measure(small: Any) -> float:
        predicted = small.predict(test_images, 500, verbose=0).argmax(axis=1)
        return 100 * float((predicted == labels).mean())

    def draw(rng: np.random.Generator) -> np.ndarray:
        return images[rng.choice(len(images), min(IMAGES, len(images)), replace=False)].astype("float32")

    results = compare(network, draw, measure, options)
    return table(f"{options.budget}: accuracy in %, whole {measure(network):.1f} %", results, 1)


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    from benchmarks.image_data import add_data_option

    options = parser(__doc__)
    kinds = options.add_subparsers(dest="kind", required=True)
    encoder = kinds.add_parser("encoder", help="an image encoder and photographs")
    encoder.add_argument("photographs", type=Path, metavar="FOLDER", help="with images, such as Flickr8k's")
    encoder.add_argument("settings", nargs="*", metavar="KEY=VALUE", help="settings below model.encoder")
    classifier = kinds.add_parser("classifier", help="a classifier of CIFAR-10's images")
    classifier.add_argument("model", type=Path, metavar="FILE", help="a .keras file")
    add_data_option(classifier, "cifar10")
    for subcommand, budget in ((encoder, "parameters"), (classifier, "flops")):
        add = subcommand.add_argument
        add("--ratios", type=float, nargs="+", default=[0.1, 0.2, 0.5], help="(default: 0.1 0.2 0.5)")
        add(
            "--budget",
            choices=BUDGETS,
            default=budget,
            help="what the ratios are shares of (default: %(default)s)",
        )
        add("--multiple", type=int, default=8, help="layers keep a multiple of so many channels (default: 8)")
        add("--draws", type=int, default=3, help="random choices of the samples (default: 3)")
    return options.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> None:
    """Runs the command.

    Raises:
        InputError: an argument is wrong, or data or the model are missing or damaged.
    """
    options = _arguments(argv)
    check_number("--draws", options.draws, at_least=1)
    for ratio in options.ratios:
        check_number("--ratios", ratio, above=0, below=1)
    start_tensorflow()
    import tensorflow as tf

    tf.get_logger().setLevel("ERROR")  # each slim model is traced again
    compare_kind = compare_encoders if options.kind == "encoder" else compare_classifiers
    Console().print(compare_kind(options))


if __name__ == "__main__":
    run(main)
