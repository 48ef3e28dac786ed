"""The networks and published values of the paper on relevance-based pruning."""

import keras
import numpy as np
import pytest

from benchmarks.image_classifiers import EXPERIMENTS, lenet5, resnet32


def parameters(model):
    return sum(variable.value.shape.num_elements() for variable in model.trainable_variables)


def test_lenet5_has_the_papers_number_of_parameters():
    assert parameters(lenet5()) == 431_080


@pytest.mark.slow
def test_resnet32_has_the_papers_number_of_parameters_and_shortcuts_without_parameters():
    model = resnet32()
    assert parameters(model) == 464_154
    first, _ = [operation for operation in model.operations if type(operation).__name__ == "Pad"]
    x = np.random.default_rng(0).normal(size=(1, *first.input.shape[1:])).astype(np.float32)
    padded = keras.Model(first.input, first.output)(x).numpy()
    assert padded.shape == (1, 16, 16, 32)
    np.testing.assert_array_equal(padded[..., 8:24], x)
    assert not padded[..., :8].any() and not padded[..., 24:].any()


def test_sgd_uses_the_papers_learning_rates():
    cifar = EXPERIMENTS["cifar10"]
    dense, rates = cifar.optimizer("dense", 1000), []
    for step in (0, 499, 501, 751):
        dense.iterations.assign(step)
        rates.append(float(dense.learning_rate))
    assert rates == pytest.approx([0.1, 0.1, 0.01, 0.001])
    # The gradient of a summed loss is the batch size times that of its mean.
    assert float(cifar.optimizer("pruning", 9).learning_rate) == pytest.approx(5e-4)
    assert float(cifar.optimizer("fine-tuning", 9).learning_rate) == pytest.approx(6e-5)
