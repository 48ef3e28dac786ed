"""Three files of each kind of model, compared."""

import keras
import pytest

from benchmarks import model_kinds
from benchmarks.model_kinds import Kind


@pytest.mark.slow
def test_three_files_of_a_kind_are_written_once_and_compared(monkeypatch, capsys, tmp_path):
    made = []

    def make():
        made.append(1)
        return keras.Sequential([keras.Input((512,)), keras.layers.Dense(512)])

    monkeypatch.setattr(model_kinds, "KINDS", {"small": Kind(make)})
    for _ in range(2):
        model_kinds.main([str(tmp_path), "--kinds", "small", "--runs", "1"])
    dense, int8, auto = (tmp_path / f"arm64-0-{name}.tflite" for name in model_kinds.FORMATS)
    assert made == [1] and auto.stat().st_size < 0.2 * int8.stat().st_size < 0.1 * dense.stat().st_size
    assert "small" in capsys.readouterr().out


def test_every_kind_makes_a_model_of_its_size():
    assert 2e6 < model_kinds.transformer(4).count_params() < 3e6
    for name in ("LSTM, 512 units, 32 steps", "MLP, 2 x 2048"):
        assert model_kinds.KINDS[name].make().built
