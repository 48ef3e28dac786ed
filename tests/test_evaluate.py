"""python -m tfsparsecap.evaluate: scores of runs, exported files and files of captions."""

import json
import re
import shutil
from functools import partial
from pathlib import Path
from unittest import mock

import pytest

from tests import command_line
from tfsparsecap import evaluate
from tfsparsecap.captioning.data.tokenizers import WordTokenizer
from tfsparsecap.captioning.inference import Caption, Captions, bundle, splits
from tfsparsecap.captioning.inference.bundle import TFLiteCaptioner
from tfsparsecap.captioning.inference.finished_run import FinishedRun
from tfsparsecap.captioning.metrics import scores as scores_module
from tfsparsecap.captioning.runs.run_folder import RunFolder
from tfsparsecap.captioning.settings.build import load_data
from tfsparsecap.captioning.settings.config_files import load_config

# METEOR takes ten seconds to start.
QUICK = ("--metrics", "BLEU,CIDEr")


exit_code = partial(command_line.exit_code, evaluate.main)


def printed(capsys) -> str:
    """The printed table without its frame."""
    return " ".join(re.sub("[│\n]", " ", capsys.readouterr().out).split())


@pytest.fixture
def copied_run(tiny_run, tmp_path):
    """A run folder to write to."""
    return shutil.copytree(tiny_run, tmp_path / "tiny")


@pytest.mark.slow
def test_scores_of_a_run_are_written_into_its_folder(capsys, copied_run):
    assert exit_code(copied_run, "--split", "validation", *QUICK) == 0
    table = printed(capsys)
    assert "CIDEr" in table and "images/s, including reading them" in table
    assert re.search(r"seconds of scoring tokenizer [\d.]+, BLEU [\d.]+, CIDEr [\d.]+", table)
    scores = json.loads((copied_run / "scores_validation.json").read_text())
    assert scores["images"] == 3 and scores["beam"] == 1
    assert len(json.loads((copied_run / "captions_validation.json").read_text())) == 3


@pytest.mark.slow
def test_scores_on_other_data_do_not_overwrite_those_of_the_run(capsys, copied_run, tmp_path):
    config = load_config(copied_run / "config.yaml")
    RunFolder(copied_run).write_json("data", {"data": "mine", "sha256": load_data(config).digest()})
    (copied_run / "scores_validation.json").write_text("mine")
    other = shutil.copytree(config.data.folder, tmp_path / "other")
    command = (copied_run, "--split", "validation", "--data", other, "--json", *QUICK)
    assert exit_code(*command) == 0
    assert json.loads(capsys.readouterr().out)["uniqueness"] >= 0  # a copy is the run's data
    assert (copied_run / "scores_validation.json").read_text() != "mine"
    (copied_run / "scores_validation.json").write_text("mine")
    image = load_data(config).records[0].image
    with (other / image.relative_to(config.data.folder)).open("ab") as file:
        file.write(b"0")
    assert exit_code(*command) == 0
    assert "uniqueness" not in json.loads(capsys.readouterr().out)
    assert (copied_run / "scores_validation.json").read_text() == "mine"
    assert (copied_run / "scores_validation_on_other.json").exists()


@pytest.mark.slow
def test_scores_on_changed_data_do_not_overwrite_those_of_the_run(capsys, copied_run):
    RunFolder(copied_run).write_json("data", {"data": "then", "sha256": "0"})
    assert exit_code(copied_run, "--metrics", "BLEU") == 0
    assert "names of the files of scores end in _changed_data" in capsys.readouterr().err
    assert (copied_run / "scores_test_changed_data.json").is_file()
    assert not (copied_run / "scores_test.json").exists()


def test_scores_on_other_features_do_not_overwrite_those_of_the_run(capsys, monkeypatch, tmp_path):
    (tmp_path / "captions.csv").write_text("image,caption,split\n7.jpg,a dog,train\n8.jpg,a cat,test\n")
    settings = ["data.kind=table", f"data.folder={tmp_path}", "data.features=bu", "model.encoder=null"]
    config = load_config(None, [*settings, "model.kind=transformer", "pruning=null"])
    run = RunFolder(tmp_path / "run")
    run.create(config, WordTokenizer.from_captions(["a dog"]), data=load_data(config))
    scores = {"split": "test", "images": 1, "beam": 3, "tokenizer": "light", "not_computed": {}}
    finished = mock.Mock(**{"evaluate.return_value": ({**scores, "ms_per_image": 1}, [])})
    monkeypatch.setattr(FinishedRun, "load", lambda path: finished)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "7.jpg").write_bytes(b"a photograph, which the captioner does not read")
    for options, name in (
        ((), "scores_test"),
        (("--features", "./bu/"), "scores_test"),
        (("--features", "other/bu2"), "scores_test_features_bu2"),
    ):
        finished.config = run.load_config()
        assert exit_code(run.path, "--json", *options) == 0
        assert capsys.readouterr().err == ""
        assert [path.stem for path in run.path.glob("scores*")] == [name]
        (run.path / f"{name}.json").unlink()


def test_other_scores_of_the_same_captions_are_kept(tmp_path):
    again = []

    def scorer(metrics):
        again.append(metrics)
        return {"BLEU-1": 0.8, "BLEU-2": 0.4, "exact_match": 0, "not_computed": {"METEOR": "no Java"}}

    def write(scores, caption="a dog"):
        about = {"split": "test", "images": 1, "beam": 3, "tokenizer": "ptb"}
        rows = [{"image_id": 1, "caption": caption, "references": ("a dog",)}]
        evaluate._write(tmp_path, {**about, **scores}, rows, {}, scorer)
        content = json.loads((tmp_path / "scores_test.json").read_text())
        return {name: value for name, value in content.items() if name not in about}

    write({"CIDEr": 0.5, "not_computed": {"BLEU-1": "no reason", "SPICE": "no Java"}})
    merged = {"CIDEr": 0.5, "BLEU-1": 0.7, "not_computed": {"SPICE": "no Java"}}
    assert write({"BLEU-1": 0.7, "not_computed": {}}) == merged
    assert not again
    # Scores of another tokenizer are computed again.
    write({"METEOR": 0.2, "uniqueness": 0.5, "not_computed": {}})
    other = {"CIDEr": 0.6, "not_computed": {}}
    assert write({**other, "tokenizer": "light"}) == {
        **{"CIDEr": 0.6, "BLEU-1": 0.8, "uniqueness": 0.5},
        "not_computed": {"METEOR": "no Java"},
    }
    assert again == [["BLEU", "METEOR"]]
    assert write(other, "a cat") == other


@pytest.mark.parametrize("tokenizer", ["light", "ptb"])
def test_scores_of_the_training_are_kept(tmp_path, tokenizer):
    about, rows = (
        {"split": "test", "images": 1, "beam": 3},
        [{"image_id": 1, "caption": "a", "references": []}],
    )
    scores, captions = (tmp_path / f"{name}_test.json" for name in ("scores", "captions"))
    scores.write_text(json.dumps({**about, "BLEU-1": 0.5, "CIDEr": 0.7, "weights": 9}))
    captions.write_text(json.dumps(rows))
    new = {**about, "tokenizer": tokenizer, "METEOR": 0.2, "not_computed": {}}
    ptb = {"BLEU-1": 0.6, "CIDEr": 0.8}
    evaluate._write(tmp_path, new, rows, {}, lambda metrics: ptb)
    expected = {"BLEU-1": 0.5, "CIDEr": 0.7} if tokenizer == "light" else ptb
    assert json.loads(scores.read_text()) == {**new, "weights": 9, **expected}


@pytest.mark.slow
def test_an_exported_file_is_evaluated_on_the_data_of_its_run(capsys, copied_run, monkeypatch, tmp_path):
    class Exported(TFLiteCaptioner):
        image_size, features_shape, feature_size, max_regions = 32, None, None, 0
        input_names, metadata, objects = ("image",), {"beam": 1}, ("star", "heart")

        def __init__(self, path, trust):
            self.path = Path(path)

        def caption(self, image):
            return Captions([Caption("a star", -1.0)], objects=(("star", 0.75),))

    for module in (bundle, splits):
        monkeypatch.setattr(module, "TFLiteCaptioner", Exported)
    (copied_run / "x.tflite").write_bytes(b"123")
    RunFolder(copied_run).write_json("data", {"data": "then", "sha256": "0"})
    assert exit_code(copied_run / "x.tflite", "--json", *QUICK) == 0
    out, error = capsys.readouterr()
    assert "tiny has changed since the training: its validation and test images may have been" in error
    scores = json.loads(out)
    assert scores["images"] == 4 and scores["bytes"] == 3
    assert scores["images_per_second"] > 0 and 1 <= scores["threads"] <= 4
    assert set(scores["seconds"]) == {"tokenizer", "BLEU", "CIDEr"}
    elsewhere = shutil.copy(copied_run / "x.tflite", tmp_path / "x.tflite")
    assert exit_code(elsewhere) == 2
    assert "give --config with the settings of its run" in capsys.readouterr().err
    assert exit_code(elsewhere, "--config", tmp_path / "absent.yaml") == 2
    assert "there is no file" in capsys.readouterr().err
    settings = ["--config", copied_run / "config.yaml", "--output", tmp_path / "out", "--threads", "3"]
    assert exit_code(elsewhere, *settings, *QUICK) == 0
    assert "on one of 3 threads" in printed(capsys)
    row = json.loads((tmp_path / "out" / "captions_test.json").read_text())[0]
    assert (row["caption"], row["objects"], row["labels"]) == ("a star", ["star"], None)
    written = json.loads((tmp_path / "out" / "scores_test.json").read_text())
    assert "ms_per_image" in written and not {"seconds", "images_per_second", "threads"} & set(written)
    assert exit_code(elsewhere, "--beam", "3") == 2
    assert "has a fixed beam of 1, not 3" in capsys.readouterr().err


@pytest.mark.slow
def test_a_file_of_captions_is_evaluated(capsys, tmp_path):
    results, references = tmp_path / "results.json", tmp_path / "references.json"
    results.write_text(json.dumps([{"image_id": 1, "caption": "a dog runs on grass"}]))
    references_of_two = [
        {"image_id": 1, "caption": "A dog runs on grass."},
        {"image_id": 2, "caption": "A cat."},
    ]
    references.write_text(json.dumps({"annotations": references_of_two}))
    assert exit_code("--results", results, "--references", references, "--json", *QUICK) == 0
    scores = json.loads(capsys.readouterr().out)
    assert scores["exact_match"] == 1 and scores["images"] == 1
    assert scores["references_without_caption"] == 1
    assert "all images (1)" in scores["not_computed"]["CIDEr"]
    assert "no training captions" in scores["not_computed"]["uniqueness"]
    assert scores["incomplete"] == scores["repetitive"] == 0
    assert not {"CIDEr", "uniqueness"} & set(scores)
    training = tmp_path / "training.json"
    training.write_text(json.dumps(references_of_two), encoding="utf-8-sig")
    options = ["--results", results, "--references", references, "--training-captions", training]
    assert exit_code(*options, "--metrics", "ROUGE-1, BLEU", "--output", tmp_path / "out") == 0
    table = printed(capsys)
    assert "ROUGE-1" in table and "METEOR" not in table and "1 images have references but no caption" in table
    scores = json.loads((tmp_path / "out" / "scores_given.json").read_text())
    assert scores["uniqueness"] == 0 and scores["ROUGE-1"] == 1 and scores["vocabulary_used"] == 5
    assert exit_code("--results", results) == 2
    assert "--results and --references together" in capsys.readouterr().err
    assert exit_code("--results", results, "--references", tmp_path / "absent.json") == 2
    assert "cannot read" in capsys.readouterr().err
    results.write_text(json.dumps([{"image_id": 1, "caption": "a dog on a dog on a dog on"}]))
    assert exit_code("--results", results, "--references", references, *QUICK) == 0
    faults = "function word at the end: 1, word three times: 1, words repeated: 1"
    assert f"100.0% incomplete, 100.0% repetitive ({faults})" in printed(capsys)
    rows = [{"image_id": 1, "references": ["A dog."], "labels": ["dog", "person"]}]
    references.write_text(json.dumps(rows))
    assert exit_code("--results", results, "--references", references, "--json", *QUICK) == 0
    scores = json.loads(capsys.readouterr().out)
    assert scores["object_recall"] == 1 and scores["object_hallucination"] == scores["CHAIR_s"] == 0
    references.write_text("{")
    assert exit_code("--results", results, "--references", references) == 2
    assert "is not JSON" in capsys.readouterr().err


@pytest.mark.slow
def test_all_scores_of_a_run_and_the_reason_for_a_missing_one(
    capsys, copied_run, with_java, tmp_path, monkeypatch
):
    # METEOR takes ten seconds to start; tests/captioning/metrics/test_scores.py compares it.
    monkeypatch.setattr(scores_module, "meteor", lambda references, captions, progress: 0.25)
    assert exit_code(copied_run, "--spice-jars", tmp_path) == 0
    table = printed(capsys)
    assert "SPICE" in table and "not computed: stanford-corenlp" in table
    assert "new captions" in table
    scores = json.loads((copied_run / "scores_test.json").read_text())
    assert (
        scores["tokenizer"] == "ptb" and scores["images"] == 4 and list(scores["not_computed"]) == ["SPICE"]
    )
    names = {"BLEU-1", "BLEU-4", "METEOR", "ROUGE-L", "ROUGE-1", "CIDEr", "uniqueness", "vocabulary_share"}
    assert names <= set(scores) and "SPICE" not in scores and scores["METEOR"] == 0.25


def score_files(folder, results, references, *more):
    """Exit code of scoring files with this content; strings and bytes are written as they are."""
    for name, content in (("results", results), ("references", references)):
        text = content if isinstance(content, str | bytes) else json.dumps(content)
        (folder / f"{name}.json").write_bytes(text if isinstance(text, bytes) else text.encode())
    files = ["--results", folder / "results.json", "--references", folder / "references.json"]
    return exit_code(*files, "--metrics", "BLEU,ROUGE-L,ROUGE-1,CIDEr", *more)


CAPTIONS = [{"image_id": 1, "caption": "a red dog"}, {"image_id": 2, "caption": "two cats"}]


@pytest.mark.parametrize(
    ("results", "references", "message"),
    [
        (b"\xff\xfe\0\0", CAPTIONS, "results.json is not JSON"),
        (CAPTIONS, '{"annotations":', "references.json is not JSON"),
        ('[{"image_id": NaN, "caption": "x"}]', CAPTIONS, "entry 1 of the results has no image_id"),
        (CAPTIONS, {"images": [{"cocoid": 1, "sentences": []}]}, "the references are not a list"),
        (
            CAPTIONS,
            [{**caption, "caption": "?!"} for caption in CAPTIONS],
            "none of the 2 images has a reference with",
        ),
        ([], CAPTIONS, "there are no images to score"),
    ],
)
def test_files_of_another_form_are_refused(capsys, tmp_path, results, references, message):
    assert score_files(tmp_path, results, references) == 2
    error = capsys.readouterr().err
    assert message in error and error.startswith("error: ") and error.count("\n") == 1 and len(error) < 500


def test_options_that_exclude_results_are_refused(capsys, tmp_path):
    (tmp_path / "file").write_text("x")
    for options, message in (
        (["--beam", "3"], "--beam is about captioning"),
        (["--threads", "2"], "--threads is about captioning"),
        (["--output", tmp_path / "file"], "file: File exists; choose another"),
        (["--output", tmp_path / "file" / "below"], "below: Not a directory; choose another"),
    ):
        assert score_files(tmp_path, CAPTIONS, CAPTIONS, *options) == 2
        assert message in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("RUN --metrics BLEU,METEORR", "no metric 'METEORR': did you mean METEOR"),
        ("RUN --metrics BLEU --spice", "--metrics leaves SPICE out"),
        ("RUN --training-captions x.json", "is for --results"),
        ("RUN --threads 0", "--threads is 0"),
        ("RUN --threads 2", "--threads is for a .tflite file"),
        ("RUN --beam 0", "--beam is 0"),
        ("RUN --split tset", "invalid choice: 'tset'"),
        ("RUN --data empty", "choose another folder"),
        ("", "there is nothing to evaluate"),
        ("absent", "cannot read"),
        ("x.tflite", "is not a .tflite file"),
        ("--results empty --references empty", "Is a directory"),
    ],
)
def test_wrong_paths_and_options_are_refused_before_captioning(
    capsys, tmp_path, tiny_run, monkeypatch, command, message
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty" / "below").mkdir(parents=True)
    (tmp_path / "x.tflite").write_text("no file of that kind")
    assert exit_code(*(tiny_run if part == "RUN" else part for part in command.split())) == 2
    assert message in capsys.readouterr().err
