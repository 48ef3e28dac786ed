"""The study command: a small grid from its file to its tables, stopped and gone on with."""

import json
import re
import shutil

import pytest

from tfsparsecap import study
from tfsparsecap.command import run


@pytest.fixture
def file(tiny_settings, tmp_path):
    """A study of three tiny runs; its validation is left out to be quicker."""
    settings = dict(text.partition("=")[::2] for text in tiny_settings if not text.startswith("name="))
    lines = "".join(f"  {key}: {value}\n" for key, value in settings.items())
    path = tmp_path / "tiny_study.yaml"
    path.write_text(
        "name: tiny_study\n"
        "title: Three runs\n"
        f"settings:\n{lines}  training.validation_images: 0\n"
        "sparsities: [0.8]\n"
        "captioners: {Soft-Attention LSTM: {}}\n"
        "methods:\n"
        "  Dense: {settings: {pruning: null}}\n"
        "  SMP: {}\n"
        "  Hard (class-blind): {start_from: Dense, settings: {pruning.method: magnitude}}\n"
        "plot: {published_folder: ., published: {Soft-Attention LSTM: curves.tsv}}\n"
    )
    (tmp_path / "curves.tsv").write_text("Sparsity\tNNZ\tBaseline\tProposed\n0.800\t2.4 M\t94.3\t94.4\n")
    return path


def ended(*arguments):
    """The exit code of the command."""
    with pytest.raises(SystemExit) as end:
        run(lambda: study.main([str(argument) for argument in arguments]))
    return end.value.code


@pytest.mark.slow
def test_a_study_trains_its_grid_once_and_writes_its_tables(file, tmp_path, capsys):
    given = ("--config", file, "--runs", tmp_path / "runs", "--quiet")
    folder = tmp_path / "runs" / "tiny_study"
    assert ended(*given, "--json") == 0
    rows = json.loads(capsys.readouterr().out)
    assert [(row["method"], row["sparsity"]) for row in rows] == [
        ("Dense", None),
        ("SMP", 0.8),
        ("Hard (class-blind)", 0.8),
    ]
    assert [round(row["final_sparsity"], 2) for row in rows] == [0.0, 0.8, 0.8]
    assert all(row["seconds"] > 0 for row in rows)
    text = (folder / "table.md").read_text(encoding="utf-8")
    assert "# Three runs" in text and "| Hard (class-blind) |" in text and "Not finished" not in text
    assert {"table.csv", "runs.csv", "plot.png", "plot.svg"} <= {one.name for one in folder.iterdir()}
    assert "published" in (folder / "plot.svg").read_text(encoding="utf-8")

    # A run that is gone is trained again, the others are not.
    hard = folder / "soft_attention_lstm-hard_class_blind-0.8-s1"
    dense = folder / "soft_attention_lstm-dense-s1" / "model.keras"
    before = dense.stat().st_mtime_ns
    shutil.rmtree(hard)
    assert ended(*given, "--tables") == 0
    assert "Not finished: 1 of 3 runs" in (folder / "table.md").read_text(encoding="utf-8")
    assert not hard.exists()
    assert ended(*given) == 0
    assert (hard / "model.keras").is_file() and dense.stat().st_mtime_ns == before
    assert "CIDEr" in capsys.readouterr().out


def test_what_would_be_trained_is_listed_and_nothing_is(file, tmp_path, capsys):
    assert ended("--config", file, "--runs", tmp_path / "runs", "--dry-run") == 0
    out = capsys.readouterr().out
    assert "3 runs in" in out
    assert out.splitlines()[1:] == [
        "soft_attention_lstm-dense-s1",
        "soft_attention_lstm-smp-0.8-s1",
        "soft_attention_lstm-hard_class_blind-0.8-s1 (after soft_attention_lstm-dense-s1)",
    ]
    assert not (tmp_path / "runs").exists()


def test_a_wrong_setting_is_said_before_anything_is_trained(file, tmp_path, capsys):
    file.write_text(file.read_text().replace("pruning.method: magnitude", "pruning.scheem: blind"))
    assert ended("--config", file, "--runs", tmp_path / "runs") == 2
    assert "unknown key pruning.scheem" in capsys.readouterr().err
    assert not (tmp_path / "runs").exists()
    # Without training, too.
    assert ended("--config", file, "--runs", tmp_path / "runs", "--dry-run") == 2


def test_data_that_are_not_there_are_said_before_anything_is_trained(file, tmp_path, capsys):
    given = ("--config", file, "--runs", tmp_path / "runs")
    settings = file.read_text()
    file.write_text(re.sub(r"\n  data\..*", "", settings))
    assert ended(*given, "data.kind=flickr", f"data.folder={tmp_path / 'nowhere'}") == 2
    assert "nowhere" in capsys.readouterr().err and not (tmp_path / "runs").exists()
    file.write_text(settings)
    assert ended(*given, "--tables") == 0
    assert "is finished yet" in capsys.readouterr().out
    (tmp_path / "file").write_text("")
    assert ended("--config", file, "--runs", tmp_path / "file") == 2
    assert "cannot make the folder" in capsys.readouterr().err


def test_a_run_that_fails_is_named_and_the_code_is_1(file, tmp_path, capsys, monkeypatch):
    from tfsparsecap.studies import runner as study_runner

    failed = study_runner.Outcome([], {"soft_attention_lstm-dense-s1": "the loss became nan"})
    monkeypatch.setattr(study_runner, "run_study", lambda *arguments, **options: failed)
    assert ended("--config", file, "--runs", tmp_path / "runs") == 1
    assert "error: soft_attention_lstm-dense-s1: the loss became nan" in capsys.readouterr().err
