"""The demo with a captioner so small that it learns nothing: that every part meets the next."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image
from rich.console import Console

from tfsparsecap import demo
from tfsparsecap.errors import InputError
from tfsparsecap.settings.files import save_config
from tfsparsecap.training import run as training_run

SMALL = [
    "data.train=16", "data.validation=2", "data.test=3", "training.epochs=1", "training.batch_size=16",
    "model.encoder.image_size=32", "model.encoder.layer=conv_pw_2_relu", "model.rnn_size=32",
    "model.embedding_size=16", "model.attention_size=16",
]  # fmt: skip


def run_demo(folder: Path, *settings: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, "-m", "tfsparsecap.demo", "--folder", "demo", "data.folder=scenes", *settings],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "COLUMNS": "120"},
    )


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """Output and folder of a whole demo."""
    folder = tmp_path_factory.mktemp("demo")
    result = run_demo(folder, *SMALL)
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout, folder / "demo"


@pytest.fixture
def options(tmp_path):
    return demo.arguments(["--folder", str(tmp_path), *SMALL])


@pytest.fixture
def trainings(monkeypatch):
    """The trainings that were asked for: (name, resume) each."""
    asked = []
    monkeypatch.setattr(
        training_run, "train_run", lambda config, *, resume, **_: asked.append((config.name, resume))
    )
    return asked


def train(name: str, options) -> Path:
    return demo._train(demo._config(name, SMALL), options, Console(quiet=True))


def make_run(options, name: str, *settings: str, scored: bool) -> Path:
    """What a training of these settings leaves behind, as far as the demo looks at it."""
    folder = options.folder / name
    (folder / "checkpoints").mkdir(parents=True)
    (folder / "config.yaml").write_text(save_config(demo._config(name, [*SMALL, *settings])))
    if scored:
        (folder / "scores_test.json").write_text("{}")
    return folder


@pytest.mark.slow
def test_it_ends_with_a_table_and_names_its_picture(finished):
    output, _ = finished
    table = output[output.rindex("held-out scenes, captioned by") :]
    for row in ("CIDEr", "captions that are right", "non-zero weights", "file, KB", "ms a caption"):
        assert row in table
    assert str(Path("demo") / "sheet.png") in table


@pytest.mark.slow
def test_it_writes_runs_files_figures_and_the_sheet(finished):
    _, folder = finished
    for name in ("dense", "sparse"):
        assert (folder / name / "model.keras").is_file()
        assert (folder / f"{name}.tflite").read_bytes()[4:8] == b"TFL3"
    figures = json.loads((folder / "figures.json").read_text())
    assert figures["dense"]["sparsity"] == 0
    assert figures["sparse"]["sparsity"] == pytest.approx(0.9, abs=0.01)
    assert figures["sparse"]["bytes"] == (folder / "sparse.tflite").stat().st_size
    assert figures["sparse"]["images"] == 3
    assert figures["sparse"]["bytes"] < figures["dense"]["bytes"]
    with Image.open(folder / "sheet.png") as sheet:
        assert sheet.width > 600


@pytest.mark.parametrize("name", ["dense", "sparse"])
def test_a_finished_training_is_not_done_again(options, trainings, name):
    make_run(options, name, scored=True)
    assert train(name, options) == options.folder / name
    assert trainings == []


def test_again_trains_what_is_finished_once_more(options, trainings):
    folder = make_run(options, "dense", scored=True)
    options.again = True
    train("dense", options)
    assert trainings == [("dense", False)]
    assert not folder.exists()


def test_a_training_that_was_stopped_goes_on(options, trainings):
    folder = make_run(options, "sparse", scored=False)
    train("sparse", options)
    assert trainings == [("sparse", True)]
    assert folder.exists()


def test_a_training_with_other_settings_starts_again(options, trainings):
    make_run(options, "dense", "training.epochs=7", scored=True)
    train("dense", options)
    assert trainings == [("dense", False)]


def test_a_folder_that_is_no_training_is_left_alone(options):
    (options.folder / "dense").mkdir()
    (options.folder / "dense" / "thesis.tex").write_text("years of work")
    with pytest.raises(InputError, match="exists"):
        train("dense", options)
    assert (options.folder / "dense" / "thesis.tex").exists()


def test_both_trainings_differ_in_nothing_but_pruning():
    dense, sparse = (demo._config(name, []) for name in ("dense", "sparse"))
    assert dense.pruning is None
    assert sparse.pruning.sparsity == 0.9 and sparse.pruning.block_shape == (16, 1)
    assert dense.model_copy(update={"pruning": sparse.pruning, "name": "sparse"}) == sparse


def test_a_command_that_fails_ends_the_demo_with_a_sentence():
    with pytest.raises(InputError, match="tfsparsecap_export ended with exit code 2"):
        demo._run("tfsparsecap_export", "--tflite", "absent")


@pytest.mark.slow
def test_a_setting_that_does_not_exist_is_said_in_one_sentence(tmp_path):
    result = run_demo(tmp_path, "training.epoch=1")
    assert result.returncode == 2
    assert "training.epochs" in result.stderr and "Traceback" not in result.stderr
    assert not list(tmp_path.iterdir())
