"""The base class of captioners: teacher forcing by stepping, and the loop over tokens."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from tfsparsecap.captioning.models import ObjectRelationTransformer, SoftAttention, UpDown
from tfsparsecap.captioning.models.captioner_base import Captioner, loop_over_tokens, masked_cross_entropy
from tfsparsecap.errors import InputError
from tfsparsecap.layers import GatedDense


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


@pytest.mark.slow
@pytest.mark.parametrize("rows", [6, None])
@pytest.mark.parametrize(
    "captioner",
    [
        lambda: SoftAttention(20, rnn_size=8, attention_size=8, feature_size=7),
        lambda: UpDown(20, rnn_size=8, attention_size=8, embedding_size=8, feature_size=7, output_layers=1),
        lambda: ObjectRelationTransformer(
            20, size=8, hidden_size=8, layers=1, heads=2, feature_size=7, max_length=6
        ),
    ],
)
def test_captions_of_one_image_equal_those_of_repeated_images(captioner, rows, inputs):
    captioner = captioner()
    tokens = np.random.default_rng(3).integers(3, 20, (6, 6)).astype("int32")
    images = {"features": inputs["features"]}
    if "boxes" in captioner.input_names:
        images["boxes"] = np.sort(np.random.default_rng(4).random((3, 4, 4)).astype("float32"))
    call = tf.function(captioner)
    if rows is None:
        signature = {
            name: tf.TensorSpec([None, *array.shape[1:]], array.dtype) for name, array in images.items()
        }
        call = tf.function(
            captioner, input_signature=[{**signature, "tokens": tf.TensorSpec([None, 6], tf.int32)}]
        )
    logits = call({**images, "tokens": tokens})
    expected = captioner(
        {**{name: np.repeat(array, 2, 0) for name, array in images.items()}, "tokens": tokens}
    )
    np.testing.assert_allclose(logits, expected, atol=1e-4)


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


def test_masked_cross_entropy_equals_keras_without_the_padding():
    random = np.random.default_rng(3)
    logits = random.normal(size=(2, 4, 12)).astype("float32")
    targets = np.array([[3, 4, 2, 0], [5, 2, 0, 0]], "int32")
    tokens = targets != 0
    for smoothing in (0.0, 0.1):
        one_hot = keras.utils.to_categorical(targets[tokens], 12)
        expected = keras.losses.CategoricalCrossentropy(
            from_logits=True, label_smoothing=smoothing, reduction="sum"
        )(one_hot, logits[tokens])
        loss = masked_cross_entropy(logits, targets, 0, smoothing)
        assert float(loss) == pytest.approx(float(expected), rel=1e-5)

        probabilities = random.dirichlet(np.ones(12), (2, 4)).astype("float32")
        of_teacher = keras.losses.CategoricalCrossentropy(from_logits=True, reduction="sum")
        expected = 0.7 * expected + 0.3 * of_teacher(probabilities[tokens], logits[tokens])
        loss = masked_cross_entropy(logits, targets, 0, smoothing, probabilities, 0.3)
        assert float(loss) == pytest.approx(float(expected), rel=1e-5)


def test_fit_minimises_the_masked_cross_entropy_unless_a_loss_is_given():
    inputs = {"features": np.ones((2, 1, 1)), "tokens": np.array([[1, 3, 2], [1, 2, 0]], "int32")}
    targets = np.array([[3, 2, 0], [2, 0, 0]], "int32")
    captioner = Counter()
    expected = float(masked_cross_entropy(captioner(inputs), targets, 0)) / 3
    captioner.compile("sgd", run_eagerly=True)
    assert captioner.evaluate(inputs, targets, verbose=0) == pytest.approx(expected, rel=1e-5)
    losses = captioner.fit(inputs, targets, epochs=2, verbose=0).history["loss"]
    assert losses[0] == pytest.approx(expected, rel=1e-5) and losses[1] < losses[0]
    with pytest.raises(InputError, match="no sample weights"):
        captioner.fit(inputs, targets, sample_weight=np.ones(2), verbose=0)
    captioner.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    assert captioner.evaluate(inputs, targets, verbose=0) != pytest.approx(expected, rel=1e-3)
