"""Patterns that name the layers of an export that stay float."""

import keras
import numpy as np
import pytest
from tfsparsecap_export import export_model
from tfsparsecap_export.export_network import matching_layers

from tfsparsecap.errors import InputError


def test_patterns_match_whole_parts_of_paths():
    names = ["encoder", "captioner/lstm/kernel", "captioner/lstm/recurrent_kernel", "captioner/output/kernel"]
    assert matching_layers(["lstm"], names) == names[1:3]
    assert matching_layers(["output/kernel", "encoder"], names) == [names[3], names[0]]
    with pytest.raises(
        InputError, match=r"no layer lst to keep float: the layers are encoder, captioner/lstm"
    ):
        matching_layers(["lst"], names)


def test_3d_convolutions_stay_float_and_are_in_the_report(tmp_path):
    layers = [keras.Input((4, 8, 8, 4)), keras.layers.Conv3D(32, 3), keras.layers.Conv3DTranspose(8, 3)]
    model = keras.Sequential([*layers, keras.layers.GlobalAveragePooling3D()])
    for layer in model.layers[:2]:
        layer.kernel.assign(layer.kernel * (np.random.default_rng(0).random(layer.kernel.shape) < 0.1))
    report = export_model(model, tmp_path / "model.tflite", samples=np.random.rand(4, 4, 8, 8, 4))
    for layer, name in zip(model.layers[:2], ("conv3d", "conv3d_transpose"), strict=True):
        (listed,) = [entry for entry in report.layers if entry.name == layer.kernel.path]
        assert (listed.role, listed.encoding, listed.pattern) == ("3D convolution", "float32", "unstructured")
        assert listed.nonzeros == np.count_nonzero(layer.kernel) and name in listed.name
    (note,) = report.notes
    assert note.startswith("3D convolutions stay float32, with their zeros")
    assert export_model(model, tmp_path / "model.tflite", "dense").notes == ()
