"""Whole runs: training, resuming, starting from other runs, and data that cannot be read."""

import json
import shutil
import warnings
from collections import Counter

import numpy as np
import pytest

from tfsparsecap.captioning.inference.finished_run import FinishedRun
from tfsparsecap.captioning.runs.run_folder import RunFolder
from tfsparsecap.captioning.settings.build import load_data
from tfsparsecap.captioning.settings.config_files import load_config
from tfsparsecap.captioning.training.callbacks import SaveEpoch, Validation
from tfsparsecap.captioning.training.loop import Loop
from tfsparsecap.captioning.training.phases import phases
from tfsparsecap.captioning.training.train_run import train_run
from tfsparsecap.errors import InputError

from .training_runs import arrays, assert_same_arrays, history, resume_last_epoch, train

#: Everything that has state: gates, dropout, averaged weights, a learning rate schedule, views of cached
#: features, then fine-tuning.
STATEFUL = [
    "pruning.sparsity=0.8",
    "model.dropout=0.3",
    "model.encoder.trainable=false",
    "data.max_length=4",
    "training.batch_size=50",
    "training.fine_tune.epochs=2",
    "training.fine_tune.learning_rate=0.001",
    "training.validation_images=2",
    "training.average_decay=0.9",
    "training.captions_per_image=2",
    "data.cached_views=3",
]


class Stopped(Exception):
    """Simulates a power failure."""


@pytest.mark.slow
@pytest.mark.usefixtures("quick_training")
def test_a_run_that_is_stopped_after_each_epoch_ends_with_the_same_weights(
    tiny_settings, tmp_path, monkeypatch
):
    settings = [*tiny_settings, *STATEFUL, f"data.cache_folder={tmp_path / 'cache'}"]
    save, stopped = SaveEpoch.on_epoch_end, RunFolder(tmp_path / "stopped" / "tiny")

    def save_and_copy(self, epoch, logs=None):
        save(self, epoch, logs)
        if epoch == 0:
            shutil.copytree(tmp_path / "whole", tmp_path / "stopped")

    def save_and_stop(self, epoch, logs=None):
        save(self, epoch, logs)
        raise Stopped

    # In the middle of training, between the phases, in the middle of fine-tuning.
    with monkeypatch.context() as patch:
        patch.setattr(SaveEpoch, "on_epoch_end", save_and_copy)
        folder, scores, messages = train(tmp_path / "whole", settings)
        assert any(text.startswith("the encoder has random weights") for text in messages)
        assert any("of 100 captions are longer than data.max_length=4," in text for text in messages)
        cached = set((tmp_path / "cache").iterdir())
        patch.setattr(SaveEpoch, "on_epoch_end", save_and_stop)
        for _ in range(2):
            with pytest.raises(Stopped):
                train(tmp_path / "stopped", settings, resume=True)
    _, resumed, messages = train(tmp_path / "stopped", settings, resume=True)
    assert "resuming after epoch 3" in messages
    assert set((tmp_path / "cache").iterdir()) == cached  # fine-tuning needs no features
    assert_same_arrays(arrays(stopped.checkpoint(4)), arrays(folder.checkpoint(4)))
    assert resumed["CIDEr"] == scores["CIDEr"]
    assert resumed["sparsity"] == scores["sparsity"] == pytest.approx(0.8, abs=0.001)


@pytest.mark.slow
def test_a_compiled_run_resumes_to_the_same_weights_if_its_last_checkpoint_is_damaged(trained_run, tmp_path):
    folder = RunFolder(shutil.copytree(trained_run, tmp_path / "trained"))
    last = folder.checkpoint(2)
    expected = arrays(last)
    last.write_bytes(last.read_bytes()[:-100])
    folder.model.unlink()
    _, _, messages = train(tmp_path, folder.load_config(), resume=True)
    assert messages[0].startswith(f"ignored: {last} is not a complete checkpoint (")
    assert messages[1] == "resuming after epoch 1"
    assert_same_arrays(arrays(last), expected)


@pytest.mark.slow
def test_a_run_folder_contains_what_is_documented(trained_run):
    folder = RunFolder(trained_run)
    assert {path.name for path in folder.path.iterdir()} >= {
        "config.yaml",
        "vocabulary.txt",
        "checkpoints",
        "history.csv",
        "logs",
        "model.keras",
        "scores_test.json",
        "captions_test.json",
    }
    rows = history(folder)
    assert [row["epoch"] for row in rows] == ["1", "2"]
    assert {"loss", "seconds", "data_wait", "learning_rate", "validation_CIDEr"} <= rows[0].keys()
    assert float(rows[1]["loss"]) < float(rows[0]["loss"])
    scores = json.loads((folder.path / "scores_test.json").read_text())
    assert scores["images"] == 4 and scores["sparsity"] == 0 and "run" not in scores
    captions = json.loads((folder.path / "captions_test.json").read_text())
    columns = {"image_id", "caption", "score", "references", "token_faults", "confidence", "labels"}
    assert len(captions) == 4 and captions[0].keys() == columns | {"objects"}
    with pytest.raises(InputError, match="exists: pass --resume"):
        train_run(folder.load_config(), runs=trained_run.parent, verbose=0, report=str)


@pytest.mark.slow
@pytest.mark.usefixtures("quick_training")
def test_a_run_in_bfloat16_is_saved_in_float32_and_kept_if_it_cannot_be_evaluated(
    tiny_settings, tmp_path, monkeypatch
):
    def evaluate(self, *arguments, **options):
        raise InputError("no image can be read")

    monkeypatch.setattr(FinishedRun, "evaluate", evaluate)
    settings = [*tiny_settings, "pruning=null", "training.epochs=1", "training.precision=mixed_bfloat16"]
    settings += ["training.clip_value=1.0", "training.clip_norm=null", "training.weight_decay=0.01"]
    settings += ["data.validation=0", f"data.folder={tmp_path / 'scenes'}"]
    folder, row, messages = train(tmp_path, settings)
    assert any("has no validation split: no epoch is scored" in message for message in messages)
    assert row["epoch"] == 1 and messages[-1].endswith("was not evaluated: no image can be read")
    assert messages[0].startswith("scenes: train 20 images, 100 captions")
    captioner = FinishedRun.load(folder.path).captioner
    assert {layer.dtype_policy.name for layer in captioner._flatten_layers()} == {"float32"}


@pytest.mark.slow
@pytest.mark.usefixtures("quick_training")
def test_a_run_in_float16_scales_the_loss_and_resumes_to_the_same_weights(tiny_settings, tmp_path):
    settings = [*tiny_settings, "training.precision=mixed_float16", "training.average_decay=0.9"]
    settings += ["training.batch_size=50", "training.validation_images=0", "data.max_length=4"]
    folder, _, _ = train(tmp_path, settings)
    saved_arrays = arrays(folder.checkpoint(2))
    assert "float16" not in {str(array.dtype) for array in saved_arrays.values()}
    (scale,) = [array for name, array in saved_arrays.items() if name.endswith("dynamic_scale")]
    assert scale > 1
    assert any(name.endswith("kernel_average") for name in saved_arrays)
    resume_last_epoch(folder, settings)
    captioner = FinishedRun.load(folder.path).captioner
    assert {layer.dtype_policy.name for layer in captioner._flatten_layers()} == {"float32"}


@pytest.mark.slow
@pytest.mark.usefixtures("quick_training")
def test_restore_best_ends_with_the_weights_of_the_best_epoch_whose_checkpoint_exists(
    tiny_settings, tmp_path, monkeypatch
):
    scores = [0.9, 0.5, 0.3]

    def validate(self, epoch, logs=None):
        logs["validation_CIDEr"] = scores[epoch]
        (tmp_path / "tiny" / "checkpoints" / "epoch-0001.npz").unlink(missing_ok=True)

    monkeypatch.setattr(Validation, "on_epoch_end", validate)
    more = ["pruning=null", "training.restore_best=true", "training.epochs=3", "training.batch_size=50"]
    folder, _, messages = train(tmp_path, [*tiny_settings, *more])
    assert "restoring the weights of epoch 2, the best on validation" in messages
    best = [array for key, array in arrays(folder.checkpoint(2)).items() if key.startswith("model/")]
    for weight in FinishedRun.load(folder.path).captioner.get_weights():
        assert any(np.array_equal(weight, array) for array in best)


@pytest.mark.slow
@pytest.mark.usefixtures("eager")
def test_a_run_starts_with_the_weights_of_another_one_even_if_it_is_interrupted_at_once(
    tiny_settings, tiny_run, tmp_path, monkeypatch
):
    def stop(self, *arguments, **options):
        raise Stopped

    still = ["training.epochs=1", "training.learning_rate=1e-9", "pruning.sparsity=0.5"]
    still += ["training.batch_size=50", "training.validation_images=0"]
    settings = [*tiny_settings, f"training.start_from={tiny_run}", *still, "data.minimum_count=3"]
    with monkeypatch.context() as patch, pytest.raises(Stopped):
        patch.setattr(Loop, "run", stop)
        train(tmp_path, settings)
    folder, _, messages = train(tmp_path, settings, resume=True)
    assert "there is no complete checkpoint yet: starting from the beginning" in messages
    assert f"starting with the weights of {tiny_run}" in messages
    continued, start = FinishedRun.load(folder.path), FinishedRun.load(tiny_run)
    # The vocabulary comes from the run, not from the settings and the data.
    assert continued.tokenizer.vocabulary == start.tokenizer.vocabulary
    for own, other in zip(
        continued.captioner.trainable_weights, start.captioner.trainable_weights, strict=True
    ):
        own, other = np.asarray(own), np.asarray(other)
        np.testing.assert_allclose(own, np.where(own == 0, 0, other), atol=1e-4)


@pytest.mark.slow
def test_a_new_captioner_predicts_the_frequencies_of_the_words(trained_run):
    config = RunFolder(trained_run).load_config()
    captions = [caption for record in load_data(config).split("train") for caption in record.captions]
    # Captions are longer than the maximum, and what is cut off is not learned.
    counts = Counter(
        word for text in captions for word in [*text.lower().split(), "<end>"][: config.data.max_length]
    )
    frequencies = np.array([counts[word] + 1 for word in FinishedRun.load(trained_run).tokenizer.vocabulary])
    (bias,) = [
        array for name, array in arrays(trained_run / "checkpoints" / "initial.npz").items()
        if name.endswith("output/bias")
    ]  # fmt: skip
    np.testing.assert_allclose(np.exp(bias), frequencies / frequencies.sum(), rtol=1e-5)


@pytest.mark.slow
def test_a_start_with_other_sizes_or_tokens_is_rejected(tiny_settings, tiny_run, tmp_path):
    for wrong, message in (
        ("model.rnn_size=24", "is different .* use the model settings of its config.yaml"),
        ("model.cell=gru", "is different"),
        (f"training.start_from={tmp_path / 'absent'}", "absent"),
        ("data.radix_base=5", r"has data\.radix_base=null, this one 5: set the same value"),
    ):
        with pytest.raises(InputError, match=message):
            train(tmp_path, [*tiny_settings, f"training.start_from={tiny_run}", wrong])
    assert not list(tmp_path.iterdir())


@pytest.mark.usefixtures("quick_training")
def test_invalid_input_leaves_no_folder_behind(tiny_settings, tmp_path):
    for wrong in ("data.minimum_count=1000000", "training.batch_size=100000", "pruning.begin=0.99"):
        with pytest.raises(InputError):
            train(tmp_path, [*tiny_settings, "pruning.end=0.5", wrong])
    assert not list(tmp_path.iterdir())


def test_phases_follow_the_settings(tiny_settings):
    assert [phase.name for phase in phases(load_config(None, tiny_settings))] == ["train"]
    frozen = ["model.encoder.trainable=false", "training.fine_tune.epochs=2"]
    first, second = phases(load_config(None, [*tiny_settings, *frozen]))
    assert not first.from_images and second.from_images
    assert (second.epochs, second.batch_size, second.schedule) == (2, 25, "constant")
    cosine = "training.fine_tune.schedule=cosine"
    assert phases(load_config(None, [*tiny_settings, *frozen, cosine]))[1].schedule == "cosine"


@pytest.mark.slow
@pytest.mark.usefixtures("eager")
def test_a_lottery_ticket_starts_with_the_initial_weights_of_its_run(tiny_settings, trained_run, tmp_path):
    start = [*tiny_settings, "pruning.method=lottery", "pruning.rounds=0", "training.validation_images=0"]
    # With a learning rate of almost 0, the weights of the ticket stay unchanged.
    still = ["training.learning_rate=1e-12", "training.schedule=constant", "pruning.sparsity=0.7"]
    still += ["training.epochs=1", "training.batch_size=50"]
    ticket, _, _ = train(tmp_path, [*start, *still, f"training.start_from={trained_run}"])
    captioner = FinishedRun.load(ticket.path).captioner
    initial = list(arrays(trained_run / "checkpoints" / "initial.npz").values())
    ends = FinishedRun.load(trained_run).captioner.get_weights()
    decoder = [
        (own, first, last)
        for own, first, last, variable in zip(
            captioner.get_weights(), initial, ends, captioner.weights, strict=True
        )
        if own.ndim == 2 and not variable.path.endswith("bias") and "encoder" not in variable.path
    ]
    sizes = np.sort(np.concatenate([np.abs(last).ravel() for _, _, last in decoder]))
    limit = sizes[round(0.7 * sizes.size) - 1]
    for own, first, last in decoder:
        np.testing.assert_allclose(own, np.where(np.abs(last) > limit, first, 0.0), atol=1e-6)
    with pytest.raises(InputError, match=r"no checkpoints/initial\.npz: train that run with"):
        train(tmp_path, [*start, f"training.start_from={ticket.path}", "name=other"])
    assert not (tmp_path / "other").exists()


COLOURS, THINGS = ("red", "green", "blue", "grey"), ("dog", "cat", "cup")
FIRST, MISSING, BAD, BAD_TEST, TEST = 101, 104, 108, 121, (120, 121, 122, 123, 124)
#: Sizes of the captioners; those of the Object Relation Transformer make it an ACORT.
KINDS = {
    "up_down": ["model.embedding_size=6", "model.rnn_size=10", "model.attention_size=7"],
    "object_relation_transformer": [
        *("model.size=16", "model.hidden_size=12", "model.layers=2", "model.heads=2", "data.radix_base=4"),
        *("model.share_encoder_layers=[0,0]", "model.share_decoder_layers=[0,0]"),
        *("model.share_encoder_attention=kv", "model.share_decoder_attention=kv", "data.max_length=7"),
    ],
}


@pytest.fixture(scope="module")
def bottom_up(tmp_path_factory):
    """Features of 24 images in COCO's layout; one image has no file, two files contain NaN."""
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
        texts = [f"a {COLOURS[colour]} {THINGS[thing]}", f"The {THINGS[thing]} is {COLOURS[colour]}."]
        split = "test" if number in TEST else "val" if number > 116 else "train"
        images.append(
            {
                "cocoid": number,
                "filepath": "train2014",
                "filename": f"COCO_train2014_{number:012}.jpg",
                "split": split,
                "sentences": [{"raw": text} for text in texts],
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
    settings += ["training.batch_size=10", "training.epochs=2", "training.learning_rate=0.01"]
    settings += [f"data.region_buckets={[5] if kind == 'up_down' else []}"]
    settings += ["pruning.sparsity=0.5", "name=tiny", f"model.kind={kind}"]
    return [*settings, *KINDS[kind], *more]


@pytest.mark.slow
@pytest.mark.usefixtures("eager")
@pytest.mark.filterwarnings("ignore:skipped")
@pytest.mark.parametrize("kind", KINDS)
def test_a_run_on_region_features_skips_and_lists_unreadable_ones_and_resumes(bottom_up, kind, tmp_path):
    settings = on_features(bottom_up, kind)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        folder, scores, messages = train(tmp_path, settings)
    late = [str(entry.message) for entry in caught if "skipped: " in str(entry.message)]
    (line,) = [text for text in messages if text.startswith(f"{bottom_up.name}: train 16 images")]
    assert "32 captions; validation 3 images" in line
    (line,) = [text for text in messages if "skipped" in text]
    assert line.startswith(f"1 unreadable records are skipped ({MISSING});")
    assert (
        (folder.path / "skipped.txt")
        .read_text()
        .startswith(f"{MISSING}: there is no {bottom_up}/cocobu_att/{MISSING}.npy")
    )
    assert [text.partition(" has a number")[0] for text in late] == [
        f"skipped: {bottom_up}/cocobu_att/{number}.npy" for number in (BAD, BAD_TEST)
    ]
    rows = history(folder)
    assert float(rows[1]["loss"]) < float(rows[0]["loss"]) and "validation_CIDEr" in rows[0]
    assert scores["images"] == len(TEST) - 1 and scores["sparsity"] == pytest.approx(0.5, abs=0.01)

    run = FinishedRun.load(folder.path)
    assert all(np.isfinite(values).all() for values in run.captioner.get_weights())
    again, captions = run.evaluate(progress=False)
    assert [caption.image_id for caption in captions] == [str(n) for n in TEST if n != BAD_TEST]
    assert captions[0].references == ("a red dog", "The dog is red.")
    assert {**again, "ms_per_image": 0, "run": str(folder.path)} == {**scores, "ms_per_image": 0}
    # A single image, without padding, gets the same caption as in a batch.
    files = {"features": "cocobu_att", "boxes": "cocobu_box_relative", "pooled": "cocobu_fc"}
    image_inputs = {
        name: np.load(bottom_up / file / f"{captions[0].image_id}.npy")[:8]
        for name, file in files.items()
        if name in run.captioner.input_names
    }
    ((text, score, *_),) = run.generate(image_inputs)
    assert text == captions[0].caption and score == pytest.approx(captions[0].score, abs=1e-4)
    if kind == "up_down":
        resume_last_epoch(folder, settings)


@pytest.mark.slow
@pytest.mark.usefixtures("eager")
@pytest.mark.filterwarnings("ignore:skipped")
def test_a_run_on_region_features_is_trained_on_rewards(bottom_up, tmp_path):
    rewards = ["training.scst.epochs=1", "training.scst.samples=2", "training.scst.batch_size=4"]
    settings = on_features(bottom_up, "up_down", "training.epochs=1", "pruning=null", *rewards)
    folder, _, _ = train(tmp_path, settings)
    assert [row["phase"] for row in history(folder)] == ["train", "scst"]


def test_an_unreadable_image_stops_a_run_with_on_bad_record_fail(bottom_up, tmp_path):
    fail = ["data.on_bad_record=fail", "training.validation_images=0"]
    with pytest.raises(InputError, match=f"^{MISSING}: there is no .*set on_bad_record=skip"):
        train(tmp_path, on_features(bottom_up, "up_down", *fail))
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
@pytest.mark.usefixtures("eager")
def test_a_partly_frozen_encoder_is_trained_on_cached_features(tiny_settings, tmp_path):
    settings = [
        *(setting for setting in tiny_settings if not setting.startswith("training.epochs")),
        *("model.encoder.layer=conv_pw_3_relu", "model.encoder.frozen_until=conv_pw_2_relu"),
        *("training.encoder_learning_rate=0.001", "training.captions_per_image=2", "training.batch_size=20"),
        *("pruning=null", "training.epochs=1", "training.validation_images=2"),
    ]
    scst = ["training.scst.epochs=1", "training.scst.samples=3", "training.scst.batch_size=10"]
    cached = [*settings, *scst, f"data.cache_folder={tmp_path / 'cache'}"]
    folder, _, _ = train(tmp_path, cached)
    # One cache of the frozen part, and one of the trained encoder for the rewards.
    assert len(list((tmp_path / "cache").glob("features-*.npy"))) == 2
    images, _, _ = train(tmp_path, [*settings, "name=images", "data.cache_folder=null"])
    assert [row["phase"] for row in history(folder)] == ["train", "scst"]
    losses = [float(history(run)[0]["loss"]) for run in (folder, images)]
    assert losses[0] == pytest.approx(losses[1], rel=2e-3)
    resume_last_epoch(folder, cached)
