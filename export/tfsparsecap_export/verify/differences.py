"""Differences between the outputs of a file and those of the Keras model."""

import math

import numpy as np

#: Outputs of this size next to smaller ones are masks, such as -1e9, and do not set the scale of the others.
_MASK = 1e8
#: Infinite constants become this number in files.
_LARGEST_FLOAT = float(np.finfo(np.float32).max)


class Differences:
    """Differences between outputs, relative to the largest output of each sample."""

    def __init__(self) -> None:
        self.largest = self._squared_error = self._squared = 0.0

    def add(self, given: np.ndarray, expected: np.ndarray) -> None:
        """Adds an output of one sample; infinite values must be the same in both."""
        given, expected = np.broadcast_arrays(_with_infinity(given), _with_infinity(expected))
        finite = np.isfinite(given) & np.isfinite(expected)
        if (given != expected)[~finite].any():
            self.largest = self._squared_error = math.inf
        given, expected = given[finite], expected[finite]
        masks = np.abs(expected) >= _MASK
        if masks.all():
            masks = ~masks
        for group in (masks, ~masks):
            scale = max(1e-6, float(np.abs(expected[group]).max(initial=0)))
            relative = np.abs(given[group] - expected[group]) / scale
            self.largest = max(self.largest, float(relative.max(initial=0)))
            self._squared_error += float(np.square(relative).sum())
        self._squared += float(np.square(expected[~masks] / scale).sum())  # masks would hide differences

    def merge(self, other: "Differences") -> None:
        """Adds the differences of other outputs."""
        self.largest = max(self.largest, other.largest)
        self._squared_error += other._squared_error
        self._squared += other._squared

    @property
    def rms(self) -> float:
        """Root mean square, relative to that of the outputs."""
        return (self._squared_error / self._squared) ** 0.5 if self._squared else 0.0


class Labels(Differences):
    """Differences between outputs that are integers, which may be numbers or classes, such as of `argmax`.

    They count as classes if the fraction of the positions that differ is smaller than the differences of the
    numbers: one class is not larger than another.

    Attributes:
        positions: number of integers.
        same: how many of them are equal.
    """

    positions = same = 0

    def add(self, given: np.ndarray, expected: np.ndarray) -> None:
        """Adds an output of one sample."""
        super().add(given, expected)
        equal = np.equal(given, expected)
        self.positions += equal.size
        self.same += int(equal.sum())

    @property
    def different(self) -> float:
        """Fraction of the positions that differ."""
        return (self.positions - self.same) / self.positions if self.positions else 0.0

    @property
    def are_classes(self) -> bool:
        """Whether they count as classes."""
        return self.different < self.largest


def _with_infinity(values: np.ndarray) -> np.ndarray:
    """The values as float64, with infinity for the largest float32; two for each complex number."""
    parts = np.stack([values.real, values.imag]) if np.iscomplexobj(values) else values
    values = parts.astype(np.float64)
    return np.where(np.abs(values) >= _LARGEST_FLOAT, np.copysign(np.inf, values), values)
