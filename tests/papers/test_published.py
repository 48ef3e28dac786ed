"""Published weights: round trips of all arrays, and rejected checkpoints."""

import json

import keras
import numpy as np
import pytest

from tfsparsecap.captioning.models import ObjectRelationTransformer, SoftAttention, UpDown
from tfsparsecap.errors import InputError
from tfsparsecap.papers.published import load_published, published_arrays, published_captioner
from tfsparsecap.pruning import prune

SMALL = {"embedding_size": 6, "rnn_size": 8, "attention_size": 5, "feature_size": 7}
CONFIG = {
    "caption_model": "up_down_lstm_prune",
    "vocab_size": 20,
    "rnn_size": 8,
    "input_encoding_size": 6,
    "att_hid_size": 5,
    "att_feat_size": 7,
    "fc_feat_size": 7,
    "logit_layers": 3,
    "drop_prob_lm": 0.1,
    "bos_token_id": 2,
    "eos_token_id": 3,
    "pad_token_id": 0,
}


def up_down(seed=1, **sizes):
    keras.utils.set_random_seed(seed)
    return UpDown(20, **{**SMALL, **sizes})


def assert_same(captioner, weights):
    for own, weight in zip(captioner.get_weights(), weights, strict=True):
        np.testing.assert_array_equal(own, weight)


def test_names_and_shapes_equal_those_of_the_published_checkpoint(fixtures):
    folder = fixtures / "updown_smp975"
    captioner = published_captioner(json.loads((folder / "config.json").read_text()))
    with np.load(folder / "weights.npz") as archive:
        weights = dict(archive)
    own = published_arrays(captioner)
    assert {name: own[name].shape for name in own} == {name: weights[name].shape for name in weights}
    load_published(captioner, weights)
    again = published_arrays(captioner)
    for name, array in weights.items():
        np.testing.assert_array_equal(again[name], array)


def test_round_trip_with_three_output_layers():
    captioner, other = up_down(output_layers=3), up_down(seed=2, output_layers=3)
    arrays = published_arrays(captioner)
    logits = {name for name in arrays if name.startswith("logit")}
    assert logits == {f"logit.{number}.{kind}" for number in (0, 3, 6) for kind in ("weight", "bias")}
    load_published(other, {name: array.astype("float64") for name, array in arrays.items()})
    assert_same(other, captioner.get_weights())
    assert sum(array.size for array in arrays.values()) == captioner.count_params()


@pytest.mark.parametrize(
    "mask", [[[-3.0, 2.0], [0.0, 0.5]], [[0, 1], [0, 1]], [[False, True], [False, True]]]
)
def test_masks_are_applied_to_weights(mask):
    captioner = up_down()
    arrays = published_arrays(captioner)
    name = "core.lang_lstm.weight_hh"
    masks = np.ones_like(arrays[name], np.asarray(mask).dtype)
    masks[:2, :2] = mask
    load_published(captioner, {**arrays, f"{name}_pruning_mask": masks})
    after = published_arrays(captioner)
    np.testing.assert_array_equal(after[name][:2, 0], 0)
    arrays[name][:2, 0] = 0
    for name, array in arrays.items():
        np.testing.assert_array_equal(after[name], array)


def test_a_captioner_has_the_sizes_in_the_configuration():
    captioner = published_captioner(CONFIG)
    assert (captioner.start_id, captioner.end_id, captioner.pad_id) == (2, 3, 0)
    assert captioner.dropout_rate == 0.1
    again = up_down(output_layers=3, dropout=0.1, start_id=2, end_id=3, pad_id=0, name=captioner.name)
    assert captioner.get_config() == again.get_config()


TRANSFORMER = {
    "caption_model": "relation_transformer",
    "vocab_size": 20,
    "d_model": 8,
    "dim_feedforward": 8,
    "num_layers": 2,
    "num_heads": 2,
    "max_seq_length": 5,
    "att_feat_size": 4,
    "bos_token_id": 2,
    "eos_token_id": 3,
    "pad_token_id": 0,
}


@pytest.mark.parametrize(
    ("config", "key", "value", "message"),
    [
        (CONFIG, "caption_model", "transformer", 'caption_model "transformer"'),
        (CONFIG, "caption_model", "relation_transformer", "d_model is missing"),
        (CONFIG, "vocab_size", None, "vocab_size is missing"),
        (CONFIG, "rnn_size", "8", "rnn_size of the configuration is '8'"),
        (CONFIG, "logit_layers", 0, "logit_layers of the configuration is 0"),
        (CONFIG, "pad_token_id", -1, "pad_token_id of the configuration is -1"),
        (CONFIG, "fc_feat_size", 9, "fc_feat_size is 9 and att_feat_size 7"),
        (CONFIG, "drop_prob_lm", "no", "drop_prob_lm of the configuration is 'no'"),
        (CONFIG, "use_bn", 1, "use_bn is 1"),
        (TRANSFORMER, "share_layer_encoder", "0,0", "share_layer_encoder is '0,0'"),
        (TRANSFORMER, "share_layer_decoder", 3, "share_layer_decoder is 3"),
        (TRANSFORMER, "share_layer_encoder", [0], "share_encoder_layers is"),
        (TRANSFORMER, "share_att_encoder", "vk", 'not "vk"'),
        (TRANSFORMER, "drop_prob_src", 7, "drop_prob_src of the configuration is 7"),
        (TRANSFORMER, "num_heads", 3, "not a multiple of 3 heads"),
        (TRANSFORMER, "no_box_trigonometric_embedding", True, "boxes without sines"),
    ],
)
def test_wrong_configurations_are_refused(config, key, value, message):
    with pytest.raises(InputError, match=message):
        published_captioner({**config, key: value})


def transformer(**options):
    return ObjectRelationTransformer(20, size=8, hidden_size=8, layers=2, heads=2, feature_size=4, **options)


NAME = "ctx2att.weight"


MASK = f"{NAME}_pruning_mask"


def gated():
    return prune(up_down(), "supermask", sparsity=0.5, total_steps=10)


@pytest.mark.parametrize(
    ("make", "change", "message"),
    [
        (up_down, lambda arrays: {NAME: None}, "lacks ctx2att.weight:"),
        (up_down, lambda arrays: dict.fromkeys(arrays), "lacks .* and 16 more"),
        (up_down, lambda arrays: {"core.fuse.weight": arrays[NAME]}, "has core.fuse.weight, which no layer"),
        (up_down, lambda arrays: {NAME: arrays[NAME].T}, r"shape \(8, 5\), but the captioner has \(5, 8\)"),
        (up_down, lambda arrays: {NAME: arrays[NAME] * np.nan}, "ctx2att.weight .* NaN"),
        (up_down, lambda arrays: {NAME: np.full((5, 8), "x")}, "ctx2att.weight .* non-numeric"),
        (up_down, lambda arrays: {MASK: np.ones(3)}, "ctx2att.weight_pruning_mask .* shape"),
        (gated, lambda arrays: {}, "has gates"),
        (lambda: SoftAttention(20, **SMALL), lambda arrays: {}, "SoftAttention has no published weights"),
        (
            lambda: transformer(share_encoder_layers=[0, 0]),
            lambda arrays: {**dict.fromkeys(arrays), **published_arrays(transformer())},
            r"model\.encoder\.layers\.1\..* differs from the layer that it shares",
        ),
    ],
)
def test_wrong_checkpoints_are_refused_and_change_nothing(make, change, message):
    captioner, arrays = make(), published_arrays(up_down(seed=2))
    arrays = {name: array for name, array in (arrays | change(arrays)).items() if array is not None}
    weights = captioner.get_weights()
    with pytest.raises(InputError, match=message):
        load_published(captioner, arrays)
    assert_same(captioner, weights)
