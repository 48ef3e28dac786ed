"""Updates of the baselines of relevance-based pruning against NumPy and Keras's regularizers."""

import keras
import numpy as np
import pytest

from tfsparsecap.pruning import L1Pruning, L2Pruning, prune

RANDOM = np.random.default_rng(0)
X, Y = RANDOM.normal(size=(16, 8)), 10 * RANDOM.normal(size=(16, 6))
SHRINK = {
    L2Pruning: lambda weight: weight - 0.2 * weight,
    L1Pruning: lambda weight: np.where(np.abs(weight) <= 0.2, 0.0, weight - 0.2 * np.sign(weight)),
}


@pytest.mark.parametrize("cls", SHRINK)
@pytest.mark.parametrize("rate", [0.0, 0.01])
def test_kernels_shrink_and_follow_the_gradient_and_biases_do_not_shrink(cls, rate):
    keras.utils.set_random_seed(4)
    model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(6, bias_initializer="ones")])
    prune(model, cls(lower_bound=0.5, metric="val_loss", weight_decay=0.2, decoupled=True))
    model.compile(keras.optimizers.SGD(rate), "mse")
    kernel, bias = (np.array(variable) for variable in model.layers[0].trainable_variables[:2])
    assert (np.abs(kernel) < 0.2).any() and (np.abs(kernel) > 0.2).any()
    model.train_on_batch(X, Y)
    error = 2 * (X @ kernel + bias - Y) / Y.size
    expected = SHRINK[cls](kernel) - rate * X.T @ error, bias - rate * error.sum(0)
    now = model.pruning.weights[0], model.layers[0].bias
    for own, value in zip(now, expected, strict=True):
        np.testing.assert_allclose(own, value, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("cls", "regularizer"), [(L1Pruning, keras.regularizers.L1), (L2Pruning, keras.regularizers.L2)]
)
def test_terms_of_the_loss_equal_kerass_regularizers(cls, regularizer):
    kernels = []
    for penalty in (None, regularizer(0.2)):
        keras.utils.set_random_seed(4)
        model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(6, kernel_regularizer=penalty)])
        if penalty is None:
            prune(model, cls(lower_bound=0.5, metric="val_loss", weight_decay=0.2))
        model.compile(keras.optimizers.Adam(0.01, global_clipnorm=0.5), "mse")
        for _ in range(3):
            model.train_on_batch(X, Y)
        kernels.append(np.array(model.trainable_variables[0]))
    np.testing.assert_allclose(*kernels, rtol=1e-5, atol=1e-6)
