"""The figure of a study: it shows our scores and the published ones, in the same colours."""

import numpy as np
import pytest
from matplotlib.colors import to_hex
from PIL import Image

from tfsparsecap.captioning import plotting
from tfsparsecap.errors import InputError
from tfsparsecap.papers.plot import plot, read_published
from tfsparsecap.papers.score_table import Result

LSTM, GRU = "Soft-Attention LSTM", "Soft-Attention GRU"
TABLE = (
    "Sparsity\tNNZ\tBaseline\tProposed\tGradual pruning\tHard pruning (class-blind)\tHard-uniform\tSNIP\n"
    "0.800\t2.4 M\t94.3\t94.4\t94.0\t94.2\t93.7\t85.3\n"
    "0.900\t1.2 M\t94.3\t93.1\t91.4\t91.8\t90.8\t43.6\n"
    "0.975\t0.3 M\t94.3\t88.5\t84.1\t75.9\t75.1\n"
)
LOST = {
    "SMP (papers)": (0.002, 0.01, 0.03),
    "Gradual": (0.004, 0.02, 0.06),
    "Hard (class-blind)": (0.005, 0.03, 0.1),
    "SNIP": (0.03, 0.2, 0.3),
}


def result(method, sparsity, seed, cider, captioner=LSTM, variant=""):
    scores = {"CIDEr": cider, "BLEU-4": cider / 3}
    return Result(captioner, method, sparsity, seed, scores, sparsity or 0.0, 5, 10, 60.0, "runs/x", variant)


def study(captioners=(LSTM,), seeds=(1, 2, 3), methods=tuple(LOST)):
    random, results = np.random.default_rng(0), []
    for captioner in captioners:
        for seed in seeds:
            results.append(result("Dense", None, seed, 0.41 + random.normal(0, 0.003), captioner))
            for method in methods:
                for sparsity, lost in zip((0.8, 0.9, 0.95), LOST[method], strict=True):
                    cider = 0.41 - lost + random.normal(0, 0.003)
                    results.append(result(method, sparsity, seed, cider, captioner))
    return results


@pytest.fixture
def table(tmp_path):
    """A published table."""
    path = tmp_path / "published.tsv"
    path.write_text(TABLE)
    return path


@pytest.fixture
def figure_of(tmp_path, monkeypatch):
    """Plots results; returns the figure, which is not rendered."""
    figures = []
    monkeypatch.setattr(plotting, "as_png", lambda figure, title: figures.append(figure) or b"")

    def draw(results, **options):
        plot(results, tmp_path / "plot.png", **options)
        return figures[-1]

    return draw


def ticks(axes):
    return [label.get_text() for label in axes.get_xticklabels()]


def labels(figure):
    return [text.get_text() for text in figure.legends[0].get_texts()]


def colours(figure):
    return dict(zip(labels(figure), (h.get_color() for h in figure.legends[0].get_lines()), strict=True))


def curves(axes, colour):
    """Values of the lines of a colour."""
    lines = [line for line in axes.get_lines() if to_hex(line.get_color()) == to_hex(colour)]
    return [
        list(line.get_ydata()) for line in lines if len(line.get_xdata()) > 2 and line.get_marker() != "_"
    ]


def test_means_and_deviations_are_numpys(figure_of):
    results = study(methods=("SMP (papers)", "Gradual"))
    figure = figure_of(results)
    (axes,) = figure.axes
    assert ticks(axes) == ["80 %", "90 %", "95 %"] and labels(figure) == ["Dense", "SMP (papers)", "Gradual"]
    for method in ("SMP (papers)", "Gradual"):
        scores = np.array(
            [
                [100 * run.scores["CIDEr"] for run in results if (run.method, run.sparsity) == (method, s)]
                for s in (0.8, 0.9, 0.95)
            ]
        )
        colour = colours(figure)[method]
        assert curves(axes, colour)[0] == pytest.approx(scores.mean(1).tolist())
        bars = next(bar for bar in axes.containers if bar.lines[0].get_color() == colour).lines[2][0]
        ends = np.array([segment[:, 1] for segment in bars.get_segments()])
        assert ends[:, 1] - ends[:, 0] == pytest.approx(2 * scores.std(1, ddof=1))
    dense = np.mean([100 * run.scores["CIDEr"] for run in results if run.sparsity is None])
    assert pytest.approx(dense) in [line.get_ydata()[0] for line in axes.get_lines()]


def test_published_scores_are_drawn_beside_ours_in_the_same_colours(table, figure_of):
    figure = figure_of(study(seeds=(1,)), published=table)
    ours, theirs = figure.axes
    assert ticks(ours) == ticks(theirs) == ["80 %", "90 %", "95 %", "97.5 %"]
    assert labels(figure) == ["Dense", *LOST, "published, not part of this study"]
    colour = colours(figure)
    assert curves(theirs, colour["SMP (papers)"]) == [[94.4, 93.1, 88.5]]
    assert curves(theirs, colour["Gradual"]) == [[94.0, 91.4, 84.1]]
    assert curves(theirs, colour["Hard (class-blind)"]) == [[94.2, 91.8, 75.9]]
    assert curves(theirs, plotting.LIGHT_GREY) == [[93.7, 90.8, 75.1]]
    assert len(curves(ours, colour["Hard (class-blind)"])[0]) == 3
    # SNIP falls to 43.6, all others stay above 75.
    assert 65 < theirs.get_ylim()[0] < 75.1


def test_the_papers_smp_has_a_name_and_colour_of_its_own(table, figure_of):
    ours = [
        result("SMP on a schedule" if run.method == "SMP (papers)" else run.method, *values)
        for run in study(seeds=(1,))
        for values in [(run.sparsity, run.seed, run.scores["CIDEr"])]
    ]
    figure = figure_of(ours, published=table)
    colour = colours(figure)
    assert (colour["SMP on a schedule"], colour["SMP (papers)"]) == ("#0072B2", "#000000")
    assert len(set(colour.values())) == len(colour)
    assert [curves(axes, colour["SMP (papers)"]) for axes in figure.axes] == [[], [[94.4, 93.1, 88.5]]]


def test_variants_are_columns_without_published_curves(table, figure_of):
    results = [result("Dense", None, 1, 0.41)]
    results += [
        result("SMP", s, 1, c - s / 10, variant=f"lambda {v}")
        for s in (0.9, 0.95)
        for v, c in ((5, 0.4), (80, 0.42), (10, 0.41))
    ]
    figure = figure_of(results, published=table)
    (axes,) = figure.axes
    assert ticks(axes) == ["lambda 5", "lambda 80", "lambda 10"]
    lines = [curves(axes, colours(figure)[label])[0] for label in ("SMP, 90 %", "SMP, 95 %")]
    assert lines == [pytest.approx([31.0, 33.0, 32.0]), pytest.approx([30.5, 32.5, 31.5])]


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    "results",
    [
        study((LSTM, GRU)),
        [result("SMP", 0.9, 1, 0.0), result("SMP", 0.95, 1, float("nan"))],
        [result("$a$ _b", 0.9, 1, 0.4, captioner="<&> $x$ " * 20), result("_c", 0.9, 1, 0.4, captioner="")],
        [result("SMP", 0.9, 1, 0.4, variant="a very long setting of something " * 3 + str(i)) for i in "abc"],
    ],
)
def test_unusual_studies_are_drawn(tmp_path, results):
    with Image.open(plot(results, tmp_path / "plot.png", title="$title$ " * 30)) as image:
        assert image.format == "PNG" and len(image.getcolors(1 << 24)) > 20


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "has no scores"),
        ("Sparsity\tA\n", "has no scores"),
        ("A\tB\n1\t2\n", "Sparsity"),
        ("Sparsity\tA\n0.9\tx\n", "'x'"),
        ("Sparsity\tA\n0.9\tnan\n", "A is nan"),
        ("Sparsity\tA\n9\t3\n", "at sparsity 9"),
        ("Sparsity\tA\n0.9\t3\t4\n", "cannot read"),
        ("Sparsity\tA\n\n0.9\t\n", "has no scores"),
        (b"\xff\xfe", "cannot read"),
    ],
)
def test_damaged_tables_are_errors(tmp_path, content, message):
    path = tmp_path / "table.tsv"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(InputError, match=message):
        read_published(path)
