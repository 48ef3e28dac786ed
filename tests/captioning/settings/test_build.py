"""Data, vocabularies, captioners and encoders built from settings, and the errors if that is impossible."""

import keras
import numpy as np
import pytest

from tfsparsecap.captioning.data.images import read_image
from tfsparsecap.captioning.models import InceptionV1Encoder, MobileNetV1Encoder
from tfsparsecap.captioning.settings.build import (
    RunData,
    load_data,
    make_captioner,
    make_encoder,
    make_tokenizer,
)
from tfsparsecap.captioning.settings.config_files import load_config
from tfsparsecap.captioning.settings.schema import EncoderSettings
from tfsparsecap.errors import InputError


def test_missing_and_empty_data_folders_are_rejected(tmp_path):
    for kind in ("flickr", "table"):
        settings = [f"data.kind={kind}", f"data.folder={tmp_path / 'absent'}"]
        with pytest.raises(InputError, match="there is no data folder"):
            load_data(load_config(None, settings))
        with pytest.raises(InputError, match="is empty"):
            load_data(load_config(None, [f"data.kind={kind}", f"data.folder={tmp_path}"]))


def test_a_split_of_missing_images_is_rejected(tmp_path):
    from PIL import Image

    (tmp_path / "Images").mkdir()
    Image.new("RGB", (8, 8)).save(tmp_path / "Images" / "a.jpg")
    (tmp_path / "captions.txt").write_text("image,caption\na.jpg,a dog\n")
    for split in ("train", "dev", "test"):
        (tmp_path / f"Flickr_8k.{split}Images.txt").write_text("a.jpg\n" if split == "train" else "b.jpg\n")
    with pytest.raises(InputError, match=r"b\.jpg"):
        load_data(load_config(None, ["data.kind=flickr", f"data.folder={tmp_path}"]))


def test_an_empty_vocabulary_is_rejected(tiny_settings):
    config = load_config(None, [*tiny_settings, "data.minimum_count=100000"])
    with pytest.raises(InputError, match="the vocabulary has zero words"):
        make_tokenizer(config, load_data(config))


def test_data_without_training_images_are_rejected(tmp_path):
    from PIL import Image

    Image.new("RGB", (8, 8)).save(tmp_path / "a.jpg")
    config = load_config(None, ["data.kind=table", f"data.folder={tmp_path}"])
    for rows, message in (
        ("a.jpg,a dog,test\n", "no image in the split train: assign images to it, or give no splits$"),
        (
            "a.jpg,a cat,test\na.jpg,a dog,trian\n",
            "of 1 skipped records: .* line 3: the split 'trian' is not",
        ),
    ):
        (tmp_path / "captions.csv").write_text(f"image,caption,split\n{rows}")
        with pytest.raises(InputError, match=message):
            make_tokenizer(config, load_data(config))


@pytest.mark.slow
def test_encoders_are_built_from_their_settings():
    inception = {"network": "inception_v1", "layer": "Mixed_3b", "image_size": 32}
    absent = EncoderSettings(**inception, weights="absent.ckpt")
    encoder = make_encoder(absent, "float32", weights=False)
    assert type(encoder) is InceptionV1Encoder and encoder.name == "encoder"
    assert (encoder.layer, encoder.image_size, encoder.batch_norm_momentum) == ("Mixed_3b", 32, 0.9)
    assert encoder.trainable and encoder.features_shape == (16, 256)
    assert type(make_encoder(EncoderSettings(layer="conv_pw_1_relu"), "float32")) is MobileNetV1Encoder
    with pytest.raises(InputError, match=r"model\.encoder: there is no checkpoint absent\.ckpt"):
        make_encoder(absent, "float32")


def test_sizes_that_do_not_fit_name_the_captioner():
    settings = ["model.kind=object_relation_transformer", "model.size=10", "model.heads=4"]
    with pytest.raises(InputError, match=r"model\.kind=object_relation_transformer: "):
        make_captioner(load_config(None, [*settings, "model.encoder=null", "data.features=x"]), 12)


@pytest.mark.slow
def test_an_encoder_comes_from_a_finished_run(tmp_path, tiny_settings):
    config = load_config(None, [*tiny_settings, "pruning=null"])
    trained = make_captioner(config, 9)
    trained.save(tmp_path / "model.keras")
    settings = config.model.encoder.model_copy(update={"weights": str(tmp_path), "trainable": False})
    encoder = make_encoder(settings, "float32")
    images = keras.random.uniform((2, settings.image_size, settings.image_size, 3), maxval=255)
    np.testing.assert_array_equal(encoder(images), trained.encoder(images))
    assert encoder.name == "encoder" and not encoder.trainable_weights and trained.encoder.trainable_weights
    other = settings.model_copy(update={"layer": "conv_pw_2_relu"})
    with pytest.raises(InputError, match="has another encoder: set the same network, layer and"):
        make_encoder(other, "float32")
    (tmp_path / "model.keras").unlink()
    with pytest.raises(InputError, match=r"model\.keras: finish that run"):
        make_encoder(settings, "float32")


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
    third = RunData(second.config, second.data, second.tokenizer, second.encoder, progress=False)
    record, paths = first.data.records[0], set()
    image = read_image(record.image, 32)[None]
    for run_data in (first, second, third):
        if run_data is third:
            third.encoder.weights[-1].assign(third.encoder.weights[-1] + 1)
        (cache,) = run_data.features(run_data.data.records)
        np.testing.assert_allclose(
            cache.features[cache.rows([record.image_id])], run_data.encoder(image), rtol=1e-2, atol=1e-3
        )
        paths.add(cache.path)
    assert len(paths) == 3
