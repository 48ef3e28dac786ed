"""A lottery ticket: the mask of what has grown large, and the values of the start."""

import keras
import numpy as np
import pytest

from tfsparsecap.errors import InputError
from tfsparsecap.pruning import LotteryTicket, prune

RANDOM = np.random.default_rng(0)
INPUTS, TARGETS = RANDOM.normal(size=(32, 16)), RANDOM.normal(size=(32, 4))


def made(seed=4):
    keras.utils.set_random_seed(seed)
    return keras.Sequential([keras.Input((16,)), keras.layers.Dense(32, "tanh"), keras.layers.Dense(4)])


def moving(model):
    return [np.array(weight) for weight in model.trainable_variables]


def masks(model):
    return [np.asarray(gate.logits) > 0 for gate in model.pruning.gates]


def kernels(values):
    return [value for value in values if value.ndim == 2]


def largest(weights, share):
    together = np.sort(np.concatenate([np.abs(weight).ravel() for weight in weights]))
    limit = together[round((1 - share) * together.size) - 1]
    return [np.abs(weight) > limit for weight in weights]


def stepped(model, steps):
    for _ in range(steps):
        model.train_on_batch(INPUTS, TARGETS)


@pytest.fixture
def dense_twin():
    """What a dense training of so many steps ends with: `dense_twin(steps)`."""

    def trained(steps):
        model = made()
        model.compile(keras.optimizers.Adam(0.02), "mse")
        stepped(model, steps)
        return moving(model)

    return trained


def test_the_ticket_is_the_mask_of_the_trained_weights_at_their_start(dense_twin):
    start = moving(made())
    model = prune(made(), "lottery", sparsity=0.75, total_steps=10)
    model.compile(keras.optimizers.Adam(0.02), "mse")
    stepped(model, 4)
    assert all(mask.all() for mask in masks(model))
    stepped(model, 1)
    for mask, expected in zip(masks(model), largest(kernels(dense_twin(5)), 0.25), strict=True):
        np.testing.assert_array_equal(mask, expected)
    for own, value in zip(moving(model), start, strict=True):
        np.testing.assert_array_equal(own, value)
    stepped(model, 5)
    assert float(model.pruning.current_sparsity()) == pytest.approx(0.75, abs=2e-3)
    assert any((own != value).any() for own, value in zip(moving(model), start, strict=True))


def test_the_optimizer_forgets_what_it_knew():
    model = prune(made(), LotteryTicket(0.5, total_steps=10))
    model.compile(keras.optimizers.Adam(0.02), "mse")
    stepped(model, 5)
    kept = masks(model)
    after_rewind = moving(model)
    stepped(model, 1)
    # A first step of Adam is of the learning rate's size at most, for what is left.
    moved = [
        abs(now - before) for now, before in zip(kernels(moving(model)), kernels(after_rewind), strict=True)
    ]
    for change, mask in zip(moved, kept, strict=True):
        assert change[~mask].max() == 0
        assert 0 < change[mask].max() <= 0.021


def test_rounds_prune_step_by_step_and_never_open_a_gate_again():
    model = prune(made(), LotteryTicket(0.875, total_steps=16, rounds=3))
    model.compile(keras.optimizers.Adam(0.02), "mse")
    seen, closed = [], np.zeros(16 * 32 + 32 * 4, bool)
    for _ in range(16):
        stepped(model, 1)
        seen.append(float(model.pruning.current_sparsity()))
        now = ~np.concatenate([mask.ravel() for mask in masks(model)])
        assert (now | ~closed).all()
        closed = now
    expected = [0.0] * 3 + [0.5] * 4 + [0.75] * 4 + [0.875] * 5
    assert seen == pytest.approx(expected, abs=2e-3)


def test_late_rewinding_goes_back_to_a_little_later(dense_twin):
    model = prune(made(), LotteryTicket(0.5, total_steps=20, rewind_to=0.3))
    model.compile(keras.optimizers.Adam(0.02), "mse")
    stepped(model, 10)
    for own, value in zip(moving(model), dense_twin(3), strict=True):
        np.testing.assert_allclose(own, value, atol=1e-6)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"scheme": "x"}, "choose one of blind"),
        ({"rounds": 0}, "rounds must be at least 1"),
        ({"rounds": 10}, "need at least 11"),
        ({"rewind_to": 1.0}, "0 to below 1"),
    ],
)
def test_arguments_out_of_range_are_named(arguments, message):
    with pytest.raises(InputError, match=message):
        LotteryTicket(**{"sparsity": 0.5, "total_steps": 10, **arguments})
