"""Additive attention against its formula in NumPy."""

import keras
import numpy as np
import pytest

from tfsparsecap.errors import InputError
from tfsparsecap.models.additive_attention import AdditiveAttentionCaptioner

RNG = np.random.default_rng(0)
FEATURES, HIDDEN = (RNG.standard_normal(shape).astype("float32") for shape in ((2, 5, 4), (2, 6)))
MASK = np.array([[True, True, False, True, False], [True] * 5])


@pytest.mark.parametrize("share", [None, "kv"])
@pytest.mark.parametrize("mask", [None, MASK], ids=["all", "masked"])
def test_attention_equals_the_formula(share, mask):
    captioner = AdditiveAttentionCaptioner(9, attention_size=3, share_attention=share, feature_size=4)
    captioner.attention_features = captioner.dense("attention_features", 3, 4)
    captioner.attention_query = captioner.dense("attention_query", 3, 6)
    captioner.attention_score = captioner.dense("attention_score", 1, 3)
    keys = FEATURES @ captioner.attention_features.kernel.numpy()
    query = HIDDEN @ captioner.attention_query.kernel.numpy()
    exponentials = np.exp(np.tanh(keys + query[:, None]) @ captioner.attention_score.kernel.numpy()[:, 0]) * (
        1 if mask is None else mask
    )
    expected = exponentials / exponentials.sum(axis=1, keepdims=True)

    memory = captioner.attention_memory(keras.ops.array(FEATURES), mask)
    assert ("features" in memory) == (share is None)
    weights = captioner.attention_weights(keras.ops.array(HIDDEN), memory)
    np.testing.assert_allclose(weights, expected, atol=1e-6)
    mean = (expected[:, :, None] * (keys if share == "kv" else FEATURES)).sum(axis=1)
    np.testing.assert_allclose(captioner.attend(keras.ops.array(HIDDEN), memory), mean, atol=1e-6)


def test_an_unknown_share_attention_is_rejected():
    with pytest.raises(InputError, match='share_attention is "qk"'):
        AdditiveAttentionCaptioner(9, attention_size=3, share_attention="qk", feature_size=4)
