"""The benchmark on digits: splits, measurements, output."""

import json
import re
import sys

import numpy as np
import pytest

from benchmarks import digits as digits_benchmark
from tfsparsecap.errors import InputError
from tfsparsecap.pruning import L1Pruning, Relevance

pytest.importorskip("sklearn", reason="scikit-learn is not installed")

ROW = {
    "bound": 0.9,
    "weight_decay": 1e-3,
    "validation": 0.9,
    "test": 0.8,
    "nonzero_weights": 30,
    "sparsity": 0.7,
}
ROWS = [
    {**ROW, "method": "dense", "bound": None, "weight_decay": None, "seed": 0, "sparsity": 0.0},
    {**ROW, "method": "l2", "seed": 0},
    {**ROW, "method": "l2", "seed": 1, "test": 0.9, "nonzero_weights": 10, "sparsity": 0.9},
]


def test_splits_are_stratified_and_disjoint():
    from sklearn.datasets import load_digits

    stock = load_digits()
    digits = digits_benchmark.load_digits(3)
    assert [len(images) for images, _ in digits] == [1077, 360, 360]
    whole = np.bincount(stock.target) / len(stock.target)
    for images, labels in digits:
        assert images.dtype == np.float32 and images.shape[1:] == (28, 28, 1)
        assert images.min() == 0.0 and images.max() == 1.0
        np.testing.assert_allclose(np.bincount(labels) / len(labels), whole, atol=0.005)
    everything = np.concatenate([images for images, _ in digits]).reshape(1797, -1)
    assert len(np.unique(everything, axis=0)) == len(np.unique(stock.data, axis=0)) == 1797
    again = digits_benchmark.load_digits(3)
    np.testing.assert_array_equal(again.test[1], digits.test[1])
    assert (digits_benchmark.load_digits(4).test[1] != digits.test[1]).any()


def test_missing_scikit_learn_is_an_error(monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    with pytest.raises(InputError, match="pip install scikit-learn"):
        digits_benchmark.load_digits(0)


@pytest.mark.slow
def test_models_are_pruned_to_the_bound_and_counts_equal_numpys(monkeypatch):
    logged, scored = {}, []
    validated, scores = Relevance.on_validation_end, digits_benchmark.scores

    def log_validation(self, logs):
        logged.setdefault(type(self), []).append((logs["sparsity"], logs["val_accuracy"] >= 0.8))
        return validated(self, logs)

    def keep_models(model, digits):
        scored.append((model, digits))
        return scores(model, digits)

    monkeypatch.setattr(Relevance, "on_validation_end", log_validation)
    monkeypatch.setattr(digits_benchmark, "scores", keep_models)
    decays = {"relevance": 1e-3, "l1": 3e-5}
    rows = digits_benchmark.measure(
        [0],
        epochs=4,
        dense_epochs=3,
        lower_bounds=[0.8],
        weight_decays={name: (value,) for name, value in decays.items()},
        progress=False,
        pruning_percentage=0.8,
        patience=1,
    )
    # 5x5 kernels with 6 and 16 filters, then dense layers with 256, 120 and 84 inputs.
    size = 25 * 6 + 25 * 6 * 16 + 256 * 120 + 120 * 84 + 84 * 10
    for row, (model, digits) in zip(rows, scored, strict=True):
        kernels = [array for array in model.get_weights() if array.ndim > 1]
        assert row["nonzero_weights"] == sum(map(np.count_nonzero, kernels))
        assert row["sparsity"] == pytest.approx(1 - row["nonzero_weights"] / size)
        images, labels = digits.test
        guesses = model.predict(images, verbose=0).argmax(axis=1)
        assert row["test"] == pytest.approx(np.mean(guesses == labels))
    dense, *pruned = rows
    assert (dense["method"], dense["nonzero_weights"], dense["sparsity"]) == ("dense", size, 0.0)
    assert [(row["method"], row["bound"], row["weight_decay"]) for row in pruned] == [
        (name, 0.8, value) for name, value in decays.items()
    ]
    for row, cls in zip(pruned, (Relevance, L1Pruning), strict=True):
        sparsities, met = zip(*logged[cls], strict=True)
        # 80 % of the remaining weights are pruned twice; the second time is below the bound and undone.
        assert sparsities == pytest.approx((0.0, 0.8, 0.96, 0.8), abs=1e-4)
        assert met == (True, True, False, True)
        assert row["validation"] >= 0.8 and row["sparsity"] == pytest.approx(0.8, abs=1e-4)


def test_mean_and_standard_deviation_are_over_seeds():
    dense, pruned = digits_benchmark.summary(ROWS)
    assert dense["seeds"] == 1 and dense["test"] == {"mean": 0.8, "std": 0.0}
    assert pruned["seeds"] == 2
    assert pruned["nonzero_weights"]["mean"] == 20
    assert pruned["nonzero_weights"]["std"] == pytest.approx(np.std([30, 10], ddof=1))
    assert pruned["test"]["mean"] == pytest.approx(0.85)


def test_results_are_printed_as_table_and_json(monkeypatch, capsys):
    asked = []

    def measured(seeds, **options):
        print("a note")
        asked.append((list(seeds), options))
        return ROWS

    monkeypatch.setattr(digits_benchmark, "measure", measured)
    digits_benchmark.main(["--seeds", "2", "--epochs", "7", "--bounds", "0.9", "0.8", "--json"])
    printed = capsys.readouterr()
    assert json.loads(printed.out) == digits_benchmark.summary(ROWS) and "a note" in printed.err
    assert asked == [([0, 1], {"epochs": 7, "lower_bounds": [0.9, 0.8], "weight_decays": None})]
    digits_benchmark.main(["--tune"])
    assert asked[1][0] == [1000, 1001, 1002] and asked[1][1]["weight_decays"] is digits_benchmark.GRID
    table = capsys.readouterr().out
    assert re.search(r"l2 0\.001\W+90\.0%\W+90\.0 ± 0\.0\W+85\.0 ± 7\.1\W+80\.0 ± 14\.1\W+20 ± 14", table)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--seeds", "0"], "--seeds is 0"),
        (["--epochs", "-1"], "--epochs is -1"),
        (["--bounds", "0.9", "97"], "--bounds is 97"),
    ],
)
def test_arguments_out_of_range_are_errors(arguments, message):
    with pytest.raises(InputError, match=message):
        digits_benchmark.main(arguments)
