"""What all pictures share: labels that are drawn as they are, a PNG and an SVG, whole or not at all."""

from xml.etree import ElementTree

import matplotlib
import pytest
from matplotlib.lines import Line2D
from PIL import Image

from tfsparsecap.errors import InputError
from tfsparsecap.plotting import legend_below, make_figure, plain, png_path, shortened, write_figure


def drawn(folder, labels, title="A title", description="What is to be seen."):
    figure = make_figure(2.0)
    axes = figure.add_subplot()
    handles = [axes.plot([0, 1], [0, number])[0] for number, _ in enumerate(labels)]
    legend_below(figure, handles, [plain(label) for label in labels])
    return write_figure(figure, folder / "a.png", title, description)


def words(svg):
    """All text of a picture."""
    return [" ".join("".join(part.itertext()).split()) for part in ElementTree.parse(svg).getroot().iter()]


def test_a_png_and_an_svg_are_written_and_nothing_else(tmp_path):
    (tmp_path / "a.svg").write_text("before")
    paths = drawn(tmp_path, ["one", "two"])
    assert paths == [tmp_path / "a.png", tmp_path / "a.svg"] and sorted(tmp_path.iterdir()) == paths
    with Image.open(paths[0]) as picture:
        assert picture.format == "PNG" and picture.width == 1600
        assert picture.info["Description"] == "What is to be seen." and picture.info["Title"] == "A title"
        assert len(picture.convert("RGB").getcolors(1 << 24)) > 20
    found = words(paths[1])
    assert {"one", "two", "A title", "What is to be seen."} <= set(found)


@pytest.mark.parametrize("label", ["$x$ and $y$", "_hidden", "<b> & co", "a\\$b", r"\frac{1} $", "ünï 日本"])
@pytest.mark.filterwarnings("ignore:Glyph")
def test_any_label_is_drawn_as_it_is(tmp_path, label):
    assert label in words(drawn(tmp_path, [label, "other"])[1])


def test_what_xml_cannot_hold_is_left_out(tmp_path):
    found = words(drawn(tmp_path, ["a\x00\x07b\nc\ud800d"], title="x\x1by", description="p\x00q")[1])
    assert {"a b c d", "x y", "p q"} <= set(found)


def test_the_same_picture_is_the_same_file(tmp_path):
    first, second = tmp_path / "1", tmp_path / "2"
    for folder in (first, second):
        folder.mkdir()
        drawn(folder, ["one"])
    for name in ("a.png", "a.svg"):
        assert (first / name).read_bytes() == (second / name).read_bytes()


def test_settings_of_matplotlib_are_as_they_were(tmp_path):
    # Comparing all of them would choose a backend.
    names = [name for name in matplotlib.rcParams if name.startswith(("svg", "font", "savefig", "text"))]
    before = [matplotlib.rcParams[name] for name in names]
    drawn(tmp_path, ["one"])
    assert [matplotlib.rcParams[name] for name in names] == before and len(names) > 20


def test_long_legends_and_titles_leave_the_panels_their_height(tmp_path):
    def height(labels, title):
        figure = make_figure(3.0)
        axes = figure.add_subplot()
        legend_below(figure, [Line2D([], []) for _ in labels], labels)
        write_figure(figure, tmp_path / "a.png", title, "")
        return axes.get_window_extent().height

    short = height(["one"], "")
    assert height(["a label of some length " * 3] * 12, "A long title " * 20) > 0.85 * short


def test_labels_are_cut_to_a_length():
    assert shortened("abcdef", 6) == "abcdef" and shortened("abcdefg", 6) == "abcde…"


@pytest.mark.parametrize(
    ("name", "message"), [("a.svg", "not named as a PNG"), ("a", "not named"), ("no/a.png", "no folder")]
)
def test_where_no_picture_can_be_written_is_said(tmp_path, name, message):
    with pytest.raises(InputError, match=message):
        png_path(tmp_path / name)
    assert png_path(tmp_path / "a.PNG") == tmp_path / "a.PNG"
