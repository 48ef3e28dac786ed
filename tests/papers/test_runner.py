"""Running a study: order, parallel runs, interruption and resume, failures."""

import json
import os
import signal
import sys
import threading
import time

import numpy as np
import psutil
import pytest
from PIL import Image

from tfsparsecap.errors import InputError
from tfsparsecap.papers import runner as study_runner
from tfsparsecap.papers.runner import read_result, run_study
from tfsparsecap.papers.study_checks import _records_key, check_data, check_runs, check_same_data
from tfsparsecap.papers.study_grid import Study, grid

#: Replaces `python -m tfsparsecap.train`: writes the files of a run, and logs when it began and ended.
TRAIN = """
import json, os, sys, time, yaml
from pathlib import Path
given = sys.argv[1:]
file, runs = Path(given[given.index("--config") + 1]), Path(given[given.index("--runs") + 1])
config = yaml.safe_load(file.read_text())
name = config["name"]
folder = runs / name
with (runs / "events").open("a") as events:
    events.write(f"begin {name}{' resumed' if '--resume' in given else ''}\\n")
(runs / f"{name}.env").write_text(json.dumps({**os.environ, "pid": os.getpid()}))
if name.startswith("broken"):
    sys.exit("error: the loss became nan: lower training.learning_rate")
folder.mkdir(exist_ok=True)
(folder / "config.yaml").write_text(file.read_text())
time.sleep(config["training"]["learning_rate"])
(folder / "history.csv").write_text("epoch,seconds\\n1,1.5\\n2,2.5\\n")
(folder / "model.keras").write_text("")
counts = {"sparsity": 0.5, "nonzero_weights": 5, "weights": 10, "encoder_weights": 100}
if not name.startswith("untested"):
    (folder / "scores_test.json").write_text(json.dumps({"CIDEr": config["seed"] / 10, **counts}))
with (runs / "events").open("a") as events:
    events.write(f"end {name}\\n")
"""


@pytest.fixture
def fake(tmp_path, monkeypatch):
    """Replaces the training; returns the list of events so far."""
    (tmp_path / "train.py").write_text(TRAIN)
    monkeypatch.setattr(study_runner, "TRAIN", (sys.executable, str(tmp_path / "train.py")))
    monkeypatch.setattr(study_runner, "_POLL_SECONDS", 0.05)
    folder = tmp_path / "runs" / "s"
    folder.mkdir(parents=True)
    return lambda: (folder / "events").read_text().splitlines()


SCENES = {"data.train": 40, "data.validation": 4, "data.test": 4}


def runs_of(tmp_path, methods, **settings):
    scenes = {} if "data.kind" in settings else SCENES
    settings = {"training.learning_rate": 0.01, **scenes, **settings}
    study = Study(name="s", methods=methods, sparsities=[0.8, 0.9], settings=settings)
    return grid(study, tmp_path / "s.yaml", tmp_path / "runs")


DENSE = {"settings": {"pruning": None}}
TRANSFORMER = {"settings": {"pruning": None, "model.kind": "transformer", "model.size": 8, "model.layers": 2}}
quiet = {"progress": False, "log": str}


def test_each_run_is_trained_once(fake, tmp_path):
    runs = runs_of(tmp_path, {"Hard": {"start_from": "Dense"}, "Dense": DENSE})
    written = []
    folder = tmp_path / "runs" / "s"
    assert run_study(runs, folder, after_each=lambda: written.append(len(fake())), **quiet) == {}
    assert [run.name for run in runs] == ["dense-s1", "hard-0.8-s1", "hard-0.9-s1"] and len(written) == 3
    result = read_result(runs[0], folder)
    assert (result.method, result.sparsity, result.seconds, result.scores) == (
        "Dense",
        None,
        4.0,
        {"CIDEr": 0.1},
    )
    assert (result.nonzero_weights, result.weights, result.final_sparsity) == (5, 10, 0.5)
    assert read_result(runs[0], folder, with_encoder=True).weights == 110
    assert fake() == [f"{what} {run.name}" for run in runs for what in ("begin", "end")]
    assert run_study(runs, folder, **quiet) == {}
    assert len(fake()) == 6


def test_failed_runs_are_reported_and_others_continue(fake, tmp_path):
    methods = {"Broken": {}, "After": {"start_from": "Broken"}, "SMP": {}}
    failed = run_study(runs_of(tmp_path, methods), tmp_path / "runs" / "s", **quiet)
    assert set(failed) == {f"{name}-{at}-s1" for name in ("broken", "after") for at in (0.8, 0.9)}
    assert failed["broken-0.8-s1"].startswith("the loss became nan: lower training.learning_rate (exit")
    assert failed["after-0.9-s1"] == "it needs broken-0.9-s1, which failed"


def test_interrupted_runs_are_resumed(fake, tmp_path):
    begun, fragment = runs_of(tmp_path, {"SMP": {}})
    folder = tmp_path / "runs" / "s"
    from tfsparsecap.captioning.settings.config_files import save_config

    (folder / begun.name).mkdir()
    (folder / begun.name / "config.yaml").write_text(save_config(begun.config))
    (folder / fragment.name).mkdir()
    (folder / fragment.name / "vocabulary.txt").write_text("killed before it wrote config.yaml")
    assert read_result(begun, folder) is None
    run_study([begun, fragment], folder, **quiet)
    assert [line for line in fake() if line.startswith("begin")] == [
        f"begin {begun.name} resumed",
        f"begin {fragment.name}",
    ]
    # The training decides what to do with such a folder; the study removes nothing.
    assert (folder / fragment.name / "vocabulary.txt").is_file()


def test_sigterm_ends_all_trainings(fake, tmp_path):
    runs = runs_of(tmp_path, {"SMP": {}}, **{"training.learning_rate": 60.0})
    folder = tmp_path / "runs" / "s"
    running = folder / f"{runs[0].name}.env"

    def stop():
        while not running.exists() or not running.read_text():
            time.sleep(0.05)
        os.kill(os.getpid(), signal.SIGTERM)

    before = signal.getsignal(signal.SIGTERM)
    threading.Thread(target=stop, daemon=True).start()
    with pytest.raises(KeyboardInterrupt):
        run_study(runs, folder, **quiet)
    assert not psutil.pid_exists(json.loads(running.read_text())["pid"])
    assert signal.getsignal(signal.SIGTERM) is before


def test_parallel_runs_share_cores_and_gpus(fake, tmp_path, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,5")
    runs = runs_of(tmp_path, {"Dense": DENSE, "SMP": {}}, **{"training.learning_rate": 0.3})
    folder = tmp_path / "runs" / "s"
    run_study(runs, folder, jobs=2, **quiet)
    assert fake()[:2] == ["begin dense-s1", "end dense-s1"]
    environments = [json.loads((folder / f"{run.name}.env").read_text()) for run in runs]
    assert [environment["CUDA_VISIBLE_DEVICES"] for environment in environments] == ["2,5", "2", "5"]
    assert environments[1]["TF_NUM_INTRAOP_THREADS"] == str(max(1, os.cpu_count() // 2))
    # They end with the study.
    assert {environment["TFSPARSECAP_ENDS_WITH_STDIN"] for environment in environments} == {"1"}
    assert environments[1]["TF_FORCE_GPU_ALLOW_GROWTH"] == "true"


def test_scores_with_another_tokenization_are_computed_again(fake, tmp_path):
    (run,) = runs_of(tmp_path, {"Dense": DENSE})
    folder = tmp_path / "runs" / "s"
    run_study([run], folder, **quiet)
    rows = [
        {
            "image_id": number,
            "caption": f"a {word} dog",
            "score": -1.0,
            "references": [f"A {word} dog!", "dogs"],
        }
        for number, word in enumerate(["red", "blue", "green"])
    ]
    scores = {"CIDEr": 0.9, "METEOR": 0.3, "sparsity": 0.0, "nonzero_weights": 10, "weights": 10}
    (folder / run.name / "captions_test.json").write_text(json.dumps(rows))
    (folder / run.name / "scores_test.json").write_text(json.dumps({**scores, "tokenizer": "ptb"}))
    new_scores = read_result(run, folder).scores
    # All captions equal their first references, apart from case and punctuation.
    assert new_scores["BLEU-1"] == pytest.approx(1.0) and new_scores["CIDEr"] > 1.0
    (folder / run.name / "scores_test.json").write_text(json.dumps(scores))
    assert read_result(run, folder).scores["CIDEr"] == 0.9


def test_a_run_without_scores_is_reported_with_the_reason(fake, tmp_path):
    runs = runs_of(tmp_path, {"Untested": DENSE})
    sentence = "model.keras was not evaluated: photo.jpg cannot be read"
    (tmp_path / "train.py").write_text(TRAIN + f'\nprint("{sentence}")\nprint(json.dumps({{"loss": 1}}))\n')
    failed = run_study(runs, tmp_path / "runs" / "s", **quiet)
    assert failed["untested-s1"].startswith(f"{sentence} (exit code 0")


def test_the_last_two_warnings_of_a_training_are_shown_once(fake, tmp_path):
    shown = ["warning: early", "warning: a", "warning: b", "warning: a", "9 of 11 epochs done"]
    (tmp_path / "train.py").write_text("".join(f"print({line!r})\n" for line in shown) + TRAIN)
    lines = []
    folder = tmp_path / "runs" / "s"
    assert run_study(runs_of(tmp_path, {"Dense": DENSE}), folder, progress=False, log=lines.append) == {}
    assert lines[1:] == ["dense-s1: warning: a", "dense-s1: warning: b"]


def checked(tmp_path, methods=None, **settings):
    runs = runs_of(tmp_path, methods or {"Dense": DENSE}, **settings)
    check_data(runs, runs, tmp_path / "runs" / "s")


def test_data_is_checked_before_training(tmp_path):
    table = {"data.kind": "table", "data.folder": str(tmp_path / "photos")}
    with pytest.raises(InputError, match=r"run dense-s1: .*photos"):
        checked(tmp_path, **table)
    features = {"data.features": str(tmp_path / "none"), "model.encoder": None}
    with pytest.raises(InputError, match=r"data\.features is .*none, which is not a folder"):
        checked(tmp_path, **table, **features)
    (tmp_path / "photos").mkdir()
    for name, colour in ("a", "red"), ("b", "blue"):
        Image.new("RGB", (8, 8), colour).save(tmp_path / "photos" / f"{name}.png")
    file = tmp_path / "photos" / "captions.csv"
    file.write_text("image,caption,split\na.png,a dog,train\nb.png,a cat,train\n")
    with pytest.raises(InputError, match="has no test split, on which a study"):
        checked(tmp_path, **table)
    file.write_text("image,caption,split\na.png,a dog,train\nb.png,a cat,test\n")
    with pytest.raises(InputError, match="fewer than one batch of 32"):
        checked(tmp_path, **table)
    checked(tmp_path, **table, **{"training.batch_size": 1, "data.minimum_count": 1})
    (tmp_path / "none").mkdir()
    with pytest.raises(InputError, match=r"run dense-s1: there is no folder .*none.cocobu_att"):
        checked(tmp_path, **table, **features)


def test_region_features_are_checked_for_each_captioner_and_split(tmp_path):
    for folder in "photos", "regions/cocobu_att":
        (tmp_path / folder).mkdir(parents=True)
    rows = [
        f"{name}.png,a dog,{split}"
        for name, split in zip("abcd", ("train", "val", "test", "test"), strict=True)
    ]
    (tmp_path / "photos" / "captions.csv").write_text("\n".join(["image,caption,split", *rows]))
    for name, colour in zip("abcd", ("red", "green", "blue", "white"), strict=True):
        Image.new("RGB", (8, 8), colour).save(tmp_path / "photos" / f"{name}.png")
        np.save(tmp_path / "regions" / "cocobu_att" / f"{name}.npy", np.ones([2, 5], np.float32))
    settings = {
        **{"data.kind": "table", "data.folder": str(tmp_path / "photos"), "data.minimum_count": 1},
        **{"data.features": str(tmp_path / "regions"), "training.batch_size": 1},
        **{"model.kind": "up_down", "model.encoder": None, "model.feature_size": 5},
    }
    checked(tmp_path, **settings)
    boxes = {"pruning": None, "model.kind": "object_relation_transformer", "model.size": 8}
    with pytest.raises(InputError, match=r"run last-s1: there is no folder .*cocobu_box_relative"):
        checked(tmp_path, {"Dense": DENSE, "Last": {"settings": boxes}}, **settings)
    wide = {"pruning": None, "model.feature_size": 6}
    with pytest.raises(
        InputError, match=r"run last-s1: .*a\.npy has features of 5 numbers but feature_size is 6"
    ):
        checked(tmp_path, {"Dense": DENSE, "Last": {"settings": wide}}, **settings)
    missing = r"run dense-s1: .*regions has no usable features for 1 of 2 images .* the first: c\.png: "
    np.save(tmp_path / "regions" / "cocobu_att" / "c.npy", np.ones([2, 6], np.float32))
    with pytest.raises(InputError, match=missing + r".*c\.npy has features of 6 numbers"):
        checked(tmp_path, **settings)
    (tmp_path / "regions" / "cocobu_att" / "c.npy").unlink()
    with pytest.raises(InputError, match=missing + r"there is no .*c\.npy"):
        checked(tmp_path, **settings)
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"model.encoder.layer": "conv_pw_99_relu"}, r"has no such layer: did you mean conv_pw_9_relu"),
        (
            {"model.encoder.network": "tiny_vit_5m", "model.encoder.weights": "/no/file.onnx"},
            r"run last-0\.8-s1: model\.encoder: there is no weight file /no/file\.onnx",
        ),
        ({"data.sentencepiece": "/no/word.model"}, r"cannot read /no/word\.model"),
        (
            {"pruning.method": "gradual", "pruning.begin": 5000, "pruning.end": 8000},
            r"begin is step 5000, .* 12",
        ),
        ({"training.batch_size": 1000}, r"there are 200 captions to train on, fewer than one batch of 1000"),
        (
            {"pruning.method": "relevance", "pruning.metric": "validation_Cider", "pruning.lower_bound": 0.1},
            r"run last-0\.8-s1: Relevance prunes by .* did you mean 'validation_CIDEr'\?",
        ),
        (
            {
                **{"pruning.method": "l1", "pruning.metric": "validation_CIDEr", "pruning.lower_bound": 0.1},
                "training.validation_images": 0,
            },
            "L1Pruning needs validation_CIDEr, but there are 0 validation images",
        ),
        (
            {"pruning.method": "supermask_loss", "pruning.gate_learning_rate": 1e-3},
            r"pruning\.method=supermask_loss: a gate_learning_rate of 0\.001 cannot close a gate",
        ),
        (
            {
                **{"pruning.method": "supermask_loss", "pruning.gate_learning_rate": 1e-3},
                **{"pruning.encoder": "B", "model.encoder.trainable": False, "training.fine_tune.epochs": 1},
            },
            r"a gate_learning_rate of 0\.001 cannot close a gate of this model within 6 steps",
        ),
        (
            {
                "pruning.method": "magnitude",
                "pruning.block_shape": [256, 256],
                "pruning.allocation": "uniform",
            },
            r"pruning\.method=magnitude: .*a sparsity of 0\.8 cannot be reached",
        ),
        ({"data.minimum_count": 50}, r"teacher: the run dense-s1 has another vocabulary"),
    ],
)
def test_a_last_run_that_could_not_begin_is_found_before_the_first(settings, message, tmp_path):
    teacher = {"teacher": "Dense"} if "data.minimum_count" in settings else {}
    methods = {"Dense": DENSE, "Last": {"settings": settings, **teacher}}
    check_runs(runs_of(tmp_path, methods))
    with pytest.raises(InputError, match=message):
        checked(tmp_path, methods)


def test_encoders_and_vocabularies_of_runs_that_are_not_trained_yet_are_not_read(tmp_path):
    trained = (tmp_path / "runs" / "s" / "dense-s1").as_posix()
    last = {"start_from": "Dense", "settings": {"data.minimum_count": 50, "model.encoder.weights": trained}}
    checked(tmp_path, {"Dense": DENSE, "Last": last, "Taught": {**last, "teacher": "Dense"}})


def test_scheme_b_with_an_encoder_of_the_study_prunes_in_the_steps_of_fine_tuning(tmp_path):
    trained = (tmp_path / "runs" / "s" / "dense-s1").as_posix()
    settings = {
        **{"pruning.method": "gradual", "pruning.encoder": "B", "pruning.begin": 2, "pruning.end": 5},
        **{"training.epochs": 2, "training.fine_tune.epochs": 1},  # 6 steps an epoch
        **{"model.encoder.weights": trained, "model.encoder.trainable": False},
    }
    checked(tmp_path, {"Dense": DENSE, "Last": {"start_from": "Dense", "settings": settings}})
    settings |= {"pruning.begin": 8, "pruning.end": 10}
    with pytest.raises(InputError, match=r"run last-0\.8-s1: .*begin is step 8, .* 6"):
        checked(tmp_path, {"Dense": DENSE, "Last": {"start_from": "Dense", "settings": settings}})


@pytest.mark.parametrize(
    ("parent", "child", "message"),
    [
        (
            {"settings": {"pruning.method": "gradual"}},
            {"settings": {"pruning.method": "lottery", "pruning.rounds": 0}},
            r"run after-0\.8-s1: start_from: the run first-0\.8-s1 does not keep its initial weights.*"
            r"set training\.keep_initial=true",
        ),
        (
            {"settings": {"pruning": None, "training.keep_initial": True}},
            {"settings": {"pruning.method": "lottery", "pruning.rounds": 0, "pruning.allocation": "gradual"}},
            r"the run first-s1 is not pruned, .* pruning\.method=lottery",
        ),
        (
            TRANSFORMER,
            {
                "settings": {**TRANSFORMER["settings"], "model.size": 16, "training.teacher_loss": "hidden"},
                "teacher": "First",
            },
            r"the run first-s1 has no transformer decoder of size 16 and 2 layers or more",
        ),
        (DENSE, {"settings": {"model.rnn_size": 7}}, "the run first-s1 has another captioner"),
        (DENSE, {"settings": {"pruning.method": "frozen"}}, "the run first-s1 is not pruned"),
        (
            DENSE,
            {"settings": {"data.max_length": 9}, "teacher": "First"},
            "teacher: the run first-s1 has data",
        ),
        (
            {"start_from": "Whole", **DENSE},
            {"settings": {"pruning.method": "frozen"}},
            "the run first-s1 is not pruned",
        ),
        (DENSE, {"settings": {"pruning.begin": -1}}, r"run after-0\.8-s1: .*begin"),
        ({"settings": {"data.kind": "pictures"}}, {}, r"run first-0\.8-s1: .*data\.kind"),
    ],
)
def test_runs_that_would_fail_after_others_were_trained_are_errors(tmp_path, parent, child, message):
    methods = {"Whole": DENSE, "First": parent, "After": {"start_from": "First", **child}}
    if "teacher" in child:
        del methods["After"]["start_from"]
    with pytest.raises(InputError, match=message):
        check_runs(runs_of(tmp_path, methods))


def test_a_teacher_outside_the_study_must_be_finished(fake, tmp_path):
    taught = runs_of(tmp_path, {"Dense": {"settings": {"pruning": None, "training.teacher": "nowhere/run"}}})
    with pytest.raises(InputError, match="nowhere/run, which is not a finished run"):
        run_study(taught, tmp_path / "runs" / "s", **quiet)


def test_runs_on_different_data_are_refused_before_any_training(fake, tmp_path):
    folder, methods = tmp_path / "runs" / "s", {"Dense": DENSE, "Hard": {"start_from": "Dense"}}
    dense, hard, _ = runs_of(tmp_path, methods)
    run_study([dense, hard], folder, **quiet)
    for name, digest in (dense.name, "a"), (hard.name, "b"):
        (folder / name / "data.json").write_text(json.dumps({"data": "photos", "sha256": digest}))
    with pytest.raises(InputError, match=r"hard-0\.8-s1 was .* other data than .*dense-s1 was.*: restore"):
        check_same_data([dense, hard], folder)
    check_same_data([dense], folder)
    check_same_data([dense], folder, {_records_key(dense.config): ("of now", "a")})
    longer = {**methods, "Long": {"settings": {"data.max_length": 30}}}  # other settings, the same data
    (folder / hard.name / "data.json").unlink()
    with pytest.raises(InputError, match=r"dense-s1 was trained on other data than there are now"):
        run_study([dense, hard, *runs_of(tmp_path, longer)[-2:]], folder, **quiet)
    assert len(fake()) == 4


def test_studies_that_cannot_go_on_are_refused(fake, tmp_path):
    folder, methods = tmp_path / "runs" / "s", {"Hard": {"start_from": "Dense"}, "Dense": DENSE}
    run_study(runs_of(tmp_path, methods), folder, **quiet)
    unreadable = r"cannot read the results in .* tfsparsecap\.evaluate"
    for settings, options, scores, message in (
        ({"training.epochs": 3}, {}, None, r"trained with training\.epochs=2, but the study has 3"),
        ({}, {"jobs": 0}, None, "--jobs is 0"),
        ({}, {}, "{", unreadable),
        ({}, {}, '{"CIDEr": 0.5}', unreadable),
        ({}, {}, "[1]", unreadable),
    ):
        if scores is not None:
            (folder / "dense-s1" / "scores_test.json").write_text(scores)
        with pytest.raises(InputError, match=message):
            run_study(runs_of(tmp_path, methods, **settings), folder, **quiet, **options)
    (folder / "dense-s1" / "model.keras").unlink()
    with pytest.raises(InputError, match=r"dense-s1 is not finished, but .*hard-0\.8-s1, .*0\.9-s1"):
        run_study(runs_of(tmp_path, methods), folder, **quiet)
    assert len(fake()) == 6
