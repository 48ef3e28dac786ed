"""The loop over known words: unrolled and looped it is what one gets word by word."""

import numpy as np
import pytest
import tensorflow as tf

from tfsparsecap.models.teacher_forcing import hidden_after_words


def advance(word, state):
    return {"sum": state["sum"] + word, "last": word}


@pytest.mark.parametrize("length", [5, None])
def test_hidden_after_words(length):
    words = np.random.default_rng(1).normal(size=(2, 5, 3)).astype("float32")
    start = {"sum": tf.ones((2, 3)), "last": tf.zeros((2, 3))}

    @tf.function(input_signature=[tf.TensorSpec((2, length, 3))])
    def run(words):
        return {name: hidden_after_words(advance, words, start, name) for name in start}

    hidden = run(words)
    np.testing.assert_allclose(hidden["sum"], 1 + np.cumsum(words, axis=1), atol=1e-6)
    np.testing.assert_array_equal(hidden["last"], words)


def test_the_loop_has_a_gradient():
    @tf.function(input_signature=[tf.TensorSpec((2, None, 3))])
    def gradient(words):
        with tf.GradientTape() as tape:
            tape.watch(words)
            start = {"sum": tf.zeros((2, 3)), "last": tf.zeros((2, 3))}
            total = tf.reduce_sum(hidden_after_words(advance, words, start, "sum"))
        return tape.gradient(total, words)

    np.testing.assert_array_equal(gradient(np.ones((2, 4, 3), "float32"))[0, :, 0], [4, 3, 2, 1])
