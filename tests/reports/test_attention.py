"""Attention maps, against the softmax that the captioners' own steps compute."""

import keras
import numpy as np
import pytest

import tfsparsecap as sc
from tfsparsecap.models import MobileNetV1Encoder
from tfsparsecap.reports.attention import as_map, attention_weights, focus, has_attention

TOKENS = np.array([[4, 7, 5, 2], [6, 6, 4, 8]], "int32")


def soft_attention(**options):
    return sc.SoftAttention(9, embedding_size=3, rnn_size=5, attention_size=4, feature_size=6, **options)


def up_down(**options):
    return sc.UpDown(9, embedding_size=3, rnn_size=5, attention_size=4, feature_size=6, **options)


@pytest.mark.parametrize(
    "make",
    [
        soft_attention,
        lambda: soft_attention(cell="gru"),
        lambda: soft_attention(share_attention="kv"),
        up_down,
        lambda: up_down(share_attention="kv"),
    ],
    ids=["lstm", "gru", "kv", "up-down", "up-down kv"],
)
@pytest.mark.parametrize("masked", [False, True])
def test_weights_equal_those_of_the_captioners_step(make, masked, monkeypatch):
    keras.utils.set_random_seed(3)
    captioner = make()
    rng = np.random.default_rng(0)
    features = 3 * rng.standard_normal((2, 9, 6)).astype("float32")
    inputs = {"features": features}
    if masked:
        inputs["mask"] = np.array([[True] * 5 + [False] * 4, [True] * 9])
    found = attention_weights(captioner, inputs, TOKENS)

    recorded, softmax = [], keras.ops.softmax
    monkeypatch.setattr(
        keras.ops, "softmax", lambda x, axis=-1: recorded.append(softmax(x, axis=axis)) or recorded[-1]
    )
    memory = captioner.encode(inputs)
    state = captioner.initial_state(memory)
    for words in np.concatenate([np.full((2, 1), captioner.start_id, "int32"), TOKENS[:, :-1]], axis=1).T:
        _, state = captioner.step(keras.ops.convert_to_tensor(words), state, memory)
    expected = np.stack([np.reshape(one, (2, 9)) for one in recorded], axis=1)
    assert found.shape == (2, 4, 9) and found.dtype == np.float32
    np.testing.assert_allclose(found, expected, atol=1e-6)
    np.testing.assert_allclose(found.sum(-1), 1, atol=1e-5)
    # The weights differ from word to word and from image to image.
    assert np.abs(np.diff(expected, axis=1)).max() > 1e-4
    if masked:
        assert found[0, :, 5:].max() < 1e-6


def test_only_captioners_with_an_encoder_have_attention_maps():
    encoder = MobileNetV1Encoder(0.25, layer="conv_pw_3_relu", image_size=32, weights=None)
    assert has_attention(sc.SoftAttention(9, encoder=encoder))
    assert not has_attention(soft_attention())


def test_a_square_number_of_regions_forms_a_map():
    np.testing.assert_array_equal(as_map(np.arange(9)), [[0, 1, 2], [3, 4, 5], [6, 7, 8]])
    assert as_map(np.arange(8)) is None


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        ({(0, 0): 1.0}, "upper left"),
        ({(6, 6): 1.0}, "lower right"),
        ({(3, 3): 1.0}, "centre"),
        ({(0, 3): 0.9, (6, 0): 0.1}, "upper centre"),
        ({(3, 0): 0.5, (3, 1): 0.5}, "middle left"),
        ({}, "the whole image"),
    ],
)
def test_focus_of_a_map_in_words(cells, expected):
    weights = np.full((7, 7), 1 / 49) if not cells else np.zeros((7, 7))
    for place, weight in cells.items():
        weights[place] = weight
    assert focus(weights) == expected
