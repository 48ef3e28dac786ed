"""Weights in ONNX files that PyTorch exported."""

import numpy as np
import pytest

from tfsparsecap.core.weight_files.onnx_file import read_onnx
from tfsparsecap.errors import InputError

from .torch_files import write_onnx as write


def test_changed_weights_are_named_after_their_layers(tmp_path):
    rng = np.random.default_rng(0)
    kernel, matrix = rng.random((4, 3, 2, 2), "float32"), rng.random((5, 6)).astype("float16")
    bias, scale = rng.random(4, "float32"), rng.random(6, "float32")
    tensors = {"onnx::Conv_1": kernel, "onnx::Conv_2": bias, "onnx::MatMul_3": matrix}
    tensors |= {"m.norm.weight": scale, "axes": np.array([1])}
    nodes = [
        ("Conv", "/m/stages_0/blocks/blocks.1/conv/Conv", ["x", "onnx::Conv_1", "onnx::Conv_2"]),
        ("MatMul", "/m/fc/MatMul", ["y", "onnx::MatMul_3"]),
        ("Mul", "/m/norm/Mul", ["z", "m.norm.weight"]),
    ]
    read = read_onnx(write(tmp_path / "a.onnx", tensors, nodes))
    expected = {"m.norm.weight": scale, "m.stages_0.blocks.1.conv.weight": kernel}
    expected |= {"m.stages_0.blocks.1.conv.bias": bias, "m.fc.weight": matrix.T}
    assert read.keys() == expected.keys()
    for name, values in expected.items():
        np.testing.assert_array_equal(read[name], values)


def test_damaged_files_are_rejected(tmp_path):
    path = tmp_path / "a.onnx"
    with pytest.raises(InputError, match=r"cannot read .*a\.onnx"):
        read_onnx(path)
    path.write_bytes(b"")
    with pytest.raises(InputError, match="is not an ONNX file with weights"):
        read_onnx(path)
    write(path, {"w": np.ones(3, "float32")}, [])
    path.write_bytes(path.read_bytes()[:-2])
    with pytest.raises(InputError, match="is damaged or not an ONNX file"):
        read_onnx(path)
    write(path, {"w": np.ones(3, "float32")}, [])
    path.write_bytes(path.read_bytes().replace(b"\x08\x03", b"\x08\x04"))
    with pytest.raises(InputError, match=r"w in .* is damaged"):
        read_onnx(path)


def test_names_that_are_not_text_are_rejected(tmp_path):
    for old in (b"first", b"layer/Conv"):
        path = write(tmp_path / "a.onnx", {"first": np.ones(3, "float32")}, [("Conv", "layer/Conv", ["x"])])
        path.write_bytes(path.read_bytes().replace(old, b"\xff" + old[1:]))
        with pytest.raises(InputError, match=r"a\.onnx has a name that is not UTF-8 text"):
            read_onnx(path)
