"""The same models through several exporters, at a small size."""

import keras
import numpy as np
import pytest
from PIL import Image

from benchmarks import peers

pytestmark = pytest.mark.slow
TOOLS = ["export_model_float32", "keras_quantize", "keras_quantize_export", "litert-quantizer_dynamic_OCTAV"]


@pytest.fixture
def arguments(tmp_path, monkeypatch):
    """Arguments for a small network and a folder with twelve photographs."""

    def make(weights, input_tensor, alpha):
        x = keras.layers.Conv2D(8, 3, strides=8, padding="same", activation="relu")(input_tensor)
        x = keras.layers.GlobalAveragePooling2D()(keras.layers.Conv2D(64, 1)(x))
        return keras.Model(input_tensor, keras.layers.Dense(64, activation="softmax")(x))

    for module in (keras.applications, keras.applications.mobilenet):
        monkeypatch.setattr(module, "Small", make, raising=False)
    for name, value in (("PHOTOGRAPHS", 4), ("HELD_OUT", 3), ("_EPOCHS", 1), ("_CHUNK", 3)):
        monkeypatch.setattr(peers, name, value)
    random = np.random.default_rng(0)
    for number in range(12):
        Image.fromarray(random.integers(0, 256, (56, 56, 3), np.uint8)).save(tmp_path / f"{number}.jpg")
    small = ["--network", "Small", "--size", "56", "--train", "5", "--runs", "1"]
    return [str(tmp_path / "files"), "--weights", "none", "--photographs", str(tmp_path), *small]


def test_each_tool_has_a_row_or_a_reason(arguments, capsys, tmp_path):
    peers.main([*arguments, "--models", "convolutional", "--tools", *TOOLS])
    lines = [line.strip() for line in capsys.readouterr().out.splitlines()]
    rows = {line.split()[0]: line.split()[1:] for line in lines if line.startswith(tuple(TOOLS))}
    float32, quantized = rows["export_model_float32"], rows["litert-quantizer_dynamic_OCTAV"]
    size = (tmp_path / "files" / "convolutional-export_model_float32.tflite").stat().st_size
    assert float32[0] == f"{size:,}" and float32[2] == "100.0%" and float(float32[1]) > 0
    assert int(quantized[0].replace(",", "")) < size
    # TensorFlow's converter has no operation for products of int8 as Keras writes them.
    assert rows["keras_quantize_export:"] and len(rows["keras_quantize"]) == 2
