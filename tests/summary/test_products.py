"""Multiply-adds of graphs: by hand, in loops, functions and branches, and by TensorFlow's profiler."""

import numpy as np
import pytest
import tensorflow as tf

from tfsparsecap.summary.products import products

ROW = tf.TensorSpec([1, 5])


def count(function, *specs, variables=()):
    """Multiply-adds of a function, those with variables by name, and doubts."""
    traced = tf.function(function, autograph=False).get_concrete_function(*specs)
    found, doubts = products(traced, {id(one.handle): one.name.removesuffix(":0") for one in variables})
    by_name = {}
    for product in found:
        for name in product.variables:
            by_name[name] = by_name.get(name, 0) + product.multiply_adds
    return sum(product.multiply_adds for product in found), by_name, doubts


@pytest.fixture(scope="module")
def kernel():
    return tf.Variable(np.eye(5, dtype="float32"), name="kernel")


@pytest.mark.parametrize(
    ("function", "shapes", "expected"),
    [
        (lambda a, b: a @ b, [(2, 3), (3, 7)], 2 * 3 * 7),
        (lambda a, b: tf.matmul(a, b, transpose_a=True, transpose_b=True), [(3, 2), (7, 3)], 2 * 3 * 7),
        (lambda a, b: a @ b, [(4, 1, 2, 3), (5, 3, 7)], 4 * 5 * 2 * 3 * 7),
        (lambda a, b: tf.matmul(a, b, adjoint_a=True), [(4, 3, 2), (4, 3, 7)], 4 * 2 * 3 * 7),
        (lambda a, b: tf.einsum("bqhd,bkhd->bhqk", a, b), [(2, 3, 4, 5), (2, 6, 4, 5)], 2 * 4 * 3 * 6 * 5),
        (lambda a, b: tf.einsum("...ij,jk->...ik", a, b), [(8, 9, 2, 3), (3, 4)], 72 * 2 * 4 * 3),
        # c is summed up before the product.
        (lambda a, b: tf.einsum("abc,bd->ad", a, b), [(2, 3, 9), (3, 4)], 2 * 4 * 3),
        (lambda a, b: tf.tensordot(a, b, axes=[[1], [0]]), [(6, 5, 4), (5, 3)], 6 * 4 * 3 * 5),
        (lambda a, b: tf.nn.conv2d(a, b, 2, "SAME"), [(1, 9, 10, 3), (3, 3, 3, 8)], 5 * 5 * 27 * 8),
        (lambda a, b: tf.nn.conv2d(a, b, 1, "VALID"), [(1, 9, 10, 3), (3, 2, 3, 8)], 7 * 9 * 18 * 8),
        (
            lambda a, b: tf.nn.depthwise_conv2d(a, b, [1, 1, 1, 1], "VALID", dilations=[2, 2]),
            [(1, 9, 10, 3), (3, 3, 3, 2)],
            5 * 6 * 9 * 3 * 2,
        ),
        (
            lambda a, b: tf.nn.conv2d_transpose(a, b, (1, 10, 10, 8), 2, "SAME"),
            [(1, 5, 5, 3), (3, 3, 8, 3)],
            25 * 3 * 9 * 8,
        ),
        (lambda a, b: tf.nn.conv3d(a, b, [1] * 5, "VALID"), [(1, 4, 5, 6, 2), (3, 3, 3, 2, 4)], 24 * 54 * 4),
        (lambda a, b: tf.reduce_sum(tf.tanh(a * b + a)), [(3, 4), (3, 4)], 0),
    ],
)
def test_operations_by_hand(function, shapes, expected):
    total, by_name, doubts = count(function, *(tf.TensorSpec(shape) for shape in shapes))
    assert (total, by_name, doubts) == (expected, {}, [])


def test_the_side_that_is_a_variable_is_named(kernel):
    other = tf.Variable(tf.ones([5, 3]), name="other")

    def function(x):
        masked = tf.cast(tf.transpose(kernel) * tf.sigmoid(tf.ones([5, 5])), tf.float32)
        attention = x @ masked  # 25
        return tf.matmul(attention, x, transpose_b=True) @ (x @ other)  # 5, 15 and 3

    total, by_name, doubts = count(function, ROW, variables=[kernel, other])
    assert (total, by_name, doubts) == (25 + 15 + 5 + 3, {"kernel": 25, "other": 15}, [])


def test_what_nothing_depends_on_is_not_run(kernel):
    def function(x):
        like = x @ kernel
        return tf.zeros_like(like) + tf.cast(tf.shape(like)[0], tf.float32), x @ kernel

    assert count(function, ROW, variables=[kernel])[1] == {"kernel": 25}


LOOPS = {
    "counted": lambda x, step: tf.while_loop(lambda i, y: i < 12, lambda i, y: (i + 2, step(y)), (0, x))[1],
    "backwards": lambda x, step: tf.while_loop(lambda i, y: i > 0, lambda i, y: (i - 1, step(y)), (6, x))[1],
    "at most": lambda x, step: tf.while_loop(
        lambda y: tf.reduce_sum(y) < 9.0, lambda y: (step(y),), (x,), maximum_iterations=6
    )[0],
    "nested": lambda x, step: tf.while_loop(
        lambda i, y: i < 2,
        lambda i, y: (i + 1, tf.while_loop(lambda j, z: j < 3, lambda j, z: (j + 1, step(z)), (0, y))[1]),
        (0, x),
    )[1],
    "over a tensor": lambda x, step: tf.map_fn(step, tf.repeat(x[None], 6, axis=0)),
    "function": lambda x, step: tf.function(lambda y: tf.function(LOOPS["counted"])(y, step))(x),
    "dearest branch": lambda x, step: tf.cond(
        tf.reduce_sum(x) > 0.0, lambda: LOOPS["counted"](x, step), lambda: step(x)
    ),
    "switch": lambda x, step: tf.switch_case(
        tf.cast(x[0, 0], tf.int32), [lambda: step(x), lambda: LOOPS["counted"](x, step), lambda: x]
    ),
}


@pytest.mark.parametrize("name", LOOPS)
def test_loops_functions_and_branches(name, kernel):
    total, by_name, doubts = count(lambda x: LOOPS[name](x, lambda y: y @ kernel), ROW, variables=[kernel])
    assert (total, by_name, doubts) == (6 * 25, {"kernel": 6 * 25}, [])


def test_a_loop_variable_that_changes_is_no_weight(kernel):
    """The first round multiplies two variables, all others what came of them."""

    def function(x):
        start = (0, tf.zeros([1, 5]))
        return tf.while_loop(lambda i, y: i < 4, lambda i, y: (i + 1, (y + x) @ kernel), start)[1]

    assert count(function, ROW, variables=[kernel])[1] == {"kernel": 4 * 25}


@pytest.mark.parametrize(
    ("function", "specs", "expected", "doubt"),
    [
        (
            lambda x: tf.while_loop(lambda y: tf.reduce_sum(y) < 9.0, lambda y: (y @ tf.ones([5, 5]),), (x,))[
                0
            ],
            [ROW],
            25,
            "does not say how many rounds",
        ),
        (lambda x: x @ tf.ones([5, 5]), [tf.TensorSpec([None, 5])], 0, "shapes are not known"),
        (lambda x: tf.numpy_function(np.tanh, [x], tf.float32), [ROW], 0, "PyFunc is not counted"),
    ],
)
def test_what_cannot_be_counted_is_said(function, specs, expected, doubt):
    total, _, doubts = count(function, *specs)
    assert total == expected
    ((_, why),) = doubts
    assert doubt in why


def test_a_loop_of_unknown_length_that_multiplies_nothing_is_no_matter():
    def function(x):
        return tf.while_loop(lambda y: tf.reduce_sum(y) < 9.0, lambda y: (y * 2,), (x,))[0]

    assert count(function, ROW) == (0, {}, [])


def test_tensorflow_s_profiler_agrees():
    random = np.random.default_rng(0)
    first, second = (random.normal(size=s).astype("float32") for s in ((3, 3, 4, 8), (5, 5, 8, 2)))

    def function(x):
        x = tf.nn.relu(tf.nn.conv2d(x, first, 2, "SAME"))
        x = tf.nn.depthwise_conv2d(x, second, [1, 1, 1, 1], "VALID")
        return tf.reshape(x, [x.shape[0], -1]) @ tf.ones([x.shape[1] * x.shape[2] * 16, 10])

    traced = tf.function(function).get_concrete_function(tf.TensorSpec([2, 31, 30, 4]))
    profiler = tf.compat.v1.profiler
    options = (
        profiler.ProfileOptionBuilder(profiler.ProfileOptionBuilder.float_operation())
        .with_accounted_types(["Conv2D", "DepthwiseConv2dNative", "MatMul"])
        .account_displayed_op_only(True)
        .with_empty_output()
        .build()
    )
    expected = profiler.profile(traced.graph, options=options).total_float_ops
    found, doubts = products(traced, {})
    assert 2 * sum(product.multiply_adds for product in found) == expected > 0
    assert not doubts
