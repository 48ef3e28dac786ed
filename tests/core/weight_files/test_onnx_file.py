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


def changed(old, new):
    def write_changed(path):
        nodes = [("Conv", "layer/Conv", ["x"])]
        content = write(path, {"first": np.ones(3, "float32")}, nodes).read_bytes()
        assert old in content
        path.write_bytes(content.replace(old, new))

    return write_changed


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda path: None, r"cannot read .*a\.onnx"),
        (lambda path: path.write_bytes(b""), "is not an ONNX file with weights"),
        (
            lambda path: path.write_bytes(write(path, {"w": np.ones(3, "f4")}, []).read_bytes()[:-2]),
            "is damaged or not an ONNX file",
        ),
        (changed(b"\x08\x03", b"\x08\x04"), r"first in .* is damaged"),
        (changed(b"first", b"\xffirst"), r"a\.onnx has a name that is not UTF-8 text"),
        (changed(b"layer/Conv", b"\xffayer/Conv"), r"a\.onnx has a name that is not UTF-8 text"),
    ],
)
def test_damaged_files_are_refused(tmp_path, make, message):
    make(tmp_path / "a.onnx")
    with pytest.raises(InputError, match=message):
        read_onnx(tmp_path / "a.onnx")
