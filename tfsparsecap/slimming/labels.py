"""Labels of channels: two channels whose labels are united are removed together, or not at all."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

#: One label for each index of an axis. `None` instead stands for an axis that is never cut.
Axis = np.ndarray | None


@dataclass(frozen=True)
class ChannelSource:
    """An axis of a weight that creates channels: its layer, what it counts, and its first label."""

    name: str
    unit: str
    first: int
    count: int


class Labels:
    """All labels of a model, which of them belong together, and which must stay.

    Examples:
        >>> labels = Labels()
        >>> first, second = labels.create("a", "channels", 2), labels.create("b", "channels", 2)
        >>> labels.unite(first, second[::-1])
        >>> labels.classes().tolist()
        [0, 1, 1, 0]
    """

    def __init__(self) -> None:
        self.size = 0
        self.sources: list[ChannelSource] = []
        self._left: list[np.ndarray] = []
        self._right: list[np.ndarray] = []
        self._frozen: list[tuple[np.ndarray, str]] = []
        self._mixed: list[np.ndarray] = []

    def create(self, name: str, unit: str, count: int) -> np.ndarray:
        """Returns new labels int64 [count]."""
        self.sources.append(ChannelSource(name, unit, self.size, count))
        self.size += count
        return np.arange(self.size - count, self.size)

    def unite(self, first: np.ndarray, second: np.ndarray) -> None:
        """Couples two arrays of the same shape, element by element."""
        self._left.append(np.ravel(first))
        self._right.append(np.ravel(second))

    def unite_rows(self, table: np.ndarray) -> None:
        """Couples all columns [rows, columns] of a row."""
        self.unite(np.broadcast_to(table[:, :1], table.shape), table)

    def freeze(self, axes: Iterable[Axis], reason: str) -> None:
        """Keeps all channels of these axes, and everything coupled to them."""
        self._frozen += [(np.ravel(axis), reason) for axis in axes if axis is not None]

    def mix(self, axis: Axis) -> None:
        """Notes that other channels depend on the number or statistics of these channels, such as in a layer
        normalisation: removing one is never without effect."""
        if axis is not None:
            self._mixed.append(np.ravel(axis))

    def classes(self) -> np.ndarray:
        """Returns the smallest label that each label is coupled to, int64 [size]."""
        parent = np.arange(self.size)
        if not self._left:
            return parent
        left, right = np.concatenate(self._left), np.concatenate(self._right)
        while True:
            first, second = parent[left], parent[right]
            lowest = np.minimum(first, second)
            following = parent.copy()
            np.minimum.at(following, first, lowest)
            np.minimum.at(following, second, lowest)
            while not np.array_equal(following, following[following]):
                following = following[following]
            if np.array_equal(following, parent):
                return parent
            parent = following

    def frozen(self) -> np.ndarray:
        """Returns whether each label was frozen itself, bool [size]."""
        return self._marked([axis for axis, _ in self._frozen])

    def mixed(self) -> np.ndarray:
        """Returns whether `mix` was called for each label, bool [size]."""
        return self._marked(self._mixed)

    def reasons(self) -> list[tuple[np.ndarray, str]]:
        """Returns the labels of each call of `freeze` and its reason."""
        return list(self._frozen)

    def _marked(self, axes: list[np.ndarray]) -> np.ndarray:
        marked = np.zeros(self.size, bool)
        for axis in axes:
            marked[axis] = True
        return marked
