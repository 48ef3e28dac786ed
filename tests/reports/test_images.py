"""Images of a report: choice, gallery, attention overlay."""

import io
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tfsparsecap.inference.scoring import ImageCaption
from tfsparsecap.reports.images import choose, gallery, overlay
from tfsparsecap.reports.runs import ReportRun
from tfsparsecap.runs.run_folder import RunFolder
from tfsparsecap.settings.schema import Config


def captioned(label, ids):
    captions = {
        name: ImageCaption(name, f"{label} on {name}", 0.0, (f"reference of {name}",)) for name in ids
    }
    return ReportRun(label, RunFolder(label), Config(), captions=captions)


@pytest.mark.parametrize(
    ("number", "expected"), [(0, []), (1, ["0"]), (3, ["0", "3", "6"]), (99, [str(i) for i in range(10)])]
)
def test_images_are_evenly_spaced(number, expected):
    assert choose([captioned("a", map(str, range(10)))], number) == expected


def test_images_that_all_runs_captioned_are_preferred():
    some = captioned("a", ["1", "2", "3", "4"])
    assert choose([some, captioned("b", ["4", "2", "9"]), captioned("c", [])], 5) == ["2", "4"]
    assert choose([some, captioned("b", ["9"])], 5) == ["1", "2", "3", "4"]
    assert choose([captioned("a", [])], 5) == []


def test_unreadable_images_are_named_and_keep_their_captions(tmp_path):
    (tmp_path / "broken.jpg").write_text("not an image")
    Image.new("RGB", (300, 100), (0, 0, 200)).save(tmp_path / "blue.png")
    runs = [captioned("a", ["1", "2", "3"]), captioned("b", ["1"])]
    files = {"1": tmp_path / "blue.png", "2": tmp_path / "broken.jpg", "4": Path("unasked.jpg")}
    images, errors = gallery(runs, ["1", "2", "3"], files)
    with Image.open(io.BytesIO(images[0].jpeg)) as image:
        assert image.size == (288, 288) and np.abs(np.asarray(image) - np.array([0, 0, 200])).max() < 6
    assert images[0].captions == (("a", "a on 1"), ("b", "b on 1"))
    assert images[0].alt == "test image 1: reference of 1"
    assert [image.jpeg for image in images[1:]] == [None, None]
    assert images[1].captions == (("a", "a on 2"),)
    assert len(errors) == 1 and "broken.jpg" in errors[0]


def test_overlay_is_brightest_where_the_weights_are_highest():
    image = np.full((70, 70, 3), 100, "uint8")
    weights = np.zeros((7, 7))
    weights[1, 5] = 1.0
    drawn = overlay(image, weights).astype(int).sum(-1)
    row, column = np.unravel_index(drawn.argmax(), drawn.shape)
    assert (row // 10, column // 10) == (1, 5)
    assert drawn.shape == (70, 70) and np.ptp(drawn[40:]) == 0 and drawn.max() > 2 * drawn[40, 0]
    even = overlay(image, np.full((7, 7), 1 / 49))
    assert np.ptp(even.astype(int).sum(-1)) == 0
