"""Encoders that are trained behind one of their layers."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from tfsparsecap.captioning.models import MobileNetV1Encoder, TinyViTEncoder
from tfsparsecap.captioning.models.image_encoders.applications import ApplicationsEncoder
from tfsparsecap.core.saved_models import load_model
from tfsparsecap.errors import InputError

LATER = {"conv_dw_4", "conv_pw_4"}


@pytest.fixture
def encoder():
    keras.utils.set_random_seed(1)
    return MobileNetV1Encoder(0.25, "conv_pw_4_relu", 64, None, trainable=True, frozen_until="conv_pw_3_relu")


@pytest.fixture
def images():
    return np.random.default_rng(1).integers(0, 256, (2, 64, 64, 3)).astype("uint8")


def trained(encoder):
    return {weight.path.split("/")[-2] for weight in encoder.trainable_weights}


def test_only_later_layers_are_trained(encoder, images):
    before = {weight.path: np.array(weight) for weight in encoder.weights}
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(tf.square(encoder(images, training=True)))
    variables = encoder.trainable_weights
    keras.optimizers.SGD(1.0).apply(tape.gradient(loss, [v.value for v in variables]), variables)
    changed = {w.path.split("/")[-2] for w in encoder.weights if np.any(np.array(w) != before[w.path])}
    assert changed == trained(encoder) == LATER


@pytest.mark.parametrize("outer", [False, True])
def test_they_stay_the_only_ones_when_the_encoder_is_frozen_and_trained_again(encoder, outer):
    owner = keras.Sequential([encoder]) if outer else encoder
    owner.trainable = False
    assert not trained(encoder)
    owner.trainable = True
    assert trained(encoder) == LATER


def test_the_frozen_part_is_the_network_up_to_the_layer(encoder, images):
    stock = keras.applications.MobileNet((64, 64, 3), alpha=0.25, weights=None, include_top=False)
    for layer in encoder.backbone.layers[1:]:
        stock.get_layer(layer.name).set_weights(layer.get_weights())
    expected = keras.Model(stock.input, stock.get_layer("conv_pw_3_relu").output)(images / 127.5 - 1.0)
    frozen = encoder.frozen_part()(images)
    np.testing.assert_allclose(frozen, np.reshape(expected, (2, 256, 32)), atol=1e-5)
    for training in (False, True):
        np.testing.assert_allclose(
            encoder.finish(frozen, training), encoder(images, training=training), atol=1e-5
        )


@pytest.mark.slow
def test_dropout_of_frozen_layers_is_off(images):
    # EfficientNet drops whole blocks in training.
    encoder = ApplicationsEncoder(
        "EfficientNetB0", image_size=64, weights=None, trainable=True, frozen_until="block6d_add"
    )
    frozen = encoder.frozen_part()(images)
    keras.utils.set_random_seed(1)
    expected = encoder(images, training=True)
    keras.utils.set_random_seed(1)
    np.testing.assert_allclose(encoder.finish(frozen, training=True), expected, atol=1e-4)


def test_it_is_saved(encoder, images, tmp_path):
    encoder.trainable = False
    model = keras.Sequential([keras.Input((64, 64, 3)), encoder])
    model.save(tmp_path / "model.keras")
    loaded = load_model(tmp_path / "model.keras", "save it again")
    np.testing.assert_array_equal(loaded(images), model(images))
    loaded.layers[0].trainable = True
    assert trained(loaded.layers[0]) == LATER


@pytest.mark.parametrize(
    "layer, message",
    [
        ("stages.3.blocks.1", r"frozen_until is stages\.3\.blocks\.1, the last layer of TinyViT-5M: name an"),
        (
            "stages.2.blocks.9",
            r"until is stages\.2\.blocks\.9, and TinyViT-5M has no such layer: did you mean stages\.2\.bl",
        ),
        ("stages.3.blocks.0.attn", r"cannot be frozen until stages\.3\.blocks\.0\.attn: later layers also u"),
    ],
)
def test_rejected_layers(layer, message):
    with pytest.raises(InputError, match=message):
        TinyViTEncoder(image_size=32, weights=None, frozen_until=layer)


def test_finish_needs_what_the_frozen_part_computes(encoder):
    with pytest.raises(InputError, match=r"shape \(2, 49, 32\), not \[images, 256, 32\]: compute it with fr"):
        encoder.finish(np.zeros((2, 49, 32), "float32"))
    with pytest.raises(InputError, match="no layer of the encoder is frozen: set frozen_until"):
        MobileNetV1Encoder(0.25, "conv_pw_2_relu", 64, None).finish(np.zeros((2, 256, 32), "float32"))
