"""The mixture of Flickr8k and everyday photographs."""

import gzip
import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import onnxruntime
import pytest
from PIL import Image

from benchmarks import everyday
from benchmarks.best_captions import best_captions
from tfsparsecap.captioning import data as sources
from tfsparsecap.captioning.data.records import Record
from tfsparsecap.captioning.inference.generate import Caption, Captions

_THINGS = ("dog", "bus", "cat", "boat")
_COLOURS = ((90, 60, 30), (200, 20, 20), (120, 120, 120), (20, 60, 200))


def _photograph(path, kind, number):
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = np.full((12, 16, 3), _COLOURS[kind]) + np.random.default_rng(number).integers(0, 9, (12, 16, 3))
    Image.fromarray(pixels.astype(np.uint8)).save(path)


def _write(path, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


class _Colours:
    """Instead of a large network: mean colours, in 2 x 2 cells."""

    def __init__(self, path):
        self._mix = np.random.default_rng(0).normal(size=(3, 16))

    def get_inputs(self):
        return [SimpleNamespace(name="image")]

    def run(self, outputs, inputs):
        colours = inputs["image"].mean((2, 3)) @ self._mix
        return [np.broadcast_to(colours[:, None, None], (len(colours), 2, 2, 16))]


@pytest.fixture
def folders(tmp_path, monkeypatch):
    """Flickr8k and photographs, and features that are the mean colours."""
    flickr, photographs, captioned, without = tmp_path / "flickr", tmp_path / "photographs", [], []
    lines = ["image,caption"]
    for number in range(6):
        _photograph(flickr / "Images" / f"{number}.jpg", number % 4, 1000 + number)
        lines.append(f"{number}.jpg,a man with a {_THINGS[number % 4]}")
    (flickr / "captions.txt").write_text("\n".join(lines))
    for split, names in {"train": "0:3", "dev": "3:4", "test": "4:6"}.items():
        chosen = range(6)[slice(*map(int, names.split(":")))]
        (flickr / f"Flickr_8k.{split}Images.txt").write_text("\n".join(f"{n}.jpg" for n in chosen))
    for number in range(48):
        kind, name = number % 4, f"images/{number:03}.jpg"
        _photograph(photographs / name, kind, number)
        if number >= 40:
            without.append({"image": name, "labels": [_THINGS[kind]]})
            continue
        split = "test" if number >= 36 else "validation" if number >= 32 else "train"
        texts = [f"a {_THINGS[kind]} number {number}", f"the {_THINGS[kind]}"][: 1 + number % 2]
        captioned.append({"image": name, "captions": texts, "split": split, "labels": [_THINGS[kind]]})
    _write(photographs / "captions.jsonl", captioned)
    _write(photographs / "photographs_without_captions.jsonl", without)
    text = []
    for number in range(80):
        kind = number % 4
        wrong = f" and a {_THINGS[(kind + 1) % 4]}" if number % 8 < 4 else ""
        text.append(
            {
                "id": f"t{number}",
                "labels": [_THINGS[kind]],
                "captions": [f"one {_THINGS[kind]}{wrong} {number}"],
            }
        )
    text.append({"id": "040", "labels": ["dog"], "captions": ["its own dog"]})
    (photographs / "text").mkdir()
    with gzip.open(photographs / "text" / "coco_captions.jsonl.gz", "wt") as file:
        file.writelines(json.dumps(row) + "\n" for row in text)

    monkeypatch.setattr(onnxruntime, "InferenceSession", _Colours)
    (tmp_path / "colours.onnx").touch()
    return flickr, photographs, tmp_path / "mixture"


@pytest.mark.slow
def test_photographs_without_captions_get_fitting_ones(folders, capsys):
    flickr, photographs, mixture = folders
    arguments = [str(mixture), "--flickr8k", str(flickr), "--photographs", str(photographs)]
    everyday.main([*arguments, "--encoder", str(mixture.parent / "colours.onnx")])
    printed = capsys.readouterr().out
    assert "the first ranked one" in printed and "train 43 images" in printed
    data = sources.load("table", mixture)
    assert [len(data.split(split)) for split in ("train", "validation", "test")] == [43, 5, 6]
    records = {record.image_id: record for record in data.records}
    for number in range(40, 48):
        record = records[f"photographs/{number:03}.jpg"]
        assert record.labels == (_THINGS[number % 4],) and len(record.captions) == 5
        # Captions that name another object, or the photograph's own ones under its id, are left out.
        assert {_THINGS[number % 4]} == {caption.split()[1] for caption in record.captions} - {"own"}
        assert not any(" and a " in caption for caption in record.captions)
        assert number != 40 or "its own dog" not in record.captions
    # A training photograph keeps its only caption, others keep theirs.
    assert records["photographs/002.jpg"].captions[0] == "a cat number 2"
    assert len(records["photographs/002.jpg"].captions) == 5
    assert records["photographs/003.jpg"].captions == ("a boat number 3", "the boat")
    assert records["photographs/036.jpg"].captions == ("a dog number 36",)
    # Flickr8k's training images have the objects that people name, the others unknown ones.
    assert records["flickr8k/1.jpg"].labels == ("bus", "person")
    assert records["flickr8k/4.jpg"].labels is None


def test_captions_that_were_written_elsewhere_are_read(tmp_path):
    path = tmp_path / "written.jsonl"
    path.write_text(json.dumps({"image": "a", "captions": ["a cat"], "scores": [-2.0]}) + "\n")
    assert everyday.read_written(path) == {"a": {"a cat": -2.0}}


def _record(name, captions, labels=None):
    return Record(name, Path(name), captions, "train", labels)


def test_the_captions_that_agree_most_with_people_are_chosen():
    records = [
        _record("dog", ("a brown dog runs on the grass", "a brown dog is running"), ("dog",)),
        _record("cat", ("a cat sleeps on a bed", "two people in a boat"), None),
        _record("bus", ("a red bus",), ("bus",)),
    ]
    written = {
        "dog": {
            "a brown dog is running on the grass": -5.0,
            "a brown dog runs": -5.0,
            "a dog": -1.0,
            "a brown dog and a cat": -1.0,  # not labelled
            "a brown dog runs on a brown dog": -1.0,  # says it twice
        },
        "cat": {"a dog on a couch": -3.0},
        "bus": {"a red bus": -1.0, "a blue bus": -2.0, "a red bus on a street": -3.0, "a man": -4.0},
    }
    best = best_captions(records, written, {"bus": ["a red bus in a street"]})
    # Those of people are below equally good ones that were written.
    assert best["dog"][:2] == ["a brown dog is running on the grass", "a brown dog runs"]
    assert set(best["dog"][2:]) == {"a dog", "a brown dog runs on the grass", "a brown dog is running"}
    # People's captions are candidates of images with several.
    assert set(best["cat"]) == {"a dog on a couch", "a cat sleeps on a bed", "two people in a boat"}
    assert best["bus"] == ["a red bus on a street", "a red bus", "a blue bus"]


def test_a_teacher_writes_captions(tmp_path, monkeypatch):
    class Teacher:
        def stream(self, ids, **search):
            assert search.pop("features") == tmp_path
            how = "sampled" if search == {"samples": 20, "temperature": 0.6} else search
            for name in ids:
                yield Captions([Caption("a dog", -1.0), Caption(f"{how}", -2.0)], name)

    monkeypatch.setattr(everyday.sc, "load", lambda path: Teacher())
    records = [_record("x/1.jpg", ()), replace(_record("x/2.jpg", ("a boat",)), split="test")]
    written = everyday.written_captions(records, "runs/teacher", tmp_path)
    assert written == {"x/1.jpg": {"a dog": -1.0, "{'beam': 8}": -2.0, "sampled": -2.0}}
