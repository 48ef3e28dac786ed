"""Samples for an export, in all forms in which Keras takes data."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from tfsparsecap_export.keras_to_tflite.graph import model_graph
from tfsparsecap_export.samples import (
    as_samples,
    check_samples,
    read_samples,
    synthetic_samples,
    table_rows,
    vary,
)

from tfsparsecap.core.array_files import MOST_READ
from tfsparsecap.errors import InputError

ROWS = np.arange(20, dtype=np.float32).reshape(5, 4)


@pytest.mark.parametrize(
    "data",
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
def test_batches_are_split_into_samples(data):
    inputs = {"x": tf.TensorSpec((1, 4))}
    samples = as_samples(data, inputs)
    check_samples(samples, inputs)
    np.testing.assert_array_equal([sample["x"] for sample in samples], ROWS[:, None])


def test_samples_have_the_batch_size_of_the_file():
    samples = as_samples(ROWS, {"x": tf.TensorSpec((2, 4))})
    np.testing.assert_array_equal([sample["x"] for sample in samples], ROWS[:4].reshape(2, 2, 4))
    any_size = {"x": tf.TensorSpec((None, 4))}
    for all_inputs in (ROWS, {"x": ROWS}):
        assert [len(sample["x"]) for sample in as_samples(all_inputs, any_size)] == [1] * 5
    assert [len(sample["x"]) for sample in as_samples([ROWS, ROWS[:2]], any_size)] == [5, 2]


@pytest.mark.parametrize("order", ["C", "F"])
def test_samples_of_sorted_data_are_spread_over_it(order, tmp_path):
    rows = np.asarray(np.arange(3000, dtype=np.float32).reshape(1000, 3), order=order)
    inputs, expected = {"x": tf.TensorSpec((1, 3))}, np.linspace(0, 999, MOST_READ).astype(int) * 3
    np.save(tmp_path / "x.npy", rows)
    np.savez(tmp_path / "x.npz", rows)
    for data in (
        rows,
        [rows[:700], rows[700:]],
        *(read_samples([f"{tmp_path}/x.{end}"]) for end in ("npy", "npz")),
    ):
        samples = as_samples(data, inputs)
        np.testing.assert_array_equal([sample["x"][0, 0] for sample in samples], expected)
    np.save(tmp_path / "y.npy", rows[:999])
    with pytest.raises(InputError, match=r"different numbers of inputs, {'x': 1000, 'y': 999}"):
        read_samples([f"x={tmp_path}/x.npy", f"y={tmp_path}/y.npy"])


@pytest.mark.parametrize("dtype", ["uint8", "int64", "float64"])
def test_numbers_get_the_type_of_an_input_if_they_fit(dtype):
    rows = np.arange(20).reshape(5, 4).astype(dtype)
    samples = as_samples(rows, {"x": tf.TensorSpec((1, 4), tf.float32)})
    assert samples[3]["x"].dtype == np.float32 and samples[3]["x"].tolist() == [[12, 13, 14, 15]]
    integers = {"x": tf.TensorSpec((1, 4), tf.int32)}
    if dtype != "float64":
        assert as_samples(rows, integers)[3]["x"].tolist() == [[12, 13, 14, 15]]
        check_samples(as_samples(rows, integers), integers)
        rows = np.full((5, 4), 2**40)
    with pytest.raises(InputError, match=f"x of sample 0 is {rows.dtype}"):
        check_samples(as_samples(rows, integers), integers)


def test_samples_vary_if_any_number_differs():
    zeros, other = np.zeros((1, 4), np.float32), np.array([[0, 0, 0, 1]], np.float32)
    assert not vary([{"x": zeros, "y": zeros + 2}] * 2) and not vary([{"x": np.zeros((0, 4))}])
    assert vary([{"x": zeros}, {"x": zeros + 1}]) and vary([{"y": zeros, "x": other}])


def test_an_array_is_for_models_with_one_input():
    inputs = {"left": tf.TensorSpec((1, 4)), "right": tf.TensorSpec((1, 4))}
    with pytest.raises(InputError, match=r"sample 0 is ndarray: give a dictionary .* \['left', 'right'\]"):
        as_samples(ROWS, inputs)
    assert len(as_samples([{"left": ROWS, "right": ROWS}], inputs)) == 5


@pytest.mark.parametrize(
    "data",
    [
        [ROWS, -ROWS],
        {"right": -ROWS, "left": ROWS},
        [(ROWS[:2], -ROWS[:2]), (ROWS[2:], -ROWS[2:])],
        [((ROWS, -ROWS), np.zeros(5))],
        [([ROWS, -ROWS], np.zeros(5), np.ones(5))],
        tf.data.Dataset.from_tensor_slices((ROWS, -ROWS)).batch(2),
        tf.data.Dataset.from_tensor_slices(((ROWS, -ROWS), np.zeros(5))).batch(2),
    ],
    ids=["arrays", "dictionary", "tuples", "targets", "weights", "dataset", "dataset with targets"],
)
def test_several_inputs_are_named_or_in_order(data):
    inputs = {"left": tf.TensorSpec((1, 4)), "right": tf.TensorSpec((1, 4))}
    samples = as_samples(data, inputs)
    check_samples(samples, inputs)
    np.testing.assert_array_equal([sample["left"] for sample in samples], ROWS[:, None])
    np.testing.assert_array_equal([sample["right"] for sample in samples], -ROWS[:, None])


def test_an_endless_data_set_is_read_in_part():
    inputs = {"x": tf.TensorSpec((1, 4))}
    endless = (batch for _ in iter(int, 1) for batch in [ROWS])
    assert len(as_samples(endless, inputs)) == MOST_READ
    data = tf.data.Dataset.from_tensor_slices(ROWS).repeat().batch(2).take(2 * MOST_READ)
    assert len(as_samples(data, inputs)) == MOST_READ


def test_a_smaller_last_batch_is_not_used():
    inputs = {"x": tf.TensorSpec((2, 4))}
    samples = as_samples(tf.data.Dataset.from_tensor_slices(ROWS).batch(2), inputs)
    check_samples(samples, inputs)
    np.testing.assert_array_equal([sample["x"] for sample in samples], ROWS[:4].reshape(2, 2, 4))
    with pytest.raises(InputError, match=r"x of sample 0 is float32 \[1, 4\]"):
        check_samples(as_samples([ROWS[:1]], inputs), inputs)


def test_random_images_have_the_batch_size_of_the_file():
    for size, batches in ((1, [1, 1]), (2, [2, 2]), (None, [1, 3])):
        inputs = {"images": tf.TensorSpec((size, 8, 9, 3), tf.uint8)}
        samples = synthetic_samples(inputs, 2)
        check_samples(samples, inputs)
        assert [len(sample["images"]) for sample in samples] == batches
    assert (samples[1]["images"][0] != samples[1]["images"][1]).any()


def test_ids_are_of_all_rows_of_their_table():
    words, kinds = keras.Input((6,), dtype="int32", name="words"), keras.Input((6,), name="kinds")
    x = keras.layers.Embedding(500, 4)(words) + keras.layers.Embedding(3, 4)(kinds)
    other = keras.Input((4,), dtype="int32", name="other")
    model = keras.Model(
        [words, kinds, other], keras.layers.Flatten()(x) + keras.ops.cast(other[:, :1], "float32")
    )
    rows = table_rows(model_graph(model, 1, None))
    assert rows == {"words": 500, "kinds": 3}
    inputs = {"words": tf.TensorSpec((1, 6), tf.int32), "kinds": tf.TensorSpec((1, 6))}
    samples = synthetic_samples(inputs, 50, rows)
    check_samples(samples, inputs)
    words, kinds = (np.concatenate([sample[name] for sample in samples]) for name in inputs)
    assert words.max() > 450 and len(np.unique(words)) > 150 and set(np.unique(kinds)) == {0, 1, 2}


def test_only_floats_with_four_corners_are_boxes():
    for shape, dtype in (((1, 4), "float32"), ((1, 5, 3), "float32"), ((1, 5, 4), "int32")):
        inputs = {"boxes": tf.TensorSpec(shape, dtype)}
        check_samples(synthetic_samples(inputs, 1), inputs)
    boxes = synthetic_samples({"boxes": tf.TensorSpec((1, 5, 4))}, 1)[0]["boxes"]
    assert (boxes[..., :2] <= boxes[..., 2:]).all() and boxes.max() <= 1


def test_samples_may_have_the_names_of_the_keras_model():
    inputs = {"my_input": tf.TensorSpec((1, 4)), "input_self": tf.TensorSpec((1, 4))}
    keras_inputs, plain = {"my-input": ROWS, "self": ROWS}, {"my_input": ROWS, "input_self": ROWS}
    for samples in (
        [keras_inputs],
        [(keras_inputs, 1)],
        [plain],
        tf.data.Dataset.from_tensors((keras_inputs, 1)),
    ):
        result = as_samples(samples, inputs)
        assert [sorted(sample) for sample in result] == [["input_self", "my_input"]] * 5
    for other in ({"x": ROWS}, {"my-input": ROWS}, {**keras_inputs, "x": ROWS}):
        assert sorted(as_samples([other], inputs)[0]) == sorted(other)
