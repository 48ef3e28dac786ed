"""Additive attention against its formula in NumPy."""

import keras
import numpy as np
import pytest

from tfsparsecap.errors import InputError
from tfsparsecap.models.additive_attention import (
    attention_memory,
    attention_weights,
    checked_sharing,
    looked_at,
)

RNG = np.random.default_rng(0)
KEYS, FEATURES, QUERY = (
    RNG.standard_normal(shape).astype("float32") for shape in ((2, 5, 3), (2, 5, 4), (2, 3))
)
MASK = np.array([[True, True, False, True, False], [True] * 5])


@pytest.mark.parametrize("share", [None, "kv"])
@pytest.mark.parametrize("mask", [None, MASK], ids=["all", "masked"])
def test_it_is_the_mean_of_the_features_by_the_softmax_of_their_scores(share, mask):
    score = keras.layers.Dense(1)
    score.build((None, None, 3))
    score.set_weights([RNG.standard_normal((3, 1)), np.array([0.7])])
    kernel, bias = score.get_weights()

    exponentials = np.zeros((2, 5))
    for picture, region in np.ndindex(2, 5):
        if mask is None or mask[picture, region]:
            energy = np.tanh(KEYS[picture, region] + QUERY[picture])
            exponentials[picture, region] = np.exp(energy @ kernel[:, 0] + bias[0])
    expected = exponentials / exponentials.sum(axis=1, keepdims=True)

    memory = attention_memory(keras.ops.array(KEYS), keras.ops.array(FEATURES), mask, share)
    assert ("features" in memory) == (share is None)
    weights = attention_weights(keras.ops.array(QUERY), memory, score)
    np.testing.assert_allclose(weights, expected, atol=1e-6)
    values = KEYS if share == "kv" else FEATURES
    mean = (expected[:, :, None] * values).sum(axis=1)
    np.testing.assert_allclose(looked_at(weights, memory), mean, atol=1e-6)


def test_what_cannot_be_shared_is_named():
    assert checked_sharing("kv") == "kv" and checked_sharing(None) is None
    with pytest.raises(InputError, match='share_attention is "qk"'):
        checked_sharing("qk")
