"""The optimizer of a run against a formula in NumPy."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from tfsparsecap.captioning.settings.config_files import load_config
from tfsparsecap.captioning.settings.training_section import Training
from tfsparsecap.captioning.training.adam import make_optimizer
from tfsparsecap.captioning.training.phases import Phase

GRADIENTS = np.array([[1.0, -3.0], [0.1, 2.0], [-0.5, 0.4]], "float32")
START = np.array([2.0, -1.0], "float32")


def adamw(rate, decay):
    """Adam with decoupled weight decay: Loshchilov and Hutter, https://arxiv.org/abs/1711.05101."""
    weights, first, second = START.astype(float), 0.0, 0.0
    for number, gradient in enumerate(GRADIENTS, 1):
        first = 0.9 * first + 0.1 * gradient
        second = 0.999 * second + 0.001 * gradient**2
        step = first / (1 - 0.9**number) / np.sqrt(second / (1 - 0.999**number))
        weights = weights - rate * (step + decay * weights)
    return weights


@pytest.mark.parametrize("compiled", [False, True])
def test_rates_and_weight_decay_of_encoder_and_decoder_equal_the_formula(compiled):
    settings = Training(
        learning_rate=0.02,
        encoder_learning_rate=0.001,
        weight_decay=0.5,
        adam_epsilon=1e-12,
        clip_norm=None,
        schedule="constant",
    )
    names = ("kernel", "bias", "kernel", "bias")
    variables = [keras.Variable(START, name=name) for name in names]
    optimizer = make_optimizer(settings, 10, encoder_variables=variables[:2])
    optimizer.build(variables)
    apply = tf.function(optimizer.apply) if compiled else optimizer.apply
    for gradient in GRADIENTS:
        apply([tf.constant(gradient)] * 4)
    expected = [adamw(rate, decay) for rate in (0.001, 0.02) for decay in (0.5, 0.0)]
    np.testing.assert_allclose(variables, expected, rtol=1e-5)


@pytest.mark.parametrize(("loss", "factor"), [(tf.nn.l2_loss, 1), (lambda x: tf.reduce_sum(x**2), 2)])
def test_weight_decay_of_soft_attention_is_tensorflows_l2_loss_of_the_papers(loss, factor):
    settings = load_config("configs/soft_attention/lstm.yaml").training
    weights = keras.Variable(START)
    with tf.GradientTape() as tape:
        penalty = 1e-5 * loss(weights.value)  # lambda of RNN-SMP, equation 7
    optimizer = keras.optimizers.Adam(0.01, beta_1=0.0, epsilon=0.01)
    optimizer.iterations.assign(100_000)  # a step in the middle of a training, without momentum
    optimizer.apply([tape.gradient(penalty, weights.value)], [weights])
    assert settings.adam_epsilon == 0.01
    expected = START * (1 - 0.01 * factor * settings.weight_decay)
    np.testing.assert_allclose(np.array(weights) - START, expected - START, rtol=0.02)


def test_the_step_schedule_multiplies_the_rate_after_every_three_epochs():
    optimizer = make_optimizer(Training(), 7 * 4, Phase("scst", 7, 50, 5e-5, "step", False))
    rates = []
    for step in range(7 * 4):
        optimizer.iterations.assign(step)
        rates.append(float(optimizer.learning_rate))
    # By hand: 0.8 * 5e-5 = 4e-5, and 0.8 * 4e-5 = 3.2e-5; four steps an epoch, no warm-up.
    assert rates == pytest.approx([5e-5] * 12 + [4e-5] * 12 + [3.2e-5] * 4, rel=1e-5)


def test_without_weight_decay_weights_without_gradients_stay():
    variable = keras.Variable(START)
    optimizer = make_optimizer(Training(), 10, encoder_variables=[variable])
    optimizer.apply([tf.zeros(2)], [variable])
    np.testing.assert_array_equal(variable, START)
