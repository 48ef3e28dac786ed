"""Phases that follow each other in a run, and checkpoints and validation images that are missing."""

import shutil
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf

from tfsparsecap.captioning.data.records import CaptionData, Record
from tfsparsecap.captioning.inference.finished_run import FinishedRun
from tfsparsecap.captioning.settings.build import load_data
from tfsparsecap.captioning.settings.config_files import load_config
from tfsparsecap.captioning.settings.sections import Training
from tfsparsecap.captioning.training.callbacks import Validation
from tfsparsecap.captioning.training.phases import Phase, check_batches, make_optimizer, phases
from tfsparsecap.errors import InputError
from tfsparsecap.model_summary.nonzeros import prunable_weights

from .training_runs import history, resume_last_epoch, train

#: Training on rewards after the training.
REWARDS = ["training.scst.epochs=1", "training.scst.batch_size=10", "training.scst.samples=2"]


@pytest.mark.slow
@pytest.mark.usefixtures("quick_training")
@pytest.mark.filterwarnings("ignore:nothing was pruned", "ignore:.* never met")
def test_a_run_that_pruned_nothing_can_be_trained_on_rewards(tiny_settings, tmp_path):
    more = ["pruning.method=relevance", "pruning.metric=validation_CIDEr", "pruning.lower_bound=99"]
    settings = [*tiny_settings, *more, *REWARDS, "training.epochs=1", "training.validation_images=2"]
    settings.append("training.batch_size=50")
    folder, result, _ = train(tmp_path, settings)
    assert result["sparsity"] == 0 and history(folder)[-1]["phase"] == "scst"
    resume_last_epoch(folder, settings)


@pytest.mark.slow
@pytest.mark.usefixtures("quick_training")
@pytest.mark.parametrize("schemed", [False, True])
def test_a_pruned_encoder_keeps_its_gates_in_the_training_on_rewards(
    schemed, tiny_settings, tmp_path, monkeypatch
):
    scores = [0.1, 0.9, 0.2]

    def validate(self, epoch, logs=None):
        logs["validation_CIDEr"] = scores[epoch]

    monkeypatch.setattr(Validation, "on_epoch_end", validate)
    more = ["pruning.method=magnitude", "pruning.allocation=uniform", "pruning.sparsity=0.5"]
    if schemed:
        more += ["pruning.encoder=B", "training.epochs=1", "training.fine_tune.epochs=1"]
        more += ["model.encoder.trainable=false"]
    else:
        more += ["pruning.encoder=true", "pruning.begin=0.5", "training.epochs=2"]
        more += ["model.encoder.trainable=true", "training.restore_best=true"]
    settings = [*tiny_settings, *more, *REWARDS, "training.batch_size=50"]
    folder, _, messages = train(tmp_path, settings)
    assert ("restoring the weights of epoch 2, the best on validation" in messages) != schemed
    kernel = np.asarray(FinishedRun.load(folder.path).captioner.encoder.convolution.kernel)
    assert np.mean(kernel == 0) == pytest.approx(0.5, abs=0.01)
    resume_last_epoch(folder, settings)


def kernels(folder):
    """Kernels of a run's captioner, first the encoder's."""
    captioner = FinishedRun.load(folder.path).captioner
    weights = [np.asarray(weight.variable) for weight in prunable_weights(captioner)]
    assert weights[0].ndim == 4
    return weights


@pytest.mark.slow
@pytest.mark.usefixtures("quick_training")
def test_rewards_first_keep_a_pruned_encoder_and_fine_tuning_first_trains_it(tiny_settings, tmp_path):
    shared = [setting for setting in tiny_settings if not setting.startswith("training.epochs")]
    shared += ["training.validation_images=0", "training.batch_size=50", "pruning.sparsity=0.6"]
    shared.append(f"data.cache_folder={tmp_path / 'cache'}")
    pruned = ["pruning.method=magnitude", "pruning.encoder=true", "pruning.allocation=distribution"]
    start, _, _ = train(tmp_path, [*shared, "name=start", "training.epochs=1", *pruned])
    before = kernels(start)
    assert 0.2 < np.mean(before[0] == 0) < 0.9

    def continued(name, *more):
        """The kernels of a run that starts with that one, and that is resumed."""
        settings = [*shared, f"name={name}", f"training.start_from={start.path}", "training.epochs=0", *more]
        run, _, _ = train(tmp_path, settings)
        resume_last_epoch(run, settings)
        return kernels(run)

    for method in ("frozen", "supermask"):
        scst = [*REWARDS, "training.scst.epochs=2", f"pruning.method={method}", "pruning.encoder=true"]
        after = continued(method, *scst)
        np.testing.assert_array_equal(after[0], before[0])
        assert any((new != old).any() for new, old in zip(after, before, strict=True))
        if method == "frozen":
            assert not any(new[old == 0].any() for new, old in zip(after, before, strict=True))
    fine_tune = ["training.fine_tune.epochs=2", "training.fine_tune.learning_rate=0.01"]
    fine_tune.append("model.encoder.trainable=false")
    after = continued("dense", *fine_tune, "pruning=null")
    assert np.mean(after[0] != before[0]) > 0.05 and after[0][before[0] == 0].any()
    after = continued("zeros", *fine_tune, "pruning.method=frozen", "pruning.encoder=true")
    assert np.mean(after[0] != before[0]) > 0.05 and not after[0][before[0] == 0].any()


@pytest.mark.slow
@pytest.mark.usefixtures("quick_training")
def test_unreadable_validation_images_do_not_stop_a_run(tiny_settings, tmp_path, shared_folder):
    data = tmp_path / "scenes"
    shutil.copytree(shared_folder / "scenes", data)
    settings = [*tiny_settings, "pruning=null", "training.validation_images=1", f"data.folder={data}"]
    load_data(load_config(None, settings)).split("validation")[0].image.write_bytes(b"broken")
    with pytest.warns(UserWarning, match="there are no validation scores: there are no images to score"):
        folder, _, _ = train(tmp_path / "runs", [*settings, "training.epochs=1"])
    assert "validation_CIDEr" not in history(folder)[0]


@pytest.mark.slow
@pytest.mark.usefixtures("quick_training")
@pytest.mark.parametrize(
    ("settings", "what"),
    [
        (["training.batch_size=999"], "captions .* smaller training.batch_size"),
        (
            ["training.fine_tune.epochs=1", "training.fine_tune.batch_size=999"],
            "captions .* smaller training.fine_tune.batch_size",
        ),
        (["training.scst.batch_size=999"], "images .* smaller training.scst.batch_size"),
    ],
)
def test_batches_larger_than_the_data_are_refused_before_features_are_computed(
    settings, what, tiny_settings, tmp_path, monkeypatch
):
    def compute(*arguments, **options):
        raise AssertionError("features are computed")

    monkeypatch.setattr("tfsparsecap.captioning.training.train_run.RunData", compute)
    with pytest.raises(InputError, match=what.replace(" .* ", " .* one batch of 999: .* ")):
        train(tmp_path, [*tiny_settings, "name=small", *settings])


@pytest.mark.parametrize(("captions", "together", "size"), [(9, 5, 20), (1, 5, 20), (9, 1, 36), (3, 2, 8)])
def test_captions_that_are_left_out_or_repeated_do_not_count_or_count(captions, together, size):
    texts = tuple(f"caption {number}" for number in range(captions))
    data = CaptionData("four", [Record(f"{n}", Path(f"{n}.png"), texts, "train") for n in range(4)])

    def check(size):
        more = [f"training.captions_per_image={together}", f"training.batch_size={size}"]
        config = load_config(None, ["pruning=null", *more])
        check_batches(phases(config), config, data)

    check(size)
    with pytest.raises(InputError, match=rf"there are {size} captions.* fewer than one batch of {size + 10}"):
        check(size + 10)


def test_fine_tuning_has_the_batch_size_of_the_training():
    data = CaptionData("one", [Record("a", Path("a.png"), ("a",), "train")])
    more = ["training.start_from=x", "training.fine_tune.epochs=1", "training.epochs=0"]
    config = load_config(None, [*more, "training.batch_size=999"])
    with pytest.raises(InputError, match=r"captions .* one batch of 999: .* smaller training\.batch_size"):
        check_batches(phases(config), config, data)


def test_the_captions_of_teachers_count_instead_of_the_references():
    data = CaptionData("four", [Record(f"{n}", Path(f"{n}.png"), ("a",) * 9, "train") for n in range(4)])
    taught = ["training.teacher=[a, b]", "training.teacher_captions=3", "training.captions_per_image=5"]
    config = load_config(None, ["pruning=null", *taught, "training.batch_size=25"])
    few = r"20 captions \(with training\.captions_per_image=5\) to train on, fewer than one batch of 25: "
    with pytest.raises(InputError, match=few):
        check_batches(phases(config), config, data)


GRADIENTS = np.array([[1.0, -3.0], [0.1, 2.0], [-0.5, 0.4]], "float32")
START = np.array([2.0, -1.0], "float32")


def adamw(rate, decay):
    """Adam with decoupled weight decay: Loshchilov and Hutter, https://arxiv.org/abs/1711.05101."""
    weights, first, second = START.astype(float), 0.0, 0.0
    for number, gradient in enumerate(GRADIENTS, 1):
        first = 0.9 * first + 0.1 * gradient
        second = 0.999 * second + 0.001 * gradient**2
        step = first / (1 - 0.9**number) / np.sqrt(second / (1 - 0.999**number))
        weights = weights - rate * (step + decay * weights)
    return weights


@pytest.mark.parametrize("compiled", [False, True])
def test_rates_and_weight_decay_of_encoder_and_decoder_equal_the_formula(compiled):
    settings = Training(
        learning_rate=0.02,
        encoder_learning_rate=0.001,
        weight_decay=0.5,
        adam_epsilon=1e-12,
        clip_norm=None,
        schedule="constant",
    )
    names = ("kernel", "bias", "kernel", "bias")
    variables = [keras.Variable(START, name=name) for name in names]
    optimizer = make_optimizer(settings, 10, encoder_variables=variables[:2])
    optimizer.build(variables)
    apply = tf.function(optimizer.apply) if compiled else optimizer.apply
    for gradient in GRADIENTS:
        apply([tf.constant(gradient)] * 4)
    expected = [adamw(rate, decay) for rate in (0.001, 0.02) for decay in (0.5, 0.0)]
    np.testing.assert_allclose(variables, expected, rtol=1e-5)


@pytest.mark.parametrize(("loss", "factor"), [(tf.nn.l2_loss, 1), (lambda x: tf.reduce_sum(x**2), 2)])
def test_weight_decay_of_soft_attention_is_tensorflows_l2_loss_of_the_papers(loss, factor):
    settings = load_config("configs/soft_attention/lstm.yaml").training
    weights = keras.Variable(START)
    with tf.GradientTape() as tape:
        penalty = 1e-5 * loss(weights.value)  # lambda of RNN-SMP, equation 7
    optimizer = keras.optimizers.Adam(0.01, beta_1=0.0, epsilon=0.01)
    optimizer.iterations.assign(100_000)  # a step in the middle of a training, without momentum
    optimizer.apply([tape.gradient(penalty, weights.value)], [weights])
    assert settings.adam_epsilon == 0.01
    expected = START * (1 - 0.01 * factor * settings.weight_decay)
    np.testing.assert_allclose(np.array(weights) - START, expected - START, rtol=0.02)


def test_the_step_schedule_multiplies_the_rate_after_every_three_epochs():
    optimizer = make_optimizer(Training(), 7 * 4, Phase("scst", 7, 50, 5e-5, "step", False))
    rates = []
    for step in range(7 * 4):
        optimizer.iterations.assign(step)
        rates.append(float(optimizer.learning_rate))
    # By hand: 0.8 * 5e-5 = 4e-5, and 0.8 * 4e-5 = 3.2e-5; four steps an epoch, no warm-up.
    assert rates == pytest.approx([5e-5] * 12 + [4e-5] * 12 + [3.2e-5] * 4, rel=1e-5)


def test_without_weight_decay_weights_without_gradients_stay():
    variable = keras.Variable(START)
    optimizer = make_optimizer(Training(), 10, encoder_variables=[variable])
    optimizer.apply([tf.zeros(2)], [variable])
    np.testing.assert_array_equal(variable, START)
