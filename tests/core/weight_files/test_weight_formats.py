"""The choice of a reader by the end of a file's name, and .safetensors files."""

import subprocess
import sys

import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import save_file

from tfsparsecap.core.weight_files.weight_formats import read_weights
from tfsparsecap.errors import InputError

from .torch_files import write_legacy


def test_files_are_read_by_the_end_of_their_names(tmp_path):
    arrays = {"a.weight": np.arange(6, dtype="float32").reshape(2, 3)}
    save_file(arrays, tmp_path / "a.safetensors")
    for path in (tmp_path / "a.safetensors", write_legacy(tmp_path / "a.pt", arrays)):
        read = read_weights(path)
        assert list(read) == ["a.weight"]
        np.testing.assert_array_equal(read["a.weight"], arrays["a.weight"])


def test_bfloat16_becomes_float32_exactly(tmp_path):
    """Each of the 65536 values; read in a process that has not imported TensorFlow."""
    bits = np.arange(1 << 16, dtype=np.uint16)
    save_file({"a": bits.reshape(256, 256).view(ml_dtypes.bfloat16)}, tmp_path / "a.safetensors")
    code = (
        "import sys; sys.argv = ['tfsparsecap-export']; import numpy as np\n"
        "from tfsparsecap.core.weight_files.weight_formats import read_weights\n"
        f"np.save({str(tmp_path / 'a.npy')!r}, read_weights({str(tmp_path / 'a.safetensors')!r})['a'])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    read = np.load(tmp_path / "a.npy")
    expected = (bits.astype(np.uint32) << 16).view(np.float32).reshape(256, 256)
    assert read.dtype == np.float32
    np.testing.assert_array_equal(read, expected)


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
