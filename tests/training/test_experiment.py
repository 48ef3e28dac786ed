"""From settings to what they name, and the sentence where that cannot be."""

import numpy as np
import pytest

from tfsparsecap.errors import InputError
from tfsparsecap.training.config_files import load_config
from tfsparsecap.training.experiment import (
    Supply,
    check_sections,
    load_data,
    make_captioner,
    make_tokenizer,
    prune_captioner,
)


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
        prune_captioner(captioner, config, 10)
        assert captioner.encoder.trainable
        inside = {id(layer) for layer in captioner.encoder._flatten_layers()}
        layers = gated_layers(captioner)
        return len(layers), sum(id(layer) in inside for layer in layers)

    count, in_encoder = gated()
    assert count >= 5 and in_encoder == 0
    assert gated("pruning.encoder=true")[1] > 0
    config = configured(tiny_settings, "pruning=null")
    captioner = make_captioner(config, 12)
    prune_captioner(captioner, config, 10)
    assert not gated_layers(captioner)


def test_what_a_method_refuses_names_the_setting(tiny_settings):
    config = configured(tiny_settings, "pruning.begin=0.9", "pruning.end=0.2")
    with pytest.raises(InputError, match=r"pruning\.method=supermask: begin and end"):
        prune_captioner(make_captioner(config, 12), config, 10)


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
