"""Callbacks of a run: checkpoints, the history, validation, and the remaining time."""

import csv

import keras
import numpy as np
import pytest

import tfsparsecap as sc
from tfsparsecap.captioning.data.tokenizers import WordTokenizer
from tfsparsecap.captioning.inference.scoring import ImageCaption
from tfsparsecap.captioning.runs.checkpoints import read_notes
from tfsparsecap.captioning.runs.run_folder import RunFolder
from tfsparsecap.captioning.settings.schema import Config
from tfsparsecap.captioning.training import callbacks
from tfsparsecap.captioning.training.callbacks import SaveEpoch, TimeLeft, Validation, layer_sparsities


def test_each_epoch_writes_a_checkpoint_and_a_row(tmp_path):
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    model.compile(keras.optimizers.Adam(0.25))
    model.optimizer.build(model.trainable_variables)
    folder = RunFolder(tmp_path)
    folder.create(Config(), WordTokenizer.from_captions(["a dog"]))
    history = []
    callback = SaveEpoch(folder, history, "train")
    callback.set_model(model)
    for epoch, score in enumerate((0.5, 0.4)):
        callback.on_epoch_end(epoch, {"loss": 1.0, "validation_CIDEr": score})
    notes = read_notes(folder.checkpoint(2))
    assert (notes["epoch"], notes["phase"], notes["history"]) == (2, "train", history)
    with folder.history.open() as file:
        written = list(csv.DictReader(file))
    assert [row["validation_CIDEr"] for row in written] == ["0.5", "0.4"]
    assert written[0]["learning_rate"] == "0.25"


def test_the_history_has_the_sparsity_of_each_layer(tmp_path):
    model = keras.Sequential(
        [keras.Input((4,)), keras.layers.Dense(8, name="a"), keras.layers.Dense(2, name="b")], name="net"
    )
    sc.prune(model, sc.Magnitude(0.5))
    for layer, opened in zip(model.layers, (8, 12), strict=True):
        logits = layer.kernel_gate.logits
        logits.assign(np.where(np.arange(np.prod(logits.shape)) < opened, 1.0, -1.0).reshape(logits.shape))
    assert layer_sparsities(model) == {"sparsity/net/a/kernel": 0.75, "sparsity/net/b/kernel": 0.25}
    assert layer_sparsities(keras.Sequential()) == {}


def test_validation_logs_the_scores_that_can_be_computed(monkeypatch):
    captions = [ImageCaption("a", "a dog", 0.0, ("a dog",)), ImageCaption("b", "a cat", 0.0, ("cats",))]
    monkeypatch.setattr(callbacks, "Decoder", lambda *arguments, **options: None)
    monkeypatch.setattr(callbacks, "caption_records", lambda *arguments: (captions, 0.0))
    validation, logs = Validation(None, [], None, None, 5), {}
    validation.on_epoch_end(0, logs)
    assert set(logs) == set(Validation.SCORES)
    # One image has no CIDEr.
    del captions[1]
    logs = {}
    validation.on_epoch_end(0, logs)
    assert set(logs) == {"validation_BLEU-4"}


@pytest.mark.parametrize(
    ("later", "expected"),
    [
        (0, ["3 of 5 epochs done, about 4 min left", "4 of 5 epochs done, about 3 min left"]),
        (3, ["3 of 8 epochs done, about 10 min left", "4 of 8 epochs done, about 12 min left"]),
    ],
    ids=["one iteration", "iterations follow"],
)
def test_the_remaining_time_is_reported_from_the_second_epoch_on(later, expected, monkeypatch):
    messages = []
    callback = TimeLeft(messages.append, more_epochs=later)
    callback.set_params({"epochs": 5})
    clock = iter([100.0, 220.0, 400.0])
    monkeypatch.setattr(callbacks.time, "monotonic", lambda: next(clock))
    for epoch in (2, 3, 4):
        callback.on_epoch_begin(epoch)
    assert messages == expected
