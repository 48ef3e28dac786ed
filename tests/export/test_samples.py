"""Inputs that are given in the forms of a data set."""

import numpy as np
import pytest
import tensorflow as tf
from tfsparsecap_export.samples import as_samples, check_samples

from tfsparsecap.errors import InputError

ROWS = np.arange(20, dtype=np.float32).reshape(5, 4)


@pytest.mark.parametrize(
    "given",
    [
        ROWS,
        tf.constant(ROWS),
        [ROWS],
        (row[None] for row in ROWS),
        [{"x": ROWS[:2]}, {"x": ROWS[2:]}],
        [(ROWS[:3], np.zeros(3)), (ROWS[3:], np.zeros(2))],
        tf.data.Dataset.from_tensor_slices((ROWS, np.zeros(5))).batch(2),
    ],
    ids=["array", "tensor", "batches", "generator", "dictionaries", "targets", "dataset"],
)
def test_batches_are_split_into_samples(given):
    inputs = {"x": tf.TensorSpec((1, 4))}
    found = as_samples(given, inputs)
    check_samples(found, inputs)
    np.testing.assert_array_equal([sample["x"] for sample in found], ROWS[:, None])


def test_samples_have_the_batch_size_of_the_file():
    found = as_samples(ROWS, {"x": tf.TensorSpec((2, 4))})
    np.testing.assert_array_equal([sample["x"] for sample in found], ROWS[:4].reshape(2, 2, 4))
    any_size = {"x": tf.TensorSpec((None, 4))}
    assert [len(sample["x"]) for sample in as_samples(ROWS, any_size)] == [1] * 5
    assert [len(sample["x"]) for sample in as_samples([ROWS, ROWS[:2]], any_size)] == [5, 2]


def test_an_array_is_for_models_with_one_input():
    inputs = {"left": tf.TensorSpec((1, 4)), "right": tf.TensorSpec((1, 4))}
    with pytest.raises(InputError, match=r"sample 0 is ndarray: give a dictionary .* \['left', 'right'\]"):
        as_samples(ROWS, inputs)
    assert len(as_samples([{"left": ROWS, "right": ROWS}], inputs)) == 5
