"""RTIC's losses: against NumPy, in single steps, and in whole runs."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from tfsparsecap.captioning.models import SoftAttention, Transformer
from tfsparsecap.captioning.models.captioner_base import masked_cross_entropy
from tfsparsecap.captioning.models.transformer_captioner import selected_layers
from tfsparsecap.captioning.settings.sections import Training
from tfsparsecap.captioning.training.hidden_states import (
    HiddenStateLoop,
    hidden_state_loss,
    unlearned_weights,
)
from tfsparsecap.captioning.training.phases import make_optimizer, regularise_encoder
from tfsparsecap.errors import InputError

SIZES = {"size": 8, "hidden_size": 12, "heads": 2, "max_length": 6, "feature_size": 7, "dropout": 0.0}


def make(layers, **changes):
    keras.utils.set_random_seed(layers)
    captioner = Transformer(20, **{**SIZES, "feature_dropout": 0.0, "layers": layers, **changes})
    captioner.compile(keras.optimizers.Adam(0.01))
    return captioner


@pytest.fixture
def batch():
    random = np.random.default_rng(2)
    features = random.normal(size=(3, 4, 7)).astype("float32")
    tokens = random.integers(3, 20, (3, 5)).astype("int32")
    targets = np.where(np.arange(5) < [[5], [3], [1]], np.roll(tokens, -1, 1), 0).astype("int32")
    return {"features": features, "teacher0_features": features, "tokens": tokens}, targets


def test_layers_are_selected_by_equation_5():
    for layers in range(2, 13):
        for count in range(2, layers + 1):
            numbers = [int(np.floor(np.float64(layers - 1) * i / (count - 1) + 1)) for i in range(count)]
            assert [index + 1 for index in selected_layers(layers, count)] == numbers
    assert selected_layers(6, 1) == [5]
    for count in (0, 4):
        with pytest.raises(InputError, match=f"{count} layers cannot be selected from 3: choose 1 to 3"):
            selected_layers(3, count)


def states_and_loss(student, teacher, inputs, targets, layers):
    """The hidden states of both, and the loss of the first layers by NumPy."""
    own = [np.asarray(state) for state in student.decoder_states(inputs)]
    chosen = selected_layers(teacher.depth, student.depth)
    learnt = [np.asarray(teacher.decoder_states(inputs)[index]) for index in chosen]
    words = targets != 0
    return sum(((a - b)[words] ** 2).mean() for a, b in list(zip(own, learnt, strict=True))[:layers])


@pytest.mark.slow
@pytest.mark.parametrize("captions", [False, True])
def test_a_step_minimises_the_loss_of_the_paper(captions, batch, monkeypatch):
    monkeypatch.setattr(tf, "function", lambda function: function)
    inputs, targets = batch
    teacher, student = make(3, encoder_layers=1), make(2, encoder_layers=1)
    regularise_encoder(student, 0.01)
    settings = Training(learning_rate=0.01, schedule="constant", warmup_steps=0, weight_decay=0.1)
    student.compile(make_optimizer(settings, 2, unlearned=() if captions else unlearned_weights(student)))
    loop = HiddenStateLoop(student, teacher, captions=captions, weight=0.5)
    hidden = states_and_loss(student, teacher, inputs, targets, 1 if captions else 2)
    words = float((targets != 0).sum())
    entropy = float(masked_cross_entropy(student(inputs), targets, 0)) / words
    kernels = [
        np.array(variable)
        for layer in student.encoder_layers
        for variable in layer.trainable_variables
        if variable.name == "kernel"
    ]
    squares = sum((kernel**2).sum() for kernel in kernels)
    assert len(kernels) == 6
    before = [np.array(weight) for weight in unlearned_weights(student)]
    inner = np.array(student.decoder_layers[0].feed_forward.inner.kernel)
    first = float(loop.train_step(batch)["loss"])
    assert first == pytest.approx(0.5 * hidden + captions * entropy + 0.01 * squares, rel=1e-4)
    last = float(loop.train_step(batch)["loss"])
    assert last < first
    assert np.abs(student.decoder_layers[0].feed_forward.inner.kernel - inner).max() > 0
    changed = [
        np.abs(old - weight).max() for old, weight in zip(before, unlearned_weights(student), strict=True)
    ]
    assert (max(changed) > 0) == captions


def test_padding_does_not_count():
    random = np.random.default_rng(1)
    own, other = random.normal(size=(2, 2, 3, 4)).astype("float32")
    targets = np.array([[5, 6, 0], [7, 0, 0]])
    expected = ((own - other)[targets != 0] ** 2).mean()
    loss = hidden_state_loss([(tf.constant(own), tf.constant(other))], tf.constant(targets), pad_id=0)
    assert float(loss) == pytest.approx(float(expected), rel=1e-5)


def test_the_encoder_is_regularised_with_the_latest_weight():
    student = make(1)
    for weight in (0.1, 0.0):
        regularise_encoder(student, weight)
        assert len(student.losses) == (6 if weight else 0)
    other = SoftAttention(20, rnn_size=8, attention_size=8, feature_size=7)
    regularise_encoder(other, 0.1)
    assert not other.losses
