"""Self-critical training: its loss and gradient against the probabilities that sampling itself gives."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from tfsparsecap.errors import InputError
from tfsparsecap.gates import drawn
from tfsparsecap.models import ObjectRelationTransformer, SoftAttention, UpDown
from tfsparsecap.pruning import Magnitude, SupermaskLoss, prune
from tfsparsecap.sampling import sample
from tfsparsecap.training.scst import SCSTLoop

WORDS, LENGTH, SAMPLES, SEED = 12, 5, 3, 4
RANDOM = np.random.default_rng(0)
FEATURES = RANDOM.normal(size=(4, 6, 8)).astype("float32")
BOXES = np.sort(RANDOM.random((4, 6, 2, 2)).astype("float32"), axis=2).reshape(4, 6, 4)


def made(kind="soft_attention", dropout=0.0):
    keras.utils.set_random_seed(7)
    small = {"embedding_size": 6, "rnn_size": 8, "attention_size": 5, "feature_size": 8, "dropout": dropout}
    if kind == "soft_attention":
        return SoftAttention(WORDS, **small)
    if kind == "up_down":
        return UpDown(WORDS, **small)
    return ObjectRelationTransformer(
        WORDS,
        size=8,
        hidden_size=8,
        layers=2,
        heads=2,
        dropout=dropout,
        feature_dropout=dropout,
        feature_size=8,
        max_length=LENGTH,
    )


def given(model):
    inputs = {"features": tf.constant(FEATURES), "boxes": tf.constant(BOXES)}
    return {name: inputs[name] for name in model.input_names if name in inputs}


def by_words(captions, images):
    """A reward that a test can reckon with: the sum of the words' ids, more for later images."""
    return captions.sum(1) / 10.0 + images


def numbered(images=range(4)):
    return tf.constant(np.array(images, np.int32)[:, None])


def expected(model, baseline, known=(1, 1, 1, 1)):
    """The loss as the papers have it, and its gradient, both through the loop that draws."""
    seed = tf.random.fold_in(tf.random.fold_in(tf.constant([SEED, 0], tf.int64), 0), 0)
    with tf.GradientTape() as tape:
        tokens, chances = sample(model, given(model), SAMPLES, LENGTH, seed=seed)
        words = tokens.numpy()
        rewards = words.sum(2) / 10.0 + np.arange(4)[:, None]
        if baseline == "others":
            base = np.stack([np.delete(rewards, n, axis=1).mean(1) for n in range(SAMPLES)], axis=1)
        elif baseline == "all":
            base = rewards.mean(1, keepdims=True)
        else:
            from tfsparsecap.decoding import beam_search

            greedy = beam_search(model, given(model), 1, LENGTH)[0].numpy()
            base = greedy.sum(2) / 10.0 + np.arange(4)[:, None]
        known = np.array(known, "float32")
        lengths = [[[*row, 2].index(2) + 1 for row in image] for image in words]
        count = (np.minimum(lengths, LENGTH) * known[:, None]).sum()
        advantages = ((rewards - base) * known[:, None]).astype("float32")
        loss = -tf.reduce_sum(advantages[:, :, None] * chances) / count
    gradients = tape.gradient(loss, [variable.value for variable in model.trainable_variables])
    return float(loss), [tf.convert_to_tensor(gradient).numpy() for gradient in gradients]


@pytest.mark.parametrize("kind", ["soft_attention", "up_down", "object_relation_transformer"])
@pytest.mark.parametrize("baseline", ["others", "all", "greedy"])
def test_a_step_is_the_papers(kind, baseline):
    model = made(kind, dropout=0.4)
    loss, gradients = expected(model, baseline)
    before = [np.array(variable) for variable in model.trainable_variables]
    loop = SCSTLoop(
        model,
        keras.optimizers.SGD(1.0),
        reward=by_words,
        samples=SAMPLES,
        max_length=LENGTH,
        baseline=baseline,
        seed=SEED,
    )
    logs = loop.train_step((given(model), numbered()))
    assert float(logs["loss"]) == pytest.approx(loss, rel=1e-4, abs=1e-6)
    for variable, old, gradient in zip(model.trainable_variables, before, gradients, strict=True):
        np.testing.assert_allclose(np.array(variable), old - gradient, atol=2e-5, err_msg=variable.path)


def test_a_picture_that_cannot_be_read_counts_nothing():
    model = made()
    loss, _ = expected(model, "others", known=(1, 0, 1, 0))
    loop = SCSTLoop(
        model, keras.optimizers.SGD(0.0), reward=by_words, samples=SAMPLES, max_length=LENGTH, seed=SEED
    )
    logs = loop.train_step((given(model), numbered([0, -1, 2, -1])))
    assert float(logs["loss"]) == pytest.approx(loss, rel=1e-4)
    logs = loop.train_step((given(model), numbered([-1] * 4)))
    assert float(logs["loss"]) == 0 and float(logs["reward"]) == 0


def says_five(captions, images):
    return (captions == 5).any(1).astype("float32")


def trained(model, steps, reward=says_five, strategy=None):
    with (strategy or tf.distribute.get_strategy()).scope():
        optimizer = keras.optimizers.Adam(0.02)
        if hasattr(model, "pruning"):
            optimizer = model.pruning.wrap(optimizer)
    loop = SCSTLoop(model, optimizer, reward=reward, samples=8, max_length=LENGTH, strategy=strategy)
    return [float(loop.train_step((given(model), numbered()))["reward"]) for _ in range(steps)]


def test_what_is_rewarded_is_said_more_often():
    rewards = trained(made(), 60)
    assert np.mean(rewards[:5]) < 0.6
    assert np.mean(rewards[-5:]) > 0.9


def test_masks_stay_where_they_are_frozen():
    model = prune(made(), Magnitude(0.5))
    kept = [np.asarray(gate.logits) > 0 for gate in model.pruning.gates]
    rewards = trained(model, 60)
    assert np.mean(rewards[-5:]) > np.mean(rewards[:5]) + 0.2
    for gate, mask in zip(model.pruning.gates, kept, strict=True):
        np.testing.assert_array_equal(np.asarray(gate.logits) > 0, mask)


def test_gates_that_learn_go_on_learning():
    model = prune(made(), SupermaskLoss(0.5, 20, gate_learning_rate=5.0, land_at=0.9))
    before = [np.array(gate.logits) for gate in model.pruning.gates]
    trained(model, 3)
    assert any((np.array(g.logits) != old).any() for g, old in zip(model.pruning.gates, before, strict=True))


def test_what_a_step_draws_depends_on_seed_and_step_alone():
    seen = []

    def reward(captions, images):
        seen.append(captions.copy())
        return np.zeros(len(captions))

    model = made(dropout=0.5)
    for _ in range(2):
        trained(model, 2, reward)  # a reward of nothing moves nothing
    np.testing.assert_array_equal(seen[0], seen[2])
    np.testing.assert_array_equal(seen[1], seen[3])
    assert (seen[0] != seen[1]).any()
    with drawn(model, training=False):
        assert seen[0].shape == (4 * 8, LENGTH)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"samples": 1}, "draw 2 or more"),
        ({"baseline": "mean"}, "choose one of others, all, greedy"),
    ],
)
def test_arguments_out_of_range_are_named(options, message):
    with pytest.raises(InputError, match=message):
        SCSTLoop(made(), keras.optimizers.SGD(), reward=by_words, max_length=LENGTH, **options)
    SCSTLoop(made(), keras.optimizers.SGD(), reward=by_words, max_length=LENGTH, samples=1, baseline="greedy")
