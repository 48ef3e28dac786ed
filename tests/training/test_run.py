"""Whole runs: trained, pruned, stopped, gone on with, finished."""

import csv
import json

import keras
import numpy as np
import pytest

from tfsparsecap.errors import InputError
from tfsparsecap.training import run as running
from tfsparsecap.training.callbacks import SaveEpoch
from tfsparsecap.training.config_files import load_config
from tfsparsecap.training.run import phases, train_run
from tfsparsecap.training.trained import Trained

#: Everything that has state: gates, dropout, a learning rate schedule, cached features, then fine-tuning.
STATEFUL = [
    "pruning.sparsity=0.8",
    "pruning.encoder=false",
    "model.dropout=0.3",
    "model.encoder.trainable=false",
    "training.fine_tune.epochs=2",
    "training.fine_tune.learning_rate=0.001",
    "training.validation_images=2",
]


def arrays(path):
    with np.load(path, allow_pickle=False) as file:
        return {key: file[key] for key in file.files if key != "notes"}


class Stopped(Exception):
    """Stands for the power cut."""


def stop_after(monkeypatch, epoch):
    whole = SaveEpoch.on_epoch_end

    def on_epoch_end(self, number, logs=None):
        whole(self, number, logs)
        if number + 1 == epoch:
            raise Stopped

    monkeypatch.setattr(SaveEpoch, "on_epoch_end", on_epoch_end)


@pytest.mark.slow
def test_a_run_that_was_stopped_ends_with_the_same_weights_to_the_last_bit(
    tiny_settings, tmp_path, monkeypatch
):
    config = load_config(None, [*tiny_settings, *STATEFUL, f"data.cache_folder={tmp_path / 'cache'}"])
    said = []
    whole = train_run(config, runs=tmp_path / "whole", verbose=0, say=said.append)
    # In the middle of training, between the phases, in the middle of fine-tuning.
    for epoch in (1, 2, 3):
        with monkeypatch.context() as patch, pytest.raises(Stopped):
            stop_after(patch, epoch)
            train_run(config, resume=epoch > 1, runs=tmp_path / "stopped", verbose=0, say=said.append)
    resumed = train_run(config, resume=True, runs=tmp_path / "stopped", verbose=0, say=said.append)
    assert [text for text in said if "going on" in text] == [f"going on after epoch {n}" for n in (1, 2, 3)]
    last = "tiny/checkpoints/epoch-0004.npz"
    first, second = arrays(tmp_path / "whole" / last), arrays(tmp_path / "stopped" / last)
    assert len(first) == len(second) > 50
    for one, other in zip(first.values(), second.values(), strict=True):
        np.testing.assert_array_equal(one, other)
    assert resumed["CIDEr"] == whole["CIDEr"]
    assert resumed["sparsity"] == whole["sparsity"] == pytest.approx(0.8, abs=0.001)


@pytest.mark.slow
def test_a_run_leaves_what_its_folder_is_said_to_hold(tiny_settings, tmp_path):
    settings = [
        *tiny_settings,
        "pruning=null",
        "training.precision=mixed_bfloat16",
        "training.clip_value=1.0",
    ]
    config = load_config(None, [*settings, "training.clip_norm=null", "training.weight_decay=0.01"])
    said = []
    scores = train_run(config, runs=tmp_path, verbose=0, say=said.append)
    folder = tmp_path / "tiny"
    assert {path.name for path in folder.iterdir()} >= {
        "config.yaml",
        "vocabulary.txt",
        "checkpoints",
        "history.csv",
        "model.keras",
        "scores_test.json",
        "captions_test.json",
    }
    assert said[0].startswith("scenes: train 20 images, 100 captions")
    with (folder / "history.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["epoch"] for row in rows] == ["1", "2"]
    assert {"loss", "seconds", "data_wait", "learning_rate", "validation_CIDEr"} <= rows[0].keys()
    assert float(rows[1]["loss"]) < float(rows[0]["loss"])
    written = json.loads((folder / "scores_test.json").read_text())
    assert written == {key: value for key, value in scores.items() if key != "run"}
    captions = json.loads((folder / "captions_test.json").read_text())
    assert len(captions) == 4 and captions[0].keys() == {"image_id", "caption", "score", "references"}
    # What was trained in bfloat16 is kept in float32: exported files have no mixed precision.
    trained = Trained.load(folder)
    assert {layer.dtype_policy.name for layer in trained.captioner._flatten_layers()} == {"float32"}

    with pytest.raises(InputError, match="exists: pass --resume"):
        train_run(config, runs=tmp_path, verbose=0, say=said.append)


@pytest.mark.slow
def test_the_best_weights_are_taken_where_asked(tiny_settings, tmp_path, monkeypatch):
    scores = iter([0.1, 0.5, 0.3])

    def validate(self, epoch, logs=None):
        logs["validation_CIDEr"] = next(scores)

    monkeypatch.setattr(running.Validation, "on_epoch_end", validate)
    more = ["pruning=null", "training.restore_best=true", "training.epochs=3"]
    said = []
    train_run(load_config(None, [*tiny_settings, *more]), runs=tmp_path, verbose=0, say=said.append)
    assert "taking the weights of epoch 2, the best on validation" in said
    best = arrays(tmp_path / "tiny" / "checkpoints" / "epoch-0002.npz")
    kept = keras.saving.load_model(tmp_path / "tiny" / "model.keras", compile=False)
    stored = [array for key, array in best.items() if key.startswith("model/") and array.dtype == np.float32]
    found = [np.array(v) for v in kept.variables if v.dtype == "float32"]
    assert sum(float(array.sum()) for array in stored) == pytest.approx(
        sum(float(array.sum()) for array in found)
    )


def test_a_run_starts_with_what_another_one_has_learnt(tiny_settings, tiny_run, tmp_path):
    start = Trained.load(tiny_run)
    settings = [*tiny_settings, f"training.start_from={tiny_run}", "training.epochs=1"]
    still = ["training.learning_rate=1e-9", "pruning.sparsity=0.5", "data.minimum_count=3"]
    said = []
    train_run(load_config(None, [*settings, *still]), runs=tmp_path, verbose=0, say=said.append)
    assert f"starting with the weights of {tiny_run}" in said
    found = Trained.load(tmp_path / "tiny")
    # The vocabulary is that of the weights, whatever the settings would make of the data.
    assert found.tokenizer.vocabulary == start.tokenizer.vocabulary
    for own, other in zip(found.captioner.trainable_weights, start.captioner.trainable_weights, strict=True):
        own, other = np.asarray(own), np.asarray(other)
        np.testing.assert_allclose(own, np.where(own == 0, 0, other), atol=1e-4)


def test_a_start_of_other_sizes_or_none_at_all_is_said(tiny_settings, tiny_run, tmp_path):
    for wrong, message in (
        ("model.rnn_size=24", "is another one .* give model settings as in its config.yaml"),
        ("model.cell=gru", "is another one"),
        (f"training.start_from={tmp_path / 'absent'}", "absent"),
    ):
        settings = [*tiny_settings, f"training.start_from={tiny_run}", wrong]
        with pytest.raises(InputError, match=message):
            train_run(load_config(None, settings), runs=tmp_path, verbose=0, say=str)
    assert not list(tmp_path.iterdir())


def test_wrong_input_leaves_no_folder_behind(tiny_settings, tmp_path):
    for wrong in ("data.minimum_count=1000000", "training.batch_size=100000", "pruning.begin=0.99"):
        more = [wrong, "pruning.end=0.5"] if "begin" in wrong else [wrong]
        with pytest.raises(InputError):
            train_run(load_config(None, [*tiny_settings, *more]), runs=tmp_path, verbose=0, say=str)
    assert not list(tmp_path.iterdir())


def test_phases_follow_the_settings(tiny_settings):
    assert [phase.name for phase in phases(load_config(None, tiny_settings))] == ["train"]
    frozen = load_config(
        None, [*tiny_settings, "model.encoder.trainable=false", "training.fine_tune.epochs=2"]
    )
    first, second = phases(frozen)
    assert not first.from_images and second.from_images
    assert (second.epochs, second.batch_size, second.schedule) == (2, 25, "constant")
