"""Checks of all methods before training, and warnings after it."""

import warnings

import keras
import numpy as np
import pytest

from tfsparsecap.errors import InputError
from tfsparsecap.layers import GatedDense
from tfsparsecap.pruning import (
    SNIP,
    Gradual,
    LotteryTicket,
    Magnitude,
    PruningMethod,
    Schedule,
    Supermask,
    SupermaskLoss,
    prune,
    strip_pruning,
)


def layers(*sizes):
    inputs, *outputs = sizes
    return keras.Sequential([keras.Input((inputs,)), *(keras.layers.Dense(size) for size in outputs)])


@pytest.mark.parametrize(
    ("method", "message"),
    [
        # 54 weights should be removed, but there are four blocks of 16 and one of 4: 3 * 16 + 4 is less.
        (lambda: Supermask(0.8, 10, block_shape=(16, 1)), r"0\.8 cannot be reached: .* blocks of up to 16"),
        (lambda: Magnitude(0.8, block_shape=(16, 1), allocation="blind"), "cannot be reached"),
        # Three of four blocks of the first layer can be removed, but not the only block of the second.
        (lambda: Magnitude(0.8, block_shape=(16, 1), allocation="uniform"), r"below is 0\.706"),
        (lambda: LotteryTicket(0.9, 10, block_shape=(16, 1), allocation="uniform"), "cannot be reached"),
        (lambda: Magnitude(0.001), r"0\.001 cannot be reached: .* below is 0\.000"),
    ],
)
def test_a_sparsity_that_blocks_cannot_reach_is_rejected(method, message):
    with pytest.raises(InputError, match=message):
        prune(layers(16, 4, 1), method())


def trained(method, steps):
    model = prune(layers(16, 8), method)
    model.compile("sgd", "mse")
    for _ in range(steps):
        model.train_on_batch(np.ones((4, 16)), np.ones((4, 8)))
    return model


def missed():
    model = trained(SupermaskLoss(0.9, 5), steps=5)
    model.pruning.close([np.ones(gate.logits.shape, bool) for gate in model.pruning.gates])
    return model


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (missed, r"ended at a sparsity of .* instead of 90\.0%: give a larger"),
        (
            lambda: prune(layers(16, 8), Supermask(0.75, 5)),
            r"not trained after prune, .* instead of 75.0%.*total_steps=5",
        ),
        (
            lambda: trained(Supermask(0.5, total_steps=1000), steps=8),
            r"after 8 of total_steps=1000, .* 0.0% instead of 50.0%.*total_steps=8",
        ),
    ],
)
def test_stripping_warns_if_the_target_was_missed(make, message):
    model = make()
    with pytest.warns(UserWarning, match=message):
        strip_pruning(model)


@pytest.mark.parametrize(
    "method",
    [
        lambda: Magnitude(0.75),
        lambda: Supermask(0.75, 5),
        lambda: SupermaskLoss(0.75, 5, schedule=Schedule(end=0.5)),
        # These have no target sparsity.
        lambda: SupermaskLoss(0.75, 5, sparsity_weight=0.0),
        lambda: SupermaskLoss(0.75, 5, schedule=Schedule(end=0.5), exact=False),
    ],
)
def test_stripping_does_not_warn_if_the_target_was_reached(method):
    model = trained(method(), steps=5)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        strip_pruning(model)


def test_a_rejected_model_is_unchanged():
    class Refuses(PruningMethod):
        def attach(self, model):
            super().attach(model)
            for gate in self.gates:
                gate.logits.assign(-gate.logits)
            raise InputError("out of reach")

    model = layers(8, 4)
    weights = model.get_weights()
    with pytest.raises(InputError, match="out of reach"):
        prune(model, Refuses(0.5))
    assert type(model) is keras.Sequential
    for mine, before in zip(model.get_weights(), weights, strict=True):
        np.testing.assert_array_equal(mine, before)


RANDOM = np.random.default_rng(0)
X, Y = RANDOM.normal(size=(16, 16)).astype("float32"), RANDOM.normal(size=(16, 8)).astype("float32")


def fitted(model, epochs=6, **options):
    model.compile(keras.optimizers.Adam(0.01), "mse")
    model.fit(X, Y, batch_size=16, epochs=epochs, verbose=0, **options)
    return model


def opened(layer):
    return np.asarray(layer.kernel_gate.logits) > 0


@pytest.mark.slow
@pytest.mark.parametrize(
    "method",
    [
        lambda: Supermask(0.5, 6),
        lambda: SupermaskLoss(0.5, 6, schedule=Schedule(end=0.7)),
        lambda: SNIP(0.5, 6),
        lambda: Magnitude(0.5, 6, schedule=Schedule(begin=0.4), allocation="uniform"),
        lambda: Gradual(0.5, 6),
    ],
)
@pytest.mark.filterwarnings("ignore:.*may differ from")
def test_gates_of_layers_that_are_frozen_after_prune_stay_as_they_are(method):
    model = prune(layers(16, 16, 32, 8), method())
    frozen, *others = model.layers
    frozen.trainable = False
    kernel = np.array(frozen.stored_weight("kernel"))
    fitted(model)
    assert np.all(opened(frozen))
    removed = 1 - np.mean(np.concatenate([opened(layer).ravel() for layer in others]))
    assert removed == pytest.approx(0.5, abs=0.01)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        strip_pruning(model)
    np.testing.assert_array_equal(frozen.kernel, kernel)


def test_stripping_warns_if_only_an_inner_model_was_pruned():
    inner = layers(16, 16)
    inner.name = "inner"
    prune(inner, Supermask(0.5, total_steps=4))
    fitted(outer := keras.Sequential([keras.Input((16,)), inner, keras.layers.Dense(8)]), 1)
    with pytest.warns(UserWarning, match=r"inner: the model was not trained after prune"):
        strip_pruning(outer)
    with pytest.warns(UserWarning, match="gates in 1 weights that no pruning method controls"):
        strip_pruning(keras.Sequential([keras.Input((8,)), GatedDense(4)]))
    model = prune(layers(16, 8), Supermask(0.5, total_steps=4))
    model.pruning.detach()
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        strip_pruning(model)


@pytest.mark.parametrize(
    ("method", "complete"),
    [
        (lambda: SupermaskLoss(0.5, 6, schedule=Schedule(end=0.5)), 3),
        (lambda: SNIP(0.5, 6, batches=2), 2),
        (lambda: Gradual(0.5, 8, schedule=Schedule(begin=0.2, end=0.5)), 4),
        (lambda: LotteryTicket(0.5, 6), 3),
    ],
)
@pytest.mark.filterwarnings("ignore:.*may differ from")
def test_stripping_explains_that_weights_of_an_earlier_epoch_were_restored(method, complete):
    model = prune(layers(16, 32, 8), method())
    initial = model.get_weights()
    fitted(model, 5)  # the training may also have stopped early
    assert float(model.pruning.current_sparsity()) == pytest.approx(0.5, abs=0.01)
    model.set_weights(initial)
    message = rf"is 0\.0% instead of 50\.0%, .* complete after {complete} of 5 steps: .*restore_best_weights"
    with pytest.warns(UserWarning, match=message):
        strip_pruning(model)


@pytest.mark.slow
def test_a_layer_that_was_frozen_for_a_while_is_pruned_again():
    model = prune(layers(16, 16, 32, 8), Supermask(0.5, 12, schedule=Schedule(begin=0.1, end=0.8)))
    first, *_ = model.layers
    fitted(model, 3)
    before = opened(first)
    assert not np.all(before)
    first.trainable = False
    fitted(model, 3)
    np.testing.assert_array_equal(opened(first), before)
    first.trainable = True
    fitted(model, 6)
    assert np.mean(opened(first)) < np.mean(before)
    assert float(model.pruning.current_sparsity()) == pytest.approx(0.5, abs=0.01)
    # Freezing after the end of the pruning causes no warning.
    first.trainable = False
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        strip_pruning(model)


def test_with_gradient_accumulation_each_batch_is_a_step():
    model = prune(layers(16, 32, 8), Supermask(0.5, 8, schedule=Schedule(begin=0.2, end=0.8)))
    model.compile(keras.optimizers.SGD(0.1, gradient_accumulation_steps=4), "mse")
    model.fit(X, Y, batch_size=4, epochs=2, verbose=0)
    assert int(model.pruning.steps_done) == 8
    assert float(model.pruning.current_sparsity()) == pytest.approx(0.5, abs=0.01)
