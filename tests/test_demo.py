"""The demo, with captioners too small to learn anything."""

import contextlib
import io
import json
import re
from pathlib import Path

import pytest
import tensorflow as tf
from PIL import Image
from rich.console import Console
from tfsparsecap_export import benchmark
from tfsparsecap_export.__main__ import export

from tfsparsecap import demo
from tfsparsecap.captioning.settings.config_files import save_config
from tfsparsecap.captioning.training import train_run as training_run
from tfsparsecap.errors import InputError

SMALL = [
    "data.train=16", "data.validation=2", "data.test=3", "training.epochs=1", "training.batch_size=40",
    "model.encoder.image_size=32", "model.encoder.layer=conv_pw_2_relu", "model.rnn_size=32",
    "model.embedding_size=16", "model.attention_size=16",
]  # fmt: skip


def run_here(module: str, *arguments: str):
    """`demo._run` in this process, because starting another one takes seconds."""
    command = {"tfsparsecap_export": export, "tfsparsecap_export.benchmark": benchmark.main}[module]
    output = io.StringIO()
    tf.config.run_functions_eagerly(False)
    with contextlib.redirect_stdout(output):
        command([*arguments, "--json"])
    return json.loads(output.getvalue())


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """Output and folder of a whole demo."""
    folder = tmp_path_factory.mktemp("demo") / "demo"
    output = io.StringIO()
    tf.config.run_functions_eagerly(True)  # compiling takes longer than this training
    try:
        with contextlib.redirect_stdout(output), pytest.MonkeyPatch.context() as patch:
            patch.setattr(demo, "_run", run_here)
            demo.main(["--folder", str(folder), f"data.folder={folder.parent / 'scenes'}", *SMALL])
    finally:
        tf.config.run_functions_eagerly(False)
    return output.getvalue(), folder


@pytest.fixture
def options(tmp_path):
    return demo.arguments(["--folder", str(tmp_path), *SMALL])


@pytest.fixture
def training_calls(monkeypatch):
    """Replaces training by a stub that records (name, resume) of each call in this list."""
    calls = []
    monkeypatch.setattr(
        training_run, "train_run", lambda config, *, resume, **_: calls.append((config.name, resume))
    )
    return calls


def train(name: str, options) -> Path:
    return demo._train(demo._config(name, SMALL, options.folder), options, Console(quiet=True))


def make_run(options, name: str, *settings: str, scored: bool) -> Path:
    """The files of a run that the demo checks."""
    folder = options.folder / name
    (folder / "checkpoints").mkdir(parents=True)
    (folder / "config.yaml").write_text(save_config(demo._config(name, [*SMALL, *settings], options.folder)))
    if scored:
        (folder / "scores_test.json").write_text("{}")
    return folder


def test_the_table_of_several_seeds_has_means_and_standard_deviations():
    def results(correct):
        common = {
            "images": 400,
            "beam": 3,
            "exact_match": correct,
            "sparsity": 0.5,
            "kilobytes": 200.0,
            "ms": 1.0,
        }
        return {name: {**common, "nonzero_weights": 10} for name in ("dense", "sparse")}

    output = io.StringIO()
    Console(file=output, width=120).print(demo._table([results(0.8), results(0.84), results(0.88)]))
    lines = output.getvalue().splitlines()
    assert "one thread; mean and standard deviation of 3 seeds" in " ".join(output.getvalue().split())
    assert next(line for line in lines if "correct captions" in line).count("84.0% ± 4.0%") == 2
    assert not any("CIDEr" in line for line in lines) and sum("±" in line for line in lines) == 1


@pytest.mark.slow
def test_runs_files_results_and_sheets_are_written(finished):
    output, folder = finished
    captions = output[: output.index("1 of 4")]
    assert re.search(r"astronaut\.jpg: (Perhaps: \w+|\w+ .*\d%\))", captions)
    table = output[output.rindex("held-out images, captioned by") :]
    for row in ("CIDEr", "correct captions", "non-zero weights", "file, KB", "ms per caption", "sheet.png"):
        assert row in table
    for name in ("dense", "sparse"):
        assert (folder / name / "model.keras").is_file()
        assert (folder / f"{name}.tflite").read_bytes()[4:8] == b"TFL3"
    results = json.loads((folder / "results.json").read_text())
    assert results["dense"]["sparsity"] == 0
    assert results["sparse"]["sparsity"] == pytest.approx(0.9, abs=0.01)
    assert results["sparse"]["kilobytes"] == (folder / "sparse.tflite").stat().st_size / 1e3
    assert results["sparse"]["images"] == 3
    assert results["sparse"]["kilobytes"] < results["dense"]["kilobytes"]
    for name in ("sheet.png", "photographs.png"):
        with Image.open(folder / name) as sheet:
            assert sheet.width > 600


@pytest.mark.parametrize(
    ("again", "scored", "calls"),
    [(False, True, []), (True, True, [("dense", False)]), (False, False, [("dense", True)])],
)
def test_finished_runs_are_reused_and_interrupted_ones_resumed(options, training_calls, again, scored, calls):
    folder = make_run(options, "dense", scored=scored)
    options.again = again
    assert train("dense", options) == folder
    assert training_calls == calls and folder.exists() != again


def test_runs_with_other_settings_are_kept(options, training_calls):
    folder = make_run(options, "dense", "training.epochs=7", scored=True)
    with pytest.raises(InputError, match="is a run with other settings: give another --folder, or --again"):
        train("dense", options)
    assert folder.exists() and training_calls == []


def test_other_folders_are_not_deleted(options):
    (options.folder / "dense").mkdir()
    (options.folder / "dense" / "thesis.tex").write_text("years of work")
    with pytest.raises(InputError, match="exists"):
        train("dense", options)
    assert (options.folder / "dense" / "thesis.tex").exists()


def test_the_sparse_captioner_starts_from_the_dense_one_and_learns_from_it(tmp_path):
    folder = tmp_path / "a: [folder] é"
    dense, sparse = (demo._config(name, [], folder) for name in ("dense", "sparse"))
    assert dense.pruning is None
    assert sparse.pruning.sparsity == 0.9 and sparse.pruning.block_shape == (16, 1)
    assert sparse.training.start_from == str(folder / "dense")
    assert sparse.training.teacher == [str(folder / "dense")]
    assert (sparse.data, sparse.model) == (dense.data, dense.model)
    assert sparse.training.epochs < dense.training.epochs
    assert demo._config("sparse", ["training.epochs=7"], folder).training.epochs == 7


def test_wrong_options_and_failed_commands_are_refused(tmp_path):
    (tmp_path / "file").touch()
    for call, message in (
        (lambda: demo._run("json.tool", "absent"), r"json\.tool failed with exit code [12]"),
        (lambda: demo.main(["--folder", str(tmp_path / "file")]), "not a folder"),
        (lambda: demo.main(["--folder", str(tmp_path / "demo"), "training.epoch=1"]), r"training\.epochs"),
    ):
        with pytest.raises(InputError, match=message):
            call()
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
