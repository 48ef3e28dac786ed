"""The benchmark with random weights, at a small size."""

import keras
import numpy as np
import pytest
from tfsparsecap_export.benchmark import main as benchmark

from benchmarks import full_size, paper_sizes
from benchmarks.paper_sizes import PaperCaptioner
from tfsparsecap.captioning.models import UpDown

pytestmark = pytest.mark.slow


@pytest.fixture
def small(monkeypatch):
    sizes = {"embedding_size": 32, "rnn_size": 32, "attention_size": 32, "feature_size": 48}
    captioner = PaperCaptioner(lambda length: UpDown(300, **sizes), {"features": (5, 48)})
    monkeypatch.setattr(paper_sizes, "PAPER_CAPTIONERS", {"up_down": captioner})


@pytest.mark.parametrize("block", [1, 16])
def test_zeros_have_the_given_share_and_fill_whole_blocks(block):
    table, dense = keras.layers.Embedding(200, 64), keras.layers.Dense(200)
    model = keras.Sequential([keras.Input((3,)), table, dense])
    full_size.set_random_zeros(model, 0.9, block, np.random.default_rng(0))
    for values in (np.asarray(table.embeddings), np.asarray(dense.kernel).T):
        mask = (values != 0).reshape(200, -1, block)
        assert mask.mean() == pytest.approx(0.1, abs=0.02)
        assert (mask.all(axis=2) == mask.any(axis=2)).all()
    assert np.asarray(dense.bias).shape == (200,)


def test_files_are_written_once_and_compared(small, tmp_path, capsys):
    names = ["float32_dense", "int8_blocks_95"]
    arguments = [str(tmp_path), "--captioner", "up_down", "--runs", "1", "--variants", *names]
    full_size.main(arguments)
    paths = [tmp_path / f"up_down_beam1_{name}.tflite" for name in names]
    assert sorted(paths) == sorted(tmp_path.iterdir())
    sizes, times = [path.stat().st_size for path in paths], [path.stat().st_mtime_ns for path in paths]
    assert sizes[0] > 2 * sizes[1]
    assert "faster" in capsys.readouterr().out
    full_size.main(arguments)
    assert times == [path.stat().st_mtime_ns for path in paths]
    capsys.readouterr()
    benchmark([*map(str, paths), "--runs", "1", "--inputs", "2", "--json"])
    assert '"words": 10' in capsys.readouterr().out
