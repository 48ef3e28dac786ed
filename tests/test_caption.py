"""python -m tfsparsecap.caption: pictures in, sentences out."""

import json
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image

import tfsparsecap.inference.bundle
from tfsparsecap import caption
from tfsparsecap.command import run


@pytest.fixture
def pictures(tmp_path):
    """A photograph, a grey one, and a file that is none."""
    random = np.random.default_rng(0)
    Image.fromarray(random.integers(0, 255, (40, 60, 3), np.uint8)).save(tmp_path / "a.jpg")
    Image.fromarray(random.integers(0, 255, (9, 9), np.uint8)).save(tmp_path / "b.png")
    (tmp_path / "no.jpg").write_text("no picture")
    return tmp_path


@pytest.fixture
def exported(monkeypatch, tmp_path):
    """A stand-in for the runtime: what is tested here is what the command makes of it."""
    captioner = SimpleNamespace(
        image_size=32,
        features_shape=None,
        metadata={"beam": 2},
        caption=lambda image: [(f"{image.shape}", -1.0), ("b", -2.0)],
    )
    monkeypatch.setattr(tfsparsecap.inference.bundle, "TFLiteCaptioner", lambda path: captioner)
    (tmp_path / "x.tflite").write_bytes(b"")
    return str(tmp_path / "x.tflite")


def ended(*argv) -> int:
    with pytest.raises(SystemExit) as end:
        run(lambda: caption.main([str(part) for part in argv]))
    return end.value.code


def test_one_picture_is_one_line(capsys, pictures, exported):
    assert ended(exported, pictures / "a.jpg") == 0
    assert capsys.readouterr().out == "(32, 32, 3)\n"


def test_many_pictures_are_named_and_a_bad_one_stops_none(capsys, pictures, exported):
    assert ended(exported, pictures / "a.jpg", pictures / "no.jpg", pictures / "b.png") == 2
    captured = capsys.readouterr()
    assert captured.out.splitlines() == [
        f"{pictures / 'a.jpg'}: (32, 32, 3)",
        f"{pictures / 'b.png'}: (32, 32, 3)",
    ]
    assert captured.err.startswith("error: ") and "no.jpg" in captured.err and captured.err.count("\n") == 1


def test_json_names_captions_and_errors(capsys, pictures, exported):
    assert ended(exported, pictures / "no.jpg", pictures / "a.jpg", "--json") == 2
    bad, good = json.loads(capsys.readouterr().out)
    assert bad["image"].endswith("no.jpg") and "error" in bad
    assert good["captions"][1] == {"caption": "b", "score": -2.0}


def test_with_a_beam_all_captions_are_shown(capsys, pictures, exported):
    assert ended(exported, pictures / "a.jpg", "--beam", "2") == 0
    assert capsys.readouterr().out.splitlines() == ["  -1.000  (32, 32, 3)", "  -2.000  b"]


def test_the_beam_of_a_file_cannot_be_changed(capsys, pictures, exported):
    assert ended(exported, pictures / "a.jpg", "--beam", "3") == 2
    assert "searches with beam 2, not 3: leave --beam out, or export" in capsys.readouterr().err


def test_captioners_that_are_none_are_named(capsys, pictures):
    assert ended(pictures / "absent.tflite", pictures / "a.jpg") == 2
    assert "there is no" in capsys.readouterr().err
    assert ended(pictures / "a.jpg", pictures / "a.jpg") == 2
    assert "is no .tflite file" in capsys.readouterr().err
    assert ended(pictures, pictures / "a.jpg") == 2
    assert "is no run folder" in capsys.readouterr().err
    assert ended(pictures / "absent.tflite", pictures / "a.jpg", "--beam", "0") == 2
    assert "--beam is 0" in capsys.readouterr().err


def test_a_run_folder_captions_with_its_model(capsys, pictures, tiny_run):
    assert ended(tiny_run, pictures / "a.jpg", "--beam", "2", "--json") == 0
    (result,) = json.loads(capsys.readouterr().out)
    assert len(result["captions"]) == 2


def test_help_teaches_with_examples(capsys):
    assert ended("--help") == 0
    assert "python -m tfsparsecap.caption model.tflite photo.jpg" in capsys.readouterr().out


def test_options_of_a_draw_without_a_draw_are_refused(capsys, pictures, exported):
    for option in (["--top-k", "3"], ["--top-p", "0.5"], ["--temperature", "2"], ["--seed", "1"]):
        assert ended(exported, pictures / "a.jpg", *option) == 2
        assert f"{option[0]} is for captions drawn at random" in capsys.readouterr().err
    assert ended(exported, pictures / "a.jpg", "--sample", "2") == 2
    assert "--sample is for a run folder" in capsys.readouterr().err
