"""Differences of infinite values, and of integers."""

import numpy as np
import pytest
from tfsparsecap_export.verify.differences import Differences, Labels
from tfsparsecap_export.verify.outputs import OutputsDiffer


def test_infinite_values_must_be_at_the_same_places():
    differences = Differences()
    masked = np.array([1, -np.inf, -1e9], np.float32)
    differences.add(np.nan_to_num(masked, neginf=float(np.finfo(np.float32).min)), masked)  # as in files
    assert differences.largest == differences.rms == 0
    for other in ([1, 0, -1e9], [-np.inf, -np.inf, -1e9], [1, np.inf, -1e9], [1, np.nan, -1e9]):
        differences = Differences()
        differences.add(np.array(other, np.float32), masked)
        assert differences.largest == differences.rms == np.inf
    assert "by infinite values: nothing was written" in str(OutputsDiffer(np.inf, "the outputs"))


@pytest.mark.parametrize(
    ("given", "expected", "classes", "difference"),
    [
        ([0, 9, 3, 4], [9, 9, 3, 4], True, 0.25),  # one of four classes
        ([100, 201, 49], [101, 200, 50], False, 1 / 200),  # all grey values differ a little
        ([True, False], [True, False], False, 0),
    ],
)
def test_integers_are_numbers_or_classes(given, expected, classes, difference):
    labels = Labels()
    labels.add(np.array(given), np.array(expected))
    assert labels.are_classes == classes
    assert (labels.different if classes else labels.largest) == pytest.approx(difference)
