"""PyTorch checkpoints from before version 1.6: written by hand, damaged, and malicious."""

import numpy as np
import pytest

from tfsparsecap.core.weight_files.torch_archive import read_checkpoint
from tfsparsecap.errors import InputError

from .torch_files import number, write_legacy

ARRAYS = {"a.weight": np.arange(6.0).reshape(2, 3), "a.bias": np.array([5.0]), "b": np.zeros((0, 2))}


def test_tensors_are_read(tmp_path):
    read = read_checkpoint(write_legacy(tmp_path / "a.pth", ARRAYS))
    assert list(read) == list(ARRAYS)
    for name, values in ARRAYS.items():
        assert read[name].dtype == np.float32
        np.testing.assert_array_equal(read[name], values)


def test_damaged_files_are_rejected(tmp_path):
    path = write_legacy(tmp_path / "a.pth", ARRAYS)
    content = path.read_bytes()
    for end in (len(content) - 9, len(content) - 30, 200, 30):
        path.write_bytes(content[:end])
        with pytest.raises(InputError, match=r"a\.pth is damaged"):
            read_checkpoint(path)
    with pytest.raises(InputError, match="is missing or has another length"):
        read_checkpoint(write_legacy(path, ARRAYS, count=7))
    path.write_bytes(content.replace(number(1001), number(1002)))
    with pytest.raises(InputError, match="its version is unknown"):
        read_checkpoint(path)


def test_calls_of_functions_are_rejected(tmp_path):
    path = write_legacy(tmp_path / "a.pth", ARRAYS)
    path.write_bytes(path.read_bytes().replace(b"ctorch\nFloatStorage\n", b"cposix\nsystem\n"))
    with pytest.raises(InputError, match=r"tries to call posix\.system.*nothing was executed"):
        read_checkpoint(path)
