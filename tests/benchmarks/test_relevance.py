"""The benchmark of relevance-based pruning: stages, resuming, results and tables."""

import io
import json

import keras
import numpy as np
import pytest
from rich.console import Console

from benchmarks import relevance
from tfsparsecap.errors import InputError

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


@pytest.fixture
def phases(monkeypatch):
    """Replaces training: sets random weights, and closes a quarter of the gates of a pruned model.

    Returns:
        The phases that were trained, and a set of phases in which to stop.
    """
    done, stop_at = [], set()

    def mask(shape):
        return np.arange(np.prod(shape)).reshape(shape) % 4 > 0

    def fit(model, experiment, phase, splits, share, callback):
        if phase in stop_at:
            raise Stopped
        done.append((phase, experiment.title, [len(labels) for _, labels in splits], share))
        if phase == "pruning":
            model.pruning.close([mask(tuple(gate.logits.shape)) for gate in model.pruning.gates])
        if phase == "dense":
            model.set_weights([RANDOM.normal(size=value.shape) for value in model.get_weights()])

    monkeypatch.setattr(relevance, "fit", fit)
    return done, stop_at


@pytest.mark.slow
def test_a_stopped_command_continues_with_the_stages_that_are_missing(phases, tmp_path, capsys):
    done, stop_at = phases
    command = ["--output", str(tmp_path), "--seeds", "1", "--epochs", "0.5"]
    stop_at.add("fine-tuning")
    only = ["--only", "fashion_mnist", "relevance"]
    with pytest.raises(Stopped):
        relevance.main([*command, *only])
    title = "LeNet-5 on Fashion-MNIST"
    assert done == [("dense", title, [200, 40], 0.5), ("pruning", title, [200, 40], 0.5)]
    stop_at.clear()
    relevance.main([*command, *only])
    assert [phase for phase, *_ in done] == ["dense", "pruning", "fine-tuning"]
    relevance.main([*command, *only, "dense"])
    assert len(done) == 3
    dense, pruned = relevance.Runs(tmp_path, tmp_path, 0.5).results()
    assert (dense["method"], dense["sparsity"], dense["lower_bound"]) == ("dense", 0.0, None)
    assert pruned["sparsity"] == pytest.approx(0.25)
    assert pruned["residual"] == pytest.approx(dict.fromkeys(("conv1", "conv2", "fc1", "fc2"), 0.75))
    assert pruned["lower_bound"] == pytest.approx(dense["validation"] - 0.003)
    # Pruning of MNIST starts from random weights: the dense network is needed for the bound only.
    relevance.main([*command, "--only", "mnist", "l1"])
    assert [phase for phase, *_ in done[3:]] == ["dense", "pruning", "fine-tuning"]
    printed = capsys.readouterr().out
    assert "LeNet-5 on MNIST, 0.5 x the paper's epochs" in printed and "Differences from the paper" in printed


def test_the_accuracy_is_of_the_saved_weights_on_the_test_split(phases, tmp_path):
    row = relevance.Runs(tmp_path, tmp_path).run("mnist", "dense", 1)
    model = relevance.EXPERIMENTS["mnist"].build()
    with np.load(tmp_path / "weights" / "mnist-1.0-dense-0.0-False-1-dense.npz") as file:
        model.set_weights([file[name] for name in file.files])
    guesses = np.argmax(model(IMAGES[240:].astype("float32"), training=False), -1)
    assert row["test"] == pytest.approx(np.mean(guesses == LABELS[240:]))


@pytest.mark.slow
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
    assert row["nonzero_weights"] == sum(map(np.count_nonzero, kernels))


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


def test_report_trains_nothing(phases, tmp_path, capsys):
    (tmp_path / "results.jsonl").write_text(json.dumps(ROW))
    relevance.main(["--report", "--output", str(tmp_path)])
    assert "ResNet-32 on CIFAR-10" in capsys.readouterr().out and not phases[0]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--seeds", "0"], "--seeds is 0"),
        (["--epochs", "0"], "--epochs is 0"),
        (["--weight-decay", "1"], "--weight-decay is 1"),
        (["--only", "cifar100"], "no data set or method 'cifar100': did you mean cifar10"),
    ],
)
def test_wrong_arguments_are_errors(arguments, message, tmp_path):
    with pytest.raises(InputError, match=message):
        relevance.main(["--output", str(tmp_path), *arguments])


def test_damaged_results_and_weights_are_errors(phases, tmp_path):
    runs = relevance.Runs(tmp_path, tmp_path)
    (tmp_path / "weights" / "mnist-1.0-dense-0.0-False-0-dense.npz").write_bytes(b"PK")
    with pytest.raises(InputError, match=r"dense\.npz is damaged .*: delete it"):
        runs.run("mnist", "dense", 0)
    for text in ('{"data": "mnist"', '{"data": "mnist"}', "3"):
        (tmp_path / "results.jsonl").write_text(text)
        with pytest.raises(InputError, match=r"results\.jsonl is damaged .*: delete the damaged line"):
            runs.results()
