"""The benchmark of data sets of MS-COCO's size, on few images."""

import concurrent.futures
import json

import keras
import pytest
from keras import ops

from benchmarks import scale
from tfsparsecap.captioning import models


class TinyEncoder(keras.layers.Layer):
    """Instead of EfficientNet-Lite0, which takes seconds to build."""

    def __init__(self, variant, layer, size, weights):
        super().__init__()

    def get_config(self):
        return {}

    def call(self, image, training=False):
        return ops.reshape(ops.mean(image, axis=(1, 2)), (-1, 1, 3)) / 255


class HerePool:
    """Runs what a pool of processes would run."""

    def __init__(self, *arguments):
        pass

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        pass

    def submit(self, function, *arguments):
        future = concurrent.futures.Future()
        future.set_result(function(*arguments))
        return future


@pytest.mark.slow
def test_stages_cache_and_projection_are_measured(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(scale.concurrent.futures, "ProcessPoolExecutor", HerePool)
    monkeypatch.setattr(models, "EfficientNetLiteEncoder", TinyEncoder)
    monkeypatch.setattr(scale, "_STEPS", 1)
    arguments = [str(tmp_path), "--images", "160", "--batch-size", "4", "--cached", "8"]
    scale.main([*arguments, "--step", "0.25", "--json"])
    results = json.loads(capsys.readouterr().out)
    assert [size["images"] for size in results["sizes"]] == [10, 40, 160]
    for size in results["sizes"]:
        assert list(size["stages"]) == list(scale.STAGES)
        assert size["batches"] == size["captions"] // 4
        assert all(stage["seconds"] > 0 for stage in size["stages"].values())
    assert [row["images"] for row in results["cache"]] == [2, 8]
    about = results["projection"]
    assert about["step"] == 0.25
    assert about["gradients"] > 4e6 and list(about["seconds"]) == ["1", "2", "4", "8"]
    assert {path.name for path in tmp_path.rglob("*") if path.suffix == ".npy"} == set()
    projected = dict.fromkeys(("captions", "batch_size"), 10) | {"devices": 2, "input_batch": 9.0}
    about["seconds"] = {int(devices): seconds for devices, seconds in about["seconds"].items()}
    scale.show(results, 160, scale.Console())
    shown = capsys.readouterr().out
    assert "extrapolated to 160" in shown and "epoch of input" in shown and "growth" in shown
    assert scale.projected_seconds(**projected, step=1, gradients=1, bandwidth=1) == 4.5  # waits for input


def test_devices_wait_for_gradients():
    about = {"captions": 8000, "batch_size": 80, "step": 0.5, "input_batch": 0.1, "bandwidth": 1e9}
    seconds = [scale.projected_seconds(k, **about, gradients=2e8) for k in (1, 2, 4)]
    assert seconds == pytest.approx([50, 50 * 0.7, 25 * 0.8])


def test_growth_is_the_exponent():
    assert scale.growth([10, 20, 40], [1, 4, 16]) == pytest.approx(2)
