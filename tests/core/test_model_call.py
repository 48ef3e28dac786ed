"""Names, shapes and structures of the inputs of all kinds of models."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers

import tfsparsecap as sc
from tfsparsecap.core.array_files import MOST_READ
from tfsparsecap.core.model_call import model_call
from tfsparsecap.errors import InputError

X = np.random.default_rng(0).normal(size=(3, 4)).astype("float32")


class Own(keras.Model):
    """A subclassed model; `function` is its `call`."""

    def __init__(self, function, *example, **examples):
        super().__init__(name="own")
        self.dense, self.table, self.function = layers.Dense(2), layers.Embedding(9, 4), function
        self.table.build()
        self.dense.build((None, 4))
        self(*example, **examples)


class One(Own):
    def call(self, x):
        return self.function(self, x)


class Two(Own):
    def call(self, left, right, training=None):
        return self.dense(left) - 2 * self.dense(right)


def one(function=lambda model, x: model.dense(x), example=X):
    return One(function, example)


def functional(**options):
    """Inputs and outputs in dictionaries, in another order than that of their names."""
    last, first = keras.Input((4,), name="last"), keras.Input((None, 4), name="first", dtype="int32")
    pooled = layers.GlobalAveragePooling1D()(first)
    outputs = {"sum": layers.Add()([last, pooled]), "difference": layers.Subtract()([last, pooled])}
    return keras.Model({"last": last, "first": first}, outputs, **options)


def shapes(call):
    return {name: (tuple(spec.shape), spec.dtype.name) for name, spec in call.inputs.items()}


def test_a_functional_model_with_dictionaries():
    model = functional()
    call = model_call(model, {"first": (5, 4)}, batch=2)
    assert shapes(call) == {"first": ((2, 5, 4), "int32"), "last": ((2, 4), "float32")}
    inputs = {"first": np.ones((2, 5, 4), "int32"), "last": X[:2]}
    outputs = call(inputs)
    assert list(outputs) == ["difference", "sum"] or list(outputs) == ["sum", "difference"]
    np.testing.assert_allclose(outputs["sum"], X[:2] + 1, rtol=1e-6)
    np.testing.assert_allclose(outputs["difference"], X[:2] - 1, rtol=1e-6)
    listed = model_call(model, [keras.Input((5, 4)), X], batch=2)  # in the order of model.inputs
    assert shapes(listed)["first"] == ((2, 5, 4), "float32") and listed.note is None


@pytest.mark.parametrize(
    "inputs", [None, X, (4,), keras.Input((4,)), tf.TensorSpec((None, 4)), tf.constant(X)]
)
def test_a_subclassed_model_with_one_input(inputs):
    model = one()
    call = model_call(model, inputs, batch=3)
    assert shapes(call) == {"x": ((3, 4), "float32")}
    assert (call.note is None) == (inputs is not None)
    np.testing.assert_allclose(call({"x": X})["output_0"], model(X), rtol=1e-6)


def test_several_arguments_and_structures():
    model = Two(None, X, X)
    expected = model(X, X + 1)
    for inputs in ([X, X + 1], {"right": X + 1, "left": X}):
        call = model_call(model, inputs, batch=3)
        assert sorted(shapes(call)) == ["left", "right"] and call.note is None
        np.testing.assert_allclose(call({"left": X, "right": X + 1})["output_0"], expected, rtol=1e-5)
    listed = one(lambda model, x: [x[0] + 1, (None, x[1])], [X, X])
    for inputs, names in (
        (None, ["x_0", "x_1"]),
        ([keras.Input((4,), name="named"), (4,)], ["named", "x_1"]),
    ):
        call = model_call(listed, inputs, batch=3)
        assert list(call.inputs) == names
        outputs = call(dict(zip(names, [X, 2 * X], strict=True)))
        np.testing.assert_allclose(outputs["output_0"], X + 1)
        np.testing.assert_allclose(outputs["output_1"], 2 * X)
    nested = one(lambda model, x: {"a": x["b"], "b": x["a"][0]}, {"a": [X], "b": X})
    call = model_call(nested, batch=3)
    assert list(call({"b": X, "a_0": 2 * X})) == ["a", "b"]


class Masked(Own):
    def call(self, x, mask=None):
        if isinstance(x, dict):  # the mask that Keras passes is a dictionary too
            return x["mask"]
        return x if mask is None else x * tf.cast(mask, x.dtype)[:, None]


def test_a_mask_is_an_input_if_it_is_named():
    model, mask = Masked(None, X), np.array([True, False, True])
    call = model_call(model, {"x": X, "mask": mask}, batch=3)
    assert shapes(call) == {"x": ((3, 4), "float32"), "mask": ((3,), "bool")}
    np.testing.assert_array_equal(call({"x": X, "mask": mask})["output_0"], X * mask[:, None])
    assert list(model_call(model, X).inputs) == ["x"]
    np.testing.assert_array_equal(model_call(model, {"mask": X}, batch=3)({"mask": X})["output_0"], X)


def test_rows_of_given_arrays_are_examples():
    call = model_call(one(), X)
    assert [example["x"].shape for example in call.examples] == [(1, 4)] * 3
    np.testing.assert_array_equal(call.examples[2]["x"], X[2:])
    assert len(model_call(one(), X, batch=2).examples) == 1
    assert model_call(one(), X, batch=4).examples == model_call(one(), (4,)).examples == ()
    assert len(model_call(one(), np.tile(X, (99, 1))).examples) == MOST_READ
    doubles = model_call(one(), X.astype("float64"))
    assert doubles.examples[0]["x"].dtype == np.float32


def test_a_pruned_model_remembers_dtypes_and_open_axes():
    ids = np.ones((2, 7), "int32")
    model = one(lambda model, x: model.dense(model.table(x)), ids)
    assert shapes(model_call(model)) == {"x": ((1, 7), "float32")}
    sc.prune(model, sc.Magnitude(0.5))
    model(ids, training=True)
    sc.strip_pruning(model)
    assert shapes(model_call(model)) == {"x": ((1, 7), "int32")} and model_call(model).note is None
    sc.prune(model, sc.Magnitude(0.5))
    model(ids[:, :5])
    sc.strip_pruning(model)
    with pytest.raises(
        InputError, match=r"x of own has shape \(2, None\).*keras.Input\(\(32,\), dtype='int32'"
    ):
        model_call(model)
    assert shapes(model_call(model, (5,))) == {"x": ((1, 5), "float32")}


def test_names_are_those_that_tensorflow_accepts():
    names = ["my-input", "class", "9", "a b", "a_b"]
    inputs = [keras.Input((2,), name=name) for name in names]
    call = model_call(keras.Model(inputs, layers.Add()(inputs)))
    assert list(call.inputs) == ["my_input", "input_class", "input_9", "a_b", "a_b_1"]
    input_tensor = keras.Input((2,), name="x")
    call = model_call(keras.Model(input_tensor, {name: layers.ReLU()(input_tensor) for name in names[:3]}))
    assert set(call({"x": np.zeros((1, 2), "float32")})) == {"my_input", "output_class", "output_9"}


def test_inputs_in_a_dictionary_inside_a_list_keep_their_keys():
    a, z, b = (keras.Input((4,), name=name) for name in "azb")
    model = keras.Model([a, {"z": z, "b": b}], layers.Add()([a, z, b]))
    for named_inputs in ({"z": X * 2, "b": X * 3}, {"b": X * 3, "z": X * 2}):
        example = model_call(model, [X, named_inputs]).examples[0]
        np.testing.assert_array_equal([example[name] for name in "azb"], [X[:1], X[:1] * 2, X[:1] * 3])
    order = [tensor.name for tensor in model.inputs]
    flat = model_call(model, [X * "azb".index(name) for name in order]).examples[0]
    np.testing.assert_array_equal([flat[name] for name in "azb"], [X[:1] * n for n in range(3)])


def in_threes(model, x):
    return tf.reshape(x, (3, 2, 2))


@pytest.mark.parametrize(
    ("make", "inputs", "message"),
    [
        (lambda: functional(name="f"), None, r"input first of f has shape \(None, None, 4\).*give inputs= "),
        (lambda: functional(name="f"), {"first": keras.Input((None, 4))}, "all other axes a fixed size"),
        (lambda: functional(name="f"), {"other": X}, r"names \['other'\], but the inputs of f are"),
        (lambda: functional(name="f"), X, "inputs has 1 entries, but f takes 2"),
        (lambda: functional(name="f"), [(5, 3), X], r"shape \(None, 5, 3\) for first"),
        (one, (5,), r"own cannot be called with the inputs x float32 \(1, 5\)"),
        (one, "photo.jpg", "'photo.jpg' cannot be an input"),
        (one, {}, "no array or shape"),
        (one, np.float32(3), "has no axes"),
        (one, keras.Input((4,), dtype="string"), "input x of own is text"),
        (lambda: one(lambda model, x: None), X, "own returns nothing, which files cannot"),
        (
            lambda: one(lambda model, x: [x, tf.RaggedTensor.from_tensor(x)]),
            X,
            "own returns a ragged or sparse tensor",
        ),
        (
            lambda: one(lambda model, x: {"x": tf.sparse.from_dense(x)}),
            X,
            "own returns a ragged or sparse tensor",
        ),
        (lambda: one(in_threes), None, r"\(Input to reshape.*give batch= \(or --batch\)"),
        # Keras remembers the shape of the first argument only.
        (lambda: Two(None, X, X), None, r"missing a required argument: 'right'\): give inputs="),
    ],
)
def test_inputs_that_do_not_suit_the_model_are_refused(make, inputs, message):
    with pytest.raises(InputError, match=message):
        call = model_call(make(), inputs)
        call({name: np.zeros(spec.shape, spec.dtype.name) for name, spec in call.inputs.items()})
