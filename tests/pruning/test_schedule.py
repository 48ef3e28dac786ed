"""Schedules against tensorflow-model-optimization, and options out of range."""

import importlib.util

import pytest
import tensorflow as tf

from tfsparsecap.core import keras_internals
from tfsparsecap.errors import InputError
from tfsparsecap.pruning import Schedule
from tfsparsecap.pruning.schedule import step_at


@pytest.mark.skipif(
    importlib.util.find_spec("tensorflow_model_optimization") is None,
    reason="tensorflow-model-optimization is not installed",
)
@pytest.mark.parametrize(
    "schedule",
    [Schedule(0.1, 0.6, frequency=7), Schedule(0.0, 1.0, frequency=3, power=1), Schedule(constant=True)],
)
def test_updates_and_sparsities_equal_those_of_tfmot(schedule):
    updates = schedule.updates(100, begin=0.2, end=0.8)
    schedules, _ = keras_internals.model_optimization()
    span = {"begin_step": updates.first, "end_step": updates.last, "frequency": updates.frequency}
    if schedule.constant:
        theirs = schedules.ConstantSparsity(0.9, **span)
    else:
        theirs = schedules.PolynomialDecay(0.0, 0.9, power=schedule.power, **span)
    for step in map(tf.constant, range(100)):
        due, sparsity = theirs(step)
        assert bool(updates.due(step)) == bool(due)
        assert 0.9 * float(updates.share(step)) == pytest.approx(float(sparsity), abs=1e-6)


@pytest.mark.parametrize(
    ("schedule", "steps", "first", "last", "frequency"),
    [
        (Schedule(), 1000, 100, 694, 6),
        (Schedule(begin=0.5), 1000, 500, 698, 2),
        (Schedule(end=0.05), 1000, 25, 49, 1),  # the default begin is halved
        (Schedule(frequency=448, begin=0.05, end=0.5), 1000, 50, 498, 448),
        (Schedule(), 1_000_000, 100_000, 699_000, 1000),
        (Schedule(frequency=5000, constant=True), 1000, 100, 100, 5000),
        (Schedule(), 3, 0, 1, 1),
        (Schedule(), 2, 0, 1, 1),
        (Schedule(), 1, 0, 0, 1),
    ],
)
def test_shares_of_the_training_are_converted_to_steps(schedule, steps, first, last, frequency):
    updates = schedule.updates(steps, begin=0.1, end=0.7)
    assert (updates.first, updates.last, updates.frequency) == (first, last, frequency)
    assert float(updates.share(tf.constant(last))) == 1.0


def test_a_whole_number_of_steps_is_kept_despite_rounding():
    assert {step_at(1 / epochs, 7 * epochs) for epochs in range(2, 60)} == {7}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"begin": -0.1}, "begin is -0.1: give a number of at least 0 and of at most 1"),
        ({"end": 1.1}, "end is 1.1"),
        ({"begin": 0.8, "end": 0.2}, "begin must be below end"),
        ({"frequency": 0}, "frequency is 0"),
        ({"power": 0.0}, "power is 0.0: give a number above 0"),
        ({"begin": 0.8}, "begin is 0.8 and end is 0.7"),
        (
            {"begin": 0.1, "end": 0.5, "frequency": 40},
            "rises during only 39 steps, from step 10 to 49 of 100",
        ),
    ],
)
def test_options_out_of_range_are_rejected(options, message):
    with pytest.raises(InputError, match=message):
        Schedule(**options).updates(100, begin=0.1, end=0.7)
