"""The printed tables of a summary."""

import keras
import pytest
from keras import layers

from tfsparsecap.model_summary.summarize import summary
from tfsparsecap.model_summary.summary_tables import amount


def printed(model, **options):
    texts = []
    summary(model, print_fn=texts.append, **options)
    (text,) = texts
    return text


def test_rows_show_what_layers_cost():
    text = printed(keras.Sequential([keras.Input((784,)), layers.Dense(10, name="digits")], name="net"))
    lines = [[cell.strip() for cell in line.split("│")[1:-1]] for line in text.splitlines() if "│" in line]
    computed, stored = (line for line in lines if line[0] == "digits")
    assert computed == ["digits", "784x10, 10", "7,850", "7,840", "0.1%", "15.7 k", "15.7 k"]
    # 4 and 2 bytes per weight; COO 20, CSR 8 and 11 offsets, both plus biases; int8 plus a scale.
    assert stored[:6] == ["digits", "31.4 kB", "15.7 kB", "157 kB", "62.8 kB", "7.92 kB"]
    assert ["all weights", "", *computed[2:]] in lines
    assert any(line[0] == "prunable weights" and line[2] == "7,840" for line in lines)
    for heading in ("float16", "COO", "CSR", "int8 blocks", "gzip", "bzip2", "FLOPs left", "sparsity"):
        assert heading in text


def test_a_model_without_weights_has_no_bytes():
    inputs = keras.Input((6, 8))
    text = printed(keras.Model(inputs, layers.Attention()([inputs, inputs]), name="plain"))
    assert "(no weights)" in text and "plain: bytes" not in text


@pytest.mark.parametrize(
    ("number", "text"),
    [(0, "0"), (999, "999"), (1000, "1.00 k"), (9_994, "9.99 k"), (9_995, "10.0 k"), (99_950, "100 k"),
     (999_499, "999 k"), (999_500, "1.00 M"), (53_149_537, "53.1 M"), (2.06e9, "2.06 G"), (4e15, "4000 T")],
)  # fmt: skip
def test_amounts_have_three_digits(number, text):
    assert amount(number) == text
