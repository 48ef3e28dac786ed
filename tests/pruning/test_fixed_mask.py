"""Masks set at certain steps: ranking by magnitude, and FrozenMask, which keeps its mask."""

import keras
import numpy as np
import pytest

from tfsparsecap.errors import InputError
from tfsparsecap.pruning import FrozenMask, Magnitude, Schedule, fix_zeros, prune, strip_pruning

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
    model, kept = sparse()
    before = [np.array(layer.kernel) for layer in model.layers]
    model = strip_pruning(trained(prune(model, "frozen")))
    for layer, mask, old in zip(model.layers, kept, before, strict=True):
        np.testing.assert_array_equal(np.asarray(layer.kernel) != 0, mask)
        # Except weights of units whose outputs are all pruned.
        assert (np.asarray(layer.kernel)[mask] != old[mask]).mean() > 0.8


def test_the_sparsity_is_that_of_the_model_and_can_be_required():
    assert prune(sparse()[0], FrozenMask()).pruning.sparsity == pytest.approx(0.75, abs=2e-3)
    assert prune(sparse()[0], FrozenMask(0.75)).pruning.target == pytest.approx(0.75, abs=2e-3)
    with pytest.raises(InputError, match=r"75\.0% of the weights of .* are zero, not 90\.0%"):
        prune(sparse()[0], FrozenMask(0.9))


def test_a_dense_model_is_rejected_and_unchanged():
    model = made()
    with pytest.raises(InputError, match=r"has no zero weights"):
        prune(model, "frozen")
    assert [type(layer) for layer in model.layers] == [keras.layers.Dense] * 2


def test_a_loaded_model_keeps_its_mask(tmp_path):
    model, kept = sparse()
    trained(prune(model, "frozen")).save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    assert loaded.pruning.target == model.pruning.target == pytest.approx(0.75, abs=2e-3)
    for _ in range(3):
        loaded.train_on_batch(INPUTS, TARGETS)
    for layer, mask in zip(strip_pruning(loaded).layers, kept, strict=True):
        np.testing.assert_array_equal(np.asarray(layer.kernel) != 0, mask)


def test_fixed_zeros_stay_while_another_part_is_pruned(tmp_path):
    model, (kept, _) = sparse()
    second = model.get_layer("second")
    second.kernel.assign(RANDOM.normal(size=(32, 4)))  # dense again
    fix_zeros(model, skip="second")
    model = prune(model, Magnitude(0.5))
    assert [path.split("/")[-2:] for path, *_ in model.pruning.classes()] == [["second", "kernel"]]
    assert model.pruning.gated_size == 128
    trained(model).save(tmp_path / "model.keras")
    for one in (model, keras.models.load_model(tmp_path / "model.keras")):
        one.train_on_batch(INPUTS, TARGETS)
        stripped = strip_pruning(one)
        np.testing.assert_array_equal(np.asarray(stripped.get_layer("first").kernel) != 0, kept)
        assert np.count_nonzero(np.asarray(stripped.get_layer("second").kernel)) == 64


def test_a_model_whose_gates_are_all_fixed_has_nothing_to_prune():
    with pytest.raises(InputError, match="all its gates are fixed"):
        prune(fix_zeros(sparse()[0]), Magnitude(0.5))


@pytest.mark.parametrize("allocation", ["blind", "uniform", "distribution"])
def test_closed_gates_stay_closed_even_if_open_weights_are_zero(allocation):
    model = prune(
        keras.Sequential([keras.Input((8,)), keras.layers.Dense(4)]),
        Magnitude(0.5, 10, allocation=allocation, schedule=Schedule(begin=0.5)),
    )
    method, kernel = model.pruning, np.ones((8, 4), "float32")
    # The closed weights come last and are large; some of the open weights, which come first, are exactly 0.
    kernel[:3] = 0.0
    method.weights[0].assign(kernel)
    closed = np.zeros((8, 4), bool)
    closed[6:] = True
    method.close([~closed])
    method.close_smallest(0.25)
    np.testing.assert_array_equal(method.gates[0].mask(), ~closed)
    method.close_smallest(0.5)
    closed[:2] = True
    np.testing.assert_array_equal(method.gates[0].mask(), ~closed)


def test_fixed_gates_of_a_model_that_is_not_pruned_stay_fixed_in_a_file(tmp_path):
    model, (kept, _) = sparse()
    fix_zeros(model, skip="second").save(tmp_path / "model.keras")
    model = keras.models.load_model(tmp_path / "model.keras")
    model.get_layer("second").kernel.assign(RANDOM.normal(size=(32, 4)))
    prune(model, Magnitude(0.5))
    assert model.pruning.gated_size == 128
    trained(model)
    np.testing.assert_array_equal(np.asarray(strip_pruning(model).get_layer("first").kernel) != 0, kept)
    assert "fixed_gates" not in str(model.get_config())
    prune(model, "frozen")  # the layer can be pruned again
    assert not any(gate.fixed for gate in model.pruning.gates)
