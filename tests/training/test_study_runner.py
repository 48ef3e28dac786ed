"""Runs of a study: in their order, several at once, after a stop, and what becomes of those that fail."""

import json
import sys
import time

import pytest

from tfsparsecap.errors import InputError
from tfsparsecap.training import study_runner
from tfsparsecap.training.study import Study, grid
from tfsparsecap.training.study_runner import finished_run, run_study

#: Stands for `python -m tfsparsecap.train`: leaves what a run leaves, and notes when it began and ended.
TRAIN = """
import json, sys, time, yaml
from pathlib import Path
given = sys.argv[1:]
file, runs = Path(given[given.index("--config") + 1]), Path(given[given.index("--runs") + 1])
config = yaml.safe_load(file.read_text())
name = config["name"]
folder = runs / name
with (runs / "events").open("a") as events:
    events.write(f"begin {name}{' resumed' if '--resume' in given else ''}\\n")
if name.startswith("broken"):
    sys.exit("error: the loss became nan: lower training.learning_rate")
folder.mkdir(exist_ok=True)
(folder / "config.yaml").write_text(file.read_text())
time.sleep(config["training"]["learning_rate"])
(folder / "history.csv").write_text("epoch,seconds\\n1,1.5\\n2,2.5\\n")
(folder / "model.keras").write_text("")
(folder / "scores_test.json").write_text(json.dumps({"CIDEr": config["seed"] / 10}))
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
    assert outcome.finished[0].seconds == 4.0 and outcome.finished[0].scores == {"CIDEr": 0.1}
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
    from tfsparsecap.training.config_files import save_config

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
    assert not (folder / fragment.name / "vocabulary.txt").exists()


def test_a_stop_ends_what_runs_and_leaves_no_process_behind(fake, tmp_path, monkeypatch):
    runs = runs_of(tmp_path, {"SMP": {}}, **{"training.learning_rate": 60.0})
    began = time.monotonic()

    def interrupted(self):
        if (tmp_path / "runs" / "s" / "events").exists():
            raise KeyboardInterrupt
        return self.process.poll()

    monkeypatch.setattr(study_runner._Process, "poll", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run_study(runs, tmp_path / "runs" / "s", **quiet)
    assert time.monotonic() - began < 30
    assert not [line for line in fake() if line.startswith("end")]


def test_a_folder_with_other_settings_is_never_written_over(fake, tmp_path):
    folder = tmp_path / "runs" / "s"
    run_study(runs_of(tmp_path, {"SMP": {}}), folder, **quiet)
    before = (folder / "smp-0.8-s1" / "scores_test.json").read_text()
    with pytest.raises(InputError, match=r"was trained with training\.epochs=2, and the study says 3"):
        run_study(runs_of(tmp_path, {"SMP": {}}, **{"training.epochs": 3}), folder, **quiet)
    assert (folder / "smp-0.8-s1" / "scores_test.json").read_text() == before
    (folder / "smp-0.8-s1" / "scores_test.json").write_text("{")
    with pytest.raises(InputError, match="cannot read what"):
        run_study(runs_of(tmp_path, {"SMP": {}}), folder, **quiet)
    with pytest.raises(InputError, match="--jobs is 0"):
        run_study(runs_of(tmp_path, {"SMP": {}}), folder, jobs=0, **quiet)


def test_scores_are_those_that_the_run_wrote(fake, tmp_path):
    runs = runs_of(tmp_path, {"Dense": DENSE})
    (one,) = run_study(runs, tmp_path / "runs" / "s", **quiet).finished
    assert one.scores == json.loads((one.folder / "scores_test.json").read_text())
