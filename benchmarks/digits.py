"""python -m benchmarks.digits: relevance-based, L1 and L2 pruning of LeNet-5 on handwritten digits.

Trains LeNet-5 on scikit-learn's handwritten digits and prunes it with relevance-based, L1 and L2 pruning
as long as the validation accuracy stays above a bound. Prints sparsity and accuracy.

examples:
  python -m benchmarks.digits
      three seeds, some minutes
  python -m benchmarks.digits --bounds 0.95 0.97 --seeds 5
      several bounds
  python -m benchmarks.digits --tune
      how the weight decays were chosen
"""

import argparse
import itertools
import json
import math
import statistics
import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import keras
import numpy as np
import tensorflow as tf
from rich import box
from rich.console import Console
from rich.table import Table
from tqdm import tqdm

from tfsparsecap.command import only_json_on_stdout, parser, run
from tfsparsecap.errors import InputError, check_number
from tfsparsecap.model_summary.nonzeros import weight_counts
from tfsparsecap.pruning import L1Pruning, L2Pruning, Relevance, prune, strip_pruning

METHODS = {"relevance": Relevance, "l1": L1Pruning, "l2": L2Pruning}
#: Found with `--tune`: the values of `GRID` with the highest mean sparsity at a bound of 0.96.
WEIGHT_DECAYS = {"relevance": 1e-3, "l1": 3e-5, "l2": 1e-4}
GRID = {
    "relevance": (3e-4, 1e-3, 3e-3, 1e-2),
    "l1": (3e-6, 1e-5, 3e-5, 1e-4),
    "l2": (1e-4, 3e-4, 1e-3, 3e-3),
}
SIDE = 28
BATCH_SIZE = 32
# `--tune` uses other seeds than the table.
_FIRST_TUNING_SEED = 1000
_MEASURES = ("validation", "test", "sparsity", "nonzero_weights")


class Digits(NamedTuple):
    """Images, float32 [N, 28, 28, 1] from 0 to 1, and labels, int [N], of three splits."""

    train: tuple[np.ndarray, np.ndarray]
    validation: tuple[np.ndarray, np.ndarray]
    test: tuple[np.ndarray, np.ndarray]


def load_digits(seed: int) -> Digits:
    """The digits, resized from 8x8 to MNIST's 28x28: 60 % training, 20 % validation, 20 % test, stratified.

    Args:
        seed: of the splits.

    Raises:
        InputError: scikit-learn is not installed.

    Examples:
        >>> [len(labels) for _, labels in load_digits(0)]
        [1077, 360, 360]
    """
    try:
        from sklearn.datasets import load_digits as load
        from sklearn.model_selection import train_test_split
    except ImportError as error:
        raise InputError("this needs scikit-learn: pip install scikit-learn") from error
    digits = load()
    images = np.asarray(tf.image.resize(digits.images[..., None] / 16.0, (SIDE, SIDE)), np.float32)

    def split(images: np.ndarray, labels: np.ndarray, size: float) -> list[np.ndarray]:
        return train_test_split(images, labels, test_size=size, stratify=labels, random_state=seed)

    rest, test, rest_labels, test_labels = split(images, digits.target, 0.2)
    train, validation, train_labels, validation_labels = split(rest, rest_labels, 0.25)
    return Digits((train, train_labels), (validation, validation_labels), (test, test_labels))


def lenet5() -> keras.Sequential:
    """LeNet-5 with ReLU and max pooling: 44 190 weights in kernels."""
    layers = keras.layers
    return keras.Sequential(
        [
            keras.Input((SIDE, SIDE, 1)),
            layers.Conv2D(6, 5, activation="relu"),
            layers.MaxPooling2D(),
            layers.Conv2D(16, 5, activation="relu"),
            layers.MaxPooling2D(),
            layers.Flatten(),
            layers.Dense(120, "relu"),
            layers.Dense(84, "relu"),
            layers.Dense(10, "softmax"),
        ]
    )


def train(model: keras.Sequential, digits: Digits, epochs: int) -> None:
    """Trains with Adam; validates after each epoch."""
    model.compile(
        keras.optimizers.Adam(1e-3),
        # Summed over the batch, which makes no difference to Adam. With the mean, all gradients would be so
        # small that every weight is irrelevant, and relevance-based pruning would be L2.
        keras.losses.SparseCategoricalCrossentropy(reduction="sum"),
        metrics=["accuracy"],
        # One execution per epoch, since Keras's overhead takes as long as a step.
        steps_per_execution=math.ceil(len(digits.train[0]) / BATCH_SIZE),
    )
    model.fit(*digits.train, BATCH_SIZE, epochs, 0, validation_data=digits.validation)


def scores(model: keras.Sequential, digits: Digits) -> dict[str, float]:
    """`validation` and `test` accuracy, and the counts of `weight_counts`."""
    accuracies = {
        split: float(np.mean(np.argmax(model(images, training=False), axis=-1) == labels))
        for split, (images, labels) in (("validation", digits.validation), ("test", digits.test))
    }
    return accuracies | weight_counts(model)


def measure(
    seeds: Iterable[int],
    *,
    epochs: int = 60,
    dense_epochs: int = 20,
    lower_bounds: Sequence[float] = (0.97, 0.95),
    weight_decays: Mapping[str, Sequence[float]] | None = None,
    progress: bool = True,
    **options,
) -> list[dict]:
    """Trains a dense LeNet-5 for each seed and prunes it with each method.

    Args:
        seeds: of splits, initial weights and batches.
        epochs: of each pruning at most; it ends earlier when the fine-tuning is over.
        dense_epochs: of the dense model that all methods start from.
        lower_bounds: validation accuracies above which a model is pruned further.
        weight_decays: method -> values to try; None is one value each, `WEIGHT_DECAYS`.
        progress: show a progress bar.
        options: other arguments of all methods.

    Returns:
        A row for each training, with `method`, `bound` and `weight_decay` (None if dense), `seed`, and
        `scores`.
    """
    decays = weight_decays or {name: (value,) for name, value in WEIGHT_DECAYS.items()}
    options = {"sparsity": 0.995, "pruning_percentage": 0.2, "finetune_validations": 5, **options}
    values = [(name, value) for name, tried in decays.items() for value in tried]
    seeds, rows = list(seeds), []
    total = len(seeds) * (1 + len(lower_bounds) * len(values))
    with tqdm(total=total, desc="training", unit="model", disable=not progress) as bar:

        def add(model: keras.Sequential, **row) -> None:
            rows.append({**row, "seed": seed, **scores(model, digits)})
            bar.update()

        for seed in seeds:
            digits = load_digits(seed)
            keras.utils.set_random_seed(seed)
            dense = lenet5()
            train(dense, digits, dense_epochs)
            add(dense, method="dense", bound=None, weight_decay=None)
            for bound, (name, value) in itertools.product(lower_bounds, values):
                keras.utils.set_random_seed(seed)
                model = lenet5()
                model.set_weights(dense.get_weights())
                method = METHODS[name](
                    lower_bound=bound, metric="val_accuracy", weight_decay=value, **options
                )
                train(prune(model, method), digits, epochs)
                with warnings.catch_warnings():
                    # The epochs may end before the fine-tuning.
                    warnings.simplefilter("ignore", UserWarning)
                    strip_pruning(model)
                add(model, method=name, bound=bound, weight_decay=value)
    return rows


def summary(rows: Iterable[dict]) -> list[dict]:
    """`mean` and `std` (sample standard deviation, 0 for one seed) over seeds.

    Args:
        rows: from `measure`.
    """
    groups: dict[tuple, list[dict]] = {}
    for row in rows:
        groups.setdefault((row["method"], row["bound"], row["weight_decay"]), []).append(row)
    found = []
    for (method, bound, weight_decay), group in groups.items():
        row = {"method": method, "bound": bound, "weight_decay": weight_decay, "seeds": len(group)}
        for name in _MEASURES:
            values = [one[name] for one in group]
            std = statistics.stdev(values) if len(values) > 1 else 0.0
            row[name] = {"mean": statistics.fmean(values), "std": std}
        found.append(row)
    return found


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    command = parser(__doc__)
    command.add_argument("--seeds", type=int, default=3, help="number of seeds (default: 3)")
    command.add_argument("--epochs", type=int, default=60, help="of each pruning at most (default: 60)")
    command.add_argument(
        "--bounds",
        type=float,
        nargs="+",
        default=[0.96],
        metavar="ACCURACY",
        help="lower bounds on the validation accuracy, 0 to 1 (default: 0.96)",
    )
    command.add_argument(
        "--tune", action="store_true", help="try several weight decays of each method; four times as long"
    )
    command.add_argument("--json", action="store_true", help="print the results as JSON")
    return command.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> None:
    """Runs the benchmark and prints a table.

    Raises:
        InputError: an argument is out of range, or scikit-learn is not installed.
    """
    options = _arguments(argv)
    for name in ("seeds", "epochs"):
        check_number(f"--{name}", getattr(options, name), at_least=1)
    for bound in options.bounds:
        check_number("--bounds", bound, at_least=0, at_most=1)
    first = _FIRST_TUNING_SEED if options.tune else 0
    with only_json_on_stdout(options.json):
        rows = measure(
            range(first, first + options.seeds),
            epochs=options.epochs,
            lower_bounds=options.bounds,
            weight_decays=GRID if options.tune else None,
        )
    if options.json:
        print(json.dumps(summary(rows)))
        return
    # Narrow enough for 80 columns without vertical lines.
    title = f"LeNet-5 on digits: mean ± standard deviation of {options.seeds} seeds"
    table = Table(title=title, box=box.SIMPLE_HEAD)
    table.add_column("weight decay")
    for name in ("bound", "val. %", "test %", "sparsity %", "non-zeros"):
        table.add_column(name, justify="right")
    for row in summary(rows):
        table.add_row(
            row["method"] if row["weight_decay"] is None else f"{row['method']} {row['weight_decay']:g}",
            "" if row["bound"] is None else f"{row['bound']:.1%}",
            *(f"{100 * row[n]['mean']:.1f} ± {100 * row[n]['std']:.1f}" for n in _MEASURES[:3]),
            f"{row['nonzero_weights']['mean']:.0f} ± {row['nonzero_weights']['std']:.0f}",
        )
    Console().print(table)


if __name__ == "__main__":
    run(main)
