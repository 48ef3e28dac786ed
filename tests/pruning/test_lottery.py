"""Lottery tickets: masks of the largest trained weights, with initial values."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from tfsparsecap.errors import InputError
from tfsparsecap.pruning import Gradual, LotteryTicket, prune, strip_pruning
from tfsparsecap.pruning.lottery import OptimizerReset

schedules = keras.optimizers.schedules

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
    """`dense_twin(steps)`: the weights after training a dense model for this number of steps."""

    def trained(steps):
        model = made()
        model.compile(keras.optimizers.Adam(0.02), "mse")
        stepped(model, steps)
        return moving(model)

    return trained


def test_a_ticket_is_the_mask_of_trained_weights_with_initial_values(dense_twin):
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


class Later(schedules.LearningRateSchedule):
    """Another schedule, advanced by some steps."""

    def __init__(self, schedule, steps):
        self.schedule, self.steps = schedule, steps

    def __call__(self, step):
        return self.schedule(keras.ops.cast(step, "int64") + self.steps)


def test_a_ticket_trains_like_a_dense_model_with_a_new_optimizer():
    start = moving(made())
    rate = schedules.ExponentialDecay(0.02, 1, 0.8)
    model = prune(made(), LotteryTicket(0.5, total_steps=10))
    model.compile(keras.optimizers.Adam(rate), "mse")
    stepped(model, 5)
    ticket_masks = masks(model)
    # Equivalent dense layers that start with the ticket and are constrained to its mask.
    twin = made()
    for layer, mask in zip(twin.layers, ticket_masks, strict=True):
        layer.kernel.assign(layer.kernel * mask)
        layer.kernel.constraint = lambda kernel, mask=mask: kernel * mask
    twin.compile(keras.optimizers.Adam(Later(rate, 5)), "mse")
    for network in (model, twin):
        stepped(network, 4)
    assert int(model.optimizer.iterations) == 9
    for layer, other, mask in zip(model.layers, twin.layers, ticket_masks, strict=True):
        np.testing.assert_allclose(layer.kernel, other.kernel * mask, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(layer.bias, other.bias, rtol=1e-5, atol=1e-6)
    assert any((own != value).any() for own, value in zip(moving(model), start, strict=True))


def test_rounds_prune_iteratively_and_never_reopen_a_gate():
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


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"allocation": "x"}, "choose one of blind"),
        ({"rounds": -1}, "rounds is -1"),
        ({"allocation": "gradual", "rounds": 2}, "in one round"),
        ({"rounds": 0, "rewind_to": 0.1}, "give the initial_weights to rewind to"),
        ({"initial_weights": []}, "initial_weights are for rounds=0"),
        ({"rounds": 10}, "at least 11 for 10 rounds"),
        ({"rewind_to": 1.0}, "below 1"),
    ],
)
def test_arguments_out_of_range_are_rejected(arguments, message):
    with pytest.raises(InputError, match=message):
        LotteryTicket(**{"sparsity": 0.5, "total_steps": 10, **arguments})


def dense_and_its_start():
    model = made()
    start = model.get_weights()
    model.compile(keras.optimizers.Adam(0.02), "mse")
    stepped(model, 5)
    return model, start


def test_rounds_0_draws_the_ticket_from_a_trained_model():
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


@pytest.mark.parametrize(
    ("initial_weights", "allocation", "message"),
    [
        (lambda start: None, "blind", "needs initial_weights"),
        (lambda start: [np.zeros((3, 4))], "blind", "do not have the shapes"),
        (lambda start: start, "gradual", r"0\.0% of the weights are zero"),
    ],
)
def test_models_and_weights_that_give_no_ticket_are_rejected(initial_weights, allocation, message):
    model, start = dense_and_its_start()
    weights = initial_weights(start)
    with pytest.raises(InputError, match=message):
        prune(model, LotteryTicket(0.75, rounds=0, allocation=allocation, initial_weights=weights))
    assert [type(layer) for layer in model.layers] == [keras.layers.Dense] * 2


@pytest.mark.slow
def test_a_gradual_ticket_keeps_what_gradual_pruning_keeps():
    start = moving(made())
    gradual = prune(made(), Gradual(0.75, 8))
    ticket = prune(made(), LotteryTicket(0.75, 16, allocation="gradual"))
    for model in (gradual, ticket):
        model.compile(keras.optimizers.Adam(0.02), "mse")
        stepped(model, 8)
    for own, value in zip(moving(ticket), start, strict=True):
        np.testing.assert_array_equal(own, value)
    for mask, expected in zip(masks(ticket), masks(gradual), strict=True):
        np.testing.assert_array_equal(mask, expected)
    assert not np.array_equal(masks(ticket)[0], largest(kernels(start)[:1], 0.25)[0])
    # The same for a ticket drawn from the model after gradual pruning.
    gradual_masks = masks(gradual)
    drawn = LotteryTicket(0.75, rounds=0, allocation="gradual", initial_weights=made().get_weights())
    later = prune(strip_pruning(gradual), drawn)
    for mask, expected in zip(masks(later), gradual_masks, strict=True):
        np.testing.assert_array_equal(mask, expected)
    stepped(ticket, 8)
    assert float(ticket.pruning.current_sparsity()) == pytest.approx(0.75, abs=1e-2)
    # Both methods count steps, but variables of a model need different names.
    assert ticket.get_state_tree()["optimizer_variables"]


def test_batch_normalisation_is_rewound_and_frozen_layers_are_not():
    keras.utils.set_random_seed(4)
    frozen = keras.layers.BatchNormalization(trainable=False)
    layers = [keras.layers.Dense(8), keras.layers.BatchNormalization(), frozen, keras.layers.Dense(4)]
    model = prune(keras.Sequential([keras.Input((16,)), *layers]), LotteryTicket(0.5, total_steps=6))
    assert not {id(weight) for weight in frozen.weights} & {id(weight) for weight in model.pruning._trained}
    model.compile("adam", "mse")
    start = [np.array(weight) for weight in layers[1].weights]
    stepped(model, 2)
    assert all((np.array(now) != value).all() for now, value in zip(layers[1].weights, start, strict=True))
    stepped(model, 1)
    for now, value in zip(layers[1].weights, start, strict=True):
        np.testing.assert_array_equal(now, value)


def test_late_rewinding_restores_later_values(dense_twin):
    model = prune(made(), LotteryTicket(0.5, total_steps=20, rewind_to=0.3))
    model.compile(keras.optimizers.Adam(0.02), "mse")
    stepped(model, 10)
    for own, value in zip(moving(model), dense_twin(3), strict=True):
        np.testing.assert_allclose(own, value, atol=1e-6)


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
START_RANDOM = np.random.default_rng(0)
START = [START_RANDOM.normal(size=shape).astype("float32") for shape in ((3, 4), (4,))]
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


def test_a_reset_tells_weights_of_the_same_path_apart():
    own = [
        keras.Variable(tf.fill(shape, value), name="kernel") for shape, value in (((2,), 1.0), ((3,), 2.0))
    ]
    optimizer = optimizers.Adam(0.1, use_ema=True)
    start = OptimizerReset(optimizer, keras.Variable(0, dtype="int64"))
    first = [(variable, tf.convert_to_tensor(variable) + 0.0) for variable in own]
    moved(optimizer, own, [[np.ones(2), np.ones(3)]])
    start.reset(first)
    averages = [variable for variable in optimizer.variables if variable.name.endswith("average")]
    for average, (_, value) in zip(averages, first, strict=True):
        np.testing.assert_array_equal(average, value)


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
