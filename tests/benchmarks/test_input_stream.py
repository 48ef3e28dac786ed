"""The benchmark of streamed features: it reads what it wrote, and says what it holds."""

import json

import numpy as np
import pytest

from benchmarks import input_stream as stream_benchmark
from tfsparsecap.errors import InputError


def test_stages_are_measured_and_files_written_once(tmp_path, capsys):
    arguments = [str(tmp_path), "--images", "12", "--size", "8", "--batch-size", "4", "--epochs", "2"]
    stream_benchmark.main([*arguments, "--json"])
    stages = json.loads(capsys.readouterr().out)
    assert [stage["stage"] for stage in stages] == ["TensorFlow and records", "index", "epoch 1", "epoch 2"]
    # The process holds TensorFlow at least.
    assert all(stage["memory"] > 100 and stage["seconds"] > 0 for stage in stages)
    files = sorted(tmp_path.rglob("*.npy"))
    assert len(files) == 24
    regions, boxes = (np.load(tmp_path / name / "3.npy") for name in ("cocobu_att", "cocobu_box_relative"))
    assert regions.shape == (len(boxes), 8) and (boxes[:, 2:] >= boxes[:, :2]).all()
    times = [file.stat().st_mtime_ns for file in files]
    stream_benchmark.main(arguments)
    assert "MB held" in capsys.readouterr().out
    assert times == [file.stat().st_mtime_ns for file in files]


def test_what_cannot_be_used_is_said(tmp_path):
    with pytest.raises(InputError, match="--images is 0"):
        stream_benchmark.main([str(tmp_path), "--images", "0"])
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="is a file"):
        stream_benchmark.main([str(tmp_path / "file"), "--images", "1"])
