"""Runs of a study: in their order, several at once, after a stop, and what becomes of those that fail."""

import json
import os
import signal
import sys
import threading
import time

import psutil
import pytest
from PIL import Image

from tfsparsecap.errors import InputError
from tfsparsecap.settings.files import load_config
from tfsparsecap.studies import runner as study_runner
from tfsparsecap.studies.runner import check_inputs, finished_run, run_study
from tfsparsecap.studies.study import Study, grid

#: Stands for `python -m tfsparsecap.train`: leaves what a run leaves, and notes when it began and ended.
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
counts = {"sparsity": 0.5, "nonzero_weights": 5, "weights": 10}
if not name.startswith("untested"):
    (folder / "scores_test.json").write_text(json.dumps({"CIDEr": config["seed"] / 10, **counts}))
with (runs / "events").open("a") as events:
    events.write(f"end {name}\\n")
"""


@pytest.fixture
def fake(tmp_path, monkeypatch):
    """A fake training; gives what happened, line by line."""
    (tmp_path / "train.py").write_text(TRAIN)
    monkeypatch.setattr(study_runner, "TRAIN", (sys.executable, str(tmp_path / "train.py")))
    monkeypatch.setattr(study_runner, "_SECONDS_BETWEEN_LOOKS", 0.05)
    folder = tmp_path / "runs" / "s"
    folder.mkdir(parents=True)
    return lambda: (folder / "events").read_text().splitlines()


def runs_of(tmp_path, methods, **settings):
    settings = {"training.learning_rate": 0.01, **settings}
    study = Study(name="s", methods=methods, sparsities=[0.8, 0.9], settings=settings)
    return grid(study, tmp_path / "s.yaml", tmp_path / "runs")


DENSE = {"settings": {"pruning": None}}
quiet = {"progress": False, "say": str}


def test_all_runs_finish_and_are_not_trained_twice(fake, tmp_path):
    runs = runs_of(tmp_path, {"Hard": {"start_from": "Dense"}, "Dense": DENSE})
    written = []
    outcome = run_study(
        runs, tmp_path / "runs" / "s", after_each=lambda: written.append(len(fake())), **quiet
    )
    assert [one.run.name for one in outcome.finished] == ["dense-s1", "hard-0.8-s1", "hard-0.9-s1"]
    assert not outcome.failed and len(written) == 3
    assert outcome.finished[0].seconds == 4.0 and outcome.finished[0].scores["CIDEr"] == 0.1
    assert fake() == [f"{what} {run.name}" for run in runs for what in ("begin", "end")]
    assert len(run_study(runs, tmp_path / "runs" / "s", **quiet).finished) == 3
    assert len(fake()) == 6


def test_several_run_at_once_but_the_first_one_alone(fake, tmp_path):
    runs = runs_of(tmp_path, {"Dense": DENSE, "SMP": {}}, **{"training.learning_rate": 1.0})
    run_study(runs, tmp_path / "runs" / "s", jobs=2, **quiet)
    events = fake()
    assert events[:2] == ["begin dense-s1", "end dense-s1"]
    assert sorted(events[2:4]) == ["begin smp-0.8-s1", "begin smp-0.9-s1"]


def test_what_fails_is_named_with_its_sentence_and_others_go_on(fake, tmp_path):
    methods = {"Broken": {}, "After": {"start_from": "Broken"}, "SMP": {}}
    outcome = run_study(runs_of(tmp_path, methods), tmp_path / "runs" / "s", **quiet)
    assert [one.run.name for one in outcome.finished] == ["smp-0.8-s1", "smp-0.9-s1"]
    assert outcome.failed["broken-0.8-s1"].startswith(
        "the loss became nan: lower training.learning_rate (exit"
    )
    assert outcome.failed["after-0.9-s1"] == "it starts from broken-0.9-s1, which failed"


def test_a_run_that_was_begun_is_gone_on_with_and_a_fragment_is_started_anew(fake, tmp_path):
    begun, fragment = runs_of(tmp_path, {"SMP": {}})
    folder = tmp_path / "runs" / "s"
    from tfsparsecap.settings.files import save_config

    (folder / begun.name).mkdir()
    (folder / begun.name / "config.yaml").write_text(save_config(begun.config))
    (folder / fragment.name).mkdir()
    (folder / fragment.name / "vocabulary.txt").write_text("killed before it had settings")
    assert finished_run(begun, folder) is None
    run_study([begun, fragment], folder, **quiet)
    assert [line for line in fake() if line.startswith("begin")] == [
        f"begin {begun.name} resumed",
        f"begin {fragment.name}",
    ]
    # Whether it is a fragment is the training's to say: nothing of it was removed before.
    assert (folder / fragment.name / "vocabulary.txt").is_file()


def test_sigterm_ends_what_runs_and_leaves_no_process_behind(fake, tmp_path):
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


def test_runs_at_once_share_the_cores_and_the_devices(fake, tmp_path, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,5")
    runs = runs_of(tmp_path, {"Dense": DENSE, "SMP": {}}, **{"training.learning_rate": 1.0})
    folder = tmp_path / "runs" / "s"
    run_study(runs, folder, jobs=2, **quiet)
    found = [json.loads((folder / f"{run.name}.env").read_text()) for run in runs]
    assert [one["CUDA_VISIBLE_DEVICES"] for one in found] == ["2,5", "2", "5"]
    assert found[1]["TF_NUM_INTRAOP_THREADS"] == str(max(1, os.cpu_count() // 2))
    assert found[1]["TF_FORCE_GPU_ALLOW_GROWTH"] == "true"


def test_tables_that_cannot_be_written_do_not_end_the_runs(fake, tmp_path):
    said = []

    def full():
        raise InputError("the disk is full")

    runs = runs_of(tmp_path, {"SMP": {}})
    outcome = run_study(runs, tmp_path / "runs" / "s", progress=False, say=said.append, after_each=full)
    assert len(outcome.finished) == 2 and said[1:] == 2 * ["not written: the disk is full"]


def test_runs_that_started_with_one_that_is_gone_are_not_mixed_with_those_of_a_new_one(fake, tmp_path):
    folder = tmp_path / "runs" / "s"
    runs = runs_of(tmp_path, {"Hard": {"start_from": "Dense"}, "Dense": DENSE})
    run_study(runs, folder, **quiet)
    (folder / "dense-s1" / "model.keras").unlink()
    with pytest.raises(InputError, match=r"dense-s1 is not finished, and was when .*hard-0\.8-s1, .*0\.9-s1"):
        run_study(runs, folder, **quiet)
    assert len(fake()) == 6


def test_a_study_that_is_named_from_elsewhere_is_the_same(fake, tmp_path, monkeypatch):
    folder = tmp_path / "runs" / "s"
    run_study(runs_of(tmp_path, {"Hard": {"start_from": "Dense"}, "Dense": DENSE}), folder, **quiet)
    monkeypatch.chdir(tmp_path)
    study = Study(name="s", methods={"Hard": {"start_from": "Dense"}, "Dense": DENSE}, sparsities=[0.8, 0.9])
    runs = grid(study, tmp_path / "s.yaml", "runs", ["training.learning_rate=0.01"])
    assert runs[1].config.training.start_from == "runs/s/dense-s1"
    assert all(finished_run(run, folder) is not None for run in runs)


def test_scores_that_were_computed_with_other_words_are_computed_again(fake, tmp_path):
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
    found = finished_run(run, folder).scores
    # All captions are their first references, without the mark.
    assert found["exact_match"] == 1.0 and found["BLEU-1"] == pytest.approx(1.0)
    assert found["CIDEr"] > 1.0 and found["METEOR"] == 0.3
    (folder / run.name / "scores_test.json").write_text(json.dumps(scores))
    assert finished_run(run, folder).scores["CIDEr"] == 0.9


def test_a_run_without_scores_says_why(fake, tmp_path):
    runs = runs_of(tmp_path, {"Untested": DENSE})
    sentence = "model.keras was not evaluated: picture.jpg cannot be read"
    (tmp_path / "train.py").write_text(TRAIN + f'\nprint("{sentence}")\nprint(json.dumps({{"loss": 1}}))\n')
    outcome = run_study(runs, tmp_path / "runs" / "s", **quiet)
    assert outcome.failed["untested-s1"].startswith(f"{sentence} (exit code 0")


def test_data_are_looked_at_before_anything_is_trained(tmp_path):
    def config(**changed):
        given = {"data.kind": "table", "data.folder": tmp_path / "photos", **changed}
        return load_config(None, [f"{key}={value}" for key, value in given.items()])

    with pytest.raises(InputError, match="photos"):
        check_inputs([config()])
    with pytest.raises(InputError, match=r"data\.features is .*none, and there is no such folder"):
        check_inputs([config(**{"data.features": tmp_path / "none"})])
    check_inputs([load_config()])  # scenes are drawn
    (tmp_path / "photos").mkdir()
    for name in "ab":
        Image.new("RGB", (8, 8)).save(tmp_path / "photos" / f"{name}.png")
    table = tmp_path / "photos" / "captions.csv"
    table.write_text("image,caption,split\na.png,a dog,train\nb.png,a cat,train\n")
    with pytest.raises(InputError, match="has no test split, which a study"):
        check_inputs([config()])
    table.write_text("image,caption,split\na.png,a dog,train\nb.png,a cat,test\n")
    check_inputs([config()])


def test_a_folder_with_other_settings_is_never_written_over(fake, tmp_path):
    folder = tmp_path / "runs" / "s"
    run_study(runs_of(tmp_path, {"SMP": {}}), folder, **quiet)
    before = (folder / "smp-0.8-s1" / "scores_test.json").read_text()
    with pytest.raises(InputError, match=r"was trained with training\.epochs=2, and the study says 3"):
        run_study(runs_of(tmp_path, {"SMP": {}}, **{"training.epochs": 3}), folder, **quiet)
    assert (folder / "smp-0.8-s1" / "scores_test.json").read_text() == before
    for text in ("{", '{"CIDEr": 0.5}', "[1]"):
        (folder / "smp-0.8-s1" / "scores_test.json").write_text(text)
        with pytest.raises(InputError, match=r"cannot read what .* tfsparsecap\.evaluate"):
            run_study(runs_of(tmp_path, {"SMP": {}}), folder, **quiet)
    with pytest.raises(InputError, match="--jobs is 0"):
        run_study(runs_of(tmp_path, {"SMP": {}}), folder, jobs=0, **quiet)
