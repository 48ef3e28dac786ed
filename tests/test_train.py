"""python -m tfsparsecap.train: errors in its command line, and its output."""

import json
import os
import re
from types import SimpleNamespace
from typing import ClassVar

import pytest

from tfsparsecap import train
from tfsparsecap.captioning.data.tokenizers import WordTokenizer
from tfsparsecap.captioning.runs.run_folder import RunFolder
from tfsparsecap.captioning.settings.config_files import load_config
from tfsparsecap.captioning.training import train_run as run_module
from tfsparsecap.command import run
from tfsparsecap.errors import InputError


def failing(capsys, *argv) -> str:
    """The error that the command prints; it must exit with 2."""
    with pytest.raises(SystemExit) as end:
        run(lambda: train.main(argv))
    lines = capsys.readouterr().err.splitlines()
    assert end.value.code == 2 and lines[-1].startswith("error: ")
    return lines[-1].removeprefix("error: ")


def test_help_shows_examples(capsys):
    with pytest.raises(SystemExit) as end:
        train.main(["--help"])
    shown = capsys.readouterr().out
    assert end.value.code == 0
    assert "examples:" in shown and "--resume" in shown and "pruning=null" in shown


def test_settings_are_listed(capsys):
    assert train.main(["--list-settings", "decoding"]) == 0
    assert capsys.readouterr().out.startswith("decoding: ")
    assert "no section of settings 'decodin': did you mean decoding?" in failing(
        capsys, "--list-settings", "decodin"
    )


def test_settings_may_be_anywhere_on_the_command_line():
    given = train.arguments(["a.b=1", "--resume", "--config", "x.yaml", "c.d=2"])
    assert given.settings == ["a.b=1", "c.d=2"] and given.resume and given.config == "x.yaml"
    assert train.arguments([]).settings == []


def test_misspelt_settings_are_reported(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "x.yaml").write_text("training: {epoch: 3}\n")
    error = failing(capsys, "--config", "x.yaml")
    assert error == "unknown key training.epoch in x.yaml; did you mean training.epochs?"
    assert "did you mean data.minimum_count?" in failing(capsys, "data.minimum_cout=3")
    assert "there is no file absent.yaml" in failing(capsys, "--config", "absent.yaml")
    assert "is not a setting" in failing(capsys, "training.epochs")
    assert [path.name for path in tmp_path.iterdir()] == ["x.yaml"]


def test_missing_data_is_reported(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert "data.folder is not set" in failing(capsys, "data.kind=flickr")
    assert "there is no data folder absent" in failing(capsys, "data.kind=flickr", "data.folder=absent")
    (tmp_path / "empty").mkdir()
    assert "the data folder empty is empty" in failing(capsys, "data.kind=table", "data.folder=empty")
    assert [path.name for path in tmp_path.iterdir()] == ["empty"]


def test_an_interrupted_training_says_how_to_continue(monkeypatch, tmp_path):
    def interrupted(*arguments, **more):
        raise KeyboardInterrupt

    monkeypatch.setattr(run_module, "train_run", interrupted)
    remedy = r"python -m \S+train --config '.*/my runs/one/config\.yaml' --runs '.*/my runs' --resume"
    with pytest.raises(KeyboardInterrupt, match=rf"^stopped: continue with {remedy}$"):
        train.main(["--runs", str(tmp_path / "my runs"), "name=one"])


def test_an_existing_folder_stays_unchanged(capsys, tmp_path, monkeypatch, tiny_settings):
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "runs" / "tiny"
    folder.mkdir(parents=True)
    (folder / "model.keras").write_text("precious")
    assert "runs/tiny exists but is not a run folder" in failing(capsys, *tiny_settings)
    assert "there is no run to resume in runs/tiny" in failing(capsys, *tiny_settings, "--resume")
    assert (folder / "model.keras").read_text() == "precious"


def test_a_run_of_another_process_stays_unchanged(capsys, tmp_path, monkeypatch, tiny_settings):
    monkeypatch.chdir(tmp_path)
    folder = RunFolder(tmp_path / "runs" / "tiny")
    folder.create(load_config(None, tiny_settings), WordTokenizer.from_captions(["a dog"]))
    assert "runs/tiny exists: pass --resume" in failing(capsys, *tiny_settings)
    with folder.locked():
        error = failing(capsys, *tiny_settings, "--resume")
    assert "another process is training in runs/tiny" in error


@pytest.mark.filterwarnings("ignore:.*fork")
def test_of_runs_that_start_at_the_same_time_under_one_name_one_wins(tmp_path, monkeypatch, tiny_settings):
    """Processes, which start together; the winner goes on when all others have ended."""
    processes = 4
    go, done = os.pipe(), os.pipe()
    monkeypatch.setattr(run_module.keras.utils, "set_random_seed", lambda seed: None)  # not after a fork
    words = [WordTokenizer.from_captions([f"number {number}"]) for number in range(processes)]

    class Run:
        """Reads its vocabulary, and trains until the others have ended."""

        initial: ClassVar = {}
        teachers = ()

        def __init__(self, config, *arguments):
            self.run_data = SimpleNamespace(tokenizer=words[config.seed], taught={})

        def write_skipped(self):
            pass

        def train(self):
            os.read(done[0], 1)

        def finish(self):
            return {}

    monkeypatch.setattr(run_module, "_Run", Run)
    children = {}
    for number in range(processes):
        config = load_config(None, [*tiny_settings, f"seed={number}"])
        child = os.fork()
        if child == 0:
            code = 1
            try:
                os.read(go[0], 1)
                run_module.train_run(config, runs=tmp_path, verbose=0, report=str)
                code = 0
            except InputError as error:
                code = 2 if "another process is training" in str(error) else 3
            finally:
                os._exit(code)
        children[child] = number
    os.write(go[1], b"x" * processes)
    ended = {}
    for _ in range(processes):
        if len(ended) == processes - 1:
            os.write(done[1], b"x")
        child, status = os.wait()
        ended[children[child]] = os.waitstatus_to_exitcode(status)
    assert sorted(ended.values()) == [0, *(processes - 1) * [2]]
    (winner,) = [number for number, code in ended.items() if code == 0]
    folder = RunFolder(tmp_path / "tiny")
    assert folder.load_config().seed == winner
    assert folder.load_tokenizer().vocabulary == words[winner].vocabulary
    files = {path.name for path in folder.path.iterdir()}
    assert files == {"config.yaml", "data.json", "vocabulary.txt", "checkpoints"}


def test_a_checkpoint_of_another_model_is_rejected(capsys, tmp_path, monkeypatch, tiny_settings):
    import keras

    from tfsparsecap.captioning.runs.checkpoints import save_checkpoint

    monkeypatch.chdir(tmp_path)
    folder = RunFolder("runs/tiny")
    folder.create(load_config(None, tiny_settings), WordTokenizer.from_captions(["a dog"]))
    other = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    optimizer = keras.optimizers.Adam()
    optimizer.build(other.trainable_variables)
    notes = {"epoch": 1, "phase": "train", "history": [{"epoch": 1, "phase": "train"}]}
    save_checkpoint(folder.checkpoint(1), other, optimizer, notes)
    before = folder.checkpoint(1).read_bytes()
    error = failing(capsys, *tiny_settings, "--resume")
    assert "epoch-0001.npz is a checkpoint of another model" in error
    assert folder.checkpoint(1).read_bytes() == before


@pytest.mark.slow
@pytest.mark.usefixtures("quick_training")
def test_the_command_prints_a_table_or_json(capsys, tmp_path, monkeypatch, tiny_settings):
    monkeypatch.chdir(tmp_path)
    assert train.main([*tiny_settings, "training.epochs=1"]) == 0
    shown = capsys.readouterr().out
    assert "CIDEr" in shown and "loss" in shown
    assert re.search(r"sparsity +│ (89\.99|90\.0\d)%", shown)
    assert train.main([*tiny_settings, "training.epochs=1", "--resume", "--json"]) == 0
    captured = capsys.readouterr()
    assert json.loads(captured.out)["run"] == "runs/tiny"
    assert "resuming after epoch 1" in captured.err
