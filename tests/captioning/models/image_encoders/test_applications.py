"""Encoders from keras.applications against the same networks called directly."""

import functools

import keras
import numpy as np
import pytest

from tfsparsecap.captioning.encoder_catalogue import CATALOGUE, KERAS
from tfsparsecap.captioning.models import ApplicationsEncoder
from tfsparsecap.errors import InputError

applications = keras.applications
#: Networks with each kind of preparation of images, and the function that prepares them.
FAMILIES = {
    "ResNet50": applications.resnet.preprocess_input,
    "DenseNet121": applications.densenet.preprocess_input,
    "EfficientNetB0": applications.efficientnet.preprocess_input,
    "MobileNetV2": applications.mobilenet_v2.preprocess_input,
}
SIZE = 96


@pytest.fixture(scope="module")
def images():
    return np.random.default_rng(1).integers(0, 256, (2, SIZE, SIZE, 3)).astype("uint8")


@pytest.mark.slow
@pytest.mark.parametrize("name", FAMILIES)
def test_features_equal_those_of_keras(name, images, monkeypatch):
    create, calls, networks = getattr(applications, name), [], []

    @functools.wraps(create)
    def recorded(**arguments):
        calls.append(arguments)
        networks.append(create(**arguments))
        return networks[-1]

    monkeypatch.setattr(applications, name, recorded)
    encoder = ApplicationsEncoder(name, image_size=SIZE, weights=None)
    assert calls == [{"input_shape": (SIZE, SIZE, 3), "weights": None, "include_top": False}]
    (network,) = networks
    rng = np.random.default_rng(2)
    # Random weights as in Keras, but other statistics of batch normalisation.
    network.set_weights(
        [values * rng.uniform(0.9, 1.1, values.shape[-1:]) for values in network.get_weights()]
    )
    expected = np.asarray(network(FAMILIES[name](images.astype("float32"))))
    assert encoder.features_shape == (expected.shape[1] * expected.shape[2], expected.shape[3])
    assert encoder.count_params() == CATALOGUE[name].parameters
    assert expected.shape[3] == CATALOGUE[name].feature_map[2]
    largest = np.abs(expected).max()
    assert largest > 0
    np.testing.assert_allclose(
        np.reshape(encoder(images), expected.shape), expected, rtol=0, atol=1e-4 * largest
    )


def test_every_network_of_keras_is_in_the_catalogue():
    networks = {name for name in dir(applications) if name[0].isupper()}
    assert networks == {
        name for name, entry in CATALOGUE.items() if entry.source == KERAS and name != "mobilenet_v1"
    }


@pytest.mark.slow
@pytest.mark.parametrize("name", ["MobileNetV3Small", pytest.param("EfficientNetB0", marks=pytest.mark.slow)])
def test_the_catalogue_has_the_feature_maps_of_the_networks(name):
    entry = CATALOGUE[name]
    encoder = ApplicationsEncoder(name, image_size=entry.image_size, weights=None)
    assert encoder.backbone.output_shape[1:] == entry.feature_map


@pytest.mark.slow
def test_weights_that_keras_saved_are_read(tmp_path):
    encoder = ApplicationsEncoder("VGG16", image_size=32, weights=None)
    encoder.backbone.save_weights(tmp_path / "a.weights.h5")
    again = ApplicationsEncoder("VGG16", image_size=32, weights=str(tmp_path / "a.weights.h5"))
    for own, other in zip(again.get_weights(), encoder.get_weights(), strict=True):
        np.testing.assert_array_equal(own, other)
    (tmp_path / "b.weights.h5").write_bytes(b"no HDF5")
    for name, message in (("b.weights.h5", "cannot read"), ("absent.h5", "there is no weight file")):
        with pytest.raises(InputError, match=message):
            ApplicationsEncoder("VGG16", image_size=32, weights=str(tmp_path / name))


@pytest.mark.slow
def test_the_configuration_keeps_network_layer_and_policy():
    encoder = ApplicationsEncoder("VGG16", "block3_pool", image_size=64, weights=None, dtype="mixed_bfloat16")
    again = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(encoder))
    assert again.get_config() == encoder.get_config() and again.features_shape == (8 * 8, 256)
    assert again.backbone.layers[1].dtype_policy.name == "mixed_bfloat16"


def test_unusable_arguments_are_rejected(monkeypatch):
    with pytest.raises(InputError, match="did you mean EfficientNetB0"):
        ApplicationsEncoder("EfficientnetB0x", weights=None)
    with pytest.raises(InputError, match=r"Xception cannot be created: .*71"):
        ApplicationsEncoder("Xception", image_size=64, weights=None)
    with pytest.raises(InputError, match="layer is block5, and VGG16 has no such layer: did you mean"):
        ApplicationsEncoder("VGG16", "block5", image_size=32, weights=None)

    def unreachable(**arguments):
        raise Exception("URL fetch failure on https://example.com: None")

    monkeypatch.setattr(keras.applications, "MobileNetV2", unreachable)
    with pytest.raises(InputError, match=r"ImageNet weights of MobileNetV2 for 224 pixels .*\(URL fetch"):
        ApplicationsEncoder("MobileNetV2")
