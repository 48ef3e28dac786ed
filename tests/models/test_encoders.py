"""The MobileNet-V1 encoder against keras.applications, its freezing, and what does not exist."""

import os
import subprocess
import sys

import keras
import numpy as np
import pytest

from tfsparsecap.errors import InputError
from tfsparsecap.models import MobileNetV1Encoder


@pytest.fixture(scope="module")
def images():
    return np.random.default_rng(1).integers(0, 256, (2, 64, 64, 3)).astype("uint8")


def small(**changes):
    return MobileNetV1Encoder(
        **{"width": 0.25, "layer": "conv_pw_5_relu", "image_size": 64, "weights": None, **changes}
    )


def test_equals_keras_applications_with_imagenet_weights(shared):
    program = """
import keras, numpy as np
from tfsparsecap.models import MobileNetV1Encoder
images = np.random.default_rng(1).integers(0, 256, (1, 224, 224, 3)).astype("uint8")
mobilenet = keras.applications.mobilenet
network = mobilenet.MobileNet((224, 224, 3), alpha=0.75, weights="imagenet", include_top=False)
expected = network(mobilenet.preprocess_input(images.astype("float32")))
encoder = MobileNetV1Encoder()
assert encoder.features_shape == (49, 768)
np.testing.assert_allclose(encoder(images), np.reshape(expected, (1, 49, 768)), atol=1e-4)
"""
    environment = {
        **os.environ,
        "KERAS_HOME": str(shared / "weights" / "keras_home"),
        "TF_CPP_MIN_LOG_LEVEL": "3",
    }
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("layer", "shape"),
    [("conv1_relu", (1024, 8)), ("conv_pw_3_relu", (256, 32)), ("conv_pw_11_relu", (16, 128))],
)
def test_features_of_any_layer(images, layer, shape):
    encoder = small(layer=layer)
    assert encoder.features_shape == shape
    assert encoder(images).shape == (2, *shape)
    assert encoder.compute_output_shape((None, 64, 64, 3)) == (None, *shape)


def test_bytes_and_floats_are_the_same_image(images):
    encoder = small()
    np.testing.assert_allclose(encoder(images), encoder(images.astype("float32")), atol=1e-6)


def test_frozen_batch_normalisation_does_not_move(images):
    encoder = small()
    before = encoder.get_weights()
    features = encoder(images, training=True)
    assert encoder.trainable_variables == []
    np.testing.assert_array_equal(features, encoder(images))
    for old, new in zip(before, encoder.get_weights(), strict=True):
        np.testing.assert_array_equal(old, new)


def test_thawed_encoder_trains_and_its_averages_move_at_the_given_pace(images):
    encoder = small(batch_norm_momentum=0.5)
    encoder.trainable = True
    assert len(encoder.trainable_variables) > 10
    norm = encoder.backbone.get_layer("conv1_bn")
    encoder(images, training=True)
    assert norm.momentum == 0.5
    assert np.all(np.asarray(norm.moving_variance) <= 0.5 + 0.5 * 4)
    assert np.abs(norm.moving_mean).max() > 0


def test_configuration_brings_no_imagenet_weights_and_keeps_the_policy():
    encoder = small(trainable=True, dtype="mixed_bfloat16")
    config = keras.saving.serialize_keras_object(encoder)
    again = keras.saving.deserialize_keras_object(config)
    assert again.get_config() == encoder.get_config()
    assert again.get_config()["weights"] is None and again.trainable
    assert again.backbone.layers[1].dtype_policy.name == "mixed_bfloat16"
    assert keras.config.dtype_policy().name == "float32"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"layer": "conv_pw5_relu"}, 'no layer "conv_pw5_relu": did you mean .*conv_pw_5_relu'),
        ({"image_size": 16}, "at least 32"),
        ({"width": 0}, "above 0"),
        ({"width": 0.3, "weights": "imagenet"}, "no ImageNet weights for width 0.3"),
        ({"weights": "coco"}, 'weights is "coco"'),
    ],
)
def test_what_does_not_exist_is_named(arguments, message):
    with pytest.raises(InputError, match=message):
        small(**arguments)


def test_images_of_another_size_are_refused():
    with pytest.raises(InputError, match=r"\(64, 64, 3\), not \(32, 32, 3\)"):
        small()(np.zeros((1, 32, 32, 3), "uint8"))


def test_weights_that_cannot_be_had(monkeypatch):
    def unreachable(**arguments):
        raise OSError("URL fetch failure\non all of it")

    monkeypatch.setattr(keras.applications, "MobileNet", unreachable)
    with pytest.raises(InputError, match=r"\(URL fetch failure\): set KERAS_HOME"):
        small(weights="imagenet")
