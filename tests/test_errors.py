"""Checks of arguments: numbers within limits are converted, and messages are one short line."""

import math

import numpy as np
import pytest

from tfsparsecap.errors import InputError, check_number, check_whole, first_line


@pytest.mark.parametrize(
    ("value", "limits", "expected"),
    [(0.5, {"above": 0, "below": 1}, 0.5), (1, {"at_least": 1, "at_most": 1}, 1.0), (np.int64(3), {}, 3.0)],
)
def test_numbers_within_the_limits_are_converted(value, limits, expected):
    number = check_number("size", value, **limits)
    assert number == expected and type(number) is float


def test_whole_numbers_are_converted():
    for value, expected in ((np.int64(3), 3), (1e4, 10_000)):
        number = check_whole("size", value, at_least=1)
        assert number == expected and type(number) is int
    for value in (1.5, 0, 8, None):
        with pytest.raises(InputError, match="give a whole number of at least 1 and of at most 7"):
            check_whole("size", value, at_least=1, at_most=7)


@pytest.mark.parametrize(
    ("value", "limits"),
    [
        (0, {"above": 0}),
        (1, {"below": 1}),
        (0.9, {"at_least": 1}),
        (1.1, {"at_most": 1}),
        (math.nan, {}),
        (math.inf, {"above": 0}),
        (True, {}),
        ("1", {}),
        (None, {}),
        ([1], {}),
    ],
)
def test_other_values_are_rejected(value, limits):
    with pytest.raises(InputError, match=r"size is .*: give a number"):
        check_number("size", value, **limits)


def test_reasons_end_with_a_sentence():
    assert first_line(ValueError("No tensor. Do it like this:\nf(x)")) == "No tensor"
    assert first_line(ValueError("Received:\nx")) == "Received"
    assert first_line(ValueError("First part. " + "a" * 300)) == "First part"
    assert first_line(ValueError("x: y. z")) == "x: y. z"


def test_messages_are_one_short_line_of_printable_characters():
    assert str(InputError("no\nfile \x1b[2J\ud800: look")) == "no file ?[2J?: look"
    text = str(InputError(f"{'a' * 1000}: check the path"))
    assert len(text) == 600 and " … " in text and text.endswith(": check the path")
    assert str(InputError(text)) == text
