"""Published weights of encoders: download, and loading into Keras models."""

import os
from collections.abc import Callable, Mapping
from pathlib import Path

import keras
import numpy as np

from tfsparsecap.core import hub_files
from tfsparsecap.core.files import check_input_file
from tfsparsecap.core.keras_internals import nested_layers, own_weights
from tfsparsecap.core.saved_models import load_model_weights
from tfsparsecap.core.weight_files.weight_formats import FORMATS, read_weights
from tfsparsecap.errors import InputError

#: Files of a whole Keras model or of its weights, read by Keras.
_KERAS_FORMATS = (".h5", ".keras")
#: Name of a variable in Keras -> in PyTorch.
_NAMES = {"kernel": "weight", "gamma": "weight", "beta": "bias"}
_NAMES |= {"moving_mean": "running_mean", "moving_variance": "running_var"}


def download_weights(repository: str, file: str, title: str) -> Path:
    """Path of a file of the Hugging Face Hub, in its cache or downloaded now.

    Args:
        repository: such as `timm/tiny_vit_5m_224.dist_in22k`.
        file: name of the file in it.
        title: the encoder, for messages.

    Raises:
        InputError: huggingface_hub is not installed, or the file is neither in the cache nor reachable.
    """
    try:
        what = f"the download of {title}'s weights"
        return hub_files.download(repository, file, what, "give the path of a file")
    except InputError:
        raise
    except hub_files.hub_errors() as error:
        raise InputError(
            f"the weights of {title} ({file} of {repository}) are not in the Hugging Face cache and could not"
            f" be downloaded ({hub_files.reason_of(error)}): connect to the network once, or give a file with"
            " model.encoder.weights=PATH"
        ) from error


def load_weights(
    network: keras.Model,
    path: str | os.PathLike[str],
    title: str,
    rename: Callable[[Mapping[str, np.ndarray]], Mapping[str, np.ndarray]] = lambda arrays: arrays,
) -> None:
    """Loads weights from a file into a network whose layers have the names of the published ones.

    Args:
        network: its weights are replaced.
        path: a file in a format of `weight_formats`, with PyTorch's layouts; or a Keras file of the
            same network.
        title: the encoder, for messages.
        rename: gives the arrays of the file the names of the layers, and removes those that are not needed.

    Raises:
        InputError: the file is missing, damaged, in another format, or from another network; the network is
            then unchanged.
    """
    if "://" in str(path):
        raise InputError(f"the weights {path} are an address: download the file, and give its path")
    path = Path(path).expanduser()
    check_input_file(path)
    if path.is_dir():
        raise InputError(f"the weights {path} are a folder: give a file in it")
    if not path.is_file():
        raise InputError(f"there is no weight file {path}: check the path, or use random weights (null)")
    if path.suffix in _KERAS_FORMATS:
        remedy = f"give weights that were saved from the same network, {title}"
        load_model_weights(network, path, remedy)
        return
    if path.suffix not in FORMATS:
        raise InputError(
            f"{path} is not a weight file for {title}: give one that ends in"
            f" {', '.join((*FORMATS, *_KERAS_FORMATS))}"
        )
    arrays, variables = dict(rename(read_weights(path))), {}
    for layer in nested_layers(network):
        for variable in own_weights(layer):
            name = _published_name(variable)
            variables[name] = variable
            if name in arrays:
                arrays[name] = _keras_layout(arrays[name], layer)
    assign_checked(variables, arrays, path, title)


def assign_checked(
    variables: Mapping[str, keras.Variable],
    arrays: Mapping[str, np.ndarray],
    path: str | os.PathLike[str],
    title: str,
) -> None:
    """Assigns the arrays of a file to variables of the same names.

    Args:
        variables: all variables of a network.
        arrays: in Keras's layout.
        path: the file, for messages.
        title: the encoder, for messages.

    Raises:
        InputError: an array is missing, not needed, or of another shape, or has impossible numbers; no
            variable is then changed.
    """
    missing = [name for name in variables if name not in arrays]
    if missing:
        raise InputError(f"{path} has no {missing[0]}: it contains another network than {title}")
    unused = arrays.keys() - variables.keys()
    if unused:
        raise InputError(
            f"{path} has {min(unused)}, but {title} has no such layer: it contains another network"
        )
    for name, variable in variables.items():
        value = arrays[name]
        if value.shape != tuple(variable.shape):
            raise InputError(
                f"{name} in {path} has the shape {value.shape}, but {title} needs {tuple(variable.shape)}:"
                " it contains another network"
            )
        valid = value.dtype.kind == "f" and np.isfinite(value).all()
        if not valid or (name.endswith(("running_var", "moving_variance")) and (value < 0).any()):
            raise InputError(
                f"{name} in {path} contains integers, NaN, infinity or a negative variance: give another file"
            )
    for name, variable in variables.items():
        variable.assign(arrays[name])


def _published_name(variable: keras.Variable) -> str:
    layer, _, name = variable.path.rpartition("/")
    return f"{layer.replace('/', '.')}.{_NAMES.get(name, name)}"


def _keras_layout(array: np.ndarray, layer: keras.layers.Layer) -> np.ndarray:
    """A kernel in Keras's layout; vectors and tables stay."""
    if array.ndim == 4:  # output channels, input channels, height, width
        depthwise = isinstance(layer, keras.layers.DepthwiseConv2D)
        return array.transpose(2, 3, 0, 1) if depthwise else array.transpose(2, 3, 1, 0)
    return array.T if isinstance(layer, keras.layers.Dense) else array
