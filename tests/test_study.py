"""The study command: from a small grid to its tables."""

import contextlib
import json
import re
import shutil
from functools import partial
from types import SimpleNamespace

import pytest

from tests import command_line
from tfsparsecap import study, train
from tfsparsecap.papers import runner

DENSE, HARD = "soft_attention_lstm-dense-s1", "soft_attention_lstm-hard_class_blind-0.8-s1"


def train_here(command, log, environment):
    """`start_child` in this process, because starting another one takes seconds."""
    with contextlib.redirect_stdout(log):
        assert train.main(command[len(runner.TRAIN) :]) == 0
    return SimpleNamespace(poll=lambda: 0, wait=lambda timeout: None)


@pytest.fixture
def file(tiny_settings, tmp_path):
    """A study of two tiny runs without validation."""
    settings = dict(text.partition("=")[::2] for text in tiny_settings if not text.startswith("name="))
    settings |= {"training.epochs": 1, "training.batch_size": 50, "training.validation_images": 0}
    settings["decoding.beam"] = 1
    lines = "".join(f"  {key}: {value}\n" for key, value in settings.items())
    path = tmp_path / "tiny_study.yaml"
    path.write_text(
        "name: tiny_study\n"
        "title: Two runs\n"
        f"settings:\n{lines}"
        "sparsities: [0.8]\n"
        "captioners: {Soft-Attention LSTM: {}}\n"
        "methods:\n"
        "  Dense: {settings: {pruning: null}}\n"
        "  Hard (class-blind): {start_from: Dense, settings: {pruning.method: magnitude}}\n"
    )
    return path


exit_code = partial(command_line.exit_code, study.main)


@pytest.mark.slow
@pytest.mark.usefixtures("quick_training")
def test_a_study_trains_its_runs_and_writes_tables_and_plot(file, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(runner, "start_child", train_here)
    published = tmp_path / "curves.tsv"
    published.write_text("Sparsity\tNNZ\tBaseline\tProposed\n0.800\t2.4 M\t94.3\t94.4\n")
    arguments = ("--config", file, "--runs", tmp_path / "runs", "--published", published, "--quiet")
    folder = tmp_path / "runs" / "tiny_study"
    assert exit_code(*arguments, "--json") == 0
    rows = json.loads(capsys.readouterr().out)
    assert [(row["method"], row["sparsity"]) for row in rows] == [
        ("Dense", None),
        ("Hard (class-blind)", 0.8),
    ]
    assert [round(row["final_sparsity"], 2) for row in rows] == [0.0, 0.8]
    assert all(row["seconds"] > 0 for row in rows)
    assert {path.name for path in folder.iterdir()} == {
        DENSE,
        HARD,
        "logs",
        "table.csv",
        "runs.csv",
        "plot.png",
    }

    before = (folder / DENSE / "model.keras").stat().st_mtime_ns
    assert exit_code(*arguments) == 0
    assert (folder / DENSE / "model.keras").stat().st_mtime_ns == before
    out = capsys.readouterr().out
    assert "2 runs, 2 of them already finished" in out and re.search(r"Hard \(class-blind\) *│ *\d", out)
    shutil.rmtree(folder / HARD)
    assert exit_code(*arguments, "--tables") == 0
    assert f"1 of 2 runs in {folder} are finished" in capsys.readouterr().out
    assert not (folder / HARD).exists()


def test_dry_run_lists_the_runs(file, tmp_path, capsys):
    assert exit_code("--config", file, "--runs", tmp_path / "runs", "--dry-run") == 0
    lines = capsys.readouterr().out.splitlines()
    assert "2 runs in" in lines[0] and lines[1:] == [DENSE, f"{HARD} (after {DENSE})"]
    assert not (tmp_path / "runs").exists()


def test_input_errors_are_found_before_training(file, tmp_path, capsys):
    arguments = ("--config", file, "--runs", tmp_path / "runs")
    assert exit_code(*arguments, "--published", tmp_path / "nowhere") == 2
    assert "No such file" in capsys.readouterr().err
    settings = file.read_text()
    file.write_text(settings.replace("pruning.method: magnitude", "pruning.scheem: blind"))
    assert exit_code(*arguments, "--dry-run") == 2
    assert "unknown key pruning.scheem" in capsys.readouterr().err
    file.write_text(re.sub(r"\n  data\..*", "", settings))
    assert exit_code(*arguments, "data.kind=flickr", f"data.folder={tmp_path / 'nowhere'}") == 2
    assert "nowhere" in capsys.readouterr().err and not (tmp_path / "runs").exists()
    file.write_text(settings)
    assert exit_code(*arguments, "--tables") == 0
    assert "0 of 2 runs" in capsys.readouterr().out
    (tmp_path / "file").write_text("")
    assert exit_code("--config", file, "--runs", tmp_path / "file") == 2
    assert "cannot create the folder" in capsys.readouterr().err


def test_failed_runs_are_reported_with_exit_code_1(file, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(runner, "run_study", lambda *arguments, **options: {DENSE: "the loss became nan"})
    assert exit_code("--config", file, "--runs", tmp_path / "runs") == 1
    assert f"error: {DENSE}: the loss became nan" in capsys.readouterr().err
