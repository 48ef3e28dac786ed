"""Batches of a run's data: images, or cached features of a frozen encoder."""

import numpy as np
import pytest

from tfsparsecap.captioning.data.images import read_image
from tfsparsecap.captioning.runs.run_data import RunData
from tfsparsecap.captioning.settings.build import load_data, make_captioner, make_encoder, make_tokenizer
from tfsparsecap.captioning.settings.config_files import load_config
from tfsparsecap.errors import InputError

FROZEN = ["model.encoder.trainable=false", "model.encoder.layer=conv_pw_1_relu"]


@pytest.fixture
def make_run_data(tiny_settings, tmp_path):
    def make(*settings):
        cache = f"data.cache_folder={tmp_path / 'cache'}"
        config = load_config(None, [*tiny_settings, cache, *settings])
        data = load_data(config)
        tokenizer = make_tokenizer(config, data)
        captioner = make_captioner(config, len(tokenizer))
        return RunData(config, data, tokenizer, captioner.encoder, progress=False)

    return make


@pytest.mark.slow
def test_a_frozen_encoder_gives_features_and_a_trained_one_images(make_run_data, tmp_path):
    frozen = make_run_data(*FROZEN)
    inputs, _ = next(iter(frozen.training_batches(from_images=False, batch_size=5).epoch(0)))
    assert inputs["features"].shape == (5, *frozen.encoder.features_shape)
    records = frozen.data.split("test")
    features = next(iter(frozen.image_batches(records, from_images=False)))["features"]
    images = next(iter(frozen.image_batches(records, from_images=True)))["image"]
    np.testing.assert_allclose(features, frozen.encoder(images, training=False), rtol=1e-3, atol=1e-3)
    assert list((tmp_path / "cache").glob("*.npy"))

    trained = make_run_data(FROZEN[1])
    inputs, _ = next(iter(trained.training_batches(from_images=False, batch_size=5).epoch(0)))
    assert inputs["image"].shape == (5, 32, 32, 3)


@pytest.mark.slow
def test_augmentation_of_cached_features_is_rejected(make_run_data):
    run_data = make_run_data(*FROZEN, "data.augmentation=[RandomHue]")
    with pytest.raises(InputError, match="cannot be augmented"):
        run_data.training_batches(from_images=False, batch_size=5)


@pytest.mark.slow
def test_each_network_and_each_set_of_weights_has_its_own_cache(make_run_data):
    inception = ["model.encoder.network=inception_v1", "model.encoder.layer=Mixed_3b"]
    first, second = make_run_data(*FROZEN), make_run_data(FROZEN[0], *inception)
    changed = make_encoder(second.config.model.encoder, "float32")
    changed.set_weights(second.encoder.get_weights())
    changed.weights[-1].assign(changed.weights[-1] + 1)
    third = RunData(second.config, second.data, second.tokenizer, changed, progress=False)
    record = first.data.records[0]
    image = read_image(record.image, 32)[None]
    for run_data in (first, second, third):
        (cache,) = run_data.features(run_data.data.records)
        np.testing.assert_allclose(
            cache.features[cache.rows([record.image_id])], run_data.encoder(image), rtol=1e-2, atol=1e-3
        )
    assert len({run_data.features([])[0].path for run_data in (first, second, third)}) == 3
