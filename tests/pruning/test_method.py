"""What all methods check before the training, and say after it."""

import warnings

import keras
import numpy as np
import pytest

from tfsparsecap.errors import InputError
from tfsparsecap.pruning import LotteryTicket, Magnitude, Supermask, SupermaskLoss, prune, strip_pruning


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
        (lambda: Supermask(0.8, 10, block_shape=(16, 1)), r"blocks of up to 16: .* 0\.8 is out of reach"),
        (lambda: Magnitude(0.8, block_shape=(16, 1), scheme="blind"), "out of reach"),
        # In the second layer, of one block, nothing can go, in the first one three of four.
        (lambda: Magnitude(0.8, block_shape=(16, 1), scheme="uniform"), r"out of reach, 0\.706 being"),
        (lambda: LotteryTicket(0.9, 10, block_shape=(16, 1), scheme="uniform"), "out of reach"),
        (lambda: Magnitude(0.001), r"0\.001 is out of reach, 0\.000 being the nearest"),
    ],
)
def test_a_sparsity_that_blocks_cannot_reach_is_refused_before_the_training(method, says):
    with pytest.raises(InputError, match=says):
        prune(layers(16, 4, 1), method())


@pytest.mark.parametrize("scheme", ["blind", "uniform"])
@pytest.mark.parametrize("sparsity", [0.3, 0.6, 0.7])
def test_blocks_of_one_size_go_as_far_as_they_can(scheme, sparsity):
    model = prune(layers(32, 48, 24), Magnitude(sparsity, block_shape=(16, 1), scheme=scheme))
    most = model.pruning.most_closed() / model.pruning.gated_size
    assert most == pytest.approx(share_of_zeros(strip_pruning(model)), abs=1e-6)


def test_a_method_that_refused_a_model_takes_another_one():
    method = Magnitude(0.9, block_shape=(16, 1), scheme="uniform")
    with pytest.raises(InputError, match="out of reach"):
        prune(layers(16, 4, 1), method)
    model = prune(layers(32, 64), method)
    assert float(model.pruning.current_sparsity()) == pytest.approx(0.9, abs=0.02)
    # And having taken it, it stays with it.
    with pytest.raises(InputError, match="a method of its own"):
        prune(layers(32, 64), method)
    assert len(method.gates) == 1


def trained(method, steps):
    model = prune(layers(16, 8), method)
    model.compile("sgd", "mse", run_eagerly=True)
    for _ in range(steps):
        model.train_on_batch(np.ones((4, 16)), np.ones((4, 8)))
    return model


def test_a_training_that_took_all_its_steps_and_fell_short_is_said():
    model = trained(SupermaskLoss(0.9, 5), steps=5)
    model.pruning.close([np.ones(gate.logits.shape, bool) for gate in model.pruning.gates])
    with pytest.warns(UserWarning, match=r"ended at a sparsity of .* instead of 90\.0%: give land_at"):
        strip_pruning(model)


@pytest.mark.parametrize(
    "method",
    [
        lambda: Magnitude(0.75),
        lambda: Supermask(0.75, 5),
        lambda: SupermaskLoss(0.75, 5, land_at=0.5),
        # Asked for no sparsity in particular.
        lambda: SupermaskLoss(0.75, 5, sparsity_weight=0.0),
        lambda: SupermaskLoss(0.75, 5, freeze_at=0.5),
    ],
)
def test_a_training_that_ended_as_asked_says_nothing(method):
    model = trained(method(), steps=5)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        strip_pruning(model)
