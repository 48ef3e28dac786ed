"""Warnings of layers without weights, during the training."""

import warnings

import keras
import numpy as np
import pytest

import tfsparsecap as sc
from tfsparsecap.pruning.emptied import warn_of_emptied


def model():
    """`unused` has no influence on the outputs, so all its weights are unimportant."""
    inputs = keras.Input((16,))
    unused = keras.layers.Dense(32, name="unused")(inputs)
    hidden = keras.layers.Dense(64, activation="relu")(inputs)
    found = keras.Model(
        inputs, keras.layers.Dense(1)(hidden) + 0.0 * keras.ops.mean(unused, axis=-1, keepdims=True)
    )
    found.compile("adam", "mse")
    return found


DATA = np.random.default_rng(0).normal(size=(64, 16)).astype(np.float32), np.ones((64, 1), np.float32)


def pruned(**options):
    return sc.prune(model(), sc.Supermask(0.5, total_steps=12, **options))


def test_a_layer_is_named_in_the_epoch_that_empties_it():
    emptied = pruned(minimum_density=0.0)
    expected = r"unused/kernel keeps 0 of 512; name them in skip, or set a larger minimum_density"
    with pytest.warns(UserWarning, match=expected) as caught:
        emptied.fit(*DATA, batch_size=16, epochs=3, verbose=0)
    assert sum("keeps" in str(each.message) for each in caught) == 1, "once, not in each epoch"


def test_other_trainings_are_quiet_and_keep_their_callbacks():
    seen = []
    own = keras.callbacks.LambdaCallback(on_epoch_end=lambda epoch, logs: seen.append(epoch))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        kept = pruned()
        kept.fit(*DATA, batch_size=16, epochs=2, verbose=0, callbacks=own)
        given = keras.callbacks.CallbackList([own], add_history=True, model=kept)
        kept.fit(*DATA, batch_size=16, epochs=1, verbose=0, callbacks=given)
        assert warn_of_emptied("model", kept.pruning) == frozenset()
    assert seen == [0, 1, 0]
