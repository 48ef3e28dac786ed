"""The benchmark of slimming ResNet-32: equal costs, results that are kept, and the table."""

import json

import keras
import numpy as np
import pytest
from rich.console import Console

from benchmarks import slim_training
from benchmarks.image_classifiers import resnet32
from tfsparsecap.slimming.plan import cost_of

RANDOM = np.random.default_rng(0)
SPLIT = RANDOM.integers(0, 256, (128, 32, 32, 3), np.uint8), RANDOM.integers(0, 10, 128).astype(np.uint8)


def small_network(widths=(8, 16, 32)):
    layers = keras.layers
    return keras.Sequential(
        [
            keras.Input((32, 32, 3)),
            *(layer for width in widths for layer in (layers.Conv2D(width, 3, 4, "same"), layers.ReLU())),
            layers.GlobalAveragePooling2D(),
            layers.Dense(10, "softmax"),
        ]
    )


@pytest.mark.slow
def test_resnet32_has_the_published_multiply_adds_and_other_widths():
    # Soft filter pruning (https://arxiv.org/abs/1808.06866), table 1: 4.03e7 are left after removing 41.5 %.
    network = resnet32()
    assert cost_of(network).flops == pytest.approx(4.03e7 / (1 - 0.415), rel=2e-3)
    assert resnet32((3, 6, 13)).output.shape == (None, 10)


@pytest.mark.slow
@pytest.mark.usefixtures("eager")
def test_networks_have_the_same_cost_and_are_trained_once(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(slim_training, "resnet32", small_network)
    monkeypatch.setattr(slim_training, "load", lambda name, folder: (SPLIT, SPLIT))
    command = ["--output", str(tmp_path), "--epochs", "5"]
    slim_training.main(command)
    results = tmp_path / "results.jsonl"
    rows = {row["network"]: row for row in map(json.loads, results.read_text().splitlines())}
    assert list(rows) == list(slim_training.NETWORKS)
    dense, slim = rows["dense"], rows["slim"]
    assert slim["flops"] <= 0.5 * dense["flops"] and slim["parameters"] == rows["scratch"]["parameters"]
    assert 0.7 * slim["flops"] < rows["uniform"]["flops"] <= slim["flops"] == rows["scratch"]["flops"]
    written = results.stat().st_mtime_ns
    capsys.readouterr()
    slim_training.main(command)
    assert results.stat().st_mtime_ns == written and "Epoch" not in capsys.readouterr().out


def test_table_shows_mean_and_spread():
    row = {"epochs": 10, "network": "slim", "flops": 34.5e6, "parameters": 300000}
    console = Console(width=120, record=True)
    console.print(slim_training.table([{**row, "seed": s, "accuracy": a} for s, a in ((1, 0.9), (2, 0.92))]))
    assert "91.00 ± 1.41" in console.export_text()
