"""Features of regions: which rows count, their mean, and what is refused."""

import keras
import numpy as np
import pytest

from tfsparsecap.errors import InputError
from tfsparsecap.models.regions import attention_bias, feature_size, mean_region, regions

GIVEN = np.array([[[1.0, 2.0], [3.0, 0.0]], [[4.0, 6.0], [0.0, 0.0]]], "float32")


def test_rows_of_zeros_are_filling_where_there_is_no_encoder():
    features, mask = regions({"features": GIVEN}, None, 2)
    np.testing.assert_array_equal(features, GIVEN)
    np.testing.assert_array_equal(mask, [[True, True], [True, False]])
    np.testing.assert_array_equal(mean_region(features, mask), [[2.0, 1.0], [4.0, 6.0]])


def test_every_cell_of_an_encoder_s_map_counts():
    features, mask = regions({"features": GIVEN}, keras.layers.Identity(), 2)
    assert mask is None
    np.testing.assert_array_equal(mean_region(features, mask), [[2.0, 1.0], [2.0, 3.0]])


@pytest.mark.parametrize("encoder", [None, keras.layers.Identity()])
@pytest.mark.parametrize("dtype", ["bool", "int32", "float32"])
def test_a_mask_says_what_counts_whatever_the_filling_is(encoder, dtype):
    given = np.where(np.array([[1, 1], [0, 1]])[..., None], GIVEN, np.nan)
    features, mask = regions({"features": given, "mask": np.array([[1, 1], [0, 1]], dtype)}, encoder, 2)
    assert mask.dtype == "bool"
    np.testing.assert_array_equal(mean_region(features, mask), [[2.0, 1.0], [0.0, 0.0]])


def test_no_region_has_a_mean_of_zeros():
    np.testing.assert_array_equal(mean_region(*regions({"features": np.zeros((1, 3, 2))}, None, 2)), [[0, 0]])


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_attention_bias_leaves_nothing_to_filling(dtype):
    bias = attention_bias(np.array([[True, False], [False, False]]), dtype)
    assert bias.dtype == dtype
    weights = keras.ops.softmax(keras.ops.cast([[-100.0, 100.0], [1.0, 1.0]], dtype) + bias)
    np.testing.assert_array_equal(weights, [[1.0, 0.0], [0.5, 0.5]])


def test_feature_size_is_what_the_encoder_says():
    model = keras.Sequential([keras.Input((8, 8, 3)), keras.layers.Reshape((-1, 6))])
    assert feature_size(model, "UpDown") == 6


def test_wrong_input_is_named():
    with pytest.raises(InputError, match="UpDown needs feature_size"):
        feature_size(None, "UpDown")
    with pytest.raises(InputError, match="give feature_size"):
        feature_size(keras.layers.Flatten(), "UpDown")
    with pytest.raises(InputError, match='without an encoder takes "features"'):
        regions({"image": np.zeros((1, 8, 8, 3))}, None, 2)
    with pytest.raises(InputError, match='takes "image" or "features"'):
        regions({"tokens": np.zeros((1, 2))}, keras.layers.Identity(), 2)
    for shape in ((2, 2), (1, 2, 3), (1, 0, 2)):
        with pytest.raises(InputError, match=r"\[images, regions, 2\]"):
            regions({"features": np.zeros(shape)}, None, 2)
