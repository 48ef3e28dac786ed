"""Reads the named arrays in files of weights, by the end of the file's name."""

import os
from pathlib import Path

import numpy as np

from tfsparsecap.core.files import check_input_file
from tfsparsecap.core.installation import pip_install
from tfsparsecap.core.weight_files.onnx_file import read_onnx
from tfsparsecap.core.weight_files.torch_archive import read_checkpoint
from tfsparsecap.errors import InputError


def read_safetensors(path: str | os.PathLike) -> dict[str, np.ndarray]:
    """Reads a `.safetensors` file; bfloat16 becomes float32.

    Raises:
        InputError: the file cannot be read or is damaged, or safetensors is not installed.
    """
    try:
        import ml_dtypes  # noqa: F401 (with it, NumPy has the type bfloat16)
        import safetensors
    except ImportError as error:
        raise InputError(f"{path} needs safetensors to be read: {pip_install('captions')}") from error
    try:
        check_input_file(path)
        with safetensors.safe_open(path, framework="numpy") as file:
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            return {name: _without_short_floats(array) for name, array in arrays.items()}
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}; give another file") from error
    except (safetensors.SafetensorError, TypeError, ValueError) as error:
        raise InputError(f"{path} is damaged ({error}): copy or download it again") from error


def _without_short_floats(array: np.ndarray) -> np.ndarray:
    """An array of a type that NumPy does not have itself, such as bfloat16, as float32, which is exact."""
    return array.astype(np.float32) if array.dtype.kind == "V" else array


#: End of a file's name -> function that reads it.
FORMATS = {
    ".safetensors": read_safetensors,
    ".pth": read_checkpoint,
    ".pt": read_checkpoint,
    ".onnx": read_onnx,
}


def read_weights(path: str | os.PathLike) -> dict[str, np.ndarray]:
    """Reads all arrays in a file.

    Args:
        path: `.safetensors`, `.pth` or `.pt` (PyTorch), or `.onnx`.

    Returns:
        Name -> array, in PyTorch's layouts.

    Raises:
        InputError: the file is missing, damaged or in another format.
    """
    return FORMATS[Path(path).suffix](path)
