"""python -m tfsparsecap.caption: output, errors and exit codes."""

import json
import os
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import tfsparsecap.captioning.inference
from tests import command_line
from tfsparsecap import caption
from tfsparsecap.captioning.inference.generate import Caption, CaptionGenerator, Captions


@pytest.fixture
def photos(tmp_path):
    """A folder with two images and a file that is not an image."""
    random = np.random.default_rng(0)
    Image.fromarray(random.integers(0, 255, (40, 60, 3), np.uint8)).save(tmp_path / "a.jpg")
    Image.fromarray(random.integers(0, 255, (9, 9), np.uint8)).save(tmp_path / "b.png")
    (tmp_path / "no.jpg").write_text("not an image")
    return tmp_path


class TwoCaptions(CaptionGenerator):
    """Stands in for an exported file."""

    label, image_size, input_names, feature_size, max_regions = "it", 32, ("image",), None, 0

    def search(self, beam=None, samples=None, **sampling):
        return lambda batch: [
            Captions([Caption(f"{x['image'].shape}", -1.0), Caption("b", -2.0)]) for x in batch
        ]


@pytest.fixture
def exported(monkeypatch):
    monkeypatch.setattr(tfsparsecap.captioning.inference, "load", lambda path, trust: TwoCaptions())
    return "x.tflite"


exit_code = partial(command_line.exit_code, caption.main)


@pytest.mark.parametrize(
    ("confidence", "objects", "text"),
    [
        (0.2, (("cat", 0.9), ("sofa", 0.5)), "Perhaps: cat, sofa"),
        (0.2, (), "a (not sure, 20%)"),
        (0.5, (("cat", 0.9),), "a (50%)"),
        (None, (("cat", 0.9),), "a"),
    ],
)
def test_likely_objects_replace_a_caption_of_low_confidence(
    capsys, photos, exported, monkeypatch, confidence, objects, text
):
    captions = Captions([Caption("a", -1.0, (), confidence)], objects=objects)
    monkeypatch.setattr(TwoCaptions, "search", lambda self, *_, **__: lambda batch: [captions])
    assert exit_code(exported, photos / "a.jpg") == 0
    assert capsys.readouterr().out == f"{text}\n"
    assert exit_code(exported, photos / "a.jpg", "--json") == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert [(entry["object"], entry["probability"]) for entry in row["objects"]] == list(objects)
    confidence_entry = {} if confidence is None else {"confidence": confidence}
    assert row["captions"] == [{"caption": "a", "score": -1.0, **confidence_entry}]


def test_an_image_without_a_caption_is_reported_and_the_others_are_captioned(
    capsys, photos, exported, monkeypatch
):
    class NoneForGrey(TwoCaptions):
        def search(self, beam=None, samples=None, **sampling):
            return lambda batch: [
                Captions([] if np.ptp(x["image"], 2).max() == 0 else [Caption("a", -1.0)]) for x in batch
            ]

    monkeypatch.setattr(tfsparsecap.captioning.inference, "load", lambda path, trust: NoneForGrey())
    assert exit_code(exported, photos / "b.png", photos / "a.jpg") == 2
    captured = capsys.readouterr()
    assert captured.out == f"{photos / 'a.jpg'}: a\n"
    assert captured.err.startswith(f"error: no beam found a caption of {photos / 'b.png'}")
    assert exit_code(exported, photos / "b.png", "--json", "--beam", "2") == 2
    (row,) = json.loads(capsys.readouterr().out)
    assert "no beam found a caption" in row["error"]


def test_one_image_prints_one_line_and_an_option_all_captions(capsys, photos, exported):
    assert exit_code(exported, photos / "a.jpg") == 0
    assert capsys.readouterr().out == "(32, 32, 3)\n"
    assert exit_code(exported, photos / "a.jpg", "--beam", "2") == 0
    assert capsys.readouterr().out.splitlines() == ["  -1.000  (32, 32, 3)", "  -2.000  b"]
    assert exit_code(exported, photos / "a.jpg", photos / "b.png", "--sample", "2") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"{photos / 'a.jpg'}:" and lines[2] == "  -2.000  b" and len(lines) == 6


def test_several_images_are_named_and_an_unreadable_one_does_not_stop_the_others(capsys, photos, exported):
    lines = [f"{photos / name}: (32, 32, 3)" for name in ("a.jpg", "b.png")]
    for images in ([photos / "a.jpg", photos / "no.jpg", photos / "b.png"], [photos]):
        assert exit_code(exported, *images) == 2
        captured = capsys.readouterr()
        assert captured.out.splitlines() == lines
        assert captured.err.startswith("error: ") and "no.jpg" in captured.err
        assert captured.err.count("\n") == 1


def test_json_contains_captions_and_errors(capsys, photos, exported):
    assert exit_code(exported, photos / "no.jpg", photos / "a.jpg", "--json") == 2
    bad, good = json.loads(capsys.readouterr().out)
    assert bad["image"].endswith("no.jpg") and "error" in bad
    assert good["captions"][1] == {"caption": "b", "score": -2.0}


def test_names_that_are_not_utf_8_are_printed_with_escapes(capsys, photos, exported):
    name = os.fsdecode(b"caf\xe9.png")
    (photos / "b.png").rename(photos / name)
    assert exit_code(exported, photos / "a.jpg", photos / name) == 0
    assert capsys.readouterr().out.splitlines()[1] == f"{photos}/caf\\udce9.png: (32, 32, 3)"
    assert exit_code(exported, photos / name, "--json") == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert row["image"] == str(photos / name)


@pytest.mark.parametrize(
    ("command", "captioner", "images"),
    [
        ("a.jpg", "good", "a.jpg"),
        ("a.jpg b.png", "good", "a.jpg b.png"),
        ("absent.jpg b.png", "good", "absent.jpg b.png"),
        ("photos b.png", "good", "photos b.png"),
        ("good a.jpg", "good", "a.jpg"),
        ("small a.jpg b.png", "small", "a.jpg b.png"),
        ("--json small --beam 8 a.jpg", "small", "a.jpg"),
        ("run a.jpg", "run", "a.jpg"),
        ("x.tflite a.jpg", "x.tflite", "a.jpg"),
        ("runs/absent a.jpg", "runs/absent", "a.jpg"),
        ("run --features photos 391895", "run", "391895"),
        ("photos a.jpg", "good", "photos a.jpg"),
    ],
)
def test_without_a_captioner_all_arguments_are_images(photos, monkeypatch, command, captioner, images):
    monkeypatch.chdir(photos)
    (photos / "photos").mkdir()
    (photos / "run").mkdir()
    (photos / "run" / "config.yaml").touch()
    arguments = caption.arguments(command.split())
    assert (arguments.captioner, arguments.images) == (captioner, images.split())


def test_the_captioner_of_the_package_captions_a_photograph(capsys):
    photograph = Path(__file__).parents[1] / "docs" / "images" / "photographs" / "coffee.jpg"
    assert exit_code(photograph) == 0
    assert len(capsys.readouterr().out.split()) > 3


def test_a_run_folder_captions_with_its_model(capsys, photos, tiny_run):
    assert exit_code(tiny_run, photos / "a.jpg", "--beam", "2", "--json") == 0
    (result,) = json.loads(capsys.readouterr().out)
    assert len(result["captions"]) == 2


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("good", "give image files, or folders of them, after good"),
        ("x.tflite", "give image files, or folders of them, after x.tflite"),
        ("absent.tflite a.jpg", "No such file or directory; give a run folder"),
        ("runs/absent a.jpg", "cannot read runs/absent: No such file or directory; give a run folder"),
        ("excellent a.jpg", "an exported .tflite file, good or small"),
        ("text.tflite a.jpg", "is not a .tflite file"),
        ("absent a.jpg --beam 0", "beam is 0"),
        ("absent a.jpg --beam 2 --sample 2", "exclude each other"),
        ("absent a.jpg --plain --no-repeat-ngram 2", "--plain excludes --no-repeat-ngram"),
        ("absent a.jpg --length-penalty -1", "--length-penalty is -1.0"),
        *(
            (f"absent a.jpg --{name.replace('_', '-')} 1", f"{name} is an option of sampling")
            for name in ("top_k", "top_p", "temperature", "seed")
        ),
    ],
)
def test_wrong_arguments_are_refused(capsys, photos, monkeypatch, command, message):
    monkeypatch.chdir(photos)
    (photos / "text.tflite").write_text("Dear all")
    assert exit_code(*command.split()) == 2
    assert message in capsys.readouterr().err


def test_the_search_of_a_file_cannot_be_changed(capsys, photos, exported):
    assert exit_code(exported, photos / "a.jpg", "--no-repeat-ngram", "2") == 2
    assert "has a fixed search: leave out the option no-repeat-ngram" in capsys.readouterr().err
