"""Distances of layers, as in ACORT's Figure 9, compared with values computed by hand."""

import keras
import numpy as np

from benchmarks.layer_distances import layer_distances


def test_distances_are_those_of_normalised_rows():
    layers = [keras.layers.Dense(2, use_bias=False) for _ in range(3)]
    kernels = [[[3, 4], [0, 2]], [[6, 8], [0, 1]], [[4, 3], [1, 0]]]
    for layer, kernel in zip(layers, kernels, strict=True):
        layer.build((None, 2))
        layer.kernel.assign(np.float32(kernel))
    # Rows [0.6, 0.8] and [0, 1], and [0.8, 0.6] and [1, 0] of the last layer.
    apart = np.sqrt((0.2**2 + 0.2**2 + 1 + 1) / 4)
    np.testing.assert_allclose(layer_distances(layers), [[0, 0, apart], [0, 0, apart], [apart, apart, 0]])
