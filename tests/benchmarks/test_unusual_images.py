"""Unusual images: the same bytes for the same seed, a table that loads, and figures computed by hand."""

import hashlib
import json
from collections import Counter

import numpy as np
import pytest
from PIL import Image

from benchmarks import unusual_images
from benchmarks.unusual_drawings import drawing
from benchmarks.unusual_images import Captioned, figures, write_images
from benchmarks.unusual_photographs import x_ray
from benchmarks.unusual_screens import page, screenshot
from tfsparsecap.captioning import data as sources
from tfsparsecap.captioning.inference.generate import Caption, Captions


@pytest.fixture
def photographs(tmp_path):
    """A table of 21 test photographs and a training photograph."""
    folder, rows = tmp_path / "photographs", []
    folder.mkdir()
    for number in range(22):
        pixels = np.full((12, 16 + number, 3), 10 * number, np.uint8)
        Image.fromarray(pixels).save(folder / f"{number}.png")
        texts, split = [f"a cat number {number}.", "the cat"], "test" if number else "train"
        rows.append({"image": f"{number}.png", "captions": texts, "split": split})
    (folder / "captions.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


@pytest.fixture
def few(monkeypatch):
    monkeypatch.setattr(unusual_images, "IMAGES", 2)


def contents(folder):
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


@pytest.mark.slow
def test_the_table_loads_and_has_as_many_images_of_each_kind(photographs, tmp_path, monkeypatch):
    assert unusual_images.IMAGES == 20
    monkeypatch.setattr(unusual_images, "IMAGES", 5)
    folder = tmp_path / "unusual"
    write_images(folder, sources.load("table", photographs).split("test"))
    data = sources.load("table", folder)
    assert not data.skipped and len(data.split("test")) == len(data.records) == 25
    rows = [json.loads(line) for line in (folder / "captions.jsonl").read_text().splitlines()]
    assert Counter(row["kind"] for row in rows) == dict.fromkeys(unusual_images.KINDS, 5)
    assert all(len(set(row["captions"])) >= 4 for row in rows)
    assert len(contents(folder)) == len(set(contents(folder).values())) == 26
    sizes = {record.image_id.split("/")[1]: set() for record in data.records}
    for record in data.records:
        with Image.open(record.image) as image:
            sizes[record.image_id.split("/")[1]].add(image.size)
    assert all(len(image_sizes) >= 3 for image_sizes in sizes.values())


@pytest.mark.parametrize(
    ("function", "number", "words"),
    [
        (drawing, 0, {"drawing", "house", "sun", "tree"}),
        (drawing, 6, {"sketch", "cat"}),
        (screenshot, 0, {"screenshot", "code"}),
        (screenshot, 3, {"screenshot", "map"}),
        (page, 2, {"page", "text", "receipt"}),
        (x_ray, 1, {"x-ray", "hand", "bones"}),
    ],
)
def test_references_say_what_an_image_shows(function, number, words):
    image, texts = function(number, np.random.default_rng(0))
    assert image.mode == "RGB" and np.asarray(image).std() > 10
    assert words <= set(" ".join(texts).replace(",", " ").split())
    assert len(texts) == 5 and all(" a a " not in f" {text}" and " a teeth" not in text for text in texts)


# By hand: of a, two of four are good, with a mean confidence of 0.65, and three at 0.5 or more, of which one
# is not good; in four groups of one caption, the errors are 0.1, 0.6, 0.5 and 0.8.
FOUND = [
    Captioned("1", "a", "x", 0.9, True),
    Captioned("2", "a", "x", 0.6, False),
    Captioned("3", "a", "x", 0.5, True),
    Captioned("4", "b", "x", 0.2, True),
]


def test_figures_are_those_computed_by_hand():
    results = figures(FOUND)
    a, b, total = results["kinds"]["a"], results["kinds"]["b"], results["total"]
    assert list(results["kinds"]) == ["a", "b"]
    assert a == pytest.approx(
        {"images": 3, "confidence": 2 / 3, "good": 2 / 3, "difference": 0, "sure": 3, "sure_not_good": 1}
    )
    assert b == pytest.approx(
        {"images": 1, "confidence": 0.2, "good": 1, "difference": 0.8, "sure": 0, "sure_not_good": 0}
    )
    assert total["confidence"] == pytest.approx(0.55) and total["good"] == 0.75
    assert total["difference"] == pytest.approx(0.2) and (total["sure"], total["sure_not_good"]) == (3, 1)
    assert total["calibration_error"] == pytest.approx((0.1 + 0.6 + 0.5 + 0.8) / 4)


class Fake:
    """Says of each image what its file name says, as sure as its number."""

    label = "fake"

    def __init__(self, confidences=(0.75, 0.25)):
        self.confidences = confidences

    def stream(self, paths):
        for path, confidence in zip(paths, self.confidences * 10, strict=False):
            yield Captions([Caption(f"a {path.parent.name}", -1.0, (), confidence)], str(path))


@pytest.fixture
def written(tmp_path, monkeypatch, few, photographs):
    """Two drawings and two photographs at night."""
    monkeypatch.setattr(unusual_images, "KINDS", ("drawing", "night"))
    monkeypatch.setattr(unusual_images.sc, "load", lambda name: Fake())
    return [str(tmp_path / "unusual"), "--photographs", str(photographs)]


def test_a_table_is_printed(written, capsys):
    unusual_images.main(written)
    printed = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert "Captions of good" in printed
    # "a drawing" and "a night" are both good.
    for kind, count in (("drawing", 2), ("night", 2), ("total", 4)):
        assert f"{kind} {count} 50% 100% 50% 0 of {count // 2} (0%)" in printed
    assert printed[-1].endswith("0.500 (0.345 by chance)")
