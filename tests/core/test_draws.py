"""When a sample can be reused, and when not."""

import threading

import keras
import pytest
import tensorflow as tf

from tfsparsecap.core import draws, keras_internals


class Pass(keras.layers.Layer):
    """Calls a function within its own forward pass."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def call(self, x, training=None):
        self.function()
        return x


def test_a_pass_exists_only_during_a_keras_call():
    seen = []

    def look():
        seen.append((draws.of_pass(), keras_internals.training_of_call()))

    look()
    layer = Pass(lambda: (look(), look()))
    layer(tf.ones([1]), training=True)
    layer(tf.ones([1]), training=False)
    assert seen[0] == (None, None)
    assert seen[1][0] is seen[2][0]
    assert seen[3][0] is seen[4][0]
    assert seen[1][0] is not seen[3][0]
    assert [training for _, training in seen[1:]] == [True, True, False, False]


def test_a_pass_ends_after_an_error():
    def fail():
        assert draws.of_pass() is not None
        raise RuntimeError

    with pytest.raises(RuntimeError):
        Pass(fail)(tf.ones([1]))
    assert draws.of_pass() is None


def test_the_innermost_scope_comes_first_and_ends_with_its_block():
    with draws.scope() as outer:
        outer.keep(tf.constant(1), "both")
        outer.keep(tf.constant(2), "outer")
        with draws.scope() as inner:
            inner.keep(tf.constant(3), "both")
            assert (int(draws.find_in_scopes("both")), int(draws.find_in_scopes("outer"))) == (3, 2)
        assert int(draws.find_in_scopes("both")) == 1
    assert draws.find_in_scopes("both") is None


def test_threads_have_separate_samples():
    found = []
    with draws.scope() as scope:
        scope.keep(tf.constant(1), "key")
        thread = threading.Thread(target=lambda: found.append(draws.find_in_scopes("key")))
        thread.start()
        thread.join()
    assert found == [None]


def test_samples_are_found_in_loops_and_conditions_but_not_in_other_functions():
    found = {}

    def look(where):
        found[where] = draws.find_in_scopes("key") is not None
        return tf.constant(0)

    @tf.function
    def another():
        return look("an inner function")

    @tf.function
    def function():
        look("a function, with an eager sample")
        with draws.scope() as scope:
            scope.keep(tf.constant(1.0), "key")
            look("the function itself")
            tf.cond(tf.random.uniform([]) > 0.5, lambda: look("a condition"), lambda: look("else"))
            tf.while_loop(lambda i: i < 2, lambda i: i + 1 + look("a loop"), [0])
            tf.while_loop(
                lambda i: i < 2,
                lambda i: tf.cond(i > 0, lambda: i + 1 + look("a condition in a loop"), lambda: i + 1),
                [0],
            )
            another()

    with draws.scope() as scope:
        scope.keep(tf.constant(1.0), "key")
        look("eagerly")
        function()
    assert found == {
        "eagerly": True,
        "a function, with an eager sample": False,
        "the function itself": True,
        "a condition": True,
        "else": True,
        "a loop": True,
        "a condition in a loop": True,
        "an inner function": False,
    }
