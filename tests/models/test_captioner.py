"""What the base class gives every captioner: teacher forcing by stepping, and the loop over tokens."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from tfsparsecap.gates import Gate, gates
from tfsparsecap.layers import GatedDense
from tfsparsecap.models.captioner import Captioner, loop_over_tokens


class Counter(Captioner):
    """Its logits are a gated projection of the sum of all token ids so far."""

    def __init__(self, **kwargs):
        super().__init__(4, **kwargs)
        self.project = GatedDense(4)
        self.project.build((None, 1))

    def encode(self, inputs, training=False):
        return {"features": inputs["features"]}

    def initial_state(self, memory):
        return {"total": keras.ops.zeros_like(memory["features"][:, :1, 0])}

    def step(self, token_ids, state, memory, training=False):
        total = state["total"] + keras.ops.cast(token_ids, "float32")[:, None]
        return self.project(total), {"total": total}


@pytest.mark.parametrize("length", [3, None])
def test_by_default_teacher_forcing_steps_through_the_tokens(length):
    captioner, tokens = Counter(), np.array([[1, 2, 3], [0, 5, 1]], "int32")
    signature = [tf.TensorSpec((2, length), tf.int32)]
    run = tf.function(lambda tokens: captioner({"features": tf.ones((2, 1, 1)), "tokens": tokens}), signature)
    expected = np.cumsum(tokens, axis=1)[..., None] * captioner.project.kernel.numpy()[0]
    expected = expected + captioner.project.bias.numpy()
    np.testing.assert_allclose(run(tokens), expected, atol=1e-5)


def test_gates_are_sampled_once_for_all_tokens(monkeypatch):
    captioner, samples, mask = Counter(), [], Gate.mask
    monkeypatch.setattr(Gate, "mask", lambda gate, *rest: samples.append(gate) or mask(gate, *rest))
    captioner({"features": tf.ones((2, 1, 1)), "tokens": tf.ones((2, 6), tf.int32)}, training=True)
    assert samples == gates(captioner)


def advance(embedded, state):
    total = state["total"] + embedded
    return total, {"total": total}


@pytest.mark.parametrize("length", [5, None])
def test_loop_over_tokens_stacks_outputs_and_has_a_gradient(length):
    words = np.random.default_rng(1).normal(size=(2, 5, 3)).astype("float32")

    @tf.function(input_signature=[tf.TensorSpec((2, length, 3))])
    def run(words):
        with tf.GradientTape() as tape:
            tape.watch(words)
            totals = loop_over_tokens(advance, words, {"total": tf.ones((2, 3))})
            loss = tf.reduce_sum(totals)
        return totals, tape.gradient(loss, words)

    totals, gradient = run(words)
    np.testing.assert_allclose(totals, 1 + np.cumsum(words, axis=1), atol=1e-6)
    np.testing.assert_array_equal(gradient[0, :, 0], [5, 4, 3, 2, 1])
