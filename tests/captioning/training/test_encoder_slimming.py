"""Runs that remove channels of their image encoder: `training.slim`."""

from types import SimpleNamespace

import keras
import numpy as np
import pytest
from PIL import Image

from tfsparsecap.captioning.data.records import Record
from tfsparsecap.captioning.inference.finished_run import FinishedRun
from tfsparsecap.captioning.models import MobileNetV1Encoder
from tfsparsecap.captioning.settings.sections import Slim
from tfsparsecap.captioning.training.callbacks import SaveEpoch
from tfsparsecap.captioning.training.encoder_slimming import EncoderSlimming, penalise_gammas, sample_batches
from tfsparsecap.core.keras_internals import optimizer_slots, optimizer_variables
from tfsparsecap.errors import InputError

from .training_runs import arrays, assert_same_arrays, history, train


@pytest.fixture
def slim_settings(tiny_settings):
    more = ["name=slim", "model.encoder.layer=conv_pw_2_relu", "model.encoder.width=0.5"]
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
    random, found = np.random.default_rng(0), []
    for index in range(70):
        path = tmp_path / f"{index}.png"
        Image.fromarray(random.integers(0, 256, (32, 32, 3), np.uint8)).save(path)
        found.append(Record(path.name, path, ("a photograph",), "train"))
    return found


def width(encoder):
    return [layer.filters for layer in encoder.backbone.layers if isinstance(layer, keras.layers.Conv2D)]


@pytest.mark.slow
@pytest.mark.usefixtures("eager")
def test_a_run_removes_channels_and_resumes_from_each_epoch_to_the_same_weights(
    slim_settings, tmp_path, monkeypatch
):
    whole, scores, messages = train(tmp_path / "whole", slim_settings)
    removals = [message for message in messages if message.startswith("iteration ")]
    assert [text.split(":")[0] for text in removals] == ["iteration 1 of 2", "iteration 2 of 2"]
    assert [row["phase"] for row in history(whole)] == ["train_1", "train_2", "train_2"]
    rates = [float(row["learning_rate"]) for row in history(whole)]
    # One schedule for both iterations: all steps but the last are its warm-up.
    assert rates == pytest.approx([0.01 * 2 / 5, 0.01 * 4 / 5, 1e-5], rel=1e-4)
    finished = FinishedRun.load(whole.path).captioner
    # Half of 16 and 32 channels; the 64 features stay.
    left = width(finished.encoder)
    assert sum(left[:-1]) == 24 and left[-1] == 64 and scores["sparsity"] == pytest.approx(0.5, abs=0.001)

    class Stopped(Exception):
        pass

    save = SaveEpoch.on_epoch_end

    def stop(self, epoch, logs=None):
        save(self, epoch, logs)
        raise Stopped

    with monkeypatch.context() as patch:
        patch.setattr(SaveEpoch, "on_epoch_end", stop)
        for epoch in range(3):
            with pytest.raises(Stopped):
                train(tmp_path / "stopped", slim_settings, resume=epoch > 0)
    stopped, resumed, _ = train(tmp_path / "stopped", slim_settings, resume=True)
    assert_same_arrays(arrays(stopped.checkpoint(3)), arrays(whole.checkpoint(3)))
    assert resumed["CIDEr"] == scores["CIDEr"]

    settings = [*slim_settings, "name=next", "training.slim=null", f"training.start_from={whole.path}"]
    settings += [f"model.encoder.slimmed={whole.encoder}", "training.epochs=1", "pruning=null"]
    following, _, _ = train(tmp_path, settings)
    assert width(FinishedRun.load(following.path).captioner.encoder) == left


def test_an_encoder_without_gammas_is_refused_and_slim_copies_keep_the_penalty(records):
    encoder = MobileNetV1Encoder(0.5, "conv_pw_2_relu", 32, None, trainable=True)
    penalise_gammas(encoder, 0.5)
    before = float(sum(encoder.backbone.losses))
    EncoderSlimming(Slim(iterations=1), encoder, records)._remove(1)
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
    # The gammas of the blocks of 16, 32 and 64 channels start at one.
    assert losses[0.1] - losses[0] == pytest.approx(0.1 * (16 + 16 + 32 + 32 + 64), rel=0.1)


def test_the_optimizer_keeps_its_state_of_all_that_stays(records):
    encoder = MobileNetV1Encoder(0.5, "conv_pw_2_relu", 32, None, trainable=True)
    slimming, head = EncoderSlimming(Slim(iterations=1), encoder, records), keras.layers.Dense(2)
    head.build((None, 64))

    def optimizer():
        made = keras.optimizers.Adam(0.01, use_ema=True)
        made.build([*encoder.trainable_variables, *head.trainable_variables])
        return made

    before = optimizer()
    kernels = [encoder.backbone.layers[1].kernel]
    assert kernels[0].shape == (3, 3, 3, 16)
    random = np.random.default_rng(0)
    before.apply([random.normal(size=one.shape) for one in optimizer_variables(before)])
    message = slimming._remove(1)
    assert message.startswith("iteration 1 of 1: the encoder keeps 24 of 48 channels, ")
    after = optimizer()
    slimming.carry_over(before, after)
    assert int(after.iterations) == 1
    kernels.append(encoder.backbone.layers[1].kernel)
    columns = [kernel.numpy().reshape(-1, kernel.shape[-1]).T for kernel in kernels]
    kept = [int(np.flatnonzero((column == columns[0]).all(1)).item()) for column in columns[1]]
    momenta = [optimizer_slots(one)["_momentums"] for one in (before, after)]
    np.testing.assert_array_equal(momenta[1][0], momenta[0][0].numpy()[..., kept])
    np.testing.assert_array_equal(momenta[1][-2], momenta[0][-2])  # the head's kernel
    averages = optimizer_slots(after)["_model_variables_moving_average"]
    for variable, average in zip(optimizer_variables(after), averages, strict=True):
        np.testing.assert_array_equal(average, variable)


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
        whole = encoder(images).numpy()
        EncoderSlimming(Slim(iterations=1, criterion=criterion), encoder, records)._remove(1)
        assert sum(width(encoder)[:-1]) == 24
        errors[criterion] = np.square(encoder(images).numpy() - whole).mean() / whole.var()
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
