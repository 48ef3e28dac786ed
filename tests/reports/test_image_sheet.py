import numpy as np
import pytest
from PIL import Image

from tfsparsecap.errors import InputError
from tfsparsecap.reports.image_sheet import Captioned, _font, _wrapped, draw_sheet


@pytest.fixture
def pictures(tmp_path):
    """A plain picture of each of five colours."""
    colours = [(200, 30, 30), (30, 200, 30), (30, 30, 200), (200, 200, 30), (30, 200, 200)]
    files = [tmp_path / f"{number}.png" for number in range(5)]
    for file, colour in zip(files, colours, strict=True):
        Image.new("RGB", (30, 20), colour).save(file)
    return [Captioned(file, f"picture {file.stem}") for file in files]


def drawn(path) -> np.ndarray:
    return np.asarray(Image.open(path).convert("RGB")).astype(int)


def has_colour(pixels, colour) -> bool:
    return bool((abs(pixels - np.array(colour)).max(axis=-1) < 12).any())


def test_every_picture_is_on_the_sheet_and_rows_are_as_wide_as_asked(pictures, tmp_path):
    draw_sheet(pictures, tmp_path / "sheet.png", title="Colours", columns=2)
    pixels = drawn(tmp_path / "sheet.png")
    for picture in pictures:
        assert has_colour(pixels, np.asarray(Image.open(picture.image))[0, 0])
    narrow = pixels.shape[1]
    draw_sheet(pictures, tmp_path / "sheet.png", title="Colours", columns=3)
    assert drawn(tmp_path / "sheet.png").shape[1] > narrow


def test_right_is_marked_green_wrong_red_and_unknown_not_at_all(pictures, tmp_path):
    green, red = (22, 128, 57), (196, 43, 28)
    for right, seen in ((True, [True, False]), (False, [False, True]), (None, [False, False])):
        draw_sheet([Captioned(pictures[2].image, "blue", right)], tmp_path / "sheet.png", title="One")
        pixels = drawn(tmp_path / "sheet.png")
        assert [has_colour(pixels, green), has_colour(pixels, red)] == seen


def test_only_a_wrong_caption_is_set_right(pictures, tmp_path):
    heights = []
    for right in (True, False):
        picture = Captioned(
            pictures[0].image, "blue", right, reference="a red one, and a long sentence on that"
        )
        draw_sheet([picture], tmp_path / "sheet.png", title="One")
        heights.append(drawn(tmp_path / "sheet.png").shape[0])
    assert heights[1] > heights[0]


@pytest.mark.parametrize(
    "text", ["", "word", "a caption with many words in it " * 20, "x" * 500, "naïve café 犬 🐕"]
)
def test_lines_fit_and_lose_nothing(text):
    lines = _wrapped(text, _font(14), 120)
    assert "".join(lines).replace(" ", "") == text.replace(" ", "")
    assert all(_font(14).getlength(line) <= 120 for line in lines)


@pytest.mark.parametrize("caption", ["", "x" * 500, "word " * 200])
def test_odd_captions_are_drawn(pictures, tmp_path, caption):
    draw_sheet([Captioned(pictures[0].image, caption)], tmp_path / "sheet.png", title="", subtitle=caption)
    assert drawn(tmp_path / "sheet.png").size


def test_a_picture_that_cannot_be_read_leaves_the_old_sheet(pictures, tmp_path):
    sheet = tmp_path / "sheet.png"
    sheet.write_bytes(b"old")
    (tmp_path / "broken.jpg").write_bytes(b"no picture")
    with pytest.raises(InputError, match=r"broken\.jpg"):
        draw_sheet([*pictures, Captioned(tmp_path / "broken.jpg", "")], sheet, title="")
    with pytest.raises(InputError, match="at least one"):
        draw_sheet([], sheet, title="")
    with pytest.raises(InputError, match="cannot write"):
        draw_sheet(pictures, tmp_path / "absent" / "sheet.png", title="")
    assert sheet.read_bytes() == b"old"
    assert {file.name for file in tmp_path.iterdir() if file.suffix == ".png"} == {
        "sheet.png", *(picture.image.name for picture in pictures)
    }  # fmt: skip
