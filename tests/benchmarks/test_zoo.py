"""The zoo: all kinds of Keras models are pruned, trained, stripped, saved, loaded, exported and compared."""

import json
import subprocess
from types import SimpleNamespace

import keras
import pytest

from benchmarks import zoo
from benchmarks.zoo_models import APPLICATIONS, MODELS

#: The others take longer or resemble these; `python -m benchmarks.zoo` runs all.
TESTED = ["autoencoder", "bidirectional_text", "conv1d", "conv3d", "conv_lstm", "inputs_and_outputs"]
TESTED += ["mixed_precision", "nested_models", "subclassed"]


@pytest.mark.slow
@pytest.mark.parametrize("name", TESTED)
def test_a_model_goes_through_all_stages(name, tmp_path):
    row = zoo.examine(name, MODELS[name], tmp_path, run_eagerly=True)
    assert row.reason == "" and row.correct
    assert row.zeros == pytest.approx(zoo.SPARSITY, abs=0.01)
    assert row.kilobytes == pytest.approx((tmp_path / "model.tflite").stat().st_size / 1e3)
    assert row.weights == MODELS[name]().count_params()


def test_every_family_of_keras_applications_has_a_network():
    modules = {getattr(keras.applications, name).__module__ for name in APPLICATIONS}
    others = [name for name in dir(keras.applications) if name[0].isupper() and name not in APPLICATIONS]
    missing = [name for name in others if getattr(keras.applications, name).__module__ not in modules]
    assert missing == ["VGG19"]  # of the family of VGG16, in a module of its own


def test_what_is_not_supported_is_the_reason(tmp_path):
    def build():
        return keras.Sequential([keras.Input((4,)), keras.layers.BatchNormalization()], name="mine")

    row = zoo.examine("mine", build, tmp_path)
    assert not row.correct and row.zeros is None and row.kilobytes is None
    assert "mine has no layer that can be pruned" in row.reason
    assert row.weights == 16


def test_processes_that_crash_or_take_too_long_are_rows(monkeypatch, tmp_path, capsys):
    stage = '{"name": "gru_text", "weights": 7, "zeros": 0.5, "kilobytes": null, "reason": ""}\n'

    def end(command, timeout, **options):
        if "gru_text" in command:
            return SimpleNamespace(returncode=-11, stdout=f"x\n{stage}", stderr="first\nlast\n")
        raise subprocess.TimeoutExpired(command, timeout, output=stage.encode())

    monkeypatch.setattr(subprocess, "run", end)
    zoo.main(["gru_text", "conv1d", "--limit", "3", "--json", str(tmp_path / "rows.json")])
    rows = json.loads((tmp_path / "rows.json").read_text())
    assert [row["reason"] for row in rows] == ["exit code -11: last", "not finished after 3 seconds"]
    assert [(row["weights"], row["zeros"], row["kilobytes"]) for row in rows] == [(7, 0.5, None)] * 2
    assert not zoo.Row(**rows[0]).correct
