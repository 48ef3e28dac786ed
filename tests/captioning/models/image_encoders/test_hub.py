"""Encoders from KerasHub, whose presets are folders here."""

import shutil
import sys
from pathlib import Path

import keras
import numpy as np
import pytest

from tfsparsecap.captioning.models import KerasHubEncoder
from tfsparsecap.core.saved_models import load_model
from tfsparsecap.errors import InputError

from ....conftest import save_preset

keras_hub = pytest.importorskip("keras_hub")
SIZE = 64


@pytest.fixture(scope="module")
def preset(tmp_path_factory):
    return save_preset(tmp_path_factory.mktemp("hub") / "small")


@pytest.fixture(scope="module")
def backbone(preset):
    return keras_hub.models.Backbone.from_preset(preset)


@pytest.fixture(scope="module")
def images():
    return np.random.default_rng(1).integers(0, 256, (2, SIZE, SIZE, 3)).astype("uint8")


def test_features_equal_those_of_kerashub(preset, backbone, images):
    encoder = KerasHubEncoder(preset, image_size=SIZE)
    expected = np.asarray(backbone(images.astype("float32") / 128 + [-1.0, 0.0, 0.5]))
    assert encoder.features_shape == (64, 16) and expected.shape == (2, 8, 8, 16)
    np.testing.assert_allclose(encoder(images), expected.reshape(2, 64, 16), atol=1e-4)


def test_a_saved_encoder_needs_neither_preset_nor_network(preset, images, tmp_path):
    encoder = KerasHubEncoder(preset, image_size=SIZE, batch_norm_momentum=0.5)
    model = keras.Sequential([keras.Input((SIZE, SIZE, 3)), encoder])
    model.save(tmp_path / "a.keras")
    text = str(keras.saving.serialize_keras_object(encoder)).replace(preset, "absent")
    assert "absent" in text
    again = load_model(tmp_path / "a.keras", "save it again")
    np.testing.assert_allclose(again(images), encoder(images), atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize(("positions", "change"), [(SIZE, 1.0), (112, -1.0)])
def test_trained_position_embeddings_are_saved_and_loaded(images, tmp_path, positions, change):
    keras.utils.set_random_seed(1)
    keras_hub.models.DINOV2Backbone(
        patch_size=16,
        num_layers=1,
        hidden_dim=8,
        num_heads=2,
        intermediate_dim=16,
        image_shape=(SIZE, SIZE, 3),
        position_embedding_shape=(positions, positions, 3),
    ).save_to_preset(str(tmp_path / "dino"))
    keras_hub.layers.DINOV2ImageConverter(scale=1 / 128).save_to_preset(str(tmp_path / "dino"))
    encoder = KerasHubEncoder(str(tmp_path / "dino"), image_size=SIZE, trainable=True)
    model = keras.Sequential([keras.Input((SIZE, SIZE, 3)), encoder])
    before = np.asarray(model(images))
    (trained,) = [w for w in model.trainable_weights if w.name == "interpolated_position_embeddings"]
    trained.assign(trained + change * np.random.default_rng(2).random(trained.shape))
    features = np.asarray(model(images))
    assert np.abs(features - before).max() > 0.1
    model.save(tmp_path / "a.keras")
    again = load_model(tmp_path / "a.keras", "save it again")
    np.testing.assert_allclose(again(images), features, atol=1e-6)
    np.testing.assert_array_equal(model(images), features)


def test_a_frozen_encoder_has_no_trainable_weights(preset):
    assert not KerasHubEncoder(preset, image_size=SIZE).trainable_variables
    assert KerasHubEncoder(preset, image_size=SIZE, trainable=True).trainable_variables


def truncated(path):
    path.write_bytes(path.read_bytes()[:-1000])


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("model.weights.h5", truncated),
        ("model.weights.h5", Path.unlink),
        ("config.json", truncated),
        ("config.json", Path.unlink),
        ("config.json", lambda path: path.write_text("{}")),
        ("image_converter.json", Path.unlink),
    ],
)
def test_damaged_folders_of_presets_are_to_be_copied_again(name, change, preset, tmp_path):
    copy = shutil.copytree(preset, tmp_path / "preset")
    change(copy / name)
    remedy = "copy or download the folder again, or give that of an image backbone"
    with pytest.raises(InputError, match=rf"preset {copy} cannot be loaded .*\(.+\): {remedy}$"):
        KerasHubEncoder(str(copy), image_size=SIZE)


def test_unusable_presets_are_rejected(preset, tmp_path, monkeypatch):
    with pytest.raises(InputError, match=r"preset .*absent cannot be loaded .* connect to the network once"):
        KerasHubEncoder(str(tmp_path / "absent"))
    with pytest.raises(InputError, match="has no such layer"):
        KerasHubEncoder(preset, "stack9", image_size=SIZE)
    monkeypatch.setitem(sys.modules, "keras_hub", None)
    with pytest.raises(InputError, match=r"needs KerasHub: pip install .*\[hub\]'"):
        KerasHubEncoder("resnet_18_imagenet")
