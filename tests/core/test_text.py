"""Percentages, names and captions as text."""

import pytest
import tensorflow_text

from tfsparsecap.core.text import normalised, one_line, percent, spaced


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


@pytest.mark.parametrize(
    "text",
    [
        "می\u200cدود",
        "Donau\u00addampf",
        "क\u094d\u200dष",
        "ශ\u0dca\u200dරී",
        "a\ufeffb",
        "I \u2764\ufe0f dogs",
        "ﬁ ½",
    ],
)
def test_text_is_normalised_as_by_tensorflow(text):
    expected = tensorflow_text.case_fold_utf8(tensorflow_text.normalize_utf8(text, "NFKC"))
    assert normalised(text) == expected.numpy().decode()


def test_lower_case_keeps_sharp_s_and_final_sigma():
    assert normalised("Weiße Straße ΣΤΟΥΣ ΔΡΌΜΟΥΣ") == "weiße straße στους δρόμους"


def test_characters_of_scripts_without_spaces_are_words():
    assert spaced("一只狗, two 犬が").split() == ["一", "只", "狗", ",", "two", "犬", "が"]
    assert spaced("ที่นี่").split() == ["ที่", "นี่"]
