"""Whole runs: trained, pruned, stopped, gone on with, finished."""

import csv
import functools
import json
import shutil
import warnings

import keras
import numpy as np
import pytest

from tfsparsecap.errors import InputError
from tfsparsecap.inference.finished_run import FinishedRun
from tfsparsecap.runs.run_folder import RunFolder
from tfsparsecap.settings.files import load_config
from tfsparsecap.training import run as running
from tfsparsecap.training.callbacks import SaveEpoch
from tfsparsecap.training.run import phases, train_run

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
    trained = FinishedRun.load(folder)
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
    start = FinishedRun.load(tiny_run)
    settings = [*tiny_settings, f"training.start_from={tiny_run}", "training.epochs=1"]
    still = ["training.learning_rate=1e-9", "pruning.sparsity=0.5", "data.minimum_count=3"]
    said = []
    train_run(load_config(None, [*settings, *still]), runs=tmp_path, verbose=0, say=said.append)
    assert f"starting with the weights of {tiny_run}" in said
    found = FinishedRun.load(tmp_path / "tiny")
    # The vocabulary is that of the weights, whatever the settings would make of the data.
    assert found.tokenizer.vocabulary == start.tokenizer.vocabulary
    for own, other in zip(found.captioner.trainable_weights, start.captioner.trainable_weights, strict=True):
        own, other = np.asarray(own), np.asarray(other)
        np.testing.assert_allclose(own, np.where(own == 0, 0, other), atol=1e-4)


def test_a_run_that_was_stopped_before_its_first_checkpoint_starts_as_it_was_to(
    tiny_settings, tiny_run, tmp_path
):
    still = ["training.epochs=1", "training.learning_rate=1e-9", "pruning=null"]
    config = load_config(None, [*tiny_settings, f"training.start_from={tiny_run}", *still])
    train_run(config, runs=tmp_path, verbose=0, say=str)
    for left in (tmp_path / "tiny" / "checkpoints").iterdir():
        left.unlink()
    train_run(config, resume=True, runs=tmp_path, verbose=0, say=str)
    found, start = (
        FinishedRun.load(run).captioner.trainable_weights for run in (tmp_path / "tiny", tiny_run)
    )
    for own, other in zip(found, start, strict=True):
        np.testing.assert_allclose(own, other, atol=1e-4)


def test_a_run_whose_test_pictures_cannot_be_read_is_kept_and_said(tiny_settings, tmp_path, monkeypatch):
    def evaluate(self, *arguments, **options):
        raise InputError("none of them can be read: mend them")

    monkeypatch.setattr(FinishedRun, "evaluate", evaluate)
    said = []
    config = load_config(None, [*tiny_settings, "training.epochs=1"])
    row = train_run(config, runs=tmp_path, verbose=0, say=said.append)
    assert row["epoch"] == 1 and (tmp_path / "tiny" / "model.keras").is_file()
    assert any("was not evaluated: none of them can be read" in sentence for sentence in said)


def test_a_start_of_other_sizes_or_none_at_all_is_said(tiny_settings, tiny_run, tmp_path):
    for wrong, message in (
        ("model.rnn_size=24", "is another one .* give model settings as in its config.yaml"),
        ("model.cell=gru", "is another one"),
        (f"training.start_from={tmp_path / 'absent'}", "absent"),
        ("data.radix_base=5", r"has data\.radix_base=null, this one 5: set the same"),
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


COLOURS, THINGS = ("red", "green", "blue", "grey"), ("dog", "cat", "cup")
FIRST, MISSING, BAD, BAD_TEST, TEST = 101, 104, 108, 121, (120, 121, 122, 123, 124)
#: Sizes of the captioners, and what makes an ACORT of the Object Relation Transformer.
KINDS = {
    "soft_attention": ["model.embedding_size=6", "model.rnn_size=10", "model.attention_size=7"],
    "up_down": ["model.embedding_size=6", "model.rnn_size=10", "model.attention_size=7"],
    "object_relation_transformer": [
        *("model.size=16", "model.hidden_size=12", "model.layers=2", "model.heads=2", "data.radix_base=4"),
        *("model.share_encoder_layers=[0,0]", "model.share_decoder_layers=[0,0]"),
        *("model.share_encoder_attention=kv", "model.share_decoder_attention=kv", "data.max_length=9"),
    ],
}


@pytest.fixture(scope="module")
def bottom_up(tmp_path_factory):
    """24 images in COCO's layout; one of them has no file, two have files with NaN."""
    folder, images = tmp_path_factory.mktemp("coco"), []
    random = np.random.default_rng(2)
    for kind in ("cocobu_att", "cocobu_fc", "cocobu_box_relative"):
        (folder / kind).mkdir()
    for number in range(FIRST, FIRST + 24):
        count, colour, thing = 3 + number % 7, number % 4, number % 3
        features = random.random([count, 8], np.float32) + np.eye(8, dtype=np.float32)[
            [colour, 4 + thing]
        ].sum(0)
        corners = np.sort(random.random([count, 2, 2], np.float32), axis=1)
        np.save(folder / "cocobu_att" / f"{number}.npy", features)
        np.save(folder / "cocobu_fc" / f"{number}.npy", features.mean(axis=0))
        np.save(folder / "cocobu_box_relative" / f"{number}.npy", corners.reshape(count, 4))
        said = [f"a {COLOURS[colour]} {THINGS[thing]}", f"The {THINGS[thing]} is {COLOURS[colour]}."]
        split = "test" if number in TEST else "val" if number > 116 else "train"
        images.append(
            {
                "cocoid": number,
                "filepath": "train2014",
                "filename": f"COCO_train2014_{number:012}.jpg",
                "split": split,
                "sentences": [{"raw": text} for text in said],
            }
        )
    (folder / "dataset_coco.json").write_text(json.dumps({"dataset": "coco", "images": images}))
    (folder / "cocobu_att" / f"{MISSING}.npy").unlink()
    for number in (BAD, BAD_TEST):
        path = folder / "cocobu_att" / f"{number}.npy"
        np.save(path, np.full_like(np.load(path), np.nan))
    return folder


def on_features(folder, kind, *more):
    settings = ["data.kind=coco", f"data.folder={folder}", f"data.features={folder}", "data.max_length=6"]
    settings += ["data.max_regions=8", "model.encoder=null", "model.feature_size=8", "decoding.batch_size=3"]
    settings += ["training.batch_size=6", "training.epochs=2", "training.learning_rate=0.01"]
    # A trace of the training step for each bucket.
    settings += [f"data.region_buckets={[5] if kind == 'soft_attention' else []}"]
    settings += ["pruning.sparsity=0.5", "name=tiny", f"model.kind={kind}"]
    return load_config(None, [*settings, *KINDS[kind], *more])


@pytest.fixture(scope="module")
def from_features(bottom_up, tmp_path_factory):
    """`from_features(kind)`: a finished run, what it said, which files it warned of, its scores."""

    @functools.cache
    def get(kind):
        runs, said = tmp_path_factory.mktemp(kind), []
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            scores = train_run(on_features(bottom_up, kind), runs=runs, verbose=0, say=said.append)
        late = [str(entry.message) for entry in warned if "left out: " in str(entry.message)]
        return runs / "tiny", said, late, scores

    return get


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:left out")
@pytest.mark.parametrize("kind", KINDS)
def test_a_run_from_bottom_up_features_leaves_out_and_names_what_is_bad(bottom_up, from_features, kind):
    folder, said, late, scores = from_features(kind)
    assert said[0].startswith(f"{bottom_up.name}: train 16 images, 32 captions; validation 3 images")
    (sentence,) = [text for text in said if "left out" in text]
    assert sentence.startswith(f"1 bad records are left out ({MISSING});")
    names = (folder / "skipped.txt").read_text()
    assert names.startswith(f"{MISSING}: there is no {bottom_up}/cocobu_att/{MISSING}.npy")
    assert [text.partition(" has a number")[0] for text in late] == [
        f"left out: {bottom_up}/cocobu_att/{number}.npy" for number in (BAD, BAD_TEST)
    ]
    with (folder / "history.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert float(rows[1]["loss"]) < float(rows[0]["loss"]) and "validation_CIDEr" in rows[0]
    assert scores["images"] == len(TEST) - 1 and scores["sparsity"] == pytest.approx(0.5, abs=0.01)

    trained = FinishedRun.load(folder)
    assert all(np.isfinite(values).all() for values in trained.captioner.get_weights())
    again, captions = trained.evaluate(progress=False)
    assert [caption.image_id for caption in captions] == [str(n) for n in TEST if n != BAD_TEST]
    assert captions[0].references == ("a red dog", "The dog is red.")
    assert {**again, "ms_per_image": 0, "run": str(folder)} == {**scores, "ms_per_image": 0}
    # A picture alone, without filling, is captioned as it is among others.
    files = {"features": "cocobu_att", "boxes": "cocobu_box_relative", "pooled": "cocobu_fc"}
    given = {
        name: np.load(bottom_up / file / f"{captions[0].image_id}.npy")[:8]
        for name, file in files.items()
        if name in trained.captioner.input_names
    }
    ((text, score),) = trained.generate(given)
    assert text == captions[0].caption and score == pytest.approx(captions[0].score, abs=1e-4)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:left out")
def test_a_run_from_features_that_was_stopped_ends_with_the_same_weights(
    bottom_up, from_features, tmp_path, monkeypatch
):
    config = on_features(bottom_up, "up_down")
    whole, *_, scores = from_features("up_down")
    with monkeypatch.context() as patch, pytest.raises(Stopped):
        stop_after(patch, 1)
        train_run(config, runs=tmp_path, verbose=0, say=str)
    resumed = train_run(config, resume=True, runs=tmp_path, verbose=0, say=str)
    last = "checkpoints/epoch-0002.npz"
    first, second = arrays(whole / last), arrays(tmp_path / "tiny" / last)
    assert len(first) == len(second) > 30
    for one, other in zip(first.values(), second.values(), strict=True):
        np.testing.assert_array_equal(one, other)
    assert resumed["CIDEr"] == scores["CIDEr"]


def test_a_bad_picture_stops_a_run_from_features_where_asked(bottom_up, tmp_path):
    fail = ["data.on_bad_record=fail", "training.validation_images=0"]
    with pytest.raises(InputError, match=f"^{MISSING}: there is no .*; mend it, or set on_bad_record=skip"):
        train_run(on_features(bottom_up, "soft_attention", *fail), runs=tmp_path, verbose=0, say=str)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("method", ["gradual", "lottery", "magnitude", "snip"])
def test_baselines_land_in_the_loop_and_after_a_stop(method, tiny_settings, tmp_path):
    config = load_config(None, [*tiny_settings, f"pruning.method={method}", "pruning.sparsity=0.7"])
    scores = train_run(config, runs=tmp_path / "whole", verbose=0, say=str)
    assert scores["sparsity"] == pytest.approx(0.7, abs=0.01)
    shutil.copytree(tmp_path / "whole", tmp_path / "stopped")
    folder = RunFolder(tmp_path / "stopped" / "tiny")
    folder.checkpoint(2).unlink()  # as if it had been stopped in the second epoch
    folder.model.unlink()
    train_run(config, resume=True, runs=tmp_path / "stopped", verbose=0, say=str)
    whole, resumed = (FinishedRun.load(tmp_path / name / "tiny").captioner for name in ("whole", "stopped"))
    for one, other in zip(whole.get_weights(), resumed.get_weights(), strict=True):
        np.testing.assert_array_equal(one, other)


def test_a_lottery_ticket_is_drawn_from_a_run_and_starts_as_it_did(tiny_settings, tmp_path):
    def trained(*more):
        config = load_config(None, [*tiny_settings, "training.validation_images=0", *more])
        train_run(config, runs=tmp_path, verbose=0, say=lambda text: None)
        return tmp_path / config.name

    dense = trained("name=dense", "pruning=null", "training.keep_initial=true")
    start = ["training.start_from=" + str(dense), "pruning.method=lottery", "pruning.rounds=0"]
    # At a rate of almost nothing the ticket stays where it began.
    still = ["training.learning_rate=1e-12", "training.schedule=constant", "pruning.sparsity=0.7"]
    ticket = FinishedRun.load(trained("name=ticket", *start, *still)).captioner
    with np.load(dense / "checkpoints" / "initial.npz", allow_pickle=False) as file:
        initial = [file[name] for name in file.files if name != "notes"]
    ends = FinishedRun.load(dense).captioner.get_weights()
    decoder = [
        (own, first, last)
        for own, first, last, variable in zip(
            ticket.get_weights(), initial, ends, ticket.weights, strict=True
        )
        if own.ndim == 2 and not variable.path.endswith("bias") and "encoder" not in variable.path
    ]
    sizes = np.sort(np.concatenate([np.abs(last).ravel() for _, _, last in decoder]))
    limit = sizes[round(0.7 * sizes.size) - 1]
    for own, first, last in decoder:
        np.testing.assert_allclose(own, np.where(np.abs(last) > limit, first, 0.0), atol=1e-6)
    with pytest.raises(InputError, match=r"no checkpoints/initial\.npz: train it with"):
        trained("name=other", f"training.start_from={tmp_path / 'ticket'}", *start[1:])
    assert not (tmp_path / "other").exists()
