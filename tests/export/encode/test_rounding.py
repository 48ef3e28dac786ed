"""Rounding of weights to int8."""

import itertools

import numpy as np
import pytest
from tfsparsecap_export.encode.rounding import round_to_nearest, round_weights


@pytest.fixture
def correlated():
    """Weights [1, outputs, inputs] with zeros, and inputs [positions, inputs] that depend on each other."""
    random = np.random.default_rng(1)
    inputs = random.normal(size=(500, 6)) @ random.normal(size=(6, 24)) + 0.1 * random.normal(size=(500, 24))
    weights = random.normal(size=(1, 10, 24)) * np.exp(random.normal(size=24))
    weights[random.random(weights.shape) < 0.2] = 0
    return weights, inputs


def output_error(weights, inputs, values, scales):
    return np.square(inputs @ (values[0] * scales[0][:, None] - weights[0]).T).mean()


def test_the_error_of_the_outputs_is_much_smaller_than_with_the_nearest_values(correlated):
    weights, inputs = correlated
    values, scales = round_weights(weights, (inputs.T @ inputs / len(inputs))[None])
    largest = np.abs(weights).max(axis=-1) / 127
    nearest = np.round(weights / largest[..., None])
    assert values.dtype == np.int8 and scales.dtype == np.float32
    assert output_error(weights, inputs, values, scales) < 0.5 * output_error(
        weights, inputs, nearest, largest
    )


@pytest.mark.parametrize("tiny", [1e-37, 5e-44])
def test_tiny_weights_become_zeros_with_a_scale_that_kernels_take(correlated, tiny):
    weights, inputs = correlated
    weights[0, 3] *= tiny
    for values, scales in (round_weights(weights, (inputs.T @ inputs)[None]), round_to_nearest(weights)):
        assert not values[0, 3].any() and scales.min() >= np.finfo(np.float32).tiny


def test_zeros_stay_zeros(correlated):
    weights, inputs = correlated
    values, _ = round_weights(weights, (inputs.T @ inputs)[None])
    assert not values[weights == 0].any()


def test_few_weights_are_rounded_almost_as_well_as_by_trying_all_values():
    random = np.random.default_rng(2)
    inputs = random.normal(size=(200, 3)) @ random.normal(size=(3, 3))
    weights = np.array([[[127.0, 40.4, -21.5]]])
    values, scales = round_weights(weights, (inputs.T @ inputs / len(inputs))[None])
    lower = np.floor(weights / scales[..., None])
    candidates = (np.clip(lower + shift, -127, 127) for shift in itertools.product([0, 1], repeat=3))
    errors = [output_error(weights, inputs, candidate, scales) for candidate in candidates]
    assert output_error(weights, inputs, values, scales) <= sorted(errors)[1] + 1e-9


def reference(weights, covariance):
    """GPTQ as in its paper, with the inverse of the covariance, in float64."""
    scales = np.abs(weights).max(axis=1).astype(np.float32) / np.float32(127)
    damped = covariance + 0.01 * np.trace(covariance) / len(covariance) * np.eye(len(covariance))
    order = np.argsort(-np.diag(covariance))
    upper = np.linalg.cholesky(np.linalg.inv(damped[np.ix_(order, order)])).T
    remaining, values = weights[:, order].copy(), np.zeros(weights.shape)
    for i, place in enumerate(order):
        values[:, place] = np.clip(np.round(remaining[:, i] / scales), -127, 127)
        error = (remaining[:, i] - values[:, place] * scales) / upper[i, i]
        remaining[:, i:] -= error[:, None] * upper[i, i:]
    return values


def test_many_inputs_are_rounded_as_with_the_inverse_of_the_covariance():
    random = np.random.default_rng(3)
    inputs = random.normal(size=(900, 40)) @ random.normal(size=(40, 300)) + random.normal(size=(900, 300))
    weights = random.normal(size=(1, 7, 300))
    covariance = inputs.T @ inputs / len(inputs)
    values, scales = round_weights(weights, covariance[None])
    expected = reference(weights[0], covariance)
    assert (values[0] == expected).mean() > 0.95  # a float32 sum near a half is rounded either way
    assert output_error(weights, inputs, values, scales) == pytest.approx(
        output_error(weights, inputs, expected[None], scales), rel=0.05
    )


def test_inputs_that_never_vary_and_outputs_without_weights_are_rounded_too():
    values, scales = round_weights(np.array([[[0.5, -0.25], [0, 0]]]), np.zeros((1, 2, 2)))
    np.testing.assert_allclose(values * scales[..., None], [[[0.5, -0.25], [0, 0]]], atol=0.01)


def test_a_covariance_of_rounding_noise_rounds_to_the_nearest_values():
    random = np.random.default_rng(0)
    weights, noise = random.normal(size=(1, 3, 9)), random.normal(0, 1e-7, (1, 9, 9))
    noise += noise.swapaxes(1, 2)
    assert np.linalg.eigvalsh(noise).min() < 0
    values, scales = round_weights(weights, noise)
    np.testing.assert_allclose(values * scales[..., None], weights, atol=0.6 * scales.max())


def test_one_of_many_groups_may_be_rounding_noise(correlated):
    weights, inputs = correlated
    covariance = inputs.T @ inputs / len(inputs)
    noise = np.random.default_rng(0).normal(0, 1e-7, covariance.shape)
    values, _ = round_weights(np.repeat(weights, 2, axis=0), np.stack([noise + noise.T, covariance]))
    np.testing.assert_array_equal(values[1:], round_weights(weights, covariance[None])[0])
