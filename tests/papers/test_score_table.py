"""Means, CSV and terminal tables of a study, against NumPy."""

import csv
import io
from dataclasses import replace

import numpy as np
import pytest

from tfsparsecap.papers.score_table import Result, aggregate, items_as_csv, tables_of_results

LSTM, NONE = "Soft-Attention LSTM", "\N{EN DASH}"


def result(method, sparsity, seed, cider, captioner=LSTM, **more):
    scores = more.pop("scores", {"CIDEr": cider, "BLEU-4": cider / 3})
    nonzeros = round(1e6 * (1 - (sparsity or 0)))
    folder = f"runs/{captioner}-{method}-{sparsity}-{seed}"
    return Result(
        captioner, method, sparsity, seed, scores, sparsity or 0.0, nonzeros, 10**6, 600.0, folder, **more
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


def cells(results, score="CIDEr"):
    """Header and cells of each table."""
    contents = []
    for table in tables_of_results(results, "Study", score):
        columns = [[str(cell) for cell in column.cells] for column in table.columns]
        header = [str(column.header) for column in table.columns]
        contents.append([header, *map(list, zip(*columns, strict=True))])
    return contents


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


def test_a_table_has_a_line_for_each_method_and_a_column_for_each_sparsity():
    assert cells([*STUDY, result("SMP", 0.95, 1, 0.5, captioner="ORT")]) == [
        [
            ["method", "80 %", "97.5 %"],
            ["Dense", "41.4", "41.4"],
            ["SMP", "41.2 ± 0.6", "39.0"],
            ["Gradual", "40.4 ± 0.6", "35.5"],
        ],
        [["method", "95 %"], ["SMP", "50.0"]],
    ]
    assert cells(STUDY, "BLEU-4")[0][1] == ["Dense", "13.8", "13.8"]
    assert cells(STUDY, "SPICE")[0][1][1:] == [NONE, NONE]
    assert cells([STUDY[1], STUDY[0], STUDY[4]])[0][2:] == [["SMP", "41.2", NONE], ["Gradual", NONE, "35.5"]]
    assert cells([STUDY[1]]) == [[["method", "CIDEr"], ["Dense", "41.4"]]]
    assert cells([]) == [] and aggregate([]) == []


def test_variants_are_columns_and_dense_models_fill_all_of_them():
    runs = [
        result("Dense", None, 1, 0.41),
        *(
            result("SMP", sparsity, 1, 0.4 - sparsity / 100 - number / 100, variant=f"lambda {setting}")
            for sparsity in (0.9, 0.95)
            for number, setting in enumerate((5, 40, 10))
        ),
    ]
    assert cells(runs) == [
        [
            ["method", "lambda 5", "lambda 40", "lambda 10"],
            ["Dense", "41.0", "41.0", "41.0"],
            ["SMP, 90 %", "39.1", "38.1", "37.1"],
            ["SMP, 95 %", "39.1", "38.0", "37.0"],
        ]
    ]


def test_a_model_off_its_target_sparsity_is_marked():
    relevance = replace(result("Relevance", 0.99, 1, 0.45), final_sparsity=0.8713)
    assert cells([relevance])[0][1] == ["Relevance", "45.0 at 87.1 %"]
    assert cells([replace(relevance, final_sparsity=0.9874)])[0][1] == ["Relevance", "45.0"]
