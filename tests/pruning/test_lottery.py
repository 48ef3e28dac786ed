"""A lottery ticket: the mask of what has grown large, and the values of the start."""

import keras
import numpy as np
import pytest

from tfsparsecap.errors import InputError
from tfsparsecap.pruning import Gradual, LotteryTicket, prune, strip_pruning

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
        ({"rounds": -1}, "rounds must be 0"),
        ({"scheme": "gradual", "rounds": 2}, "in one round"),
        ({"rounds": 0, "rewind_to": 0.1}, "give the initial_weights to go back to"),
        ({"initial_weights": []}, "initial_weights are for rounds=0"),
        ({"rounds": 10}, "need at least 11"),
        ({"rewind_to": 1.0}, "0 to below 1"),
    ],
)
def test_arguments_out_of_range_are_named(arguments, message):
    with pytest.raises(InputError, match=message):
        LotteryTicket(**{"sparsity": 0.5, "total_steps": 10, **arguments})


def dense_and_its_start():
    model = made()
    start = model.get_weights()
    model.compile(keras.optimizers.Adam(0.02), "mse")
    stepped(model, 5)
    return model, start


def test_a_ticket_of_a_trained_model_has_its_largest_weights_and_its_start():
    model, start = dense_and_its_start()
    ends = moving(model)
    model = prune(model, LotteryTicket(0.75, rounds=0, initial_weights=start))
    for mask, expected in zip(masks(model), largest(kernels(ends), 0.25), strict=True):
        np.testing.assert_array_equal(mask, expected)
    for own, value in zip(moving(model), start, strict=True):
        np.testing.assert_array_equal(own, value)
    before = masks(model)
    stepped(model, 3)
    for mask, expected in zip(masks(model), before, strict=True):
        np.testing.assert_array_equal(mask, expected)


@pytest.mark.parametrize("given", [None, [np.zeros((3, 4))]])
def test_a_ticket_needs_what_its_model_started_with(given):
    model, _ = dense_and_its_start()
    with pytest.raises(
        InputError, match="initial weights, and there are none" if given is None else "another"
    ):
        prune(model, LotteryTicket(0.75, rounds=0, initial_weights=given))
    assert [type(layer) for layer in model.layers] == [keras.layers.Dense] * 2


def test_a_gradual_ticket_is_what_gradual_pruning_keeps():
    start = moving(made())
    gradual = prune(made(), Gradual(0.75, 8))
    ticket = prune(made(), LotteryTicket(0.75, 16, scheme="gradual"))
    for model in (gradual, ticket):
        model.compile(keras.optimizers.Adam(0.02), "mse")
        stepped(model, 8)
    for own, value in zip(moving(ticket), start, strict=True):
        np.testing.assert_array_equal(own, value)
    for mask, expected in zip(masks(ticket), masks(gradual), strict=True):
        np.testing.assert_array_equal(mask, expected)
    assert not np.array_equal(masks(ticket)[0], largest(kernels(start)[:1], 0.25)[0])
    # The same from the model that gradual pruning left.
    kept = masks(gradual)
    drawn = LotteryTicket(0.75, rounds=0, scheme="gradual", initial_weights=made().get_weights())
    later = prune(strip_pruning(gradual), drawn)
    for mask, expected in zip(masks(later), kept, strict=True):
        np.testing.assert_array_equal(mask, expected)
    stepped(ticket, 8)
    assert float(ticket.pruning.current_sparsity()) == pytest.approx(0.75, abs=1e-2)


def test_a_gradual_ticket_of_a_dense_model_is_refused():
    model, start = dense_and_its_start()
    with pytest.raises(InputError, match=r"0\.0% of the weights are zero"):
        prune(model, LotteryTicket(0.75, rounds=0, scheme="gradual", initial_weights=start))


def test_a_saved_ticket_of_a_trained_model_goes_on(tmp_path):
    model, start = dense_and_its_start()
    model = prune(model, LotteryTicket(0.75, rounds=0, initial_weights=start))
    stepped(model, 2)
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    for one in (model, loaded):
        stepped(one, 2)
    for own, other in zip(moving(loaded), moving(model), strict=True):
        np.testing.assert_allclose(own, other, rtol=1e-5, atol=1e-6)
