"""Region features: masks, means, and rejected inputs."""

import keras
import numpy as np
import pytest

from tfsparsecap.errors import InputError
from tfsparsecap.models.regions import RegionCaptioner, attention_bias, mean_region


def regions(inputs, encoder, size):
    return RegionCaptioner(9, feature_size=size, encoder=encoder).regions(inputs)


GIVEN = np.array([[[1.0, 2.0], [3.0, 0.0]], [[4.0, 6.0], [0.0, 0.0]]], "float32")


def test_rows_of_zeros_are_padding_without_an_encoder():
    features, mask = regions({"features": GIVEN}, None, 2)
    np.testing.assert_array_equal(features, GIVEN)
    np.testing.assert_array_equal(mask, [[True, True], [True, False]])
    np.testing.assert_array_equal(mean_region(features, mask), [[2.0, 1.0], [4.0, 6.0]])


def test_all_cells_of_an_encoder_are_regions():
    features, mask = regions({"features": GIVEN}, keras.layers.Identity(), 2)
    assert mask is None
    np.testing.assert_array_equal(mean_region(features, mask), [[2.0, 1.0], [2.0, 3.0]])


@pytest.mark.parametrize("encoder", [None, keras.layers.Identity()])
@pytest.mark.parametrize("dtype", ["bool", "int32", "float32"])
def test_values_of_masked_rows_are_ignored(encoder, dtype):
    given = np.where(np.array([[1, 1], [0, 1]])[..., None], GIVEN, np.nan)
    features, mask = regions({"features": given, "mask": np.array([[1, 1], [0, 1]], dtype)}, encoder, 2)
    assert mask.dtype == "bool"
    np.testing.assert_array_equal(mean_region(features, mask), [[2.0, 1.0], [0.0, 0.0]])


def test_mean_of_no_regions_is_zero():
    np.testing.assert_array_equal(mean_region(*regions({"features": np.zeros((1, 3, 2))}, None, 2)), [[0, 0]])


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_attention_bias_leaves_no_weight_to_padding(dtype):
    bias = attention_bias(np.array([[True, False], [False, False]]), dtype)
    assert bias.dtype == dtype
    weights = keras.ops.softmax(keras.ops.cast([[-100.0, 100.0], [1.0, 1.0]], dtype) + bias)
    np.testing.assert_array_equal(weights, [[1.0, 0.0], [0.5, 0.5]])


def test_feature_size_comes_from_the_encoder():
    model = keras.Sequential([keras.Input((8, 8, 3)), keras.layers.Reshape((-1, 6))])
    assert RegionCaptioner(9, encoder=model).feature_size == 6


def test_wrong_inputs_are_rejected():
    with pytest.raises(InputError, match="RegionCaptioner needs feature_size"):
        RegionCaptioner(9)
    with pytest.raises(InputError, match="give feature_size"):
        RegionCaptioner(9, encoder=keras.layers.Flatten())
    with pytest.raises(InputError, match="encoder is 5: give a Keras layer"):
        RegionCaptioner(9, feature_size=2, encoder=5)
    with pytest.raises(InputError, match='without an encoder takes "features"'):
        regions({"image": np.zeros((1, 8, 8, 3))}, None, 2)
    with pytest.raises(InputError, match='takes "image" or "features"'):
        regions({"tokens": np.zeros((1, 2))}, keras.layers.Identity(), 2)
    for shape in ((2, 2), (1, 2, 3), (1, 0, 2)):
        with pytest.raises(InputError, match=r"\[images, regions, 2\]"):
            regions({"features": np.zeros(shape)}, None, 2)
