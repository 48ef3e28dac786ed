"""The study command: from a small grid to its tables; layer-wise sparsities."""

import json
import re
import shutil
import sys

import pytest

from tfsparsecap import study
from tfsparsecap.command import run
from tfsparsecap.studies import runner
from tfsparsecap.studies.layers import layers_of_runs

#: `python -m tfsparsecap.train` without compiling graphs, which takes longer than these trainings.
EAGER_TRAIN = """
from tfsparsecap.command import run, start_tensorflow
start_tensorflow()
import tensorflow as tf
tf.config.run_functions_eagerly(True)
from tfsparsecap.train import main
run(main)
"""
DENSE, HARD = "soft_attention_lstm-dense-s1", "soft_attention_lstm-hard_class_blind-0.8-s1"
LAYERS = "Layer\tProposed\tGradual\nembedding_map/mask\t0.99\t0.975\nvalue_layer/kernel/mask\t0.993\t0.974\n"


@pytest.fixture
def file(tiny_settings, tmp_path):
    """A study of two tiny runs without validation."""
    settings = dict(text.partition("=")[::2] for text in tiny_settings if not text.startswith("name="))
    settings |= {"training.epochs": 1, "training.validation_images": 0, "decoding.beam": 1}
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


def exit_code(*arguments):
    with pytest.raises(SystemExit) as end:
        run(lambda: study.main([str(argument) for argument in arguments]))
    return end.value.code


@pytest.mark.slow
def test_a_study_trains_its_runs_and_writes_tables_and_plot(file, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(runner, "TRAIN", (sys.executable, "-c", EAGER_TRAIN))
    published = tmp_path / "curves.tsv"
    published.write_text("Sparsity\tNNZ\tBaseline\tProposed\n0.800\t2.4 M\t94.3\t94.4\n")
    given = ("--config", file, "--runs", tmp_path / "runs", "--published", published, "--quiet")
    folder = tmp_path / "runs" / "tiny_study"
    assert exit_code(*given, "--json") == 0
    rows = json.loads(capsys.readouterr().out)
    assert [(row["method"], row["sparsity"]) for row in rows] == [
        ("Dense", None),
        ("Hard (class-blind)", 0.8),
    ]
    assert [round(row["final_sparsity"], 2) for row in rows] == [0.0, 0.8]
    assert all(row["seconds"] > 0 for row in rows)
    text = (folder / "table.md").read_text(encoding="utf-8")
    assert "# Two runs" in text and "| Hard (class-blind) |" in text and "Not finished" not in text
    assert {"table.csv", "runs.csv", "plot.png"} <= {one.name for one in folder.iterdir()}
    assert "published" in (folder / "plot.svg").read_text(encoding="utf-8")

    before = (folder / DENSE / "model.keras").stat().st_mtime_ns
    assert exit_code(*given) == 0
    assert (folder / DENSE / "model.keras").stat().st_mtime_ns == before
    assert "2 runs, 2 of them already finished" in capsys.readouterr().out
    shutil.rmtree(folder / HARD)
    assert exit_code(*given, "--tables") == 0
    assert "Not finished: 1 of 2 runs" in (folder / "table.md").read_text(encoding="utf-8")
    assert not (folder / HARD).exists()


def test_dry_run_lists_the_runs(file, tmp_path, capsys):
    assert exit_code("--config", file, "--runs", tmp_path / "runs", "--dry-run") == 0
    lines = capsys.readouterr().out.splitlines()
    assert "2 runs in" in lines[0] and lines[1:] == [DENSE, f"{HARD} (after {DENSE})"]
    assert not (tmp_path / "runs").exists()


def test_input_errors_are_found_before_training(file, tmp_path, capsys):
    given = ("--config", file, "--runs", tmp_path / "runs")
    assert exit_code(*given, "--published", tmp_path / "nowhere") == 2
    assert "--published is" in capsys.readouterr().err
    settings = file.read_text()
    file.write_text(settings.replace("pruning.method: magnitude", "pruning.scheem: blind"))
    assert exit_code(*given, "--dry-run") == 2
    assert "unknown key pruning.scheem" in capsys.readouterr().err
    file.write_text(re.sub(r"\n  data\..*", "", settings))
    assert exit_code(*given, "data.kind=flickr", f"data.folder={tmp_path / 'nowhere'}") == 2
    assert "nowhere" in capsys.readouterr().err and not (tmp_path / "runs").exists()
    file.write_text(settings)
    assert exit_code(*given, "--tables") == 0
    assert "is finished yet" in capsys.readouterr().out
    (tmp_path / "file").write_text("")
    assert exit_code("--config", file, "--runs", tmp_path / "file") == 2
    assert "cannot create the folder" in capsys.readouterr().err


def test_failed_runs_are_reported_with_exit_code_1(file, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(runner, "run_study", lambda *arguments, **options: {DENSE: "the loss became nan"})
    assert exit_code("--config", file, "--runs", tmp_path / "runs") == 1
    assert f"error: {DENSE}: the loss became nan" in capsys.readouterr().err


@pytest.mark.slow
def test_layers_are_printed_and_plotted_beside_published_ones(tiny_run, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "300")
    table, image = tmp_path / "table.tsv", tmp_path / "a.png"
    table.write_text(LAYERS)
    assert exit_code("--layers", tiny_run, "--published", table, "--output", image) == 0
    out = capsys.readouterr().out
    rows = {words[0]: words[1:] for words in map(str.split, out.splitlines()) if words}
    layers = {layer.name: layer for layer in layers_of_runs([tiny_run])["tiny"]}
    assert rows["embedding_map"] == [str(layers["embedding/embeddings"].weights), "0.00%", "99.00%", "97.50%"]
    assert rows["value_layer/kernel"] == ["99.30%", "97.40%"] and "lstm/recurrent_kernel" in rows
    assert "tiny: dense. Proposed, published, by increasing sparsity: embedding_map 99.0%, value_layer" in out
    assert {one.name for one in tmp_path.iterdir()} == {"table.tsv", "a.png", "a.svg"}
    assert exit_code("--layers", tiny_run, "--json") == 0
    assert json.loads(capsys.readouterr().out) == {"tiny": [layer._asdict() for layer in layers.values()]}


def test_output_of_layers_is_checked_before_runs_are_loaded(tmp_path, capsys):
    assert exit_code("--layers", tmp_path / "no run", "--output", tmp_path / "no" / "a.png") == 2
    assert "no folder" in capsys.readouterr().err
