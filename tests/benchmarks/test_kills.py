"""The benchmark of kills: what counts as different, and as failed."""

import shutil
import zipfile

import h5py
import numpy as np
import psutil
import pytest

from benchmarks import kills
from tfsparsecap.captioning.settings.config_files import load_config
from tfsparsecap.captioning.settings.contradictions import check_settings


def write_run(folder, weight=1.0, seconds="2"):
    """Files of a run, with the last checkpoint, a weight of the model, and a time."""
    (folder / "checkpoints").mkdir(parents=True)
    np.savez(folder / "checkpoints" / "epoch-0001.npz", weight=np.float32(weight), notes="{}")
    (folder / "history.csv").write_text(f"epoch,loss,seconds\n1,{weight},{seconds}\n")
    (folder / "captions_test.json").write_text("[]")
    with h5py.File(folder / "model.weights.h5", "w") as file:
        file["layers/dense"] = np.float32([weight, 2.0])
    with zipfile.ZipFile(folder / "model.keras", "w") as archive:
        archive.write(folder / "model.weights.h5", "model.weights.h5")
    (folder / "model.weights.h5").unlink()


def test_runs_are_equal_apart_from_times(tmp_path):
    write_run(tmp_path / "one" / "run")
    write_run(tmp_path / "same" / "run", seconds="3")
    assert kills.differences(tmp_path / "one", tmp_path / "same") == []
    write_run(tmp_path / "other" / "run", weight=np.nextafter(np.float32(1), 2))
    messages = kills.differences(tmp_path / "one", tmp_path / "other")
    assert [text.split(" has other ")[1] for text in messages] == ["arrays", "rows", "weights"]
    shutil.rmtree(tmp_path / "other" / "run" / "checkpoints")
    assert "epoch-0001.npz is missing" in kills.differences(tmp_path / "one", tmp_path / "other")[0]


@pytest.mark.parametrize("kind", kills.KINDS)
def test_the_settings_of_each_kind_are_valid(kind):
    check_settings(load_config(None, [*kills._SETTINGS, *kills.KINDS[kind]]))


class Scripted(kills.Training):
    """Instead of a training, a process that sleeps until it is killed, twice, and then ends by itself."""

    starts = 0

    def start(self):
        folder = self.folder / "runs" / "run"
        if not folder.exists():
            write_run(folder, weight=1.0)
        self.starts += 1
        ends = self.starts > 2 or self.folder.name == "undisturbed"
        self.processes = [psutil.Popen(["sleep", "0" if ends else "600"])]

    def wait(self, cpu_seconds=float("inf")):
        if cpu_seconds == float("inf"):
            self.processes[0].wait()
        return 1.0


def test_a_training_is_killed_until_it_may_finish(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(kills, "Training", Scripted)
    outcome = kills.disturb("one process", tmp_path, kills=2, seed=0)
    assert (outcome.kills, outcome.finished, outcome.identical, outcome.problems) == (2, 1, 1, [])


def test_tables_and_exit_codes(tmp_path, monkeypatch, capsys):
    outcomes = {"SCST": kills.Outcome(6, 2, 2), "study": kills.Outcome(6, 2, 1, ["a.npz is missing"])}
    monkeypatch.setattr(kills, "disturb", lambda kind, *arguments: outcomes[kind])
    assert kills.main([str(tmp_path), "--kinds", "SCST"]) == 0
    assert kills.main([str(tmp_path), "--kinds", "SCST", "study"]) == 1
    assert "a.npz is missing" in capsys.readouterr().out
