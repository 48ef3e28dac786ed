"""Attention maps, against the softmax that the captioners' own steps compute."""

import keras
import numpy as np
import pytest

import tfsparsecap as sc
from tfsparsecap.captioning.html_report.attention_maps import attention_weights, overlay

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
    weights = attention_weights(captioner, inputs, TOKENS)

    recorded, softmax = [], keras.ops.softmax

    def recording_softmax(x, axis=-1):
        recorded.append(softmax(x, axis=axis))
        return recorded[-1]

    monkeypatch.setattr(keras.ops, "softmax", recording_softmax)
    memory = captioner.encode(inputs)
    state = captioner.initial_state(memory)
    for words in np.concatenate([np.full((2, 1), captioner.start_id, "int32"), TOKENS[:, :-1]], axis=1).T:
        _, state = captioner.step(keras.ops.convert_to_tensor(words), state, memory)
    expected = np.stack([np.reshape(step_weights, (2, 9)) for step_weights in recorded], axis=1)
    assert weights.shape == (2, 4, 9) and weights.dtype == np.float32
    np.testing.assert_allclose(weights, expected, atol=1e-6)
    np.testing.assert_allclose(weights.sum(-1), 1, atol=1e-5)
    # The weights differ from word to word and from image to image.
    assert np.abs(np.diff(expected, axis=1)).max() > 1e-4
    if masked:
        assert weights[0, :, 5:].max() < 1e-6


def test_overlay_is_brightest_where_the_weights_are_highest():
    image = np.full((70, 70, 3), 100, "uint8")
    weights = np.zeros((7, 7))
    weights[1, 5] = 1.0
    drawn = overlay(image, weights).astype(int).sum(-1)
    row, column = np.unravel_index(drawn.argmax(), drawn.shape)
    assert (row // 10, column // 10) == (1, 5)
    assert drawn.shape == (70, 70) and np.ptp(drawn[40:]) == 0 and drawn.max() > 2 * drawn[40, 0]
    even = overlay(image, np.full((7, 7), 1 / 49))
    assert np.ptp(even.astype(int).sum(-1)) == 0
