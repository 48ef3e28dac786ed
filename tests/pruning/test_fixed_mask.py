"""Masks set at certain steps: ranking by magnitude, and FrozenMask, which keeps its mask."""

import keras
import numpy as np
import pytest

from tfsparsecap.errors import InputError
from tfsparsecap.pruning import FrozenMask, Magnitude, fix_zeros, prune, strip_pruning

RANDOM = np.random.default_rng(0)
INPUTS, TARGETS = RANDOM.normal(size=(32, 16)), RANDOM.normal(size=(32, 4))


def made():
    keras.utils.set_random_seed(4)
    return keras.Sequential(
        [
            keras.Input((16,)),
            keras.layers.Dense(32, "tanh", name="first"),
            keras.layers.Dense(4, name="second"),
        ]
    )


def sparse(share=0.75):
    model = strip_pruning(prune(made(), Magnitude(share)))
    return model, [np.array(layer.kernel) != 0 for layer in model.layers]


def trained(model, steps=5):
    model.compile(keras.optimizers.Adam(0.02), "mse")
    for _ in range(steps):
        model.train_on_batch(INPUTS, TARGETS)
    return model


def test_zeros_stay_zero_and_other_weights_learn():
    model, masks = sparse()
    before = [np.array(layer.kernel) for layer in model.layers]
    model = prune(model, "frozen")
    assert model.pruning.sparsity == model.pruning.target == pytest.approx(0.75, abs=2e-3)
    model = strip_pruning(trained(model))
    for layer, mask, old in zip(model.layers, masks, before, strict=True):
        np.testing.assert_array_equal(np.asarray(layer.kernel) != 0, mask)
        # Except weights of units whose outputs are all pruned.
        assert (np.asarray(layer.kernel)[mask] != old[mask]).mean() > 0.8


def test_fixed_zeros_stay_while_another_part_is_pruned(tmp_path):
    model, (mask, _) = sparse()
    second = model.get_layer("second")
    second.kernel.assign(RANDOM.normal(size=(32, 4)))  # dense again
    fix_zeros(model, skip="second")
    model = prune(model, Magnitude(0.5))
    assert [path.split("/")[-2:] for path, *_ in model.pruning.classes()] == [["second", "kernel"]]
    assert model.pruning.gated_size == 128
    trained(model).save(tmp_path / "model.keras")
    for network in (model, keras.models.load_model(tmp_path / "model.keras")):
        network.train_on_batch(INPUTS, TARGETS)
        stripped = strip_pruning(network)
        np.testing.assert_array_equal(np.asarray(stripped.get_layer("first").kernel) != 0, mask)
        assert np.count_nonzero(np.asarray(stripped.get_layer("second").kernel)) == 64


@pytest.mark.parametrize(
    ("make", "method", "message"),
    [
        (made, "frozen", "has no zero weights"),
        (lambda: sparse()[0], FrozenMask(0.9), r"75\.0% of the weights of .* are zero, not 90\.0%"),
        (lambda: fix_zeros(sparse()[0]), Magnitude(0.5), "all its gates are fixed"),
    ],
)
def test_models_without_the_zeros_are_refused(make, method, message):
    with pytest.raises(InputError, match=message):
        prune(make(), method)
