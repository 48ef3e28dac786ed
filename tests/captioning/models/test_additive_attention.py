"""Additive attention against its formula in NumPy, and what Soft-Attention and Up-Down have in common."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from tfsparsecap.captioning.models import MobileNetV1Encoder, SoftAttention, UpDown
from tfsparsecap.captioning.models.additive_attention import AdditiveAttentionCaptioner
from tfsparsecap.captioning.search.beam_search import beam_search
from tfsparsecap.errors import InputError
from tfsparsecap.gates import Gate, gates
from tfsparsecap.pruning import prune, strip_pruning

SIZES = {"feature_size": 7, "embedding_size": 6, "rnn_size": 8, "attention_size": 5, "dropout": 0.5}

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
    np.testing.assert_allclose(captioner.weighted_mean(weights, memory), mean, atol=1e-6)


def test_an_unknown_share_attention_is_rejected():
    with pytest.raises(InputError, match='share_attention is "qk"'):
        AdditiveAttentionCaptioner(9, attention_size=3, share_attention="qk", feature_size=4)


def made(kind, **options):
    keras.utils.set_random_seed(1)
    if kind == "up_down":
        return UpDown(20, output_layers=2, **{**SIZES, **options})
    return SoftAttention(20, cell=kind, **{**SIZES, **options})


@pytest.fixture(params=["lstm", "gru", "up_down"])
def kind(request):
    return request.param


@pytest.fixture
def captioner(kind):
    captioner = made(kind)
    for weight in captioner.weights:
        # Biases may start at 0, which would hide a missing one.
        weight.assign(weight + keras.random.normal(weight.shape, stddev=0.5))
    return captioner


def test_call_equals_stepping(captioner, inputs):
    memory = captioner.encode(inputs)
    state = captioner.initial_state(memory)
    structure = {name: (value.shape, value.dtype) for name, value in state.items()}
    repeated = []
    for tokens in inputs["tokens"].T:
        logits, state = captioner.step(tokens, state, memory)
        assert {name: (value.shape, value.dtype) for name, value in state.items()} == structure
        repeated.append(logits)
    logits = captioner(inputs)
    assert logits.shape == (3, 6, 20) and logits.dtype == "float32"
    np.testing.assert_allclose(logits, np.stack(repeated, axis=1), atol=1e-5)


def test_dropout_only_in_training(captioner, inputs):
    np.testing.assert_array_equal(captioner(inputs), captioner(inputs))
    assert not np.allclose(captioner(inputs, training=True), captioner(inputs))


def test_every_weight_gets_a_gradient(captioner, inputs):
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(captioner(inputs) ** 2)
    weights = captioner.trainable_variables
    for weight, gradient in zip(weights, tape.gradient(loss, [w.value for w in weights]), strict=True):
        # Softmax ignores a constant added to all scores.
        unseen = weight is captioner.attention_score.bias
        assert unseen or np.abs(tf.convert_to_tensor(gradient)).max() > 0, weight.path


def test_gates_are_sampled_once_per_pass_and_stripping_applies_them(captioner, inputs, monkeypatch):
    prune(captioner, "supermask", sparsity=0.5, total_steps=10)
    for gate in gates(captioner):
        gate.logits.assign(keras.random.normal(gate.logits.shape))
    samples = []
    mask = Gate.mask
    monkeypatch.setattr(Gate, "mask", lambda gate, *arguments: samples.append(gate) or mask(gate, *arguments))
    for run in (lambda: captioner(inputs, training=True), lambda: beam_search(captioner, inputs, 2, 4)):
        samples.clear()
        run()
        assert len(samples) == len(set(map(id, samples))) == len(gates(captioner))
    logits, (token_ids, scores) = captioner(inputs), beam_search(captioner, inputs, 2, 4)
    strip_pruning(captioner)
    np.testing.assert_allclose(captioner(inputs), logits, atol=1e-6)
    stripped_ids, stripped_scores = beam_search(captioner, inputs, 2, 4)
    np.testing.assert_array_equal(stripped_ids, token_ids)
    np.testing.assert_allclose(stripped_scores, scores, atol=1e-5)


def test_mixed_precision_gives_float32_logits_close_to_full_precision(kind, inputs):
    full, mixed = made(kind), made(kind, dtype="mixed_float16")
    mixed.set_weights(full.get_weights())
    assert {weight.dtype for weight in mixed.weights} == {"float32"}
    given = {**inputs, "mask": np.arange(4) < np.array([[4], [3], [1]])}
    logits = mixed(given)
    assert logits.dtype == "float32"
    np.testing.assert_allclose(logits, full(given), atol=0.05)


def test_padded_regions_are_not_attended_to(captioner, inputs):
    filled = np.concatenate([inputs["features"], np.zeros((3, 2, 7), "float32")], axis=1)
    np.testing.assert_allclose(captioner({**inputs, "features": filled}), captioner(inputs), atol=1e-5)
    masked = np.concatenate([inputs["features"], np.ones((3, 2, 7), "float32")], axis=1)
    given = {**inputs, "features": masked, "mask": np.arange(6)[None] < [[4]] * 3}
    np.testing.assert_allclose(captioner(given), captioner(inputs), atol=1e-5)


@pytest.mark.parametrize("kind", ["lstm", "up_down"])
def test_features_replace_the_encoders_output(kind):
    encoder = MobileNetV1Encoder(0.25, "conv_pw_1_relu", 32, weights=None)
    captioner = made(kind, feature_size=None, encoder=encoder)
    again = type(captioner).from_config(captioner.get_config())
    assert again.feature_size == encoder.features_shape[1]
    assert again.encoder.count_params() == encoder.count_params()
    images = np.random.default_rng(5).integers(0, 256, (2, 32, 32, 3)).astype("uint8")
    tokens = np.ones((2, 3), "int32")
    np.testing.assert_allclose(
        captioner({"features": encoder(images), "tokens": tokens}),
        captioner({"image": images, "tokens": tokens}),
        atol=1e-6,
    )
