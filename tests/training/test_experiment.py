"""From settings to what they name, and the sentence where that cannot be."""

import numpy as np
import pytest

from tfsparsecap.data.images import read_image
from tfsparsecap.errors import InputError
from tfsparsecap.models import InceptionV1Encoder, MobileNetV1Encoder
from tfsparsecap.settings.files import load_config
from tfsparsecap.training.experiment import (
    Supply,
    check_sections,
    load_data,
    make_captioner,
    make_tokenizer,
)
from tfsparsecap.training.gating import gate_captioner


def configured(tiny_settings, *more):
    return load_config(None, [*tiny_settings, *more])


def test_options_of_source_and_method_are_checked(tiny_settings):
    check_sections(configured(tiny_settings, "pruning.begin=0.2"))
    with pytest.raises(
        InputError, match=r"unknown key data\.trian among the settings; did you mean data\.train"
    ):
        check_sections(configured(tiny_settings, "data.trian=3"))
    with pytest.raises(InputError, match=r"unknown key pruning\.beginn"):
        check_sections(configured(tiny_settings, "pruning.beginn=0.2"))
    with pytest.raises(InputError, match=r"data\.folder is not set"):
        check_sections(load_config(None, ["data.kind=flickr"]))


def test_a_missing_and_an_empty_folder_are_named(tmp_path):
    for kind in ("flickr", "table"):
        settings = [f"data.kind={kind}", f"data.folder={tmp_path / 'absent'}"]
        with pytest.raises(InputError, match="there is no data folder"):
            load_data(load_config(None, settings))
        with pytest.raises(InputError, match="is empty"):
            load_data(load_config(None, [f"data.kind={kind}", f"data.folder={tmp_path}"]))


def test_a_split_that_names_absent_images_is_named(tmp_path):
    from PIL import Image

    (tmp_path / "Images").mkdir()
    Image.new("RGB", (8, 8)).save(tmp_path / "Images" / "a.jpg")
    (tmp_path / "captions.txt").write_text("image,caption\na.jpg,a dog\n")
    for split in ("train", "dev", "test"):
        (tmp_path / f"Flickr_8k.{split}Images.txt").write_text("a.jpg\n" if split == "train" else "b.jpg\n")
    with pytest.raises(InputError, match=r"b\.jpg"):
        load_data(load_config(None, ["data.kind=flickr", f"data.folder={tmp_path}"]))


def test_a_vocabulary_of_zero_words_is_refused(tiny_settings):
    config = configured(tiny_settings, "data.minimum_count=100000")
    with pytest.raises(InputError, match="the vocabulary has zero words"):
        make_tokenizer(config, load_data(config))


def test_gates_go_on_the_decoder_and_on_the_encoder_only_when_asked(tiny_settings):
    from tfsparsecap.gates import gated_layers

    def gated(*more):
        config = configured(tiny_settings, *more)
        captioner = make_captioner(config, 12)
        gate_captioner(captioner, config, 10)
        assert captioner.encoder.trainable
        inside = {id(layer) for layer in captioner.encoder._flatten_layers()}
        layers = gated_layers(captioner)
        return len(layers), sum(id(layer) in inside for layer in layers)

    count, in_encoder = gated()
    assert count >= 5 and in_encoder == 0
    assert gated("pruning.encoder=true")[1] > 0
    config = configured(tiny_settings, "pruning=null")
    captioner = make_captioner(config, 12)
    gate_captioner(captioner, config, 10)
    assert not gated_layers(captioner)


def test_what_a_method_refuses_names_the_setting(tiny_settings):
    config = configured(tiny_settings, "pruning.begin=0.9", "pruning.end=0.2")
    with pytest.raises(InputError, match=r"pruning\.method=supermask: begin and end"):
        gate_captioner(make_captioner(config, 12), config, 10)


def test_a_frozen_encoder_supplies_features_and_a_trained_one_images(tiny_settings, tmp_path):
    frozen = [f"data.cache_folder={tmp_path / 'cache'}", "model.encoder.trainable=false"]
    config = configured(tiny_settings, *frozen)
    data = load_data(config)
    tokenizer = make_tokenizer(config, data)
    encoder = make_captioner(config, len(tokenizer)).encoder
    supply = Supply(config, data, tokenizer, encoder, progress=False)
    inputs, _ = next(iter(supply.training(from_images=False, batch_size=5).epoch(0)))
    assert inputs["features"].shape == (5, *encoder.features_shape)
    batch = next(iter(supply.images(data.split("test"), from_images=False)))
    pictures = next(iter(supply.images(data.split("test"), from_images=True)))
    np.testing.assert_allclose(
        batch["features"], encoder(pictures["image"], training=False), rtol=1e-3, atol=1e-3
    )
    assert list((tmp_path / "cache").glob("*.npy"))

    trained = configured(tiny_settings)
    inputs, _ = next(
        iter(Supply(trained, data, tokenizer, encoder).training(from_images=False, batch_size=5).epoch(0))
    )
    assert inputs["image"].shape == (5, 32, 32, 3)


def test_augmentation_of_cached_features_is_refused(tiny_settings, tmp_path):
    more = [f"data.cache_folder={tmp_path}", "model.encoder.trainable=false", "data.augmentation=[RandomHue]"]
    config = configured(tiny_settings, *more)
    data = load_data(config)
    tokenizer = make_tokenizer(config, data)
    supply = Supply(config, data, tokenizer, make_captioner(config, 12).encoder, progress=False)
    with pytest.raises(InputError, match="cannot be augmented"):
        supply.training(from_images=False, batch_size=5)


INCEPTION = ["model.encoder.network=inception_v1", "model.encoder.layer=Mixed_3b"]


def test_an_encoder_is_the_network_that_is_named(tiny_settings):
    encoder = make_captioner(configured(tiny_settings, *INCEPTION), 12).encoder
    assert type(encoder) is InceptionV1Encoder and encoder.name == "encoder"
    assert (encoder.layer, encoder.image_size, encoder.batch_norm_momentum) == ("Mixed_3b", 32, 0.9)
    assert encoder.trainable and encoder.features_shape == (16, 256)
    assert type(make_captioner(configured(tiny_settings), 12).encoder) is MobileNetV1Encoder
    with pytest.raises(InputError, match=r'model\.encoder: Inception-V1 has no layer "conv_pw_3_relu"'):
        make_captioner(configured(tiny_settings, INCEPTION[0]), 12)
    with pytest.raises(InputError, match=r"model\.encoder: there is no checkpoint absent\.ckpt"):
        make_captioner(configured(tiny_settings, *INCEPTION, "model.encoder.weights=absent.ckpt"), 12)
    absent = configured(tiny_settings, *INCEPTION, "model.encoder.weights=absent.ckpt")
    assert make_captioner(absent, 12, weights=False).encoder.layer == "Mixed_3b"


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ([*INCEPTION, "model.encoder.width=0.5"], r"encoder\.width is 0\.5, and an Inception has one width"),
        ([*INCEPTION, "model.encoder.weights=imagenet"], r"weights is 'imagenet', which is for mobilenet_v1"),
        (["model.encoder.weights=a.ckpt"], r"weights is 'a\.ckpt': give imagenet or null"),
    ],
)
def test_what_only_the_other_network_has_is_refused(tiny_settings, more, message):
    with pytest.raises(InputError, match=message):
        check_sections(configured(tiny_settings, *more))
    check_sections(configured(tiny_settings, *INCEPTION, "model.encoder.weights=a.ckpt"))


def test_features_of_two_networks_are_cached_apart(tiny_settings, tmp_path):
    frozen = [f"data.cache_folder={tmp_path / 'cache'}", "model.encoder.trainable=false"]
    first = configured(tiny_settings, *frozen)
    data = load_data(first)
    tokenizer = make_tokenizer(first, data)
    weights, seen = [], []
    for more in ([], INCEPTION, INCEPTION):
        config = configured(tiny_settings, *frozen, *more)
        encoder = make_captioner(config, len(tokenizer)).encoder
        if len(seen) == 2:  # as the one before, but for one of its weights
            encoder.set_weights(weights)
            encoder.weights[-1].assign(encoder.weights[-1] + 1)
        weights = encoder.get_weights()
        cache = Supply(config, data, tokenizer, encoder, progress=False).features()
        record = data.records[0]
        picture = read_image(record.image, 32)[None]
        np.testing.assert_allclose(
            cache.features[cache.rows([record.image_id])], encoder(picture), rtol=1e-2, atol=1e-3
        )
        seen.append(cache.path)
    assert len(set(seen)) == 3
