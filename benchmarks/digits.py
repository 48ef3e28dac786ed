"""python -m benchmarks.digits: relevance, L1 and L2 pruning side by side, on LeNet-5.

The images are the 1797 handwritten digits that scikit-learn carries: real ones, and nothing to download.
"""

import argparse
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
from tfsparsecap.errors import InputError
from tfsparsecap.pruning import L1Pruning, L2Pruning, Relevance, prune, strip_pruning

METHODS = {"relevance": Relevance, "l1": L1Pruning, "l2": L2Pruning}
#: What `--tune` found: of `GRID`, those with the highest mean sparsity that meets a bound of 0.96.
WEIGHT_DECAYS = {"relevance": 1e-3, "l1": 3e-5, "l2": 1e-4}
GRID = {
    "relevance": (3e-4, 1e-3, 3e-3, 1e-2),
    "l1": (3e-6, 1e-5, 3e-5, 1e-4),
    "l2": (1e-4, 3e-4, 1e-3, 3e-3),
}
SIDE = 28
BATCH_SIZE = 32
#: Seeds of `--tune`, which are none of the table's.
_FIRST_TUNING_SEED = 1000


class Digits(NamedTuple):
    """Images, float32 [N, 28, 28, 1] from 0 to 1, and labels, int [N], of three splits."""

    train: tuple[np.ndarray, np.ndarray]
    validation: tuple[np.ndarray, np.ndarray]
    test: tuple[np.ndarray, np.ndarray]


def load_digits(seed: int) -> Digits:
    """The digits, enlarged from 8x8 to MNIST's 28x28: 60 % to train, 20 % each to validate and test.

    Every digit has the same share of each split.

    Args:
        seed: of the drawing of the splits.

    Raises:
        InputError: scikit-learn is not installed.

    Example:
        >>> [len(labels) for _, labels in load_digits(0)]
        [1077, 360, 360]
    """
    try:
        from sklearn.datasets import load_digits as load
        from sklearn.model_selection import train_test_split
    except ImportError as error:
        raise InputError(
            "the digits come with scikit-learn, which is not installed: pip install scikit-learn"
        ) from error
    digits = load()
    images = np.asarray(tf.image.resize(digits.images[..., None] / 16.0, (SIDE, SIDE)), np.float32)
    rest, test, rest_labels, test_labels = train_test_split(
        images, digits.target, test_size=0.2, stratify=digits.target, random_state=seed
    )
    train, validation, train_labels, validation_labels = train_test_split(
        rest, rest_labels, test_size=0.25, stratify=rest_labels, random_state=seed
    )
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
    """Trains with Adam, validating after each epoch."""
    model.compile(
        keras.optimizers.Adam(1e-3),
        # Summed over the batch, which is the same to Adam: of a mean all gradients are so small that all
        # weights are irrelevant alike, and relevance is L2.
        keras.losses.SparseCategoricalCrossentropy(reduction="sum"),
        metrics=["accuracy"],
        # An epoch at a time: a step is as short as what Keras does around it.
        steps_per_execution=math.ceil(len(digits.train[0]) / BATCH_SIZE),
    )
    model.fit(*digits.train, BATCH_SIZE, epochs, 0, validation_data=digits.validation)


def scores(model: keras.Sequential, digits: Digits) -> dict[str, float]:
    """`validation` and `test` accuracy, `nonzero` weights of the kernels, and their `sparsity`."""
    row = {}
    for split in ("validation", "test"):
        images, labels = getattr(digits, split)
        guesses = np.argmax(model(images, training=False), axis=-1)
        row[split] = float(np.mean(guesses == labels))
    kernels = [np.asarray(layer.kernel) for layer in model.layers if layer.weights]
    row["nonzero"] = int(sum(np.count_nonzero(kernel) for kernel in kernels))
    row["sparsity"] = 1.0 - row["nonzero"] / sum(kernel.size for kernel in kernels)
    return row


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
    """Trains a dense LeNet-5 for each seed, and prunes it in every way.

    Args:
        seeds: of splits, initial weights and batches.
        epochs: of each pruning at most; it ends before where the fine-tuning is over.
        dense_epochs: of the dense model that all of a seed start from.
        lower_bounds: accuracies on validation that are good enough.
        weight_decays: method -> the values to try; None has one each, `WEIGHT_DECAYS`.
        progress: show a bar.
        options: other arguments of the methods, the same for all.

    Returns:
        A row for each training, with `method`, `bound` and `weight_decay` (None where dense), `seed`, and
        `scores`.
    """
    decays = weight_decays or {name: (value,) for name, value in WEIGHT_DECAYS.items()}
    options = {"sparsity": 0.995, "pruning_percentage": 0.2, "finetune_validations": 5, **options}
    ways = [
        (name, bound, value) for bound in lower_bounds for name, values in decays.items() for value in values
    ]
    seeds = list(seeds)
    rows = []
    with tqdm(total=len(seeds) * (1 + len(ways)), desc="training", unit="model", disable=not progress) as bar:
        for seed in seeds:
            digits = load_digits(seed)
            keras.utils.set_random_seed(seed)
            dense = lenet5()
            train(dense, digits, dense_epochs)
            common = {"seed": seed, "dense_epochs": dense_epochs}
            rows.append({"method": "dense", "bound": None, "weight_decay": None, **common})
            rows[-1].update(scores(dense, digits))
            bar.update()
            for name, bound, value in ways:
                keras.utils.set_random_seed(seed)
                model = lenet5()
                model.set_weights(dense.get_weights())
                method = METHODS[name](
                    lower_bound=bound, metric="val_accuracy", weight_decay=value, **options
                )
                train(prune(model, method), digits, epochs)
                with warnings.catch_warnings():
                    # That the epochs were over before the fine-tuning was.
                    warnings.simplefilter("ignore", UserWarning)
                    strip_pruning(model)
                rows.append({"method": name, "bound": bound, "weight_decay": value, **common})
                rows[-1].update(scores(model, digits))
                bar.update()
    return rows


def summary(rows: Iterable[dict]) -> list[dict]:
    """Mean and spread (the standard deviation, 0 for one seed) over seeds, a row for each way of training.

    Args:
        rows: as `measure` gives them.
    """
    groups: dict[tuple, list[dict]] = {}
    for row in rows:
        groups.setdefault((row["method"], row["bound"], row["weight_decay"]), []).append(row)
    return [
        {
            "method": method,
            "bound": bound,
            "weight_decay": weight_decay,
            "seeds": len(group),
            **{
                name: {
                    "mean": statistics.fmean(values),
                    "spread": statistics.stdev(values) if len(values) > 1 else 0.0,
                }
                for name in ("test", "validation", "sparsity", "nonzero")
                for values in [[row[name] for row in group]]
            },
        }
        for (method, bound, weight_decay), group in groups.items()
    ]


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    command = parser(
        "python -m benchmarks.digits",
        "Trains LeNet-5 on scikit-learn's handwritten digits and prunes it by relevance, L1 and L2, each as\n"
        "far as its accuracy on validation meets a bound; prints what is left and what that scores.",
        [
            ("python -m benchmarks.digits", "three seeds, some minutes"),
            (
                "python -m benchmarks.digits --bounds 0.95 0.97 --seeds 5",
                "several bounds",
            ),
            ("python -m benchmarks.digits --tune", "how the weight decays were chosen"),
        ],
    )
    command.add_argument("--seeds", type=int, default=3, help="trainings of each kind (default 3)")
    command.add_argument("--epochs", type=int, default=60, help="of a pruning at most (default 60)")
    command.add_argument(
        "--bounds",
        type=float,
        nargs="+",
        default=[0.96],
        metavar="ACCURACY",
        help="on validation, from 0 to 1 (default 0.96)",
    )
    command.add_argument(
        "--tune",
        action="store_true",
        help="try several weight decays of each method, with seeds of their own; takes four times as long",
    )
    command.add_argument("--json", action="store_true", help="print the rows as JSON")
    return command.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> None:
    """Measures as the command line says and prints a table.

    Raises:
        InputError: an argument out of range, or no scikit-learn.
    """
    options = _arguments(argv)
    for name in ("seeds", "epochs"):
        if getattr(options, name) < 1:
            raise InputError(f"--{name} is {getattr(options, name)}: give 1 or more")
    for bound in options.bounds:
        if not 0.0 <= bound <= 1.0:
            raise InputError(f"--bounds is {bound:g}: an accuracy is from 0 to 1")
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
    # Without vertical lines it fits a terminal of 80 columns.
    table = Table(title=f"LeNet-5 on digits: mean and spread of {options.seeds} seeds", box=box.SIMPLE_HEAD)
    table.add_column("weight decay")
    for name in ("bound", "val. %", "test %", "sparsity %", "weights"):
        table.add_column(name, justify="right")
    for row in summary(rows):
        table.add_row(
            row["method"] if row["weight_decay"] is None else f"{row['method']} {row['weight_decay']:g}",
            "" if row["bound"] is None else f"{row['bound']:.1%}",
            *(_with_spread(row[name], 100.0, 1) for name in ("validation", "test", "sparsity")),
            _with_spread(row["nonzero"], 1.0, 0),
        )
    Console().print(table)


def _with_spread(value: dict[str, float], scale: float, digits: int) -> str:
    return f"{scale * value['mean']:.{digits}f} ± {scale * value['spread']:.{digits}f}"


if __name__ == "__main__":
    run(main)
