"""What is checked before Keras reads a file; tests/core/test_saved_models.py reads whole files."""

import io

import h5py
import numpy as np
import pytest

from tfsparsecap.core.weight_files.keras_archive import check_config, check_hdf5

DENSE = {"class_name": "Dense", "module": "keras.layers", "config": {"units": 2}}


def hdf5(*arrays):
    stream = io.BytesIO()
    with h5py.File(stream, "w") as file:
        for number, array in enumerate(arrays):
            file.create_group(f"layer_{number}")["0"] = array
    return stream


def test_a_group_that_contains_itself_is_read_once():
    stream = hdf5(np.zeros(3, "float64"))
    with h5py.File(stream, "a") as file:
        file["layer_0/again"] = file["layer_0"]
    assert check_hdf5(stream, len(stream.getvalue())) == 24


def test_registered_classes_those_of_keras_and_plain_data_are_accepted():
    check_config({"layers": [DENSE, {"class_name": "__keras_tensor__", "config": {"shape": [2]}}]}, [])
    own = {"class_name": "Own", "module": "somewhere", "registered_name": "a>Own", "config": {}}
    check_config(own, ["a>Own"])
    with pytest.raises(ValueError, match="contains Own of somewhere, which is not a registered class"):
        check_config({"deeper": [own]}, ["a>Other"])
    relu = {"class_name": "function", "module": "builtins", "config": "relu", "registered_name": "relu"}
    check_config({"activation": relu, "weights": None, "vocabulary": ["a"]}, [])
    for wrong in (["x"], {"a": 1}, 3, None):
        with pytest.raises(ValueError, match="not a registered class"):
            check_config({"class_name": wrong, "registered_name": wrong, "config": {}}, {"x": 1})


def test_an_encoder_must_contain_its_architecture():
    hub = {"class_name": "ResNet", "module": "keras_hub.src.models", "registered_name": "keras_hub>ResNet"}
    check_config({"preset": "resnet_18", "architecture": {**hub, "config": {}}}, [])
    with pytest.raises(ValueError, match="names a preset that would be downloaded"):
        check_config({"preset": "resnet_18", "architecture": None}, [])
    with pytest.raises(ValueError, match=r"names a file \(weights\)"):
        check_config({"weights": "imagenet"}, [])
