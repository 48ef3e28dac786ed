"""Reads Keras models and weights from files that may be damaged or come from strangers."""

import os
from pathlib import Path

import keras
import tensorflow as tf

from tfsparsecap.core.files import DAMAGE
from tfsparsecap.core.keras_internals import limited_weights
from tfsparsecap.core.weight_files.keras_archive import check_archive, check_hdf5
from tfsparsecap.errors import InputError, first_line

#: What reading a damaged file raises. `DAMAGE` covers the archive, JSON and HDF5 (h5py raises OSError,
#: KeyError, RuntimeError or ValueError, depending on what is damaged). Keras looks up classes and attributes
#: that the file names (ImportError, AttributeError), checks its own state (AssertionError), and computes with
#: sizes in the file (ArithmeticError); TensorFlow refuses huge tensors (OpError: ResourceExhausted).
LOADING_ERRORS = (*DAMAGE, ImportError, AttributeError, AssertionError, ArithmeticError, tf.errors.OpError)
# Building an encoder creates its whole network, whose later layers need not be in the file. No network that
# can be chosen is larger.
_NETWORK_BYTES = 1 << 31


def load_model(path: str | os.PathLike, remedy: str) -> keras.Model:
    """Loads a model from a `.keras` file; no code in the file is run, and no other file is read.

    Args:
        remedy: end of the messages, such as "train the run again".

    Raises:
        InputError: the file is missing, damaged, needs much more memory than its size, or contains other
            classes than those of Keras, of this package, and those that were registered with Keras.

    Examples:
        >>> keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)]).save("small.keras")
        >>> load_model("small.keras", "save it again").count_params()
        3
    """
    path = Path(path)
    try:
        weight_bytes = check_archive(path, keras.saving.get_custom_objects())
        with limited_weights(weight_bytes + _NETWORK_BYTES):
            model = keras.saving.load_model(path, compile=False, safe_mode=True)
        if not isinstance(model, keras.Model):
            raise ValueError("it contains no model")
    except LOADING_ERRORS as error:
        raise InputError(f"cannot read {path} ({first_line(error)}): {remedy}") from error
    return model


def load_model_weights(model: keras.Model, path: str | os.PathLike, remedy: str) -> None:
    """Loads the weights of a model from a `.keras` or `.h5` file.

    Raises:
        InputError: as in `load_model`, or the weights are those of another model; the model is unchanged.
    """
    path = Path(path)
    before = model.get_weights()
    try:
        if path.suffix == ".keras":
            check_archive(path, keras.saving.get_custom_objects())
        else:
            check_hdf5(path, path.stat().st_size)
        model.load_weights(path)
    except LOADING_ERRORS as error:
        model.set_weights(before)
        raise InputError(f"cannot read {path} ({first_line(error)}): {remedy}") from error
