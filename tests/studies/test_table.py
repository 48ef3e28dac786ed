"""Means, CSV and Markdown tables of a study, against NumPy and other programs' parsers."""

import csv
import io
from dataclasses import replace

import numpy as np
import pytest
from markdown_it import MarkdownIt

from tfsparsecap.settings.schema import Config
from tfsparsecap.studies.study import GridRun
from tfsparsecap.studies.table import (
    Result,
    aggregate,
    items_as_csv,
    markdown_text,
    panels,
    write_tables,
)

LSTM, NONE = "Soft-Attention LSTM", "\N{EN DASH}"


def result(method, sparsity, seed, cider, captioner=LSTM, **more):
    scores = more.pop("scores", {"CIDEr": cider, "BLEU-4": cider / 3})
    left = round(1e6 * (1 - (sparsity or 0)))
    folder = f"runs/{captioner}-{method}-{sparsity}-{seed}"
    return Result(
        captioner, method, sparsity, seed, scores, sparsity or 0.0, left, 10**6, 600.0, folder, **more
    )


STUDY = [
    result("SMP", 0.8, 1, 0.4121),
    result("Dense", None, 1, 0.4140),
    result("SMP", 0.8, 2, 0.4063),
    result("Gradual", 0.8, 1, 0.4012),
    result("Gradual", 0.975, 1, 0.3555),
    result("SMP", 0.975, 1, 0.3904),
    result("Gradual", 0.8, 2, 0.4108),
    result("SMP", 0.8, 3, 0.4188),
    result("Gradual", 0.8, 3, 0.4003),
]


def missing(captioner, method, sparsity, seed, variant=""):
    """An unfinished run."""
    return GridRun(captioner, method, variant, sparsity, seed, None, None, Config())


def tables(text):
    """The cells of all tables, read by a Markdown parser, and the (table, row, column) of bold ones."""
    found, bold = [], set()
    tokens = MarkdownIt("commonmark").enable("table").parse(text)
    for token, before in zip(tokens[1:], tokens, strict=False):
        if token.type == "table_open":
            found.append([])
        elif token.type == "tr_open":
            found[-1].append([])
        elif before.type in ("th_open", "td_open"):
            cell = "".join(child.content for child in token.children or [])
            found[-1][-1].append(cell)
            if any(child.type == "strong_open" for child in token.children or []):
                bold.add((len(found) - 1, len(found[-1]) - 1, len(found[-1][-1]) - 1))
    return found, bold


def test_means_and_sample_standard_deviations_equal_numpys():
    rows = aggregate(STUDY)
    assert [(row.method, row.sparsity, row.seeds) for row in rows] == [
        ("SMP", 0.8, 3),
        ("Dense", None, 1),
        ("Gradual", 0.8, 3),
        ("Gradual", 0.975, 1),
        ("SMP", 0.975, 1),
    ]
    values = np.array([0.4121, 0.4063, 0.4188])
    assert rows[0].scores["CIDEr"] == pytest.approx(values.mean(), rel=1e-12)
    assert rows[0].deviations["CIDEr"] == pytest.approx(values.std(ddof=1), rel=1e-12)
    assert rows[0].deviations["BLEU-4"] == pytest.approx((values / 3).std(ddof=1), rel=1e-12)
    assert rows[1].deviations == {}
    assert rows[0].nonzero_weights == 200_000 and rows[0].seconds == 600


def test_means_skip_runs_without_the_score():
    runs = [
        replace(result("SMP", 0.8, 1, 0.4), final_sparsity=0.79, nonzero_weights=210, seconds=10.0),
        replace(result("SMP", 0.8, 2, 0.5), final_sparsity=0.81, nonzero_weights=191, seconds=30.0),
        result("SMP", 0.8, 3, 0.0, scores={"BLEU-4": 0.1}),
    ]
    (row,) = aggregate(runs)
    assert row.scores["CIDEr"] == pytest.approx(0.45)
    assert row.deviations["CIDEr"] == pytest.approx(np.std([0.4, 0.5], ddof=1))
    (row,) = aggregate(runs[:2])
    assert (row.final_sparsity, row.nonzero_weights, row.seconds) == (pytest.approx(0.8), 200.5, 20.0)


def test_one_seed_has_no_standard_deviation():
    row, other = aggregate([result("A", 0.8, 1, 0.4), result("A", 0.8, 2, 0.4), result("B", 0.8, 1, 0.4)])
    assert row.deviations["CIDEr"] == 0.0 and "CIDEr" not in other.deviations


def test_csv_keeps_all_digits_and_special_characters():
    odd = replace(STUDY[0], method='a, "b"\nc;\té', run="runs/x,y", variant="λ = 5", sparsity=1 / 3, seed=9)
    rows = list(csv.DictReader(io.StringIO(items_as_csv([*STUDY, odd]))))
    assert len(rows) == len(STUDY) + 1
    for row, run in zip(rows, [*STUDY, odd], strict=True):
        assert (row["captioner"], row["method"], row["run"]) == (run.captioner, run.method, run.run)
        assert (row["variant"], int(row["seed"])) == (run.variant, run.seed)
        assert row["sparsity"] == ("" if run.sparsity is None else repr(run.sparsity))
        assert {name: float(row[name]) for name in run.scores} == run.scores
        assert int(row["nonzero_weights"]) == run.nonzero_weights and int(row["weights"]) == 10**6
        assert float(row["seconds"]) == 600


def test_csv_of_means_has_no_standard_deviation_for_one_seed():
    rows = list(csv.DictReader(io.StringIO(items_as_csv(aggregate(STUDY)))))
    assert [row["seeds"] for row in rows] == ["3", "1", "3", "1", "1"]
    assert float(rows[2]["CIDEr_std"]) == pytest.approx(np.std([0.4012, 0.4108, 0.4003], ddof=1))
    assert float(rows[2]["CIDEr"]) == pytest.approx(np.mean([0.4012, 0.4108, 0.4003]))
    assert [row["CIDEr_std"] == "" for row in rows] == [False, True, False, True, True]


def test_markdown_has_a_line_for_each_method_and_the_best_sparse_model_in_bold():
    found, bold = tables(markdown_text(STUDY, "Study"))
    assert found[0] == [
        ["Method", "80 %", "97.5 %"],
        ["Dense", "41.4", "41.4"],
        ["SMP", "41.2 ± 0.6", "39.0"],
        ["Gradual", "40.4 ± 0.6", "35.5"],
    ]
    assert {place for place in bold if place[0] == 0} == {(0, 2, 1), (0, 2, 2)}


def test_scores_that_look_equal_are_bold_together_and_a_single_method_is_not_bold():
    equal = [result("A", 0.9, 1, 0.40012), result("B", 0.9, 1, 0.39991), result("C", 0.9, 1, 0.3)]
    _, bold = tables(markdown_text(equal, ""))
    assert {place for place in bold if place[0] == 0} == {(0, 1, 1), (0, 2, 1)}
    assert tables(markdown_text(equal[:1], ""))[1] == set()


def test_unfinished_runs_and_missing_seeds_are_marked():
    unfinished = [
        missing(LSTM, "SNIP", 0.8, 1),
        missing(LSTM, "SNIP", 0.9, 1),
        missing(LSTM, "Gradual", 0.975, 2),
        missing("ORT", "SMP", 0.95, 1),
    ]
    text = markdown_text(STUDY, "", missing=unfinished)
    found, _ = tables(text)
    assert found[0][0] == ["Method", "80 %", "90 %", "97.5 %"]
    assert [row[0] for row in found[0][1:]] == ["Dense", "SMP", "Gradual", "SNIP"]
    assert found[0][4][1:] == [NONE, NONE, NONE]
    assert found[0][3][2:] == [NONE, "35.5 (1 of 2 seeds)"]
    assert found[1] == [["Method", "95 %"], ["SMP", NONE]]
    assert "Not finished: 4 of 13 runs" in text and "## ORT" in text


def test_tables_without_finished_runs():
    found, _ = tables(
        markdown_text([], "T", missing=[missing("", "Dense", None, 1), missing("", "A", 0.9, 1)])
    )
    assert found[0] == [["Method", "90 %"], ["Dense", NONE], ["A", NONE]]
    assert aggregate([]) == []


@pytest.mark.parametrize(
    "label",
    [
        "SMP | 16x1",
        "a*b*c",
        "<b>bold</b> & co",
        "`x` [y](z) $q$",
        "#1 ~~no~~",
        "back\\slash\\|pipe",
        "_under_",
    ],
)
def test_labels_are_escaped(label):
    text = markdown_text([result(label, 0.8, 1, 0.4, captioner=label)], label)
    found, bold = tables(text)
    assert found[0][1] == [label, "40.0"] and not bold
    html = MarkdownIt("commonmark").enable("table").render(text)
    expected = label.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    assert f"<h1>{expected}</h1>" in html and f"<h2>{expected}</h2>" in html


def test_line_breaks_in_a_label_do_not_end_the_table():
    found, _ = tables(markdown_text([result("a\r\nb\x00\u2028c", 0.8, 1, 0.4)], ""))
    assert found[0][1] == ["a b c", "40.0"]


def test_variants_are_columns_and_dense_models_fill_all_of_them():
    runs = [
        result("Dense", None, 1, 0.41),
        *(
            result("SMP", sparsity, 1, 0.4 - sparsity / 100 - number / 100, variant=f"lambda {setting}")
            for sparsity in (0.9, 0.95)
            for number, setting in enumerate((5, 40, 10))
        ),
    ]
    (panel,) = panels(runs)
    assert panel.columns == ["lambda 5", "lambda 40", "lambda 10"]
    found, _ = tables(markdown_text(runs, "", missing=[missing(LSTM, "SMP", 0.9, 1, "lambda 80")]))
    assert found[0] == [
        ["Method", "lambda 5", "lambda 40", "lambda 10", "lambda 80"],
        ["Dense", "41.0", "41.0", "41.0", "41.0"],
        ["SMP, 90 %", "39.1", "38.1", "37.1", NONE],
        ["SMP, 95 %", "39.1", "38.0", "37.0", NONE],
    ]


def test_tables_can_show_another_score():
    found, _ = tables(markdown_text(STUDY, "", score="BLEU-4"))
    assert found[0][1] == ["Dense", "13.8", "13.8"]
    assert tables(markdown_text(STUDY, "", score="SPICE"))[0][0][1][1:] == [NONE, NONE]


def test_a_model_off_its_target_sparsity_is_marked_and_not_bold():
    relevance = replace(result("Relevance", 0.99, 1, 0.45), final_sparsity=0.8713)
    found, bold = tables(markdown_text([relevance, result("SMP", 0.99, 1, 0.40), STUDY[1]], ""))
    assert found[0][1:] == [["Dense", "41.4"], ["Relevance", "45.0 at 87.1 %"], ["SMP", "40.0"]]
    assert not bold
    near = replace(relevance, final_sparsity=0.9874)
    found, bold = tables(markdown_text([near, result("SMP", 0.99, 1, 0.40)], ""))
    assert found[0][1] == ["Relevance", "45.0"] and bold == {(0, 1, 1)}


def test_three_files_are_written(tmp_path):
    folder = tmp_path / "runs" / "study"
    paths = write_tables(STUDY[:2], folder, "Before")
    again = write_tables(STUDY, folder, "Study")
    assert paths == again == [folder / "runs.csv", folder / "table.csv", folder / "table.md"]
    assert sorted(folder.iterdir()) == sorted(paths)
    assert paths[0].read_text(encoding="utf-8") == items_as_csv(STUDY)
    assert paths[1].read_text(encoding="utf-8") == items_as_csv(aggregate(STUDY))
    assert paths[2].read_text(encoding="utf-8") == markdown_text(STUDY, "Study")
    assert (
        paths[2]
        .read_text(encoding="utf-8")
        .startswith("# Study\n\nCIDEr \N{MULTIPLICATION SIGN} 100, mean ± ")
    )
