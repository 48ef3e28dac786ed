"""Choosing weights by their size keeps closed gates closed."""

import keras
import numpy as np
import pytest

from tfsparsecap.pruning import Magnitude, prune


@pytest.mark.parametrize("scheme", ["blind", "uniform", "distribution"])
def test_a_closed_gate_never_opens_in_place_of_one_on_a_weight_of_zero(scheme):
    model = prune(keras.Sequential([keras.Input((8,)), keras.layers.Dense(4)]), Magnitude(0.5, 10, at=0.5))
    method, kernel = model.pruning, np.ones((8, 4), "float32")
    # What is closed comes last and is large; of the open weights, which come first, some are exactly 0.
    kernel[:3] = 0.0
    method.weights[0].assign(kernel)
    closed = np.zeros((8, 4), bool)
    closed[6:] = True
    method.close([~closed])
    (kept,) = method.smallest_kept(0.25, scheme)
    np.testing.assert_array_equal(kept, ~closed)
    (kept,) = method.smallest_kept(0.5, scheme)
    closed[:2] = True
    np.testing.assert_array_equal(kept, ~closed)
