"""The benchmark of relevance-based pruning: resuming, results and tables."""

import io

import keras
import numpy as np
import pytest
from rich.console import Console

from benchmarks import relevance

RANDOM = np.random.default_rng(0)
LABELS = RANDOM.integers(0, 10, 260).astype(np.uint8)
IMAGES = RANDOM.integers(0, 256, (260, 28, 28, 1), np.uint8)
SPLITS = (IMAGES[:240], LABELS[:240]), (IMAGES[240:], LABELS[240:])


@pytest.fixture(autouse=True)
def random_data(monkeypatch):
    monkeypatch.setattr(relevance, "_VALIDATION_IMAGES", 40)
    monkeypatch.setattr(relevance, "load", lambda name, folder: SPLITS)


class Stopped(Exception):
    """Stands for an interrupted process."""


@pytest.mark.slow
@pytest.mark.usefixtures("eager")
@pytest.mark.filterwarnings("ignore:.*:UserWarning")
def test_quick_training_prunes_and_resumes_inside_a_stage(monkeypatch, tmp_path):
    epochs, fit = [], relevance.fit

    class Stop(keras.callbacks.Callback):
        def on_epoch_begin(self, epoch, logs=None):
            epochs.append(epoch)
            if len(epochs) == 3:
                raise Stopped

    monkeypatch.setattr(relevance, "fit", lambda *arguments: fit(*arguments, Stop()))
    command = ["--quick", "--output", str(tmp_path), "--only", "mnist", "relevance", "--seeds", "1"]
    with pytest.raises(Stopped):
        relevance.main(command)
    relevance.main(command)
    # Dense, two validations while pruning, of which the second was stopped and repeated, and fine-tuning.
    assert epochs == [0, 0, 1, 1, 0]
    *_, row = relevance.Runs(tmp_path, tmp_path).results()
    assert row["sparsity"] == pytest.approx(0.04, abs=1e-4) and row["lower_bound"] == 0.0
    with np.load(tmp_path / "weights" / "mnist-800-0.02-relevance-0.001-False-0-fine-tuning.npz") as file:
        kernels = [file[name] for name in file.files if file[name].ndim > 1]
        model = relevance.EXPERIMENTS["mnist"].build()
        model.set_weights([file[name] for name in file.files])
    assert row["nonzero_weights"] == sum(map(np.count_nonzero, kernels))
    guesses = np.argmax(model(IMAGES[240:].astype("float32"), training=False), -1)
    assert row["test"] == pytest.approx(np.mean(guesses == LABELS[240:]))


ROW = {
    "data": "cifar10",
    "images": None,
    "epochs": 0.1,
    "method": "relevance",
    "weight_decay": 1e-5,
    "decoupled": False,
    "seed": 0,
}
ROW |= {"test": 0.92, "sparsity": 0.8, "residual": dict.fromkeys("abcde", 0.2)}


def test_tables_show_means_over_seeds_next_to_the_published_values():
    lenet = {**ROW, "data": "mnist", "residual": {"conv1": 0.29, "fc1": 0.00114}}
    rows = [ROW, {**ROW, "seed": 1, "test": 0.91}, {**ROW, "method": "dense", "weight_decay": 0.0}]
    rows += [lenet, {**lenet, "method": "l1"}]
    file = io.StringIO()
    for table in relevance.tables(rows):
        Console(file=file, width=120).print(table)
    lines = [line.split() for line in file.getvalue().splitlines()]
    std = f"{100 * np.std([0.92, 0.91], ddof=1):.2f}"
    assert ["relevance", "1e-05", "2", "91.50", "±", std, "92.67", "80.00", "±", "0.00", "81.27"] in lines
    assert ["relevance", "1e-05", "1", "92.00", "99.23", "80.00", "99.71", "29", "/", "0.114"] in lines
    assert ["l1", "1e-05", "1", "92.00", "80.00", "29", "/", "0.114"] in lines
    first = [line[0] for line in lines if line and line[0] in ("dense", "relevance")]
    assert first == ["dense", "relevance", "relevance"]
