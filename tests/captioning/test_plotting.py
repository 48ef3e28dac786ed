"""What all figures share: labels and PNG files."""

import io

import pytest
from PIL import Image

from tfsparsecap.captioning.plotting import as_png, legend_below, line_looks, make_figure, shortened


def drawn(labels, title=""):
    figure = make_figure(2.0)
    axes = figure.add_subplot()
    legend_below(figure, {label: axes.plot([0, 1], [0, n])[0] for n, label in enumerate(labels)})
    return figure, as_png(figure, title)


@pytest.mark.filterwarnings("ignore:Glyph")
def test_special_characters_are_drawn_as_they_are():
    labels = ["$x$ and $y$", "_hidden", "<b> & co", r"\frac{1} $", "ünï 日本", "a\x00b\nc"]
    figure, content = drawn(labels, "$title$ \x07of\nlines " * 20)
    legend = [text.get_text() for text in figure.legends[0].get_texts()]
    assert legend == [r"\$x\$ and \$y\$", " _hidden", "<b> & co", r"\frac{1} \$", "ünï 日本", "a b c"]
    with Image.open(io.BytesIO(content)) as image:
        assert image.format == "PNG" and image.width == 1600 and len(image.getcolors(1 << 24)) > 20


def test_equal_figures_give_equal_files():
    assert drawn(["one"], "A title")[1] == drawn(["one"], "A title")[1]


def test_labels_are_shortened():
    assert shortened("abcdef", 6) == "abcdef" and shortened("abcdefg", 6) == "abcde…"


def test_the_forms_of_supermask_pruning_keep_their_colours_in_longer_names():
    smp, schedule = "Large, SMP (papers)", "SMP on a schedule (A)"
    looks = line_looks([smp, "Hard", schedule, *[smp] * 4, "Gradual"])
    colours = [look["color"] for look in looks]
    assert colours[:2] + colours[2:6] == ["#000000", "#D55E00", "#0072B2", *["#000000"] * 3]
    assert not {"#000000", "#0072B2"} & {*colours[6:]}
    assert len({tuple(look.values()) for look in looks}) == len(looks)
