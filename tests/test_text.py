"""Formatting of numbers and names."""

import pytest

from tfsparsecap.text import escaped, one_line, percent, short_count


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (1_234_567, "1.2 M"),
        (310_544, "311 k"),
        (954, "954"),
        (999_400, "999 k"),
        (999_600, "1.0 M"),
        (999.7, "1 k"),
        (0, "0"),
    ],
)
def test_counts_are_shortened(number, text):
    assert short_count(number) == text


def test_percentages_have_no_rounding_noise():
    assert [percent(share) for share in (0.8, 0.975, 0.991, 0.1 + 0.2, 1.0)] == [
        "80 %",
        "97.5 %",
        "99.1 %",
        "30 %",
        "100 %",
    ]


def test_names_become_one_printable_line():
    assert one_line(" a\r\nb\x00\u2028c ") == "a b c"
    assert escaped(" a\n|") == "a \\|"
