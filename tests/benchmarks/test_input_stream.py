"""The benchmark of streamed region features."""

import json

import numpy as np

from benchmarks import input_stream as stream_benchmark


def test_each_stage_is_measured_and_files_are_written_once(tmp_path, capsys):
    arguments = [str(tmp_path), "--images", "12", "--size", "8", "--batch-size", "4", "--epochs", "2"]
    stream_benchmark.main([*arguments, "--json"])
    stages = json.loads(capsys.readouterr().out)
    assert [stage["stage"] for stage in stages] == ["TensorFlow and records", "index", "epoch 1", "epoch 2"]
    # TensorFlow alone takes more than 100 MB.
    assert all(stage["memory"] > 100 and stage["seconds"] > 0 for stage in stages)
    files = sorted(tmp_path.rglob("*.npy"))
    assert len(files) == 24
    regions, boxes = (np.load(tmp_path / name / "3.npy") for name in ("cocobu_att", "cocobu_box_relative"))
    assert regions.shape == (len(boxes), 8) and (boxes[:, 2:] >= boxes[:, :2]).all()
    times = [file.stat().st_mtime_ns for file in files]
    stream_benchmark.main(arguments)
    assert "memory (MB)" in capsys.readouterr().out
    assert times == [file.stat().st_mtime_ns for file in files]
