"""The choice of a reader by the end of a file's name, and .safetensors files."""

import numpy as np
import pytest
from safetensors.numpy import save_file

from tfsparsecap.errors import InputError
from tfsparsecap.weight_files.formats import read_weights

from .torch_files import write_legacy


def test_files_are_read_by_the_end_of_their_names(tmp_path):
    arrays = {"a.weight": np.arange(6, dtype="float32").reshape(2, 3)}
    save_file(arrays, tmp_path / "a.safetensors")
    for path in (tmp_path / "a.safetensors", write_legacy(tmp_path / "a.pt", arrays)):
        read = read_weights(path)
        assert list(read) == ["a.weight"]
        np.testing.assert_array_equal(read["a.weight"], arrays["a.weight"])


def test_damaged_safetensors_are_rejected(tmp_path):
    path = tmp_path / "a.safetensors"
    with pytest.raises(InputError, match=r"cannot read .*a\.safetensors"):
        read_weights(path)
    save_file({"a": np.ones(9, "float32")}, path)
    for content in (path.read_bytes()[:-5], b"", b"\xff" * 100):
        path.write_bytes(content)
        with pytest.raises(InputError, match=r"a\.safetensors is damaged"):
            read_weights(path)


@pytest.mark.parametrize("suffix", [".safetensors", ".pth", ".onnx"])
def test_devices_are_not_read(tmp_path, suffix):
    (tmp_path / f"a{suffix}").symlink_to("/dev/zero")
    with pytest.raises(InputError, match=rf"a\{suffix}"):
        read_weights(tmp_path / f"a{suffix}")
