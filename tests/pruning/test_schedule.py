"""Schedules against tensorflow-model-optimization, and options out of range."""

import importlib.util

import pytest
import tensorflow as tf

from tfsparsecap.core import keras_internals
from tfsparsecap.errors import InputError
from tfsparsecap.pruning import Schedule, registry
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
        ({"begin": 60, "end": 20}, "begin must be below end"),
        ({"begin": 60, "end": 0.5}, r"begin is 0\.6 and end is 0\.5: begin must be below end"),
        ({"begin": 1}, r"begin is 1 and end is 0\.7: begin must be below end; .* 1 its end"),
        ({"end": 101}, "end is step 101, which is above 100, the optimizer steps of the training: give"),
        (
            {"initial_sparsity": 0.5},
            "initial_sparsity is 0.5: the sparsity always rises from 0; leave it out",
        ),
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
        Schedule(**options).in_shares(100).updates(100, begin=0.1, end=0.7)


def test_steps_are_those_of_tensorflow_model_optimization():
    """`begin_step` and `end_step`; the last update is before `end`."""
    options = {"sparsity": 0.8, "total_steps": 100, "frequency": 10}
    for name in ("gradual", "supermask"):
        steps = registry.get(name, begin=30, end=90, **options).updates
        assert steps == registry.get(name, begin=0.3, end=0.9, **options).updates
        assert (steps.first, steps.last, steps.frequency) == (30, 80, 10)
    with pytest.raises(InputError, match="begin is step 30, which needs total_steps, the optimizer steps"):
        Schedule(begin=30, end=90, initial_sparsity=0.0).in_shares(None)
