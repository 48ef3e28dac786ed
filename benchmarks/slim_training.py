"""python -m benchmarks.slim_training: accuracy of ResNet-32 on CIFAR-10 with half of its multiply-adds.

Compares iterative slimming with two networks of the same cost that are trained from scratch for as many
epochs: one whose layers are all narrower by the same factor, and one with the widths that slimming chose.
This takes hours on a small machine. Results are kept in a folder; if the command was stopped, repeat it to
continue: only a slimming that was interrupted begins again.

examples:
  python -m benchmarks.slim_training --epochs 5
      a quick look
  python -m benchmarks.slim_training --seeds 3
      mean and spread
"""

import argparse
import hashlib
import json
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import keras
import tensorflow as tf
from rich import box
from rich.console import Console
from rich.table import Table

import tfsparsecap as sc
from benchmarks.image_classifiers import crop_and_flip, resnet32
from benchmarks.image_data import Split, add_data_option, load
from tfsparsecap.command import parser, run
from tfsparsecap.core.files import atomic_path, atomic_write, make_folder, read_text
from tfsparsecap.core.saved_models import load_model
from tfsparsecap.errors import InputError, check_number
from tfsparsecap.slimming.plan import cost_of

#: What is trained, in this order.
NETWORKS = {
    "dense": "ResNet-32",
    "slim": "slimmed in five iterations",
    "uniform": "narrower by the same factor, from scratch",
    "scratch": "the slim network's widths, from scratch",
}
#: What a result depends on besides epochs, seed and network.
RECIPE = {
    # What `_compile` does: change this with it.
    "schedule": "cosine after a warm-up of 5 %",
    # The peak, for slimming, too: with a third of it, slim networks are worse.
    "learning_rate": 0.1,
    "batch": 128,
    "iterations": 5,
    # Of an epoch, between which slimming may remove channels: it does so in the first half of its epochs.
    "parts": 2,
}


class Runs:
    """The trainings in a folder; trains those that are missing.

    Args:
        output: the folder for results and weights.
        splits: training and test split.
        epochs: of the dense network, and of slimming it. The others are trained for twice as many.

    Raises:
        InputError: `output` cannot be created.
    """

    def __init__(self, output: Path, splits: tuple[Split, Split], epochs: int) -> None:
        self.output, self.splits, self.epochs = output, splits, epochs
        make_folder(output)

    def results(self) -> list[dict[str, Any]]:
        """What each finished training of this recipe reached: epochs, seed, network, accuracy, multiply-adds,
        parameters.

        Raises:
            InputError: the file is damaged.
        """
        return [row for row in self._rows() if RECIPE.items() <= row.items()]

    def _rows(self) -> list[dict[str, Any]]:
        """The results of all recipes."""
        path = self.output / "results.jsonl"
        try:
            rows = [json.loads(line) for line in read_text(path).splitlines()] if path.exists() else []
            for row in rows:
                _ = [row[key] for key in ("epochs", "seed", "network", "accuracy", "flops", "parameters")]
        except (ValueError, TypeError, LookupError) as error:
            raise InputError(f"{path} is damaged ({error}): delete the damaged line") from error
        return rows

    def run(self, name: str, seed: int) -> None:
        """Adds the result of a network of `NETWORKS`, if it is missing."""
        key = {"epochs": self.epochs, "seed": seed, "network": name}
        if any(key.items() <= row.items() for row in self.results()):
            return
        model, (images, labels) = self._network(name, seed), self.splits[1]
        cost, classes = cost_of(model), model.predict(images, 500, verbose=0).argmax(axis=1)
        figures = {"accuracy": float((classes == labels.ravel()).mean())}
        figures |= {"flops": cost.flops, "parameters": cost.parameters}
        lines = [json.dumps(row) + "\n" for row in (*self._rows(), {**key, **RECIPE, **figures})]
        atomic_write(self.output / "results.jsonl", "".join(lines))

    def _network(self, name: str, seed: int) -> keras.Model:
        """A trained network; trains it, and those it depends on, if it is missing."""
        path = self.output / f"{name}-{self.epochs}-{seed}-{_digest()}.keras"
        if path.exists():
            return load_model(path, "delete it to train it again")
        start = self._network("dense" if name == "slim" else "slim", seed) if name != "dense" else None
        keras.utils.set_random_seed(seed)
        print(f"{NETWORKS[name]}, seed {seed}", flush=True)
        if name == "slim":
            self._compile(start, self.epochs)
            # The paper's criterion; with the default one, training data would choose the channels.
            options = {"budget": "flops", "multiple": 2, "criterion": "rtic", "samples": None}
            schedule = sc.Slim(0.5, RECIPE["iterations"], **options)
            data, arguments = self._data()
            arguments["steps_per_epoch"] = max(1, self._steps() // RECIPE["parts"])
            model = schedule.fit(start, data, epochs=RECIPE["parts"] * self.epochs, **arguments)
        else:
            if start is None:
                model = resnet32()
            elif name == "scratch":
                model = keras.models.clone_model(start)
            else:
                model = _uniform(cost_of(start).flops)
            epochs = self.epochs * (1 if name == "dense" else 2)
            self._compile(model, epochs)
            backup = keras.callbacks.BackupAndRestore(path.with_suffix(""), double_checkpoint=True)
            data, arguments = self._data()
            model.fit(data, epochs=epochs, callbacks=[backup], **arguments)
        with atomic_path(path) as temporary:
            model.save(temporary)
        return model

    def _compile(self, model: keras.Model, epochs: int) -> None:
        steps = epochs * self._steps()
        warmup = max(1, steps // 20)
        rates = keras.optimizers.schedules.CosineDecay(
            0.0, steps - warmup, warmup_target=RECIPE["learning_rate"], warmup_steps=warmup
        )
        # With momentum 0.9, Keras's weight decay of 5e-3 is an L2 penalty of 5e-4.
        optimizer = keras.optimizers.SGD(rates, momentum=0.9, nesterov=True, weight_decay=5e-3)
        loss, metrics = "sparse_categorical_crossentropy", ["accuracy"]
        model.compile(
            optimizer,
            loss,
            metrics=metrics,
            steps_per_execution=min(50, max(1, self._steps() // RECIPE["parts"])),
        )

    def _steps(self) -> int:
        return max(1, len(self.splits[0][0]) // RECIPE["batch"])

    def _data(self) -> tuple[tf.data.Dataset, dict[str, Any]]:
        images, labels = self.splits[0]
        data = tf.data.Dataset.from_tensor_slices((images, labels.ravel())).shuffle(len(images)).repeat()
        data = data.map(crop_and_flip).batch(RECIPE["batch"]).prefetch(2)
        return data, {"steps_per_epoch": self._steps(), "verbose": 2}


def _digest() -> str:
    """Names the recipe in the names of files of weights."""
    return hashlib.sha256(json.dumps(RECIPE, sort_keys=True).encode()).hexdigest()[:8]


def _uniform(flops: float) -> keras.Model:
    """ResNet-32 with all widths multiplied by the same factor, with at most `flops` multiply-adds."""
    model = resnet32((2, 4, 8))
    for width in range(4, 65, 2):
        wider = resnet32([round(width * factor / 4) for factor in (1, 2, 4)])
        if cost_of(wider).flops > flops:
            break
        model = wider
    return model


def table(rows: Sequence[dict[str, Any]]) -> Table:
    """Mean and sample standard deviation over the seeds of each network."""
    result = Table(title="ResNet-32 on CIFAR-10", box=box.SIMPLE_HEAD)
    for column in ("network", "epochs", "seeds", "multiply-adds (M)", "parameters", "test accuracy %"):
        result.add_column(column, justify="left" if column == "network" else "right")
    for epochs in sorted({row["epochs"] for row in rows}):
        for name, title in NETWORKS.items():
            mine = [row for row in rows if (row["network"], row["epochs"]) == (name, epochs)]
            if not mine:
                continue
            values = [100 * row["accuracy"] for row in mine]
            spread = f" ± {statistics.stdev(values):.2f}" if len(values) > 1 else ""
            result.add_row(
                title,
                str(epochs if name == "dense" else 2 * epochs),
                str(len(mine)),
                f"{statistics.fmean(row['flops'] for row in mine) / 1e6:.1f}",
                f"{statistics.fmean(row['parameters'] for row in mine):,.0f}",
                f"{statistics.fmean(values):.2f}{spread}",
            )
    return result


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    command = parser(__doc__)
    add = command.add_argument
    output = Path("runs/slim_training")
    add("--output", type=Path, default=output, metavar="FOLDER", help="(default: %(default)s)")
    add_data_option(command, "cifar10")
    add("--seeds", type=int, default=1, help="number of seeds (default: 1)")
    add("--epochs", type=int, default=10, help="of the dense network, and of slimming it (default: 10)")
    return command.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> None:
    """Trains what is missing and prints the table.

    Raises:
        InputError: an argument is out of range, or data or results are missing or damaged.
    """
    options = _arguments(argv)
    check_number("--seeds", options.seeds, at_least=1)
    check_number("--epochs", options.epochs, at_least=RECIPE["iterations"])
    runs = Runs(options.output, load("cifar10", options.data), options.epochs)
    for seed in range(1, options.seeds + 1):
        for name in NETWORKS:
            runs.run(name, seed)
    Console().print(table(runs.results()))


if __name__ == "__main__":
    run(main)
