"""python -m tfsparsecap.train: errors in its command line, and its output."""

import json
import re

import pytest

from tests.command_line import exit_code
from tfsparsecap import train
from tfsparsecap.captioning.data.tokenizers import WordTokenizer
from tfsparsecap.captioning.runs.run_folder import RunFolder
from tfsparsecap.captioning.settings.config_files import load_config
from tfsparsecap.captioning.training import train_run as run_module


def failing(capsys, *argv) -> str:
    """The error that the command prints; it must exit with 2."""
    code = exit_code(train.main, *argv)
    lines = capsys.readouterr().err.splitlines()
    assert code == 2 and lines[-1].startswith("error: ")
    return lines[-1].removeprefix("error: ")


def test_settings_are_listed(capsys):
    assert train.main(["--list-settings", "decoding"]) == 0
    assert capsys.readouterr().out.startswith("decoding: ")
    assert "no section of settings 'decodin': did you mean decoding?" in failing(
        capsys, "--list-settings", "decodin"
    )


def test_settings_may_be_anywhere_on_the_command_line():
    arguments = train.arguments(["a.b=1", "--resume", "--config", "x.yaml", "c.d=2"])
    assert arguments.settings == ["a.b=1", "c.d=2"] and arguments.resume and arguments.config == "x.yaml"
    assert train.arguments([]).settings == []


def test_an_interrupted_training_says_how_to_continue(monkeypatch, tmp_path):
    def interrupted(*arguments, **more):
        raise KeyboardInterrupt

    monkeypatch.setattr(run_module, "train_run", interrupted)
    remedy = r"python -m \S+train --config '.*/my runs/one/config\.yaml' --runs '.*/my runs' --resume"
    command = ["--runs", str(tmp_path / "my runs"), "name=one"]
    with pytest.raises(KeyboardInterrupt, match=r"^stopped before the first epoch: start the same command"):
        train.main(command)
    (tmp_path / "my runs" / "one").mkdir(parents=True)
    (tmp_path / "my runs" / "one" / "config.yaml").touch()
    with pytest.raises(KeyboardInterrupt, match=rf"^stopped: continue with {remedy}$"):
        train.main(command)
    workers = ["--workers", "a:1,b:1", "--worker", "0"]
    remedy = remedy.replace("--resume", "--workers a:1,b:1 --worker 0 --resume")
    with pytest.raises(KeyboardInterrupt, match=rf"^stopped: continue with {remedy}$"):
        train.main([*command, *workers])


def test_an_existing_folder_stays_unchanged(capsys, tmp_path, monkeypatch, tiny_settings):
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "runs" / "tiny"
    folder.mkdir(parents=True)
    (folder / "model.keras").write_text("precious")
    assert "runs/tiny exists but is not a run folder" in failing(capsys, *tiny_settings)
    assert "there is no run to resume in runs/tiny" in failing(capsys, *tiny_settings, "--resume")
    assert (folder / "model.keras").read_text() == "precious"


@pytest.mark.slow
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
