"""Self-critical training: loss and gradient, compared with those computed while sampling, and whole runs."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from tfsparsecap.captioning.inference.finished_run import FinishedRun
from tfsparsecap.captioning.models import ObjectRelationTransformer, SoftAttention, UpDown
from tfsparsecap.captioning.search.sampling import sample
from tfsparsecap.captioning.settings.config_files import load_config
from tfsparsecap.captioning.settings.sections import SCST
from tfsparsecap.captioning.training.scst import SCSTLoop
from tfsparsecap.captioning.training.train_run import train_run
from tfsparsecap.errors import InputError
from tfsparsecap.pruning import Magnitude, Schedule, SupermaskLoss, prune

from .training_runs import history, resume_last_epoch, train

WORDS, LENGTH, SAMPLES, SEED = 12, 5, 3, 4
RANDOM = np.random.default_rng(0)
FEATURES = RANDOM.normal(size=(4, 6, 8)).astype("float32")
BOXES = np.sort(RANDOM.random((4, 6, 2, 2)).astype("float32"), axis=2).reshape(4, 6, 4)


def make_captioner(kind="soft_attention", dropout=0.0):
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


def inputs_of(model):
    inputs = {"features": tf.constant(FEATURES), "boxes": tf.constant(BOXES)}
    return {name: inputs[name] for name in model.input_names if name in inputs}


def sum_reward(captions, images):
    """A reward that is easy to compute: the sum of the token ids, more for later images."""
    return captions.sum(1) / 10.0 + images


def make_loop(model, optimizer, reward, **settings):
    model.compile(optimizer)
    return SCSTLoop(model, reward=reward, max_length=LENGTH, settings=SCST(**settings), seed=SEED)


def indices(images=range(4)):
    return tf.constant(np.array(images, np.int32)[:, None])


def expected(model, baseline, readable=(1, 1, 1, 1)):
    """The loss of the papers and its gradient, both computed through the loop that samples."""
    seed = tf.random.fold_in(tf.random.fold_in(tf.constant([SEED, 0], tf.int64), 0), 0)
    with tf.GradientTape() as tape:
        tokens, log_probabilities = sample(model, inputs_of(model), SAMPLES, LENGTH, seed=seed)
        words = tokens.numpy()
        rewards = words.sum(2) / 10.0 + np.arange(4)[:, None]
        if baseline == "others":
            base = np.stack([np.delete(rewards, n, axis=1).mean(1) for n in range(SAMPLES)], axis=1)
        elif baseline == "all":
            base = rewards.mean(1, keepdims=True)
        else:
            from tfsparsecap.captioning.search.beam_search import beam_search

            greedy = beam_search(model, inputs_of(model), 1, LENGTH)[0].numpy()
            base = greedy.sum(2) / 10.0 + np.arange(4)[:, None]
        readable = np.array(readable, "float32")
        lengths = [[[*row, 2].index(2) + 1 for row in image] for image in words]
        count = (np.minimum(lengths, LENGTH) * readable[:, None]).sum()
        advantages = ((rewards - base) * readable[:, None]).astype("float32")
        loss = -tf.reduce_sum(advantages[:, :, None] * log_probabilities) / count
    gradients = tape.gradient(loss, [variable.value for variable in model.trainable_variables])
    return float(loss), [tf.convert_to_tensor(gradient).numpy() for gradient in gradients]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "baseline", "eager"),
    [
        ("soft_attention", "others", True),
        ("soft_attention", "all", True),
        ("soft_attention", "greedy", False),
        ("up_down", "others", True),
        ("object_relation_transformer", "greedy", True),
    ],
)
def test_a_step_minimises_the_loss_of_the_papers(kind, baseline, eager, monkeypatch):
    if eager:
        monkeypatch.setattr(tf, "function", lambda function: function)
    model = make_captioner(kind, dropout=0.4)
    loss, gradients = expected(model, baseline)
    before = [np.array(variable) for variable in model.trainable_variables]
    loop = make_loop(model, keras.optimizers.SGD(1.0), sum_reward, samples=SAMPLES, baseline=baseline)
    logs = loop.train_step((inputs_of(model), indices()))
    assert float(logs["loss"]) == pytest.approx(loss, rel=1e-4, abs=1e-6)
    for variable, old, gradient in zip(model.trainable_variables, before, gradients, strict=True):
        np.testing.assert_allclose(np.array(variable), old - gradient, atol=2e-5, err_msg=variable.path)


@pytest.mark.slow
@pytest.mark.parametrize("dropout", [False, True])
def test_log_probabilities_with_dropout_are_those_of_a_captioner_in_training(dropout, monkeypatch):
    class UniformInTraining(UpDown):
        """Its logits are 0 in training, so that each token has the probability 1 / WORDS."""

        def call(self, inputs, training=None):
            return super().call(inputs, training=training) * (0.0 if training else 1.0)

    monkeypatch.setattr(tf, "function", lambda function: function)
    model = UniformInTraining(
        WORDS, embedding_size=6, rnn_size=8, attention_size=5, feature_size=8, dropout=0.4
    )
    other, _ = expected(model, "all")
    seed = tf.random.fold_in(tf.random.fold_in(tf.constant([SEED, 0], tf.int64), 0), 0)
    words = sample(model, inputs_of(model), SAMPLES, LENGTH, seed=seed)[0].numpy()
    rewards = words.sum(2) / 10.0 + np.arange(4)[:, None]
    lengths = np.minimum([[[*row, 2].index(2) + 1 for row in image] for image in words], LENGTH)
    # By hand: each token costs log(WORDS), weighted by the advantage of its caption.
    advantages = rewards - rewards.mean(1, keepdims=True)
    uniform = np.log(WORDS) * (advantages * lengths).sum() / lengths.sum()
    assert abs(uniform - other) > 1e-3
    options = {"samples": SAMPLES, "baseline": "all", "dropout": dropout}
    loop = make_loop(model, keras.optimizers.SGD(0.0), sum_reward, **options)
    loss = float(loop.train_step((inputs_of(model), indices()))["loss"])
    assert loss == pytest.approx(uniform if dropout else other, rel=1e-4)


@pytest.mark.slow
@pytest.mark.usefixtures("eager")
def test_images_that_cannot_be_read_are_ignored():
    model = make_captioner()
    loss, _ = expected(model, "others", readable=(1, 0, 1, 0))
    loop = make_loop(model, keras.optimizers.SGD(0.0), sum_reward, samples=SAMPLES)
    logs = loop.train_step((inputs_of(model), indices([0, -1, 2, -1])))
    assert float(logs["loss"]) == pytest.approx(loss, rel=1e-4)
    logs = loop.train_step((inputs_of(model), indices([-1] * 4)))
    assert float(logs["loss"]) == 0 and float(logs["reward"]) == 0


def contains_five(captions, images):
    return (captions == 5).any(1).astype("float32")


def train_on(model, steps, reward=contains_five):
    loop = make_loop(model, keras.optimizers.Adam(0.02), reward, samples=8)
    return [float(loop.train_step((inputs_of(model), indices()))["reward"]) for _ in range(steps)]


@pytest.mark.slow
def test_rewarded_tokens_become_more_frequent():
    rewards = train_on(make_captioner(), 60)
    assert np.mean(rewards[:5]) < 0.6
    assert np.mean(rewards[-5:]) > 0.9


@pytest.mark.slow
@pytest.mark.usefixtures("eager")
def test_the_reward_of_an_epoch_is_the_mean_over_its_steps():
    model, rewards = make_captioner(), []
    seen = keras.callbacks.LambdaCallback(
        on_train_batch_end=lambda batch, logs: rewards.append(logs["reward"]),
        on_epoch_end=lambda epoch, logs: rewards.append(logs["reward"]),
    )
    loop = make_loop(model, keras.optimizers.Adam(0.02), contains_five, samples=8)
    batches = tf.data.Dataset.from_tensors((inputs_of(model), indices())).repeat(3)
    loop.run(lambda epoch, **options: batches, epochs=1, callbacks=[seen])
    *steps, epoch = rewards
    assert len(set(steps)) > 1
    assert epoch == pytest.approx(np.mean(steps), rel=1e-6)


@pytest.mark.slow
def test_fixed_masks_stay_fixed():
    model = prune(make_captioner(), Magnitude(0.5))
    masks = [np.asarray(gate.logits) > 0 for gate in model.pruning.gates]
    rewards = train_on(model, 60)
    assert np.mean(rewards[-5:]) > np.mean(rewards[:5]) + 0.2
    for gate, mask in zip(model.pruning.gates, masks, strict=True):
        np.testing.assert_array_equal(np.asarray(gate.logits) > 0, mask)


@pytest.mark.slow
def test_trained_gates_are_trained_on_rewards(monkeypatch):
    monkeypatch.setattr(tf, "function", lambda function: function)
    model = prune(
        make_captioner(), SupermaskLoss(0.5, 20, gate_learning_rate=5.0, schedule=Schedule(end=0.9))
    )
    before = [np.array(gate.logits) for gate in model.pruning.gates]
    train_on(model, 3)
    assert any((np.array(g.logits) != old).any() for g, old in zip(model.pruning.gates, before, strict=True))


@pytest.mark.slow
def test_samples_depend_on_seed_and_step_only(monkeypatch):
    monkeypatch.setattr(tf, "function", lambda function: function)
    seen = []

    def reward(captions, images):
        seen.append(captions.copy())
        return np.zeros(len(captions))

    model = make_captioner(dropout=0.5)
    for _ in range(2):
        train_on(model, 2, reward)  # without rewards nothing changes
    np.testing.assert_array_equal(seen[0], seen[2])
    np.testing.assert_array_equal(seen[1], seen[3])
    assert (seen[0] != seen[1]).any()
    assert seen[0].shape == (4 * 8, LENGTH)


#: Sizes of the captioners of runs; ACORT has digits as tokens and shared layers.
SIZES = {
    "soft_attention": ["model.dropout=0.3"],
    "acort": [
        *("model.kind=object_relation_transformer", "model.size=16", "model.hidden_size=12"),
        *("model.layers=2", "model.heads=2", "data.radix_base=4", "data.max_length=7"),
        *("model.share_encoder_layers=[0,0]", "model.share_decoder_layers=[0,0]"),
        *("model.share_encoder_attention=kv", "model.share_decoder_attention=kv"),
    ],
}
REWARDED = [
    "training.epochs=0",
    "training.scst.epochs=2",
    "training.scst.samples=3",
    "training.scst.batch_size=20",
]


@pytest.mark.slow
@pytest.mark.usefixtures("quick_training")
@pytest.mark.parametrize("kind", SIZES)
def test_a_run_on_rewards_keeps_the_zeros_of_its_start_and_resumes(kind, tiny_settings, tmp_path):
    # The transformer has other sizes than the captioners with a recurrent cell.
    drop = ("model.", "data.max_length") if kind == "acort" else ("training.epochs",)
    shared = [setting for setting in tiny_settings if not setting.startswith(drop) or "encoder" in setting]
    shared += [*SIZES[kind], "training.validation_images=0", "pruning.sparsity=0.7"]
    first = ["name=start", "training.epochs=1", "training.batch_size=50", "pruning.method=magnitude"]
    start, _, _ = train(tmp_path, [*shared, *first])

    settings = [*shared, *REWARDED, f"training.start_from={start.path}"]
    frozen = ["pruning.method=frozen", "training.scst.bleu_4=0.5"]
    if kind == "soft_attention":
        frozen.append("training.scst.baseline=greedy")
    folder, scores, messages = train(tmp_path, [*settings, *frozen])
    assert f"starting with the weights of {start.path}" in messages
    rows = history(folder)
    assert len(rows) == 2 and all(0 < float(row["reward"]) < 10.5 for row in rows)
    before, after = kernels(start.path), kernels(folder.path)
    assert list(before) == list(after) and len(after) > 5
    changed = 0
    for name, kernel in after.items():
        assert not kernel[before[name] == 0].any(), name
        changed += (kernel != before[name]).sum() > (kernel != 0).sum() / 2
    assert changed > 5 and scores["sparsity"] == pytest.approx(0.7, abs=0.01)
    if kind == "soft_attention":
        resume_last_epoch(folder, [*settings, *frozen])
        # A dense run does not keep the zeros, and reports this.
        messages = []
        dense = load_config(None, [*settings, "pruning=null", "training.scst.batch_size=25", "name=dense"])
        with pytest.raises(InputError, match="fewer than one batch of 25"):
            train_run(dense, runs=tmp_path, verbose=0, report=messages.append)
        assert any("will be trained: pruning.method=frozen" in message for message in messages)


@pytest.mark.slow
@pytest.mark.usefixtures("quick_training")
def test_rewards_are_the_last_phase_of_a_run_with_a_trained_encoder_and_fixed_masks(tiny_settings, tmp_path):
    settings = [
        *(setting for setting in tiny_settings if not setting.startswith("training.epochs")),
        *("model.encoder.trainable=false", f"data.cache_folder={tmp_path / 'cache'}", "data.cached_views=2"),
        *("training.epochs=1", "training.fine_tune.epochs=1", "training.fine_tune.learning_rate=0.01"),
        *("training.scst.epochs=3", "training.scst.samples=3", "training.scst.batch_size=20"),
        "training.batch_size=50",
        *("training.scst.schedule=step", "training.scst.learning_rate=0.001", "training.scst.dropout=true"),
        *("pruning.method=magnitude", "pruning.sparsity=0.7", "training.validation_images=2"),
    ]
    folder, _, _ = train(tmp_path, settings)
    rows = history(folder)
    assert [row["phase"] for row in rows] == ["train", "fine_tune", "scst", "scst", "scst"]
    # The rate at the end of an epoch, which is that of the next one.
    assert [float(row["learning_rate"]) for row in rows[2:]] == pytest.approx([0.001, 0.001, 0.0008])
    assert {row["sparsity"] for row in rows} == {rows[0]["sparsity"]} and float(rows[3]["reward"]) > 0
    # The features of the first phase and of SCST are those of different encoders.
    assert len(list((tmp_path / "cache").glob("features-*.npy"))) == 4
    resume_last_epoch(folder, settings)


def kernels(folder):
    """Kernels and embeddings of a run's decoder, by path."""
    captioner = FinishedRun.load(folder).captioner
    skipped = {id(variable) for variable in captioner.encoder.variables}
    return {
        variable.path: np.array(variable)
        for variable in captioner.weights
        if id(variable) not in skipped and len(variable.shape) == 2 and not variable.path.endswith("bias")
    }
