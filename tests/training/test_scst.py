"""Self-critical training: its loss and gradient against the probabilities that sampling itself gives; and
whole runs, sparse ones and stopped ones among them."""

import csv
import functools
import shutil

import keras
import numpy as np
import pytest
import tensorflow as tf

from tfsparsecap.errors import InputError
from tfsparsecap.gates import sample_gates_once
from tfsparsecap.inference.finished_run import FinishedRun
from tfsparsecap.models import ObjectRelationTransformer, SoftAttention, UpDown
from tfsparsecap.pruning import Magnitude, SupermaskLoss, prune
from tfsparsecap.runs.run_folder import RunFolder
from tfsparsecap.sampling import sample
from tfsparsecap.settings.files import load_config
from tfsparsecap.training.run import train_run
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


def test_the_reward_of_an_epoch_is_the_mean_over_its_steps():
    model, rewards = made(), []
    seen = keras.callbacks.LambdaCallback(
        on_train_batch_end=lambda batch, logs: rewards.append(logs["reward"]),
        on_epoch_end=lambda epoch, logs: rewards.append(logs["reward"]),
    )
    loop = SCSTLoop(model, keras.optimizers.Adam(0.02), reward=says_five, samples=8, max_length=LENGTH)
    batches = tf.data.Dataset.from_tensors((given(model), numbered())).repeat(5)
    loop.run(lambda epoch, **options: batches, epochs=1, callbacks=[seen])
    *steps, epoch = rewards
    assert len(set(steps)) > 1
    assert epoch == pytest.approx(np.mean(steps), rel=1e-6)


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
    with sample_gates_once(model, training=False):
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


#: Sizes of the captioners of runs; in the last one words are digits and layers are shared.
SIZES = {
    "soft_attention": ["model.dropout=0.3"],
    "acort": [
        *("model.kind=object_relation_transformer", "model.size=16", "model.hidden_size=12"),
        *("model.layers=2", "model.heads=2", "data.radix_base=4", "data.max_length=13"),
        *("model.share_encoder_layers=[0,0]", "model.share_decoder_layers=[0,0]"),
        *("model.share_encoder_attention=kv", "model.share_decoder_attention=kv"),
    ],
}


@pytest.fixture(scope="module")
def starts(tiny_settings, tmp_path_factory):
    """`starts(kind)`: a run to start from, trained on people's captions, and the settings for the next one.

    Seven of ten weights of its decoder are zeros.
    """

    @functools.cache
    def get(kind):
        # The transformer's sizes are other keys than those of the captioners with a cell.
        own = SIZES[kind]
        drop = ("model.", "data.max_length") if kind == "acort" else ("training.epochs",)
        shared = [one for one in tiny_settings if not one.startswith(drop) or "encoder" in one]
        settings = [*shared, *own, "training.validation_images=2"]
        runs = tmp_path_factory.mktemp(kind)
        first = ["name=start", "training.epochs=4", "pruning.method=magnitude", "pruning.sparsity=0.7"]
        train_run(load_config(None, [*settings, *first]), runs=runs, verbose=0, say=str)
        cache = f"data.cache_folder={runs / 'cache'}"
        return runs / "start", [*settings, cache, f"training.start_from={runs / 'start'}"]

    return get


REWARDED = ["training.scst.samples=3", "training.batch_size=5", "training.epochs=2"]


def kernels(folder):
    """Name and value of what is pruned in a run's captioner."""
    captioner = FinishedRun.load(folder).captioner
    skipped = {id(variable) for variable in captioner.encoder.variables}
    return {
        variable.path: np.array(variable)
        for variable in captioner.weights
        if id(variable) not in skipped and len(variable.shape) == 2 and not variable.path.endswith("bias")
    }


@pytest.mark.slow
@pytest.mark.parametrize("kind", SIZES)
def test_a_run_goes_on_with_rewards_and_keeps_its_zeros(kind, starts, tmp_path):
    start, settings = starts(kind)
    frozen = ["pruning.method=frozen", "pruning.sparsity=0.7", "training.scst.bleu_4=0.5"]
    said = []
    config = load_config(None, [*settings, *REWARDED, *frozen])
    scores = train_run(config, runs=tmp_path, verbose=0, say=said.append)
    assert f"starting with the weights of {start}" in said
    with (tmp_path / "tiny" / "history.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 2 and all(0 < float(row["reward"]) < 10.5 for row in rows)
    before, after = kernels(start), kernels(tmp_path / "tiny")
    assert list(before) == list(after) and len(after) > 5
    changed = 0
    for name, kernel in after.items():
        assert not kernel[before[name] == 0].any(), name
        changed += (kernel != before[name]).sum() > (kernel != 0).sum() / 2
    assert changed > 5 and scores["sparsity"] == pytest.approx(0.7, abs=0.01)


@pytest.mark.slow
def test_a_stopped_run_ends_with_the_same_weights_and_prunes_to_the_end(starts, tmp_path):
    _, settings = starts("soft_attention")
    going_on = ["pruning.method=supermask", "pruning.sparsity=0.85", "training.scst.baseline=greedy"]
    config = load_config(None, [*settings, *REWARDED, *going_on])
    whole = train_run(config, runs=tmp_path / "whole", verbose=0, say=str)
    assert whole["sparsity"] == pytest.approx(0.85, abs=0.001)
    shutil.copytree(tmp_path / "whole", tmp_path / "stopped")
    folder = RunFolder(tmp_path / "stopped" / "tiny")
    folder.checkpoint(2).unlink()  # as if it had been stopped in the second epoch
    folder.model.unlink()
    said = []
    resumed = train_run(config, resume=True, runs=tmp_path / "stopped", verbose=0, say=said.append)
    assert "going on after epoch 1" in said
    assert resumed["CIDEr"] == whole["CIDEr"] and resumed["sparsity"] == whole["sparsity"]
    models = [FinishedRun.load(tmp_path / name / "tiny").captioner for name in ("whole", "stopped")]
    for one, other in zip(*(model.get_weights() for model in models), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.slow
def test_a_dense_run_is_told_that_zeros_do_not_stay(starts, tmp_path):
    _, settings = starts("soft_attention")
    said = []
    config = load_config(None, [*settings, "training.scst.samples=3", "pruning=null"])
    with pytest.raises(InputError, match="fewer than one batch of 25"):
        train_run(config, runs=tmp_path, verbose=0, say=said.append)
    assert any("will not stay so: pruning.method=frozen" in sentence for sentence in said)


def test_settings_without_a_start_are_named_and_leave_no_folder(tiny_settings, tmp_path):
    config = load_config(None, [*tiny_settings, *REWARDED])
    with pytest.raises(InputError, match="start_from is not set"):
        train_run(config, runs=tmp_path, verbose=0, say=str)
    assert not list(tmp_path.iterdir())
