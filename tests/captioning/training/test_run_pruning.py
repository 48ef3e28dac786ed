"""Which gates a run has in each phase, and the errors of pruning methods."""

import shutil
import warnings
from types import SimpleNamespace

import keras
import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from tfsparsecap.captioning.data.records import Record
from tfsparsecap.captioning.inference.finished_run import FinishedRun
from tfsparsecap.captioning.models import MobileNetV1Encoder
from tfsparsecap.captioning.runs.run_folder import RunFolder
from tfsparsecap.captioning.settings.build import make_captioner
from tfsparsecap.captioning.settings.config_files import load_config
from tfsparsecap.captioning.settings.sections import SlimSettings
from tfsparsecap.captioning.training.callbacks import SaveEpoch, Validation
from tfsparsecap.captioning.training.run_pruning import (
    EncoderSlimming,
    gate_captioner,
    gate_for_fine_tuning,
    penalise_gammas,
    sample_batches,
)
from tfsparsecap.core.keras_internals import optimizer_slots, optimizer_variables
from tfsparsecap.errors import InputError
from tfsparsecap.gates import gated_layers, gates
from tfsparsecap.model_summary.nonzeros import weight_counts
from tfsparsecap.pruning import strip_pruning

from .training_runs import arrays, assert_same_arrays, history, resume_last_epoch, train

SCHEMED = ["model.encoder.trainable=false", "training.fine_tune.epochs=2", "pruning.sparsity=0.8"]
#: Unlike a MobileNet, its first block has branches and no biases.
INCEPTION = ["model.encoder.network=inception_v1", "model.encoder.layer=Mixed_3b"]
#: Steps of a phase, and options without which a method cannot reach the target in so few.
STEPS = 5
OPTIONS = {"supermask_loss": ["pruning.paper=soft_attention", "pruning.end=0.6"]}


def parts(captioner):
    """Number of gated layers in decoder and encoder."""
    inside = {id(layer) for layer in captioner.encoder._flatten_layers()}
    layers = gated_layers(captioner)
    in_encoder = sum(id(layer) in inside for layer in layers)
    return len(layers) - in_encoder, in_encoder


@pytest.fixture(scope="module")
def with_inception(tiny_settings):
    """A captioner and its initial weights."""
    keras.utils.set_random_seed(3)
    captioner = make_captioner(load_config(None, [*tiny_settings, *SCHEMED, *INCEPTION]), 12)
    return captioner, captioner.get_weights()


@pytest.fixture
def captioner(with_inception):
    """The same captioner for all tests, reset, because making another takes longer than training it."""
    captioner, weights = with_inception
    strip_pruning(captioner)
    captioner.encoder.trainable = False
    captioner.set_weights(weights)
    return captioner


@pytest.fixture
def configured(tiny_settings):
    def get(scheme, method):
        more = [f"pruning.encoder={scheme}", f"pruning.method={method}", *OPTIONS.get(method, [])]
        config = load_config(None, [*tiny_settings, *SCHEMED, *INCEPTION, *more])
        return config

    return get


@pytest.mark.slow
@pytest.mark.parametrize(
    ("scheme", "first", "then"),
    [("A", (8, 9), (8, 9)), ("B", (0, 0), (8, 9)), ("C", (8, 0), (8, 9)), ("false", (8, 0), (8, 0))],
)
def test_each_scheme_gates_decoder_and_encoder_as_documented(scheme, first, then, captioner, configured):
    config = configured(scheme, "supermask")
    gate_captioner(captioner, config, 10)
    assert parts(captioner) == first
    assert not captioner.encoder.trainable
    captioner.encoder.trainable = True
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)  # gates that a checkpoint follows are not trained
        gate_for_fine_tuning(captioner, config, 10, restored=True)
    assert parts(captioner) == then


def trainer(captioner):
    """A function that takes eager training steps."""
    random = np.random.default_rng(5)
    words = random.integers(3, 12, (3, 4)).astype(np.int32)
    inputs = {"image": random.integers(0, 256, (3, 32, 32, 3)).astype(np.uint8), "tokens": words[:, :-1]}
    optimizer = captioner.pruning.wrap(keras.optimizers.SGD(0.1))

    def take(steps):
        for _ in range(steps):
            with tf.GradientTape() as tape:
                loss = captioner.compute_loss(inputs, words[:, 1:], captioner(inputs, training=True))
            variables = captioner.trainable_variables
            optimizer.apply(tape.gradient(loss, [variable.value for variable in variables]), variables)

    return take


def values(captioner):
    """Stored weights of decoder and encoder, by path."""
    of_gates = {id(variable) for gate in gates(captioner) for variable in gate.variables}
    inside = {id(variable) for variable in captioner.encoder.variables}
    weights = ({}, {})
    for variable in captioner.variables:
        if id(variable) not in of_gates:
            weights[id(variable) in inside][variable.path] = np.array(variable)
    return weights


def masks(captioner):
    """Masks of decoder and encoder, by path of the weight."""
    inside, opened_masks = {id(layer) for layer in captioner.encoder._flatten_layers()}, ({}, {})
    for layer in gated_layers(captioner):
        for name, gate in layer.gate_of.items():
            weight = layer.stored_weight(name)
            opened = np.reshape(np.asarray(gate.logits) > 0, weight.shape)
            opened_masks[id(layer) in inside][weight.path] = opened
    return opened_masks


def closed(*parts):
    """Fraction of zeros in masks or weights."""
    arrays = [array for part in parts for array in part.values()]
    return 1 - sum(map(np.count_nonzero, arrays)) / sum(array.size for array in arrays)


def assert_equal(result, expected):
    assert result.keys() == expected.keys()
    for path, array in expected.items():
        np.testing.assert_array_equal(result[path], array, err_msg=path)


def assert_trained(before, now, opened):
    """More than half of the open weights have changed; some no longer affect the output."""
    moved = [(before[path] != now[path])[mask] for path, mask in opened.items()]
    assert np.concatenate(moved).mean() > 0.5


def kernels(captioner):
    """Paths of the weights of decoder and encoder that can be pruned."""
    decoder, encoder = values(captioner)
    names = ("kernel", "embeddings")
    return tuple({path for path in part if path.endswith(names)} for part in (decoder, encoder))


def assert_stripped_to(captioner, sparsity):
    """The stripped captioner has this sparsity; returns the kernels of decoder and encoder."""
    strip_pruning(captioner)
    assert not gates(captioner)
    stripped_kernels = tuple(
        {path: part[path] for path in paths}
        for part, paths in zip(values(captioner), kernels(captioner), strict=True)
    )
    assert closed(*stripped_kernels) == pytest.approx(sparsity, abs=5e-3)
    # The scores of a run count both.
    assert weight_counts(captioner, with_encoder=True)["sparsity"] == pytest.approx(
        closed(*stripped_kernels), abs=1e-9
    )
    return stripped_kernels


@pytest.mark.slow
def test_scheme_a_prunes_the_frozen_encoder_and_keeps_all_masks_in_fine_tuning(captioner, configured):
    config, before = configured("A", "supermask_loss"), values(captioner)
    expected = kernels(captioner)
    gate_captioner(captioner, config, STEPS)
    assert tuple(map(set, masks(captioner))) == expected and len(expected[1]) == 9
    take = trainer(captioner)
    take(2)
    # The captioning loss changes each gate differently; the sparsity loss alone would change all equally.
    assert all(np.unique(gate.logits).size > 10 for gate in gates(captioner.encoder))
    take(STEPS - 2)
    decoder, encoder = values(captioner)
    assert_equal(encoder, before[1])
    chosen = masks(captioner)
    assert_trained(before[0], decoder, chosen[0])
    assert closed(*chosen) == pytest.approx(0.8, abs=5e-3) and closed(chosen[1]) > 0.3

    captioner.encoder.trainable = True
    gate_for_fine_tuning(captioner, config, STEPS)
    trainer(captioner)(2)
    assert len(gates(captioner.encoder)) == 9
    for part, mask in zip(masks(captioner), chosen, strict=True):
        assert_equal(part, mask)
    assert_trained(encoder, values(captioner)[1], chosen[1])
    for part, mask in zip(assert_stripped_to(captioner, 0.8), chosen, strict=True):
        assert_equal({path: array != 0 for path, array in part.items()}, mask)


@pytest.mark.slow
def test_scheme_b_prunes_both_in_fine_tuning(captioner, configured):
    config, before = configured("B", "magnitude"), values(captioner)
    expected = kernels(captioner)
    gate_captioner(captioner, config, STEPS)
    assert not gates(captioner) and not hasattr(captioner, "pruning")

    captioner.encoder.trainable = True
    gate_for_fine_tuning(captioner, config, STEPS)
    assert tuple(map(set, masks(captioner))) == expected
    trainer(captioner)(STEPS)
    chosen = masks(captioner)
    for old, now, opened in zip(before, values(captioner), chosen, strict=True):
        assert_trained(old, now, opened)
    assert all(closed(part) > 0.3 for part in chosen)
    assert_stripped_to(captioner, 0.8)
    # Offsets and means of batch normalisation start at 0 and are trained without a mask.
    free = {path: array for path, array in values(captioner)[1].items() if path not in expected[1]}
    assert len(free) == 3 * 9 and closed(free) < 0.3


@pytest.mark.slow
def test_scheme_c_uses_the_papers_weight_of_the_loss_for_each_part(captioner, configured):
    config = configured("C", "supermask_loss")
    config.pruning.paper = "soft_attention_with_encoder"
    gate_captioner(captioner, config, STEPS)
    assert captioner.pruning.sparsity_weight == 5.0  # SMP, Figure 3, for 80 % zeros
    captioner.encoder.trainable = True
    gate_for_fine_tuning(captioner, config, STEPS)
    assert captioner.pruning.sparsity_weight == pytest.approx(1.5 / 0.2)


@pytest.mark.slow
def test_scheme_c_fixes_the_decoders_mask_and_prunes_the_encoder(captioner, configured):
    config, before = configured("C", "supermask"), values(captioner)
    expected = kernels(captioner)
    gate_captioner(captioner, config, STEPS)
    assert tuple(map(set, masks(captioner))) == (expected[0], set())
    trainer(captioner)(STEPS)
    decoder, encoder = values(captioner)
    assert_equal(encoder, before[1])
    (chosen, _) = masks(captioner)
    assert closed(chosen) == pytest.approx(0.8, abs=5e-3)

    captioner.encoder.trainable = True
    gate_for_fine_tuning(captioner, config, STEPS)
    assert {path for path, *_ in captioner.pruning.classes()} == expected[1]
    trainer(captioner)(STEPS)
    final_masks = masks(captioner)
    assert_equal(final_masks[0], chosen)
    assert closed(final_masks[1]) == pytest.approx(0.8, abs=5e-3)
    for old, now, opened in zip((decoder, encoder), values(captioner), final_masks, strict=True):
        assert_trained(old, now, opened)
    decoder_kernels, _ = assert_stripped_to(captioner, 0.8)
    assert_equal({path: array != 0 for path, array in decoder_kernels.items()}, chosen)


FEW_STEPS = ["data.max_length=4", "training.batch_size=50", "training.validation_images=0"]


def assert_zeros(folder, scheme):
    """Encoder and decoder together have 80 % zeros; with scheme C, so does the encoder alone."""
    captioner = FinishedRun.load(folder.path).captioner
    assert weight_counts(captioner, with_encoder=True)["sparsity"] == pytest.approx(0.8, abs=5e-3)
    kernels = [np.asarray(w) for w in captioner.encoder.weights if w.path.endswith("kernel")]
    zeros = 1 - sum(map(np.count_nonzero, kernels)) / sum(kernel.size for kernel in kernels)
    assert zeros > 0.3 if scheme != "C" else zeros == pytest.approx(0.8, abs=6e-3)


@pytest.mark.slow
@pytest.mark.usefixtures("quick_training")
@pytest.mark.parametrize(("scheme", "method"), [("A", "supermask"), ("B", "gradual"), ("C", "magnitude")])
def test_runs_prune_the_encoder_by_scheme_and_resume(scheme, method, tiny_settings, tmp_path, monkeypatch):
    # In scheme C the first phase has the best score, but its encoder is not pruned yet.
    scores = [0.9, 0.5, 0.3]

    def validate(self, epoch, logs=None):
        logs["validation_CIDEr"] = scores[epoch]

    monkeypatch.setattr(Validation, "on_epoch_end", validate)
    settings = [*tiny_settings, *SCHEMED, *FEW_STEPS, f"data.cache_folder={tmp_path / 'cache'}"]
    settings += [f"pruning.encoder={scheme}", f"pruning.method={method}", "training.epochs=1"]
    if scheme == "C":
        settings += ["training.validation_images=2", "training.restore_best=true"]
    folder, _, messages = train(tmp_path, settings)
    assert_zeros(folder, scheme)
    messages += resume_last_epoch(folder, settings)
    assert "resuming after epoch 2" in messages
    if scheme == "C":
        assert messages.count("restoring the weights of epoch 2, the best on validation") == 2
        captioner = FinishedRun.load(folder.path).captioner
        assert has_weights_of(folder.checkpoint(2), captioner)
        assert not has_weights_of(folder.checkpoint(3), captioner)


def has_weights_of(checkpoint, captioner):
    """Whether all non-zero weights are those of a checkpoint, in which they are gated."""
    stored = [
        array
        for key, array in arrays(checkpoint).items()
        if key.startswith("model/") and not key.endswith(("logits", "state"))
    ]
    pairs = list(zip(captioner.get_weights(), stored, strict=True))
    return all(np.array_equal(own, np.where(own == 0, 0, other)) for own, other in pairs)


@pytest.mark.slow
def test_the_encoder_is_pruned_only_if_configured(tiny_settings):
    captioner = make_captioner(load_config(None, tiny_settings), 12)
    for more, reason in (
        ([], "(skipped)"),
        (["model.encoder.trainable=false"], "it is not trainable"),
        (["pruning.encoder=true"], None),
        (["pruning=null"], None),
    ):
        config = load_config(None, [*tiny_settings, *more])
        captioner.encoder.trainable = config.model.encoder.trainable
        gate_captioner(captioner, config, 10)
        decoder, encoder = parts(captioner)
        assert (decoder > 0, encoder > 0) == (config.pruning is not None, "pruning.encoder=true" in more)
        if reason is not None:
            text = " ".join(captioner.pruning.describe().split())
            assert reason in text and "conv_pw_1" in text
            assert ("it is not trainable" in text) == (reason == "it is not trainable")
        captioner = strip_pruning(captioner)


def test_an_error_of_a_method_names_the_setting(tiny_settings):
    config = load_config(None, [*tiny_settings, "pruning.begin=0.9", "pruning.end=0.2"])
    with pytest.raises(InputError, match=r"pruning\.method=supermask: .* begin must be below end"):
        gate_captioner(make_captioner(config, 12), config, 10)


@pytest.fixture
def slim_settings(tiny_settings):
    more = ["name=slim", "model.encoder.layer=conv_pw_1_relu", "model.encoder.width=0.5"]
    more += [
        "data.max_length=4",
        "training.batch_size=50",
        "training.slim.iterations=2",
        "training.epochs=3",
        "training.average_decay=0.9",
    ]
    return [*tiny_settings, *more, "pruning.sparsity=0.5", "training.restore_best=true"]


@pytest.fixture
def records(tmp_path):
    random, photographs = np.random.default_rng(0), []
    for index in range(70):
        path = tmp_path / f"{index}.png"
        Image.fromarray(random.integers(0, 256, (32, 32, 3), np.uint8)).save(path)
        photographs.append(Record(path.name, path, ("a photograph",), "train"))
    return photographs


def width(encoder):
    return [layer.filters for layer in encoder.backbone.layers if isinstance(layer, keras.layers.Conv2D)]


@pytest.mark.slow
@pytest.mark.usefixtures("eager")
def test_a_run_removes_channels_and_resumes_from_each_epoch_to_the_same_weights(
    slim_settings, tmp_path, monkeypatch
):
    save, stopped = SaveEpoch.on_epoch_end, RunFolder(tmp_path / "stopped" / "slim")

    def copy(self, epoch, logs=None):
        save(self, epoch, logs)
        if epoch == 0:
            shutil.copytree(tmp_path / "whole", tmp_path / "stopped")

    with monkeypatch.context() as patch:
        patch.setattr(SaveEpoch, "on_epoch_end", copy)
        folder, scores, messages = train(tmp_path / "whole", slim_settings)
    removals = [message for message in messages if message.startswith("iteration ")]
    assert [text.split(":")[0] for text in removals] == ["iteration 1 of 2", "iteration 2 of 2"]
    assert [row["phase"] for row in history(folder)] == ["train_1", "train_2", "train_2"]
    rates = [float(row["learning_rate"]) for row in history(folder)]
    # One schedule for both iterations: all steps but the last are its warm-up.
    assert rates == pytest.approx([0.01 * 2 / 5, 0.01 * 4 / 5, 1e-5], rel=1e-4)
    finished = FinishedRun.load(folder.path).captioner
    # Half of 16 channels; the 32 features stay.
    widths = width(finished.encoder)
    assert widths == [8, 32] and scores["sparsity"] == pytest.approx(0.5, abs=0.001)

    class Stopped(Exception):
        pass

    def stop(self, epoch, logs=None):
        save(self, epoch, logs)
        raise Stopped

    with monkeypatch.context() as patch:
        patch.setattr(SaveEpoch, "on_epoch_end", stop)
        for _ in range(2):
            with pytest.raises(Stopped):
                train(tmp_path / "stopped", slim_settings, resume=True)
    _, resumed, _ = train(tmp_path / "stopped", slim_settings, resume=True)
    assert_same_arrays(arrays(stopped.checkpoint(3)), arrays(folder.checkpoint(3)))
    assert resumed["CIDEr"] == scores["CIDEr"]

    settings = [*slim_settings, "name=next", "training.slim=null", f"training.start_from={folder.path}"]
    settings += [f"model.encoder.slimmed={folder.encoder}", "training.epochs=1", "pruning=null"]
    following, _, _ = train(tmp_path, settings)
    assert width(FinishedRun.load(following.path).captioner.encoder) == widths


@pytest.mark.slow
def test_an_encoder_without_gammas_is_refused_and_slim_copies_keep_the_penalty(records):
    encoder = MobileNetV1Encoder(0.5, "conv_pw_2_relu", 32, None, trainable=True)
    penalise_gammas(encoder, 0.5)
    before = float(sum(encoder.backbone.losses))
    EncoderSlimming(SlimSettings(iterations=1), encoder, records)._remove(1)
    assert 0 < float(sum(encoder.backbone.losses)) < before == 0.5 * (16 + 16 + 32 + 32 + 64)
    penalise_gammas(encoder, 0)
    assert not encoder.backbone.losses
    plain = keras.Sequential([keras.Input((32, 32, 3)), keras.layers.Conv2D(8, 3)], name="plain")
    with pytest.raises(InputError, match=r"^training\.gamma_l2: plain has no batch normalisation"):
        penalise_gammas(SimpleNamespace(backbone=plain), 0.5)


@pytest.mark.slow
@pytest.mark.usefixtures("eager")
def test_large_gammas_of_a_trained_encoder_are_penalised(slim_settings, tmp_path):
    settings = [*slim_settings, "training.slim=null", "training.epochs=1", "pruning=null"]
    settings += ["training.restore_best=false", "training.validation_images=0"]
    losses = {}
    for weight in (0, 0.1):
        run, _, _ = train(tmp_path / str(weight), [*settings, f"training.gamma_l2={weight}"])
        losses[weight] = float(history(run)[0]["loss"])
    # The gammas of the blocks of 16 and 32 channels start at one.
    assert losses[0.1] - losses[0] == pytest.approx(0.1 * (16 + 16 + 32), rel=0.1)


@pytest.mark.slow
def test_the_optimizer_keeps_its_state_of_all_that_stays(records):
    encoder = MobileNetV1Encoder(0.5, "conv_pw_2_relu", 32, None, trainable=True)
    slimming, head = EncoderSlimming(SlimSettings(iterations=1), encoder, records), keras.layers.Dense(2)
    head.build((None, 64))

    def optimizer():
        made = keras.optimizers.Adam(0.01, use_ema=True)
        made.build([*encoder.trainable_variables, *head.trainable_variables])
        return made

    before = optimizer()
    kernels = [encoder.backbone.layers[1].kernel]
    assert kernels[0].shape == (3, 3, 3, 16)
    random = np.random.default_rng(0)
    before.apply([random.normal(size=weight.shape) for weight in optimizer_variables(before)])
    message = slimming._remove(1)
    assert message.startswith("iteration 1 of 1: the encoder keeps 24 of 48 channels, ")
    after = optimizer()
    slimming.carry_over(before, after)
    assert int(after.iterations) == 1
    kernels.append(encoder.backbone.layers[1].kernel)
    columns = [kernel.numpy().reshape(-1, kernel.shape[-1]).T for kernel in kernels]
    indices = [int(np.flatnonzero((column == columns[0]).all(1)).item()) for column in columns[1]]
    momenta = [optimizer_slots(adam)["_momentums"] for adam in (before, after)]
    np.testing.assert_array_equal(momenta[1][0], momenta[0][0].numpy()[..., indices])
    np.testing.assert_array_equal(momenta[1][-2], momenta[0][-2])  # the head's kernel
    averages = optimizer_slots(after)["_model_variables_moving_average"]
    for variable, average in zip(optimizer_variables(after), averages, strict=True):
        np.testing.assert_array_equal(average, variable)


@pytest.mark.slow
def test_channels_that_do_not_change_the_features_are_removed_whatever_their_gammas(records):
    errors = {}
    for criterion in ("taylor", "rtic"):
        keras.utils.set_random_seed(0)
        encoder = MobileNetV1Encoder(0.5, "conv_pw_2_relu", 32, None, trainable=True)
        for part in encoder.backbone.layers:
            if isinstance(part, keras.layers.BatchNormalization) and part.gamma.shape[0] < 64:
                # Every second channel is constant, but has the largest gamma.
                dead = np.arange(part.gamma.shape[0]) % 2 == 1
                part.gamma.assign(np.where(dead, 2.0, 1.0))
                part.beta.assign(np.where(dead, -100.0, 0.5))
        images = np.random.default_rng(1).integers(0, 256, (8, 32, 32, 3), np.uint8)
        features = encoder(images).numpy()
        EncoderSlimming(SlimSettings(iterations=1, criterion=criterion), encoder, records)._remove(1)
        assert sum(width(encoder)[:-1]) == 24
        errors[criterion] = np.square(encoder(images).numpy() - features).mean() / features.var()
    assert errors["taylor"] < 1e-6 and errors["rtic"] > 0.005


def test_samples_are_spread_over_the_records_and_unreadable_images_left_out(records):
    encoder = MobileNetV1Encoder(0.5, "conv_pw_2_relu", 32, None)
    records[3].image.write_bytes(b"damaged")
    batches = sample_batches(encoder, records)
    assert [batch.shape[0] for batch in batches] == [16, 16, 16, 15]
    fourth = np.asarray(Image.open(records[4].image), "float32")
    np.testing.assert_allclose(batches[0][3], fourth / 127.5 - 1, atol=1e-6)
    assert len(sample_batches(encoder, records * 10)) == 4
    with pytest.raises(InputError, match=r"3\.png"):
        sample_batches(encoder, [records[3]])
    with pytest.raises(InputError, match="no training images"):
        sample_batches(encoder, [])


def test_a_ratio_that_cannot_be_reached_is_refused_before_anything_is_written(slim_settings, tmp_path):
    with pytest.raises(
        InputError, match=r"^training\.slim: ratio is 0\.99, but .* most .*: give about .* less"
    ):
        train(tmp_path, [*slim_settings, "training.slim.ratio=0.99"])
    assert not list(tmp_path.iterdir())
