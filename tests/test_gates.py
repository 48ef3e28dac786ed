"""Sampling functions and Gate, against NumPy."""

import warnings
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfsparsecap as sc
from tfsparsecap.errors import InputError
from tfsparsecap.gates import (
    Gate,
    fitting_block,
    gated_layers,
    gates,
    sample_gates_once,
    straight_through_bernoulli,
    straight_through_round,
)
from tfsparsecap.layers import GatedDense


def sigmoid(x):
    return 1.0 / (1.0 + np.exp(-x))


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_rounding_rounds_half_down_and_passes_the_gradient(dtype):
    probability = tf.constant([0.0, 0.2, 0.5, 0.51, 1.0], dtype)
    with tf.GradientTape() as tape:
        tape.watch(probability)
        rounded = straight_through_round(probability)
    upstream = tf.constant([1.0, -2.0, 3.0, 0.5, 4.0], dtype)
    assert rounded.dtype == probability.dtype
    np.testing.assert_array_equal(tf.cast(rounded, "float32"), [0, 0, 0, 1, 1])
    np.testing.assert_array_equal(tape.gradient(rounded, probability, upstream), upstream)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_samples_are_binary_and_pass_the_gradient(dtype):
    probability = tf.cast(tf.random.uniform([37, 11]), dtype)  # an odd number of values
    upstream = tf.cast(tf.random.normal([37, 11]), dtype)
    with tf.GradientTape() as tape:
        tape.watch(probability)
        values = straight_through_bernoulli(probability, tf.constant([1, 2]))
    assert values.dtype == probability.dtype
    assert set(np.unique(tf.cast(values, "float32"))) == {0.0, 1.0}
    np.testing.assert_array_equal(tape.gradient(values, probability, upstream), upstream)


@pytest.mark.parametrize("probability", [0.0, 0.001, 0.5, 0.9933, 1.0])
def test_the_mean_of_samples_equals_the_probability(probability):
    count = 400_000
    mean = tf.reduce_mean(straight_through_bernoulli(tf.fill([count], probability), tf.constant([5, 6])))
    assert abs(float(mean) - probability) <= 5 * np.sqrt(probability * (1 - probability) / count)


def test_samples_of_neighbours_and_of_successive_seeds_are_independent():
    first, second = (
        np.asarray(straight_through_bernoulli(tf.fill([100_000], 0.5), tf.constant([9, n]))) for n in (0, 1)
    )
    for left, right in ((first, second), (first[:-1], first[1:]), (first[:-2], first[2:])):
        assert abs(np.corrcoef(left, right)[0, 1]) < 0.02


@pytest.mark.parametrize("jit_compile", [False, True])
def test_equal_seeds_give_equal_samples_eagerly_and_in_functions(jit_compile):
    def draw(seed):
        return straight_through_bernoulli(tf.fill([33, 3], 0.5), seed)

    eager = draw(tf.constant([3, 4]))
    np.testing.assert_array_equal(eager, draw(tf.constant([3, 4])))
    np.testing.assert_array_equal(eager, draw(tf.constant([3, 4], tf.int64)))
    assert np.any(eager != draw(tf.constant([3, 5])))
    compiled = tf.function(draw, jit_compile=jit_compile)
    np.testing.assert_array_equal(compiled(tf.constant([3, 4])), compiled(tf.constant([3, 4])))
    assert abs(float(tf.reduce_mean(compiled(tf.constant([3, 4])))) - 0.5) < 0.25
    if not jit_compile:
        np.testing.assert_array_equal(compiled(tf.constant([3, 4])), eager)


@pytest.mark.parametrize(
    ("rows", "columns", "requested", "block"),
    [
        (32, 10, (16, 1), (16, 1)),
        (24, 10, (16, 1), (8, 1)),
        (7, 10, (16, 1), (1, 1)),
        (20, 6, (4, 4), (4, 2)),
    ],
)
def test_fitting_block_divides_the_matrix(rows, columns, requested, block):
    assert fitting_block(rows, columns, requested) == block


@pytest.mark.parametrize("block_shape", [3, (1,), (0, 1), (1, 2, 3), (1.0, 1), "16", None])
def test_a_malformed_block_shape_is_rejected(block_shape):
    with pytest.raises(InputError, match="two positive integers"):
        Gate(block_shape=block_shape)


@pytest.mark.parametrize(
    ("shape", "block"), [((8, 6), (1, 1)), ((8, 6), (4, 1)), ((8, 6), (2, 3)), ((3, 4, 6), (4, 2))]
)
def test_expand_and_block_sum_equal_numpy(shape, block):
    gate = Gate(block_shape=block)
    gate.build(shape)
    rows, columns = gate.logits.shape
    mask = np.random.default_rng(0).normal(size=(rows, columns)).astype("float32")
    expanded = np.kron(mask, np.ones(block)).reshape(shape)
    np.testing.assert_allclose(gate.expand(tf.constant(mask)), expanded)
    values = np.random.default_rng(1).normal(size=shape).astype("float32")
    sums = values.reshape(rows, block[0], columns, block[1]).sum((1, 3))
    np.testing.assert_allclose(gate.block_sum(tf.constant(values)), sums, rtol=1e-5)
    assert gate.size == float(gate.open_count()) == np.prod(shape)
    gate.logits.assign(mask)
    assert float(gate.open_count()) == (np.kron(mask, np.ones(block)) > 0).sum()
    assert gate.block_size * rows * columns == gate.size


def test_open_count_is_exact_beyond_float32_precision():
    gate = Gate()
    gate.build((2**12, 2**12 + 2))
    assert float(gate.open_count()) == 2**12 * (2**12 + 2)


@pytest.mark.parametrize("closed_weights_learn", [False, True])
@pytest.mark.parametrize("training", [False, True])
def test_gradients_equal_those_in_the_paper(training, closed_weights_learn):
    gate = Gate(block_shape=(2, 1), seed=3)
    gate.build((6, 4))
    gate.closed_weights_learn = closed_weights_learn
    random = np.random.default_rng(0)
    logits, weight, upstream = (random.normal(size=s).astype("float32") for s in ((3, 4), (6, 4), (6, 4)))
    gate.logits.assign(logits)
    variable = tf.Variable(weight)
    with tf.GradientTape() as tape:
        gated = gate(variable, training=training)
    of_weight, of_logits = tape.gradient(gated, [variable, gate.logits.value], upstream)
    state = np.asarray(gated) / weight
    np.testing.assert_allclose(np.abs(state), np.round(np.abs(state)), atol=1e-6)
    if not training:
        np.testing.assert_allclose(state, np.kron(logits > 0, np.ones((2, 1))), atol=1e-6)
    np.testing.assert_allclose(of_weight, upstream * (1 if closed_weights_learn else state), atol=1e-6)
    slope = sigmoid(logits) * (1 - sigmoid(logits))
    expected = (upstream * weight).reshape(3, 2, 4).sum(1) * slope
    np.testing.assert_allclose(of_logits, expected, rtol=1e-4, atol=1e-6)


def test_a_gate_samples_in_training_and_rounds_otherwise():
    gate = Gate(initial_logit=0.1, seed=1)
    gate.build((20, 20))
    weight = tf.ones([20, 20])
    for training in (None, False):
        np.testing.assert_array_equal(gate(weight, training=training), weight)
    first, second = gate(weight, training=True), gate(weight, training=True)
    assert 0.4 < float(tf.reduce_mean(first)) < 0.65
    assert np.any(first != second)
    flag = tf.function(lambda training: gate(weight, training=training))
    np.testing.assert_array_equal(flag(tf.constant(False)), weight)
    assert np.any(flag(tf.constant(True)) != 1.0)


def test_each_gate_of_nested_and_shared_layers_is_found_once():
    shared = GatedDense(4)
    inner = keras.Sequential([keras.Input((4,)), shared, keras.layers.Dense(4)])
    inputs = keras.Input((4,))
    model = keras.Model(inputs, GatedDense(2)(shared(inner(inputs))))
    assert [layer.name for layer in gated_layers(model)].count(shared.name) == 1
    assert len(gates(model)) == 2
    assert gates(keras.layers.Dense(3)) == []


def test_sample_gates_once_works_in_eager_and_graph_loops():
    layer = GatedDense(8, use_bias=False)
    layer.build((None, 8))
    layer.kernel_gate.logits.assign(tf.zeros([8, 8]))
    x = tf.eye(8)

    @tf.function
    def loops():
        with sample_gates_once(layer, training=True):
            unrolled = [layer(x) for _ in range(3)]
            looped = tf.TensorArray(tf.float32, 3)
            for step in tf.range(3):
                looped = looped.write(step, layer(x))
        return tf.stack(unrolled), looped.stack()

    unrolled, looped = loops()
    for output in (*unrolled, *looped):
        np.testing.assert_array_equal(output, unrolled[0])
    assert np.any(loops()[0][0] != unrolled[0])
    with sample_gates_once(layer, training=True):
        np.testing.assert_array_equal(layer(x), layer(x))
        held = np.asarray(layer(x))
        with sample_gates_once(layer, training=False):
            np.testing.assert_array_equal(layer(x), held)
        np.testing.assert_array_equal(layer(x), held)
    np.testing.assert_array_equal(layer(x), np.zeros((8, 8)))  # rounded: the sample is dropped


def test_a_function_traced_inside_sample_gates_once_does_not_keep_the_sample():
    layer = GatedDense(8, use_bias=False)
    layer.build((None, 8))
    layer.kernel_gate.logits.assign(tf.zeros([8, 8]))
    function = tf.function(lambda: layer(tf.eye(8)))
    with sample_gates_once(layer, training=True):
        function()
    np.testing.assert_array_equal(function(), np.zeros((8, 8)))


@pytest.mark.parametrize("policy", ["mixed_float16", "mixed_bfloat16"])
def test_sample_gates_once_keeps_the_compute_dtype_of_each_layer(policy):
    class Mixed(keras.Model):
        def __init__(self):
            super().__init__(dtype=policy)
            self.half = GatedDense(4, dtype=policy, kernel_initializer="ones")
            self.full = GatedDense(4, dtype="float32", kernel_initializer=keras.initializers.Constant(1 / 3))

        def call(self, x, training=None):
            with sample_gates_once(self, training):
                return self.full(self.half(x))

    model = Mixed()
    model(tf.ones([2, 4]))  # builds
    output = model(tf.ones([2, 4]), training=False)
    assert output.dtype == "float32"
    # With a kernel rounded to half precision, the error would be 1e-4 or more.
    np.testing.assert_allclose(output, np.full((2, 4), 16 / 3), rtol=1e-6)


def test_a_block_that_does_not_fit_causes_one_warning():
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        layer = GatedDense(4, block_shape=(16, 1), name="odd_one")
        for _ in range(2):
            layer(tf.ones([2, 24]))
    assert len(caught) == 1
    for word in ("odd_one", "kernel", "(24, 4)", "(16, 1)", "(8, 1)"):
        assert word in str(caught[0].message)
    assert layer.kernel_gate.logits.shape == (3, 4)


class Rematerialized(keras.layers.Layer):
    def __init__(self, wrap):
        super().__init__()
        self.first, self.last, self.wrap = GatedDense(5, "tanh"), GatedDense(2), wrap

    def call(self, inputs):
        return self.wrap(lambda x: self.last(self.first(x)))(inputs)


def rematerialized(wrap):
    keras.utils.set_random_seed(3)
    layer = Rematerialized(wrap)
    layer(tf.ones([1, 4]))
    for gate in gates(layer):
        gate.samples = False
        gate.logits.assign(keras.random.normal(gate.logits.shape))
    return layer


@pytest.mark.parametrize("wrap", [keras.remat, tf.recompute_grad])
@pytest.mark.parametrize("function", [lambda call: call, tf.function])
def test_gates_and_weights_learn_inside_remat(wrap, function):
    inputs = tf.random.normal([3, 4])

    def gradients(layer):
        def call():
            with tf.GradientTape() as tape, sample_gates_once(layer, training=True):
                loss = tf.reduce_sum(layer(inputs, training=True) ** 2)
            return tape.gradient(loss, [variable.value for variable in layer.trainable_variables])

        return function(call)()

    for mine, plain in zip(
        gradients(rematerialized(wrap)), gradients(rematerialized(lambda f: f)), strict=True
    ):
        np.testing.assert_allclose(mine, plain, rtol=1e-5, atol=1e-6)


def test_gates_that_are_sampled_are_refused_inside_remat():
    layer = rematerialized(keras.remat)
    for gate in gates(layer):
        gate.samples = True
    assert layer(tf.ones([1, 4])).shape == (1, 2)
    with pytest.raises(InputError, match=r"samples its gates, which keras\.remat"):
        layer(tf.ones([1, 4]), training=True)
    with tf.GradientTape() as tape, tape.stop_recording():
        assert layer.last(tf.ones([1, 5]), training=True).shape == (1, 2)


@pytest.mark.slow
def test_training_without_a_pruning_method_says_what_drives_the_gates():
    def trained(prune: bool) -> list[str]:
        layers = [GatedDense(4, "relu"), GatedDense(2), GatedDense(1)]
        model = keras.Sequential([keras.Input((3,)), *layers])
        if prune:
            model = sc.prune(model, sc.Supermask(0.5, total_steps=2))
        model.compile("sgd", "mse")
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("default")
            model.predict(np.ones((2, 3)), verbose=0)
            model.fit(np.ones((2, 3)), np.ones((2, 1)), epochs=2, verbose=0)
        assert {Path(warning.filename).name for warning in caught} <= {Path(__file__).name}
        return [str(warning.message) for warning in caught]

    (message,) = trained(prune=False)
    assert "call sc.prune(model, ...), which drives the gates" in message
    assert trained(prune=True) == []


def test_a_model_with_gates_is_not_quantized():
    model = sc.prune(keras.Sequential([keras.Input((8,)), keras.layers.Dense(4)]), sc.Magnitude(0.5))
    with pytest.raises(InputError, match=r"call sc\.strip_pruning on it before model\.quantize"):
        model.quantize("int8")
