"""The mixture of Flickr8k and everyday photographs."""

import gzip
import json

import numpy as np
import pytest
from PIL import Image

from benchmarks import everyday
from tfsparsecap import data as sources
from tfsparsecap.errors import InputError

_THINGS = ("dog", "bus", "cat", "boat")
_COLOURS = ((90, 60, 30), (200, 20, 20), (120, 120, 120), (20, 60, 200))


def _photograph(path, kind, number):
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = np.full((12, 16, 3), _COLOURS[kind]) + np.random.default_rng(number).integers(0, 9, (12, 16, 3))
    Image.fromarray(pixels.astype(np.uint8)).save(path)


def _write(path, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


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

    mix = np.random.default_rng(0).normal(size=(3, 16))

    def colours(records, encoder, cache):
        return {one.image_id: np.asarray(Image.open(one.image)).mean((0, 1)) @ mix for one in records}

    monkeypatch.setattr(everyday, "_features", colours)
    return flickr, photographs, tmp_path / "mixture"


@pytest.mark.slow
def test_photographs_without_captions_get_fitting_ones(folders, capsys):
    flickr, photographs, mixture = folders
    arguments = [str(mixture), "--flickr8k", str(flickr), "--photographs", str(photographs)]
    everyday.main([*arguments, "--encoder", "any.onnx"])
    printed = capsys.readouterr().out
    assert "the first ranked" in printed and "train 43 images" in printed
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
    assert records["flickr8k/0.jpg"].labels is None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ([], "either as --photographs or as --coco"),
        (["--photographs", "p", "--coco", "c"], "either as --photographs or as --coco"),
        (["--photographs", "p"], "needs --encoder"),
    ],
)
def test_options_that_do_not_fit_together(tmp_path, options, message):
    with pytest.raises(InputError, match=message):
        everyday.main([str(tmp_path / "mixture"), "--flickr8k", str(tmp_path), *options])
    assert not (tmp_path / "mixture").exists()


def test_damaged_text_is_reported(folders):
    _, photographs, mixture = folders
    (photographs / "text" / "coco_captions.jsonl.gz").write_bytes(b"not gzip")
    with pytest.raises(InputError, match=r"coco_captions\.jsonl\.gz cannot be read"):
        everyday.with_ranked_captions(photographs, photographs / "any.onnx", mixture)
