"""The benchmark of exported convolutional networks, at a small size."""

import keras
import numpy as np
import pytest
from tfsparsecap_export import benchmark
from tfsparsecap_export.flatbuffer.contents import read_contents
from tfsparsecap_export.verify import outputs

from benchmarks import convolutional_files

pytestmark = pytest.mark.slow


def small_network(weights, input_tensor):
    x = keras.layers.Conv2D(128, 3, strides=4, activation="relu")(input_tensor)
    x = keras.layers.DepthwiseConv2D(3)(x)
    x = keras.layers.GlobalAveragePooling2D()(keras.layers.Conv2D(256, 1)(x))
    return keras.Model(input_tensor, keras.layers.Dense(80)(x))


def test_all_variants_are_written_once_and_compared(tmp_path, monkeypatch, capsys):
    compared = []
    monkeypatch.setattr(benchmark, "main", compared.append)
    monkeypatch.setattr(keras.applications, "Small", small_network, raising=False)
    arguments = [str(tmp_path), "--network", "Small", "--size", "32", "--runs", "1"]
    convolutional_files.main(arguments)
    assert outputs.INT8_SAME_CLASS > 0
    assert capsys.readouterr().out.count("ms of processor time") == len(convolutional_files.VARIANTS)
    paths = {path.name.removeprefix("Small_32_"): path for path in tmp_path.iterdir()}
    sizes = {name: path.stat().st_size for name, path in paths.items()}
    assert set(compared[0][:8]) == set(map(str, paths.values())) and "float32" in compared[0][0]
    assert sizes["float32.tflite"] > 1.8 * sizes["float16.tflite"] > 3 * sizes["int8.tflite"]
    assert sizes["sparse_int8_80.tflite"] < 0.7 * sizes["int8.tflite"]
    assert sizes["sparse_float16_80.tflite"] < 0.4 * sizes["float16.tflite"]
    stored = {layer.stored for layer in read_contents(paths["sparse_int8_80.tflite"]).layers}
    assert "sparse int8" in stored
    stored = {layer.behind for layer in read_contents(paths["int8.tflite"]).layers}
    assert stored == {()} and sizes["slim_int8_50.tflite"] < 0.6 * sizes["int8.tflite"]
    times = [path.stat().st_mtime_ns for path in paths.values()]
    convolutional_files.main(arguments)
    assert times == [path.stat().st_mtime_ns for path in paths.values()] and compared[1] == compared[0]


def test_the_smallest_weights_become_zero():
    network = keras.Sequential([keras.Input((8, 8, 4)), keras.layers.Conv2D(16, 3)])
    before = np.abs(network.layers[0].kernel)
    convolutional_files.set_smallest_to_zero(network, 0.75)
    mask = np.asarray(network.layers[0].kernel) != 0
    assert mask.mean() == pytest.approx(0.25, abs=0.01)
    assert before[mask].min() >= before[~mask].max()
