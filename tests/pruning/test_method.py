"""What all methods check before the training, and warn of after it."""

import warnings

import keras
import numpy as np
import pytest

from tfsparsecap.errors import InputError
from tfsparsecap.pruning import (
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


def share_of_zeros(model):
    kernels = [np.asarray(layer.kernel) for layer in model.layers]
    return 1 - sum(map(np.count_nonzero, kernels)) / sum(kernel.size for kernel in kernels)


@pytest.mark.parametrize(
    ("method", "says"),
    [
        # 4 blocks of 16 and one of 4, of which 54 weights are to go: a fourth of the large ones cannot.
        (lambda: Supermask(0.8, 10, block_shape=(16, 1)), r"0\.8 cannot be reached: .* blocks of up to 16"),
        (lambda: Magnitude(0.8, block_shape=(16, 1), allocation="blind"), "cannot be reached"),
        # In the second layer, of one block, nothing can go, in the first one three of four.
        (lambda: Magnitude(0.8, block_shape=(16, 1), allocation="uniform"), r"0\.706 is the nearest"),
        (lambda: LotteryTicket(0.9, 10, block_shape=(16, 1), allocation="uniform"), "cannot be reached"),
        (lambda: Magnitude(0.001), r"0\.001 cannot be reached: .* 0\.000 is the nearest"),
    ],
)
def test_a_sparsity_that_blocks_cannot_reach_is_refused(method, says):
    with pytest.raises(InputError, match=says):
        prune(layers(16, 4, 1), method())


@pytest.mark.parametrize("allocation", ["blind", "uniform"])
@pytest.mark.parametrize("sparsity", [0.3, 0.6, 0.7])
def test_most_closed_is_what_blocks_of_one_size_reach(allocation, sparsity):
    model = prune(layers(32, 48, 24), Magnitude(sparsity, block_shape=(16, 1), allocation=allocation))
    most = model.pruning.most_closed() / model.pruning.gated_size
    assert most == pytest.approx(share_of_zeros(strip_pruning(model)), abs=1e-6)


def test_a_method_that_refused_a_model_can_prune_another_one():
    method = Magnitude(0.9, block_shape=(16, 1), allocation="uniform")
    with pytest.raises(InputError, match="cannot be reached"):
        prune(layers(16, 4, 1), method)
    model = prune(layers(32, 64), method)
    assert float(model.pruning.current_sparsity()) == pytest.approx(0.9, abs=0.02)
    # And having taken it, it stays with it.
    with pytest.raises(InputError, match="one method per model"):
        prune(layers(32, 64), method)
    assert len(method.gates) == 1


def trained(method, steps):
    model = prune(layers(16, 8), method)
    model.compile("sgd", "mse")
    for _ in range(steps):
        model.train_on_batch(np.ones((4, 16)), np.ones((4, 8)))
    return model


def test_stripping_warns_if_the_target_was_missed():
    model = trained(SupermaskLoss(0.9, 5), steps=5)
    model.pruning.close([np.ones(gate.logits.shape, bool) for gate in model.pruning.gates])
    with pytest.warns(UserWarning, match=r"ended at a sparsity of .* instead of 90\.0%: give schedule"):
        strip_pruning(model)


@pytest.mark.parametrize(
    "method",
    [
        lambda: Magnitude(0.75),
        lambda: Supermask(0.75, 5),
        lambda: SupermaskLoss(0.75, 5, schedule=Schedule(end=0.5)),
        # Asked for no sparsity in particular.
        lambda: SupermaskLoss(0.75, 5, sparsity_weight=0.0),
        lambda: SupermaskLoss(0.75, 5, schedule=Schedule(end=0.5), exact=False),
    ],
)
def test_stripping_does_not_warn_if_the_target_was_reached(method):
    model = trained(method(), steps=5)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        strip_pruning(model)


def test_a_model_that_a_method_refuses_is_unchanged():
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


def test_stripping_warns_if_the_training_stopped_early():
    inputs, targets = np.ones((64, 16), "float32"), np.ones((64, 8), "float32")
    model = keras.Sequential([keras.Input((16,)), keras.layers.Dense(8)])
    prune(model, Supermask(sparsity=0.5, total_steps=1000))
    model.compile("sgd", "mse")
    model.fit(inputs, targets, batch_size=8, verbose=0)
    with pytest.warns(
        UserWarning, match=r"after 8 of total_steps=1000, .* 0.0% instead of 50.0%.*total_steps=8"
    ):
        strip_pruning(model)
