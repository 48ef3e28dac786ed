"""What all figures share: labels, PNG and SVG files."""

from xml.etree import ElementTree

import matplotlib
import pytest
from matplotlib.lines import Line2D
from PIL import Image

from tfsparsecap.errors import InputError
from tfsparsecap.plotting import legend_below, make_figure, png_path, shortened, write_figure


def drawn(folder, labels, title="A title", description="A description."):
    figure = make_figure(2.0)
    axes = figure.add_subplot()
    legend_below(figure, {label: axes.plot([0, 1], [0, n])[0] for n, label in enumerate(labels)})
    return write_figure(figure, folder / "a.png", title, description)


def words(svg):
    """All text of a figure."""
    return [" ".join("".join(part.itertext()).split()) for part in ElementTree.parse(svg).getroot().iter()]


def test_a_png_and_an_svg_are_written(tmp_path):
    (tmp_path / "a.svg").write_text("before")
    paths = drawn(tmp_path, ["one", "two"])
    assert paths == [tmp_path / "a.png", tmp_path / "a.svg"] and sorted(tmp_path.iterdir()) == paths
    with Image.open(paths[0]) as image:
        assert image.format == "PNG" and image.width == 1600
        assert image.info["Description"] == "A description." and image.info["Title"] == "A title"
        assert len(image.convert("RGB").getcolors(1 << 24)) > 20
    found = words(paths[1])
    assert {"one", "two", "A title", "A description."} <= set(found)


@pytest.mark.parametrize("label", ["$x$ and $y$", "_hidden", "<b> & co", "a\\$b", r"\frac{1} $", "ünï 日本"])
@pytest.mark.filterwarnings("ignore:Glyph")
def test_special_characters_in_labels_are_drawn(tmp_path, label):
    assert label in words(drawn(tmp_path, [label, "other"])[1])


def test_characters_that_xml_cannot_contain_are_removed(tmp_path):
    found = words(drawn(tmp_path, ["a\x00\x07b\nc\ud800d"], title="x\x1by", description="p\x00q")[1])
    assert {"a b c d", "x y", "p q"} <= set(found)


def test_equal_figures_give_equal_files(tmp_path):
    first, second = tmp_path / "1", tmp_path / "2"
    for folder in (first, second):
        folder.mkdir()
        drawn(folder, ["one"])
    for name in ("a.png", "a.svg"):
        assert (first / name).read_bytes() == (second / name).read_bytes()


def test_matplotlib_settings_are_restored(tmp_path):
    # Comparing all of them would choose a backend.
    names = [name for name in matplotlib.rcParams if name.startswith(("svg", "font", "savefig", "text"))]
    before = [matplotlib.rcParams[name] for name in names]
    drawn(tmp_path, ["one"])
    assert [matplotlib.rcParams[name] for name in names] == before and len(names) > 20


def test_long_legends_and_titles_do_not_shrink_the_panels(tmp_path):
    def height(labels, title):
        figure = make_figure(3.0)
        axes = figure.add_subplot()
        legend_below(figure, {label: Line2D([], []) for label in labels})
        write_figure(figure, tmp_path / "a.png", title, "")
        return axes.get_window_extent().height

    short = height(["one"], "")
    assert height([f"label {n} of some length " * 3 for n in range(12)], "A long title " * 20) > 0.85 * short


def test_labels_are_shortened():
    assert shortened("abcdef", 6) == "abcdef" and shortened("abcdefg", 6) == "abcde…"


@pytest.mark.parametrize(
    ("name", "message"), [("a.svg", "does not end in .png"), ("a", "does not end"), ("no/a.png", "no folder")]
)
def test_invalid_paths_are_errors(tmp_path, name, message):
    with pytest.raises(InputError, match=message):
        png_path(tmp_path / name)
    assert png_path(tmp_path / "a.PNG") == tmp_path / "a.PNG"
