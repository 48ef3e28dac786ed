"""SNIP against sensitivities computed by finite differences."""

import keras
import numpy as np
import pytest

from tfsparsecap.errors import InputError
from tfsparsecap.pruning import SNIP, prune, strip_pruning

RANDOM = np.random.default_rng(0)
INPUTS, TARGETS = RANDOM.normal(size=(32, 16)), RANDOM.normal(size=(32, 3))


def made():
    keras.utils.set_random_seed(4)
    layers = [keras.layers.Dense(32, "tanh"), keras.layers.Dense(3)]
    return keras.Sequential([keras.Input((16,)), *layers])


def loss(model, weights, inputs=INPUTS, targets=TARGETS):
    first, bias, second, last = weights
    hidden = np.tanh(inputs @ first + bias)
    return np.mean((hidden @ second + last - targets) ** 2)


def sensitivities(model, block=1, batches=((INPUTS, TARGETS),)):
    """dL/dc of each connection (or block of inputs), by central differences in double precision."""
    weights = [np.asarray(weight, np.float64) for weight in model.get_weights()]
    results = []
    for index in (0, 2):
        rows, columns = weights[index].shape
        slopes = np.zeros((rows // block, columns))
        for place in np.ndindex(*slopes.shape):
            for sign in (1, -1):
                changed = [weight.copy() for weight in weights]
                changed[index][place[0] * block : (place[0] + 1) * block, place[1]] *= 1 + sign * 1e-4
                slopes[place] += sum(sign * loss(model, changed, *batch) / 2e-4 for batch in batches)
        results.append(np.abs(slopes) / block)
    return results


def kept(model, sparsity, block=1, batches=((INPUTS, TARGETS),)):
    scores = sensitivities(model, block, batches)
    together = np.sort(np.concatenate([score.ravel() for score in scores]))
    limit = together[round(sparsity * together.size) - 1]
    return [np.repeat(score > limit, block, axis=0) for score in scores]


@pytest.mark.parametrize(("sparsity", "block"), [(0.5, 1), (0.9, 1), (0.75, 16)])
def test_the_least_sensitive_connections_are_removed_before_the_training(sparsity, block):
    model = made()
    before, expected = model.get_weights(), kept(model, sparsity, block)
    pruned = prune(model, "snip", sparsity=sparsity, block_shape=(block, 1))
    pruned.compile(keras.optimizers.Adam(0.1), "mse")
    pruned.train_on_batch(INPUTS, TARGETS)
    after = strip_pruning(pruned).get_weights()
    for place, mask in zip((0, 2), expected, strict=True):
        np.testing.assert_array_equal(after[place], np.where(mask, before[place], 0))
    np.testing.assert_array_equal(after[1], before[1])


def test_sensitivities_of_several_batches_are_summed():
    model = made()
    batches = [(INPUTS[part], TARGETS[part]) for part in (slice(0, 8), slice(8, 20), slice(20, 32))]
    expected = kept(model, 0.6, batches=batches)
    pruned = prune(model, SNIP(0.6, batches=3))
    pruned.compile("sgd", "mse")
    for number, batch in enumerate(batches, 1):
        pruned.train_on_batch(*batch)
        assert float(pruned.pruning.current_sparsity()) == pytest.approx(
            0.6 if number == 3 else 0.0, abs=2e-3
        )
    for gate, mask in zip(pruned.pruning.gates, expected, strict=True):
        np.testing.assert_array_equal(np.asarray(gate.logits) > 0, mask)


def test_decay_constraints_and_averages_do_not_change_weights_in_the_first_batches():
    model = made()
    model.layers[0].kernel.constraint = keras.constraints.UnitNorm()
    model = prune(model, SNIP(0.5, batches=2))
    rate = keras.optimizers.schedules.ExponentialDecay(0.05, 1, 0.5)
    optimizer = keras.optimizers.AdamW(rate, weight_decay=0.5, use_ema=True, ema_overwrite_frequency=1)
    model.compile(optimizer, "mse")
    weights = [weight for weight in model.trainable_variables if "gate" not in weight.path]
    before = [np.array(weight) for weight in weights]
    for _ in range(2):
        model.train_on_batch(INPUTS, TARGETS)
        for weight, value in zip(weights, before, strict=True):
            np.testing.assert_array_equal(weight, value)
    assert int(model.optimizer.iterations) == 2 and int(model.optimizer.inner_optimizer.iterations) == 0
    model.train_on_batch(INPUTS, TARGETS)
    assert int(model.optimizer.inner_optimizer.iterations) == 1  # the schedule begins now


def test_stripping_warns_if_the_training_was_too_short_to_prune():
    model = prune(made(), SNIP(0.5, batches=10))
    model.compile("adam", "mse")
    model.fit(INPUTS, TARGETS, batch_size=8, verbose=0)
    with pytest.warns(UserWarning, match="evaluates 10 batches .* after 4, so nothing was pruned"):
        strip_pruning(model)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [({"batches": 0}, "batches is 0"), ({"batches": 5, "total_steps": 5}, "the training has 5 steps")],
)
def test_arguments_out_of_range_are_rejected(arguments, message):
    with pytest.raises(InputError, match=message):
        SNIP(**{"sparsity": 0.5, **arguments})
