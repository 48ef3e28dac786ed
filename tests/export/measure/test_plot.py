"""The plot of size against latency."""

from types import SimpleNamespace
from xml.etree import ElementTree

import pytest
from PIL import Image
from tfsparsecap_export.measure import plot

from tfsparsecap.errors import InputError


def results(*figures):
    """(path, ms, megabytes) of each file."""
    _, ms, size = figures[0]
    return [
        SimpleNamespace(path=p, ms=m, bytes=mb * 1e6, speedup=ms / m, size_ratio=size / mb)
        for p, m, mb in figures
    ]


FAR_APART = results(("dense.tflite", 150.0, 215.0), ("sparse.tflite", 5.5, 3.4))
CLOSE = results(("a.tflite", 2.0, 2.0), ("b.tflite", 1.5, 1.8))


@pytest.mark.parametrize("points", [FAR_APART, CLOSE, CLOSE[:1]])
def test_a_png_is_an_image(tmp_path, points):
    plot.size_against_latency(points, tmp_path / "a.png")
    with Image.open(tmp_path / "a.png") as image:
        assert image.format == "PNG" and image.width > 500
        assert len(image.convert("RGB").getcolors(1 << 24)) > 10


def test_an_svg_replaces_an_existing_file(tmp_path):
    (tmp_path / "a.svg").write_text("before")
    plot.size_against_latency(FAR_APART, tmp_path / "a.svg")
    assert ElementTree.parse(tmp_path / "a.svg").getroot().tag.endswith("svg")
    assert [file.name for file in tmp_path.iterdir()] == ["a.svg"]


def test_names_have_the_folders_that_distinguish_files():
    assert plot.short_names(FAR_APART) == ["dense.tflite", "sparse.tflite"]
    apart = results(("runs/a/model.tflite", 1.0, 1.0), ("runs/b/model.tflite", 1.0, 1.0))
    assert plot.short_names(apart) == ["a/model.tflite", "b/model.tflite"]
    same = results(("a.tflite", 1.0, 1.0), ("a.tflite", 1.0, 1.0))
    assert plot.short_names(same) == ["a.tflite", "a.tflite"]


@pytest.mark.parametrize(
    ("name", "message"),
    [("a.txt", "not a .png, .svg or .pdf file"), ("a", "not a .png"), ("no/a.png", "no folder")],
)
def test_an_unusable_path_is_an_input_error(tmp_path, name, message):
    with pytest.raises(InputError, match=message):
        plot.check_path(tmp_path / name)
