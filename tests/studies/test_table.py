"""Means, CSV and Markdown of a study, against NumPy and other programs' readers."""

import csv
import io
from dataclasses import replace

import numpy as np
import pytest
from markdown_it import MarkdownIt

from tfsparsecap.errors import InputError
from tfsparsecap.studies.table import (
    Missing,
    Result,
    aggregate,
    csv_text,
    lines,
    markdown_text,
    means_csv_text,
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


def tables(text):
    """The cells of all tables, read by another Markdown library, and the text of all bold ones."""
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


def test_means_and_sample_deviations_are_numpys_in_the_order_of_the_first_runs():
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
    assert rows[0].spreads["CIDEr"] == pytest.approx(values.std(ddof=1), rel=1e-12)
    assert rows[0].spreads["BLEU-4"] == pytest.approx((values / 3).std(ddof=1), rel=1e-12)
    assert rows[1].spreads == {}
    assert rows[0].nonzero_weights == 200_000 and rows[0].seconds == 600


def test_means_of_counts_and_of_a_score_that_one_run_lacks():
    runs = [
        replace(result("SMP", 0.8, 1, 0.4), final_sparsity=0.79, nonzero_weights=210, seconds=10.0),
        replace(result("SMP", 0.8, 2, 0.5), final_sparsity=0.81, nonzero_weights=191, seconds=30.0),
        result("SMP", 0.8, 3, 0.0, scores={"BLEU-4": 0.1}),
    ]
    (row,) = aggregate(runs)
    assert row.scores["CIDEr"] == pytest.approx(0.45)
    assert row.spreads["CIDEr"] == pytest.approx(np.std([0.4, 0.5], ddof=1))
    (row,) = aggregate(runs[:2])
    assert (row.final_sparsity, row.nonzero_weights, row.seconds) == (pytest.approx(0.8), 200.5, 20.0)


def test_equal_scores_of_two_seeds_have_a_spread_of_zero_and_one_seed_has_none():
    row, other = aggregate([result("A", 0.8, 1, 0.4), result("A", 0.8, 2, 0.4), result("B", 0.8, 1, 0.4)])
    assert row.spreads["CIDEr"] == 0.0 and "CIDEr" not in other.spreads


def test_a_run_that_would_count_twice_is_named():
    with pytest.raises(InputError, match=r"runs/one and runs/two are the same.*label"):
        aggregate([replace(STUDY[0], run="runs/one"), replace(STUDY[0], run="runs/two")])


def test_csv_holds_every_run_to_the_last_digit():
    odd = replace(STUDY[0], method='a, "b"\nc;\té', run="runs/x,y", setting="λ = 5", sparsity=1 / 3, seed=9)
    rows = list(csv.DictReader(io.StringIO(csv_text([*STUDY, odd]))))
    assert len(rows) == len(STUDY) + 1
    for row, run in zip(rows, [*STUDY, odd], strict=True):
        assert (row["captioner"], row["method"], row["run"]) == (run.captioner, run.method, run.run)
        assert (row["setting"], int(row["seed"])) == (run.setting, run.seed)
        assert row["sparsity"] == ("" if run.sparsity is None else repr(run.sparsity))
        assert {name: float(row[name]) for name in run.scores} == run.scores
        assert int(row["nonzero_weights"]) == run.nonzero_weights and int(row["weights"]) == 10**6
        assert float(row["seconds"]) == 600


def test_csv_of_means_has_no_spread_of_one_seed():
    rows = list(csv.DictReader(io.StringIO(means_csv_text(STUDY))))
    assert [row["seeds"] for row in rows] == ["3", "1", "3", "1", "1"]
    assert float(rows[2]["CIDEr_std"]) == pytest.approx(np.std([0.4012, 0.4108, 0.4003], ddof=1))
    assert float(rows[2]["CIDEr"]) == pytest.approx(np.mean([0.4012, 0.4108, 0.4003]))
    assert [row["CIDEr_std"] == "" for row in rows] == [False, True, False, True, True]


def test_markdown_has_a_line_a_method_dense_first_and_the_best_pruned_value_bold():
    found, bold = tables(markdown_text(STUDY, "Study"))
    assert found[0] == [
        ["Method", "80 %", "97.5 %"],
        ["Dense", "41.4", "41.4"],
        ["SMP", "41.2 ± 0.6", "39.0"],
        ["Gradual", "40.4 ± 0.6", "35.5"],
    ]
    assert {place for place in bold if place[0] == 0} == {(0, 2, 1), (0, 2, 2)}
    assert found[1][0] == ["Method", "Sparsity", "Seeds", "BLEU-4", "Reached", "Non-zeros", "Minutes"]
    assert found[1][2] == ["SMP", "80 %", "3", "13.7 ± 0.2", "80.00 %", "200 k", "10.0"]
    assert [row[:3] for row in found[1][1:]] == [
        ["Dense", "none", "1"],
        ["SMP", "80 %", "3"],
        ["SMP", "97.5 %", "1"],
        ["Gradual", "80 %", "3"],
        ["Gradual", "97.5 %", "1"],
    ]


def test_what_looks_equal_is_bold_together_and_one_method_alone_is_not():
    equal = [result("A", 0.9, 1, 0.40012), result("B", 0.9, 1, 0.39991), result("C", 0.9, 1, 0.3)]
    _, bold = tables(markdown_text(equal, ""))
    assert {place for place in bold if place[0] == 0} == {(0, 1, 1), (0, 2, 1)}
    assert tables(markdown_text(equal[:1], ""))[1] == set()


def test_unfinished_runs_are_dashes_and_few_seeds_are_said():
    missing = [
        Missing(LSTM, "SNIP", 0.8, 1),
        Missing(LSTM, "SNIP", 0.9, 1),
        Missing(LSTM, "Gradual", 0.975, 2),
        Missing("ORT", "SMP", 0.95, 1),
    ]
    text = markdown_text(STUDY, "", missing=missing)
    found, _ = tables(text)
    assert found[0][0] == ["Method", "80 %", "90 %", "97.5 %"]
    assert [row[0] for row in found[0][1:]] == ["Dense", "SMP", "Gradual", "SNIP"]
    assert found[0][4][1:] == [NONE, NONE, NONE]
    assert found[0][3][2:] == [NONE, "35.5 (1 of 2 seeds)"]
    assert found[2] == [["Method", "95 %"], ["SMP", NONE]]
    assert "Not finished: 4 of 13 runs" in text and "## ORT" in text


def test_without_any_run_the_tables_are_those_of_what_is_missing():
    found, _ = tables(
        markdown_text([], "T", missing=[Missing("", "Dense", None, 1), Missing("", "A", 0.9, 1)])
    )
    assert found[0] == [["Method", "90 %"], ["Dense", NONE], ["A", NONE]]
    assert csv_text([]).count("\n") == 1 and aggregate([]) == []
    assert tables(markdown_text([], "T"))[0] == []


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
def test_labels_are_shown_as_they_are(label):
    text = markdown_text([result(label, 0.8, 1, 0.4, captioner=label)], label)
    found, bold = tables(text)
    assert found[0][1] == [label, "40.0"] and not bold
    html = MarkdownIt("commonmark").enable("table").render(text)
    expected = label.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    assert f"<h1>{expected}</h1>" in html and f"<h2>{expected}</h2>" in html


def test_line_ends_in_a_label_do_not_end_the_table():
    found, _ = tables(markdown_text([result("a\r\nb\x00\u2028c", 0.8, 1, 0.4)], ""))
    assert found[0][1] == ["a b c", "40.0"]


def test_settings_are_columns_and_what_has_none_stands_in_all_of_them():
    runs = [
        result("Dense", None, 1, 0.41),
        *(
            result("SMP", sparsity, 1, 0.4 - sparsity / 100 - number / 100, setting=f"lambda {setting}")
            for sparsity in (0.9, 0.95)
            for number, setting in enumerate((5, 40, 10))
        ),
    ]
    (grid,) = lines(runs)
    assert grid.columns == ("lambda 5", "lambda 40", "lambda 10")
    found, _ = tables(markdown_text(runs, "", missing=[Missing(LSTM, "SMP", 0.9, 1, "lambda 80")]))
    assert found[0] == [
        ["Method", "lambda 5", "lambda 40", "lambda 10", "lambda 80"],
        ["Dense", "41.0", "41.0", "41.0", "41.0"],
        ["SMP, 90 %", "39.1", "38.1", "37.1", NONE],
        ["SMP, 95 %", "39.1", "38.0", "37.0", NONE],
    ]
    assert found[1][0][:3] == ["Method", "Setting", "Sparsity"]
    assert found[1][3][:3] == ["SMP", "lambda 40", "90 %"]


def test_another_score_can_be_the_one_of_the_first_table():
    found, _ = tables(markdown_text(STUDY, "", score="BLEU-4"))
    assert found[0][1] == ["Dense", "13.8", "13.8"]
    assert "BLEU-4" not in found[1][0]
    assert tables(markdown_text(STUDY, "", score="SPICE"))[0][0][1][1:] == [NONE, NONE]


def test_a_captioner_with_another_sparsity_than_asked_says_so_and_is_not_the_best():
    relevance = replace(result("Relevance", 0.99, 1, 0.45), final_sparsity=0.8713)
    found, bold = tables(markdown_text([relevance, result("SMP", 0.99, 1, 0.40), STUDY[1]], ""))
    assert found[0][1:] == [["Dense", "41.4"], ["Relevance", "45.0 at 87.1 %"], ["SMP", "40.0"]]
    assert not bold
    near = replace(relevance, final_sparsity=0.9874)
    found, bold = tables(markdown_text([near, result("SMP", 0.99, 1, 0.40)], ""))
    assert found[0][1] == ["Relevance", "45.0"] and bold == {(0, 1, 1)}


def test_three_files_are_written_whole(tmp_path):
    folder = tmp_path / "runs" / "study"
    paths = write_tables(STUDY[:2], folder, "Before")
    again = write_tables(STUDY, folder, "Study")
    assert paths == again == [folder / "runs.csv", folder / "table.csv", folder / "table.md"]
    assert sorted(folder.iterdir()) == sorted(paths)
    assert paths[0].read_text(encoding="utf-8") == csv_text(STUDY)
    assert paths[1].read_text(encoding="utf-8") == means_csv_text(STUDY)
    assert paths[2].read_text(encoding="utf-8") == markdown_text(STUDY, "Study")
    assert (
        paths[2]
        .read_text(encoding="utf-8")
        .startswith("# Study\n\nCIDEr \N{MULTIPLICATION SIGN} 100, mean ± ")
    )


def test_a_folder_that_cannot_be_made_is_said(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot make the folder"):
        write_tables(STUDY, tmp_path / "file" / "study", "Study")
