"""Updates of a reset optimizer equal those of a new Keras optimizer."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from tfsparsecap.pruning.rewinding import OptimizerReset

optimizers, schedules = keras.optimizers, keras.optimizers.schedules
OPTIMIZERS = {
    "sgd with momentum": lambda rate: optimizers.SGD(rate, momentum=0.9, nesterov=True),
    "rmsprop": lambda rate: optimizers.RMSprop(rate, momentum=0.5, centered=True),
    "adam": lambda rate: optimizers.Adam(rate, amsgrad=True),
    "adamw": lambda rate: optimizers.AdamW(rate, weight_decay=0.1),
    "adamax": optimizers.Adamax,
    "nadam": optimizers.Nadam,
    "adagrad": optimizers.Adagrad,
    "adadelta": optimizers.Adadelta,
    "adafactor": optimizers.Adafactor,
    "ftrl": optimizers.Ftrl,
    "lion": optimizers.Lion,
    "averaged": lambda rate: optimizers.Adam(rate, use_ema=True, ema_momentum=0.5),
    "accumulated": lambda rate: optimizers.Adam(rate, gradient_accumulation_steps=2),
}
RANDOM = np.random.default_rng(0)
START = [RANDOM.normal(size=shape).astype("float32") for shape in ((3, 4), (4,))]
GRADIENTS = [[RANDOM.normal(size=value.shape).astype("float32") for value in START] for _ in range(9)]


def weights():
    return [keras.Variable(value, name=name) for value, name in zip(START, ("kernel", "bias"), strict=True)]


def moved(optimizer, variables, gradients):
    for step in gradients:
        optimizer.apply([tf.constant(gradient) for gradient in step], variables)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_updates_after_a_reset_equal_those_of_a_new_optimizer(name):
    before, own, theirs = keras.Variable(0, dtype="int64"), weights(), weights()
    optimizer = OPTIMIZERS[name](0.1)
    start = OptimizerReset(optimizer, before)
    moved(optimizer, own, GRADIENTS[:5])
    for variable, value in zip(own, START, strict=True):
        variable.assign(value)
    start.reset([(variable, tf.convert_to_tensor(variable)) for variable in own])
    assert int(before) == 5 and int(optimizer.iterations) == 0
    fresh = OPTIMIZERS[name](0.1)
    moved(optimizer, own, GRADIENTS[5:])
    moved(fresh, theirs, GRADIENTS[5:])
    for mine, other in zip([*own, *optimizer.variables], [*theirs, *fresh.variables], strict=True):
        np.testing.assert_array_equal(mine, other)


def test_a_reset_keeps_the_learning_rate_and_its_schedule_continues():
    own, optimizer = weights(), optimizers.SGD(0.1)
    start = OptimizerReset(optimizer, keras.Variable(0, dtype="int64"))
    optimizer.learning_rate = 0.025
    moved(optimizer, own, GRADIENTS[:2])
    start.reset([])
    assert float(optimizer.learning_rate) == pytest.approx(0.025)

    optimizer = optimizers.SGD(schedules.PiecewiseConstantDecay([1, 4], [1.0, 0.5, 0.25]))
    start, rates = OptimizerReset(optimizer, keras.Variable(0, dtype="int64")), []
    for number, step in enumerate(GRADIENTS[:7]):
        if number in (3, 5):
            start.reset([])
        rates.append(float(optimizer.learning_rate))
        moved(optimizer, own, [step])
    assert rates == [1.0, 1.0, 0.5, 0.5, 0.5, 0.25, 0.25]
