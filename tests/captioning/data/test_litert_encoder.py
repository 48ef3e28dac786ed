"""Encoders on LiteRT."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from tfsparsecap.captioning.data import feature_cache
from tfsparsecap.captioning.data.feature_cache import cached_features
from tfsparsecap.captioning.data.litert_encoder import litert_encoder
from tfsparsecap.captioning.data.records import Record
from tfsparsecap.captioning.models import MobileNetV1Encoder


class Determinant(keras.layers.Layer):
    """An operation that LiteRT lacks."""

    def call(self, images):
        return tf.linalg.det(tf.einsum("bijc,bikc->bcjk", images, images))[:, None, :]


@pytest.fixture(scope="module")
def encoder():
    keras.utils.set_random_seed(0)
    return MobileNetV1Encoder(0.25, "conv_pw_3_relu", 48, None)


@pytest.mark.slow
def test_what_litert_cannot_run_is_left_to_tensorflow(encoder, monkeypatch):
    determinant = Determinant()
    determinant(np.zeros((1, 48, 48, 3), np.float32))
    assert litert_encoder(determinant, 48) is None
    half = MobileNetV1Encoder(0.25, "conv_pw_1_relu", 48, None, dtype="mixed_bfloat16")
    assert litert_encoder(half, 48) is None
    monkeypatch.setattr(tf.config, "list_logical_devices", lambda kind: [kind])
    assert litert_encoder(encoder, 48) is None


@pytest.mark.slow
def test_the_cache_of_many_images_is_computed_by_litert(encoder, tmp_path, monkeypatch):
    records = []
    for number in range(3):
        path = tmp_path / f"{number}.png"
        keras.utils.save_img(path, np.random.default_rng(number).integers(0, 256, (48, 48, 3)))
        records.append(Record(path.name, path, ("a",), "train"))

    def features(folder):
        return cached_features(records, encoder, 48, tmp_path / folder, batch_size=2, progress=False).features

    expected = np.array(features("tensorflow"))
    made = []
    monkeypatch.setattr(feature_cache, "_MANY_IMAGES", 3)
    monkeypatch.setattr(
        feature_cache, "litert_encoder", lambda *given: made.append(litert_encoder(*given)) or made[0]
    )
    found = features("litert")
    assert made[0] is not None
    np.testing.assert_allclose(found, expected, atol=2e-3 * np.abs(expected).max())
