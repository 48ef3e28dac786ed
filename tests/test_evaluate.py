"""python -m tfsparsecap.evaluate: scores of runs, of exported files, of files of captions."""

import json
import shutil
from types import SimpleNamespace

import pytest

import tfsparsecap.bundle
from tfsparsecap import evaluate
from tfsparsecap.command import run


def ended(*argv) -> int:
    with pytest.raises(SystemExit) as end:
        run(lambda: evaluate.main([str(part) for part in argv]))
    return end.value.code


@pytest.fixture
def copied_run(tiny_run, tmp_path):
    """A run folder that may be written to."""
    return shutil.copytree(tiny_run, tmp_path / "tiny")


def test_a_run_gets_its_scores_written(capsys, copied_run):
    assert ended(copied_run, "--split", "validation") == 0
    assert "CIDEr" in capsys.readouterr().out
    scores = json.loads((copied_run / "scores_validation.json").read_text())
    assert scores["images"] == 3 and scores["beam"] == 1
    assert len(json.loads((copied_run / "captions_validation.json").read_text())) == 3


def test_another_beam_does_not_write_over_the_runs_own_scores(capsys, copied_run):
    (copied_run / "scores_test.json").write_text("mine")
    assert ended(copied_run, "--beam", "2", "--json") == 0
    assert json.loads(capsys.readouterr().out)["beam"] == 2
    assert (copied_run / "scores_test.json").read_text() == "mine"
    assert json.loads((copied_run / "scores_test_beam2.json").read_text())["beam"] == 2


def test_an_exported_file_is_evaluated_on_the_data_of_its_run(capsys, copied_run, monkeypatch, tmp_path):
    captioner = SimpleNamespace(
        image_size=32,
        features_shape=None,
        input_names=("image",),
        metadata={"beam": 1},
        caption=lambda image: [("a star", -1.0)],
    )
    monkeypatch.setattr(tfsparsecap.bundle, "TFLiteCaptioner", lambda path: captioner)
    (copied_run / "x.tflite").write_bytes(b"123")
    assert ended(copied_run / "x.tflite", "--json") == 0
    scores = json.loads(capsys.readouterr().out)
    assert scores["images"] == 4 and scores["bytes"] == 3
    elsewhere = shutil.copy(copied_run / "x.tflite", tmp_path / "x.tflite")
    assert ended(elsewhere) == 2
    assert "give --config with the settings of its run" in capsys.readouterr().err
    assert ended(elsewhere, "--config", copied_run / "config.yaml", "--output", tmp_path / "out") == 0
    assert json.loads((tmp_path / "out" / "captions_test.json").read_text())[0]["caption"] == "a star"
    assert ended(elsewhere, "--beam", "3") == 2
    assert "searches with beam 1, not 3" in capsys.readouterr().err


def test_any_file_of_captions_is_scored(capsys, tmp_path):
    results, references = tmp_path / "results.json", tmp_path / "references.json"
    results.write_text(json.dumps([{"image_id": 1, "caption": "a dog runs on grass"}]))
    people = [{"image_id": 1, "caption": "A dog runs on grass."}, {"image_id": 2, "caption": "A cat."}]
    references.write_text(json.dumps({"annotations": people}))
    assert ended("--results", results, "--references", references, "--json") == 0
    scores = json.loads(capsys.readouterr().out)
    assert scores["exact_match"] == 1 and scores["images"] == 1
    assert ended("--results", results) == 2
    assert "--results and --references together" in capsys.readouterr().err
    assert ended("--results", results, "--references", tmp_path / "absent.json") == 2
    assert "cannot read" in capsys.readouterr().err
    references.write_text("{")
    assert ended("--results", results, "--references", references) == 2
    assert "is no JSON" in capsys.readouterr().err


def test_what_cannot_be_evaluated_is_named(capsys, tmp_path, copied_run):
    assert ended() == 2
    assert "there is nothing to evaluate" in capsys.readouterr().err
    assert ended(tmp_path / "absent") == 2
    assert "there is no" in capsys.readouterr().err
    (tmp_path / "x.tflite").write_text("no file of that kind")
    assert ended(tmp_path / "x.tflite") == 2
    assert "is no .tflite file" in capsys.readouterr().err
    assert ended(copied_run, "--beam", "0") == 2
    assert "--beam is 0" in capsys.readouterr().err
    assert ended(copied_run, "--split", "tset") == 2
    (tmp_path / "elsewhere").mkdir()
    assert ended(copied_run, "--data", tmp_path) == 2
    assert "choose another folder" in capsys.readouterr().err


def test_help_teaches_with_examples(capsys):
    assert ended("--help") == 0
    assert "--results CAPTIONS.json --references" in capsys.readouterr().out
