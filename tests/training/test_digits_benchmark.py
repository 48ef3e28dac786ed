"""The benchmark on digits: its splits, what it measures, and what it prints of that."""

import json
import re
import sys

import numpy as np
import pytest

from tfsparsecap.errors import InputError
from tfsparsecap.training import digits_benchmark

pytest.importorskip("sklearn", reason="scikit-learn is not installed")

ROW = {"bound": 0.9, "weight_decay": 1e-3, "validation": 0.9, "test": 0.8, "nonzero": 30, "sparsity": 0.7}
ROWS = [
    {**ROW, "method": "dense", "bound": None, "weight_decay": None, "seed": 0, "sparsity": 0.0},
    {**ROW, "method": "l2", "seed": 0},
    {**ROW, "method": "l2", "seed": 1, "test": 0.9, "nonzero": 10, "sparsity": 0.9},
]


def test_splits_are_of_equal_shares_and_have_no_image_in_common():
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


def test_without_scikit_learn_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    with pytest.raises(InputError, match="pip install scikit-learn"):
        digits_benchmark.load_digits(0)


def test_every_epoch_prunes_a_share_where_the_bound_is_met_by_anything():
    rows = digits_benchmark.measure(
        [0],
        epochs=3,
        dense_epochs=1,
        lower_bounds=[0.0],
        weight_decays={"l2": (1e-3,)},
        progress=False,
        pruning_percentage=0.5,
    )
    dense, pruned = rows
    # 5x5 kernels for 6 and 16 channels, then 256, 120 and 84 inputs.
    size = 25 * 6 + 25 * 6 * 16 + 256 * 120 + 120 * 84 + 84 * 10
    assert (dense["method"], dense["nonzero"], dense["sparsity"]) == ("dense", size, 0.0)
    assert (pruned["method"], pruned["bound"], pruned["weight_decay"]) == ("l2", 0.0, 1e-3)
    # After the first and after the second epoch.
    assert pruned["nonzero"] == pytest.approx(size / 4, abs=2)
    assert pruned["sparsity"] == pytest.approx(0.75, abs=1e-4)
    assert 0.1 < dense["validation"] <= pruned["validation"] <= 1.0


def test_mean_and_spread_are_over_seeds():
    dense, pruned = digits_benchmark.summary(ROWS)
    assert dense["seeds"] == 1 and dense["test"] == {"mean": 0.8, "spread": 0.0}
    assert pruned["seeds"] == 2
    assert pruned["nonzero"]["mean"] == 20
    assert pruned["nonzero"]["spread"] == pytest.approx(np.std([30, 10], ddof=1))
    assert pruned["test"]["mean"] == pytest.approx(0.85)


def test_prints_what_was_measured(monkeypatch, capsys):
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
def test_arguments_out_of_range_are_named(arguments, message):
    with pytest.raises(InputError, match=message):
        digits_benchmark.main(arguments)
