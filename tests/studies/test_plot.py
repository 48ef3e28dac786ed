"""The figure of a study: it shows our scores and the published ones, in the same colours."""

from dataclasses import replace
from xml.etree import ElementTree

import numpy as np
import pytest
from PIL import Image

from tfsparsecap import plotting
from tfsparsecap.errors import InputError
from tfsparsecap.studies import plot as study_plot
from tfsparsecap.studies.plot import plot
from tfsparsecap.studies.table import Result

LSTM, GRU = "Soft-Attention LSTM", "Soft-Attention GRU"
TABLE = (
    "Sparsity\tNNZ\tBaseline\tProposed\tGradual pruning\tHard pruning (class-blind)\tHard-uniform\tSNIP\n"
    "0.800\t2.4 M\t94.3\t94.4\t94.0\t94.2\t93.7\t85.3\n"
    "0.900\t1.2 M\t94.3\t93.1\t91.4\t91.8\t90.8\t43.6\n"
    "0.975\t0.3 M\t94.3\t88.5\t84.1\t75.9\t75.1\n"
)
LOST = {
    "SMP": (0.002, 0.01, 0.03),
    "Gradual": (0.004, 0.02, 0.06),
    "Hard (class-blind)": (0.005, 0.03, 0.1),
    "SNIP": (0.03, 0.2, 0.3),
}


def result(method, sparsity, seed, cider, captioner=LSTM, variant=""):
    scores = {"CIDEr": cider, "BLEU-4": cider / 3}
    return Result(captioner, method, sparsity, seed, scores, sparsity or 0.0, 5, 10, 60.0, "runs/x", variant)


def study(captioners=(LSTM,), seeds=(1, 2, 3), methods=tuple(LOST)):
    random, found = np.random.default_rng(0), []
    for captioner in captioners:
        for seed in seeds:
            found.append(result("Dense", None, seed, 0.41 + random.normal(0, 0.003), captioner))
            for method in methods:
                for sparsity, lost in zip((0.8, 0.9, 0.95), LOST[method], strict=True):
                    cider = 0.41 - lost + random.normal(0, 0.003)
                    found.append(result(method, sparsity, seed, cider, captioner))
    return found


@pytest.fixture
def table(tmp_path):
    """A folder with one published table."""
    folder = tmp_path / "published"
    folder.mkdir()
    (folder / "performance__Pruning_Soft-Attention_LSTM_MS-COCO_CIDEr.tsv").write_text(TABLE)
    return folder


@pytest.fixture
def figures(monkeypatch):
    """The figures, which are not rendered."""
    drawn = []
    monkeypatch.setattr(plotting, "write_figure", lambda figure, *rest: drawn.append(figure))
    return drawn


def ticks(axes):
    return [label.get_text() for label in axes.get_xticklabels()]


def curve(axes, colour):
    """Places and values of the line of a colour."""
    from matplotlib.colors import to_hex

    lines = [line for line in axes.get_lines() if to_hex(line.get_color()) == colour.lower()]
    lines = [line for line in lines if line.get_linestyle() != "None" and len(line.get_xdata()) > 2]
    return np.round(np.asarray(lines[0].get_xdata(), float)).tolist(), list(lines[0].get_ydata())


def words(svg):
    return {"".join(part.itertext()).strip() for part in ElementTree.parse(svg).getroot().iter()}


def test_a_png_and_an_svg_with_all_labels_are_written(tmp_path, table):
    results = study((LSTM, GRU))
    paths = plot(results, tmp_path / "plot.png", published=table, title="Flickr8k")
    assert paths == [tmp_path / "plot.png", tmp_path / "plot.svg"]
    assert sorted(tmp_path.iterdir()) == [*paths, table]
    with Image.open(paths[0]) as image:
        assert image.format == "PNG" and image.width == 1600
        pixels = np.asarray(image.convert("RGB"))
    for colour in (plotting.VERMILLION, plotting.BLUE, plotting.GREEN, plotting.PURPLE):
        assert (pixels == [int(colour[i : i + 2], 16) for i in (1, 3, 5)]).all(-1).sum() > 500, colour
    found = words(paths[1])
    labels = {
        "Flickr8k",
        "Dense",
        *LOST,
        "80 %",
        "90 %",
        "95 %",
        "97.5 %",
        "published, not part of this study",
    }
    assert labels | {f"{LSTM}: this study", f"{GRU}: this study", "published, MS-COCO", "sparsity"} <= found


def test_means_and_deviations_are_numpys(tmp_path, figures):
    results = study(methods=("SMP", "Gradual"))
    plot(results, tmp_path / "plot.png")
    (axes,) = figures[0].axes
    assert ticks(axes) == ["80 %", "90 %", "95 %"]
    for method, colour in (("SMP", plotting.VERMILLION), ("Gradual", plotting.BLUE)):
        scores = np.array(
            [
                [100 * run.scores["CIDEr"] for run in results if (run.method, run.sparsity) == (method, s)]
                for s in (0.8, 0.9, 0.95)
            ]
        )
        places, values = curve(axes, colour)
        assert places == [0, 1, 2] and values == pytest.approx(scores.mean(1).tolist())
        bars = next(bar for bar in axes.containers if bar.lines[0].get_color() == colour).lines[2][0]
        ends = np.array([segment[:, 1] for segment in bars.get_segments()])
        assert ends[:, 1] - ends[:, 0] == pytest.approx(2 * scores.std(1, ddof=1))
    dense = np.mean([100 * run.scores["CIDEr"] for run in results if run.sparsity is None])
    flat = [line for line in axes.get_lines() if line.get_linestyle() == "--"]
    assert [line.get_ydata()[0] for line in flat] == [pytest.approx(dense)]


def test_published_scores_are_drawn_beside_ours_in_the_same_colours(tmp_path, table, figures):
    plot(study(seeds=(1,)), tmp_path / "plot.png", published=table)
    ours, theirs = figures[0].axes
    assert ticks(ours) == ticks(theirs) == ["80 %", "90 %", "95 %", "97.5 %"]
    assert curve(theirs, plotting.VERMILLION) == ([0, 1, 3], [94.4, 93.1, 88.5])
    assert curve(theirs, plotting.BLUE) == ([0, 1, 3], [94.0, 91.4, 84.1])
    assert curve(theirs, plotting.GREEN) == ([0, 1, 3], [94.2, 91.8, 75.9])
    assert curve(theirs, plotting.LIGHT_GREY) == ([0, 1, 3], [93.7, 90.8, 75.1])
    assert len(curve(ours, plotting.GREEN)[1]) == 3
    markers = [
        {line.get_color(): line.get_marker() for line in axes.get_lines() if line.get_marker() != "None"}
        for axes in (ours, theirs)
    ]
    for colour in (plotting.VERMILLION, plotting.BLUE, plotting.GREEN):
        assert markers[0][colour] == markers[1][colour]


def test_the_axis_ends_above_outliers(tmp_path, table, figures):
    plot(study(seeds=(1,)), tmp_path / "plot.png", published=table)
    _, theirs = figures[0].axes
    # SNIP falls to 43.6, all others stay above 75.
    assert 70 < theirs.get_ylim()[0] < 75.1
    plot(study(seeds=(1,), methods=("SMP", "Gradual")), tmp_path / "plot.png")
    lowest = min(curve(figures[1].axes[0], plotting.BLUE)[1])
    assert figures[1].axes[0].get_ylim()[0] < lowest < 36  # no outliers


def test_published_methods_have_the_style_of_ours(shared, tmp_path, figures):
    names = {
        "Proposed": "SMP",
        "Gradual pruning": "Gradual",
        "Hard pruning (class-blind)": "Hard (class-blind)",
        "Hard pruning (class-distribution)": "Hard (class-distribution)",
        "Hard pruning (class-uniform)": "Hard (class-uniform)",
        "SNIP": "SNIP",
        "Lottery ticket (class-blind)": "Lottery (class-blind)",
        "Lottery ticket (class-uniform)": "Lottery (class-uniform)",
        "Lottery ticket (gradual)": "Lottery (gradual)",
    }
    folder = shared / "fixtures" / "published_curves"
    results = [result("Dense", None, 1, 0.41, "Up-Down")]
    results += [result(name, 0.95, 1, 0.4 - i / 100, "Up-Down") for i, name in enumerate(names.values())]
    plot(results, tmp_path / "plot.png", published=folder)
    legend = [text.get_text() for text in figures[0].legends[0].get_texts()]
    assert legend == ["Dense", *names.values()]
    styles = [(h.get_color(), h.get_linestyle()) for h in figures[0].legends[0].get_lines()]
    assert len(set(styles)) == len(styles)
    for name, ours in names.items():
        assert study_plot._key(name) == study_plot._key(ours)


def test_encoder_schemes_of_a_method_share_its_colour_and_differ_in_dashes(shared, tmp_path, figures):
    captioner = "Soft-Attention Inception-V1 LSTM"
    results = [result(name, 0.9, 1, 0.4, captioner) for name in ("SMP (A)", "SMP (B)", "Gradual")]
    plot(results, tmp_path / "plot.png", published=shared / "fixtures" / "published_curves")
    handles = figures[0].legends[0].get_lines()
    texts = [text.get_text() for text in figures[0].legends[0].get_texts()]
    looks = {
        text: (handle.get_color(), handle.get_linestyle())
        for text, handle in zip(texts, handles, strict=True)
    }
    assert looks["SMP (A)"][0] == looks["SMP (B)"][0] == looks["Proposed (C)"][0] == plotting.VERMILLION
    assert len({looks[name][1] for name in ("SMP (A)", "SMP (B)", "Proposed (C)")}) == 3
    assert "Proposed (A)" not in looks and looks["Gradual (C)"][0] == looks["Gradual"][0]


@pytest.mark.parametrize("captioners", [1, 2, 3])
def test_panels_without_published_curves(tmp_path, figures, captioners):
    names = [LSTM, GRU, "ORT"][:captioners]
    plot(study(names, seeds=(1,), methods=("SMP",)), tmp_path / "plot.png")
    shown = [axes for axes in figures[-1].axes if axes.axison]
    assert [axes.get_title(loc="left") for axes in shown] == names


def test_missing_tables_have_no_panels(tmp_path, figures):
    for published in (tmp_path / "none", tmp_path):
        plot(study(seeds=(1,), methods=("SMP",)), tmp_path / "plot.png", published=published)
        assert len(figures[-1].axes) == 1


def test_a_single_table_can_be_given(tmp_path, table, figures):
    plot(study(("Ours",), seeds=(1,)), tmp_path / "plot.png", published=next(table.iterdir()))
    assert [axes.get_title(loc="left") for axes in figures[-1].axes] == [
        "Ours: this study",
        "published, MS-COCO",
    ]


def test_variants_are_columns_without_published_curves(tmp_path, table, figures):
    results = [result("Dense", None, 1, 0.41)]
    results += [
        result("SMP", s, 1, c - s / 10, variant=f"lambda {v}")
        for s in (0.9, 0.95)
        for v, c in ((5, 0.4), (80, 0.42), (10, 0.41))
    ]
    plot(results, tmp_path / "plot.png", published=table)
    (axes,) = figures[0].axes
    assert ticks(axes) == ["lambda 5", "lambda 80", "lambda 10"]
    lines = [line for line in axes.get_lines() if len(line.get_xdata()) == 3 and line.get_linestyle() == "-"]
    assert [line.get_ydata().tolist() for line in lines] == [
        pytest.approx([31.0, 33.0, 32.0]),
        pytest.approx([30.5, 32.5, 31.5]),
    ]
    legend = {text.get_text() for text in figures[0].legends[0].get_texts()}
    assert {"SMP, 90 %", "SMP, 95 %"} <= legend


def test_methods_without_a_fixed_style_look_different(tmp_path, figures):
    names = ["SMP", "SMP (16, 1)", "SMP (4, 1)", "+", "-", *(f"method {i}" for i in range(12))]
    plot([result(name, 0.9, 1, 0.4 + i / 100) for i, name in enumerate(names)], tmp_path / "plot.png")
    lines = figures[0].legends[0].get_lines()
    assert len({(line.get_color(), line.get_linestyle()) for line in lines}) == len(names)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    "results",
    [
        [result("Dense", None, 1, 0.4)],
        [result("SMP", 0.9, 1, 0.4)],
        [result("SMP", 0.9, 1, 0.0), result("SMP", 0.9, 2, 0.0)],
        [result("SMP", 0.9, 1, 0.4), result("SMP", 0.95, 1, float("nan"))],
        [result("$a$ _b", 0.9, 1, 0.4, captioner="<&> $x$ " * 20), result("_c", 0.9, 1, 0.4, captioner="")],
        [result("SMP", 1 - 0.5**i, 1, 0.4) for i in range(1, 20)],
        [result("SMP", 0.9, 1, 0.4, variant="a very long setting of something " * 3 + str(i)) for i in "abc"],
    ],
)
def test_unusual_studies_are_drawn(tmp_path, results):
    for path in plot(results, tmp_path / "plot.png"):
        assert path.stat().st_size > 5000
    ElementTree.parse(tmp_path / "plot.svg")


def test_errors_leave_the_existing_figure(tmp_path, table):
    (tmp_path / "plot.png").write_bytes(b"before")
    nothing = [replace(run, scores={"CIDEr": float("nan")}) for run in study()]
    for results, score in (([], "CIDEr"), (study(), "SPICE"), (nothing, "CIDEr")):
        with pytest.raises(InputError, match=f"no finished run has the score {score}"):
            plot(results, tmp_path / "plot.png", score=score)
    next(table.iterdir()).write_text("Sparsity\tA\n0.9\tx\n")
    with pytest.raises(InputError, match="A is 'x'"):
        plot(study(), tmp_path / "plot.png", published=table)
    with pytest.raises(InputError, match=r"does not end in \.png"):
        plot(study(), tmp_path / "plot.svg")
    assert (tmp_path / "plot.png").read_bytes() == b"before"
    assert not (tmp_path / "plot.svg").exists()
