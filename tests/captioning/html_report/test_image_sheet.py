"""Sheets of images with their captions: columns, colours, and errors."""

import numpy as np
import pytest
from PIL import Image

from tfsparsecap.captioning.html_report.image_sheet import CaptionedImage, draw_sheet
from tfsparsecap.errors import InputError


@pytest.fixture
def images(tmp_path):
    """A plain image of each of five colours."""
    colours = [(200, 30, 30), (30, 200, 30), (30, 30, 200), (200, 200, 30), (30, 200, 200)]
    files = [tmp_path / f"{number}.png" for number in range(5)]
    for file, colour in zip(files, colours, strict=True):
        Image.new("RGB", (30, 20), colour).save(file)
    return [CaptionedImage(file, f"image {file.stem}") for file in files]


def drawn(path) -> np.ndarray:
    return np.asarray(Image.open(path).convert("RGB")).astype(int)


def has_colour(pixels, colour) -> bool:
    return bool((abs(pixels - np.array(colour)).max(axis=-1) < 12).any())


def test_every_image_is_on_the_sheet_in_the_given_number_of_columns(images, tmp_path):
    draw_sheet(images, tmp_path / "sheet.png", title="Colours", columns=2)
    pixels = drawn(tmp_path / "sheet.png")
    for image in images:
        assert has_colour(pixels, np.asarray(Image.open(image.image))[0, 0])
    narrow = pixels.shape[1]
    draw_sheet(images, tmp_path / "sheet.png", title="Colours", columns=3)
    assert drawn(tmp_path / "sheet.png").shape[1] > narrow


def test_correct_captions_are_green_and_wrong_ones_red(images, tmp_path):
    green, red = (22, 128, 57), (196, 43, 28)
    for right, seen in ((True, [True, False]), (False, [False, True]), (None, [False, False])):
        draw_sheet([CaptionedImage(images[2].image, "blue", right)], tmp_path / "sheet.png", title="One")
        pixels = drawn(tmp_path / "sheet.png")
        assert [has_colour(pixels, green), has_colour(pixels, red)] == seen


def test_only_wrong_captions_show_their_reference(images, tmp_path):
    heights = []
    for right in (True, False):
        image = CaptionedImage(
            images[0].image, "blue", right, reference="a red one, and a long sentence on that"
        )
        draw_sheet([image], tmp_path / "sheet.png", title="One")
        heights.append(drawn(tmp_path / "sheet.png").shape[0])
    assert heights[1] > heights[0]


def test_errors_leave_the_existing_sheet(images, tmp_path):
    sheet = tmp_path / "sheet.png"
    sheet.write_bytes(b"old")
    (tmp_path / "broken.jpg").write_bytes(b"not an image")
    with pytest.raises(InputError, match=r"broken\.jpg"):
        draw_sheet([*images, CaptionedImage(tmp_path / "broken.jpg", "")], sheet, title="")
    with pytest.raises(InputError, match="cannot write"):
        draw_sheet(images, tmp_path / "absent" / "sheet.png", title="")
    assert sheet.read_bytes() == b"old"
    assert {file.name for file in tmp_path.iterdir() if file.suffix == ".png"} == {
        "sheet.png", *(image.image.name for image in images)
    }  # fmt: skip
