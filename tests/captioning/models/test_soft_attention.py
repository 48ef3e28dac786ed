"""Soft-Attention: consistency of its methods, training, saving, and rejected arguments."""

import keras
import numpy as np
import pytest

from tfsparsecap.captioning.models import MobileNetV1Encoder, SoftAttention

from .conftest import assert_learns

SMALL = {"embedding_size": 6, "rnn_size": 8, "attention_size": 5}


@pytest.fixture(scope="module")
def encoder():
    encoder = MobileNetV1Encoder(0.25, "conv_pw_1_relu", 32, weights=None, batch_norm_momentum=0.9)
    encoder.backbone.set_weights([np.abs(weight) + 0.01 for weight in encoder.backbone.get_weights()])
    return encoder


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


@pytest.mark.parametrize("options", [{}, {"share_attention": "kv"}, {"value_size": 3}])
def test_first_lstm_step_in_numpy(inputs, options):
    captioner = SoftAttention(20, feature_size=7, **options, **SMALL)
    weights = {weight.path.partition("/")[2]: weight.numpy() for weight in captioner.weights}
    features, tokens = inputs["features"], inputs["tokens"][:, 0]
    mean = features.mean(1)
    hidden = np.tanh(mean @ weights["initial_hidden/kernel"] + weights["initial_hidden/bias"])
    carry = np.tanh(mean @ weights["initial_carry/kernel"] + weights["initial_carry/bias"])
    query = hidden @ weights["attention_query/kernel"] + weights["attention_query/bias"]
    energy = np.tanh(features @ weights["attention_features/kernel"] + query[:, None])
    attention = softmax((energy @ weights["attention_score/kernel"])[..., 0])
    projection = {"share_attention": "attention_features", "value_size": "attention_values"}
    values = features
    for option in options:
        values = features @ weights[f"{projection[option]}/kernel"]
    context = np.einsum("bn,bnd->bd", attention, values)
    x = np.concatenate([weights["embedding/embeddings"][tokens], context], axis=1)
    gates = x @ weights["lstm/kernel"] + hidden @ weights["lstm/recurrent_kernel"] + weights["lstm/bias"]
    i, f, c, o = np.split(gates, 4, axis=1)
    carry = carry / (1 + np.exp(-f)) + np.tanh(c) / (1 + np.exp(-i))
    hidden = np.tanh(carry) / (1 + np.exp(-o))
    expected = hidden @ weights["output/kernel"] + weights["output/bias"]
    np.testing.assert_allclose(captioner(inputs)[:, 0], expected, atol=1e-5)


@pytest.mark.slow
def test_learns_its_captions_with_keras_fit_compiled_by_xla(inputs):
    keras.utils.set_random_seed(3)
    assert_learns(SoftAttention(20, feature_size=7, **SMALL), inputs)


@pytest.mark.slow
@pytest.mark.parametrize("cell", ["lstm", "gru"])
def test_saved_and_loaded_with_its_encoder(encoder, cell, tmp_path):
    captioner = SoftAttention(20, cell=cell, encoder=encoder, dropout=0.1, **SMALL)
    images = np.random.default_rng(4).integers(0, 256, (2, 32, 32, 3)).astype("uint8")
    inputs = {"image": images, "tokens": np.ones((2, 3), "int32")}
    captioner.save(tmp_path / "a.keras")
    again = keras.models.load_model(tmp_path / "a.keras")
    np.testing.assert_allclose(again(inputs), captioner(inputs), atol=1e-6)
    assert again.dropout_rate == 0.1
    assert not again.encoder.trainable and again.encoder.batch_norm_momentum == 0.9


def test_special_ids_are_kept_in_the_configuration():
    captioner = SoftAttention(20, feature_size=7, start_id=17, end_id=18, pad_id=19, **SMALL)
    again = SoftAttention.from_config(captioner.get_config())
    assert (again.start_id, again.end_id, again.pad_id) == (17, 18, 19)
    assert again.get_config() == captioner.get_config()
