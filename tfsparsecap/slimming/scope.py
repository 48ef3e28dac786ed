"""What a rule of slimming sees of a layer's call, and what it notes about the layer."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import keras
import numpy as np

from tfsparsecap.slimming.labels import Axis, Labels
from tfsparsecap.slimming.operation_graph import Graph, Node, Ref

#: Number of channels of an axis that stay.
Count = Callable[[np.ndarray], int]
#: Labels (or None) of each axis of a tensor.
Axes = list[Any]


@dataclass(frozen=True)
class Fold:
    """A kernel that multiplies channels: it can take over what removed ones contribute.

    Attributes:
        kernel: the variable.
        axis: of the kernel, along its input channels.
        tensor: the tensor that the kernel multiplies.
        position: the axis of this tensor that holds the channels, counted from the end.
        before: what the layer computes of the tensor before, channel by channel; None: nothing.
    """

    kernel: Any
    axis: int
    tensor: int
    position: int = -1
    before: Callable[[Any], Any] | None = None


@dataclass(eq=False)
class Info:
    """What is known about a layer or operation.

    Attributes:
        operation: the layer or operation.
        slots: id of a variable -> the labels of each of its axes.
        sizes: key of its config -> function of `Count` that returns the new value.
        arguments: function of the arguments `(args, kwargs, count)` of a call that returns new ones.
        kernels: (id of a variable, axis) that create channels, for importance.
        scales: id of each weight that scales normalised channels (gamma).
        folds: its kernels.
        scale_query: MultiHeadAttention's labels of the key size, by whose root scores are divided.
        labels_of: name -> labels of earlier calls.
        products: the first tensor that a call returns -> its multiply-adds, if the rule has counted them.
        is_unknown: whether no rule fits one of its calls.
    """

    operation: Any
    slots: dict[int, tuple[Axis, ...]] = field(default_factory=dict)
    sizes: dict[str, Callable[[Count], Any]] = field(default_factory=dict)
    arguments: (
        Callable[[tuple[Any, ...], dict[str, Any], Count], tuple[tuple[Any, ...], dict[str, Any]]] | None
    ) = None
    kernels: list[tuple[int, int]] = field(default_factory=list)
    scales: list[int] = field(default_factory=list)
    folds: list[tuple[Fold, np.ndarray]] = field(default_factory=list)
    scale_query: np.ndarray | None = None
    labels_of: dict[str, Axis] = field(default_factory=dict)
    products: dict[int, list[tuple[int, tuple[int, ...], tuple[Axis, ...]]]] = field(default_factory=dict)
    is_unknown: bool = False


class Scope:
    """A call, the axes of its tensors, and what its layer needs to be cut."""

    def __init__(self, node: Node, graph: Graph, labels: Labels, axes: dict[int, Axes], info: Info) -> None:
        self.node, self.labels, self.info = node, labels, info
        self.operation: Any = node.operation
        self._graph, self._axes = graph, axes

    def shape(self, index: int) -> tuple[int, ...]:
        """Shape of a tensor for a batch of one."""
        return self._graph.shapes[index]

    def axes(self, index: int) -> Axes:
        """Labels of the axes of a tensor."""
        return list(self._axes[index])

    def tensors(self) -> list[int]:
        """The tensors that the call takes."""
        return self.node.inputs

    @property
    def only(self) -> int:
        """The first tensor that the call takes."""
        return self.tensors()[0]

    def consumers(self) -> list[Node]:
        """The calls that take the output."""
        return [node for node in self._graph.nodes if self.node.outputs[0] in node.inputs]

    def argument(self, position: int, name: str) -> Any:
        """An argument of the call."""
        if position < len(self.node.args):
            return self.node.args[position]
        return self.node.kwargs.get(name)

    def emit(self, axes: Axes, position: int = 0) -> None:
        """Sets the labels of an output."""
        self._axes[self.node.outputs[position]] = axes

    def emit_channels(self, channels: Axis, position: int = 0) -> None:
        """Sets the labels of the last axis of an output; the others have none."""
        rank = len(self.shape(self.node.outputs[position]))
        self.emit([*[None] * (rank - 1), channels], position)

    def create(self, unit: str, count: int, size: str | None = None) -> np.ndarray:
        """Labels of new channels of the layer: the same in each of its calls.

        Args:
            unit: what the channels are.
            count: their number.
            size: the entry of the layer's configuration that is this number.
        """
        if unit not in self.info.labels_of:
            self.info.labels_of[unit] = self.labels.create(self.node.operation.name, unit, count)
        created = self.info.labels_of[unit]
        assert created is not None
        if size is not None:
            self.info.sizes[size] = lambda count: count(created)
        return created

    def tie(self, name: str, axis: Axis) -> Axis:
        """Couples the channels that a layer takes in all its calls; returns those of the first call."""
        if name not in self.info.labels_of:
            self.info.labels_of[name] = axis
            return axis
        first_axis = self.info.labels_of[name]
        if first_axis is None or axis is None:
            self.labels.freeze([first_axis, axis], f"{self.operation.name} is shared by different tensors")
            return first_axis
        self.labels.unite(first_axis, axis)
        return first_axis

    def tie_calls(self, places: Iterable[int]) -> None:
        """Couples these axes of what an operation takes in all its calls, which have the same sizes."""
        first = next(node for node in self._graph.nodes if node.operation is self.operation)
        before, now = self.axes(first.inputs[0]), self.axes(self.only)
        for place in places if first is not self.node else ():
            first_axis, axis = (axes[place] if place < len(axes) else None for axes in (before, now))
            if first_axis is None or axis is None or len(first_axis) != len(axis):
                self.freeze([first_axis, axis], f"{self.operation.name} is shared by different tensors")
            else:
                self.labels.unite(first_axis, axis)

    def slot(self, variable: Any, *axes: Axis) -> None:
        """Notes the labels of the axes of a weight."""
        if variable is not None:
            self.info.slots.setdefault(id(variable), axes)

    def kernel(self, variable: Any, *axes: Axis, creates: tuple[int, ...]) -> None:
        """Notes the labels of a weight whose axes `creates` are new channels."""
        if variable is not None and id(variable) not in self.info.slots:
            self.slot(variable, *axes)
            self.info.kernels += [(id(variable), axis) for axis in creates]

    def fold(self, variable: Any, axis: int, labels: Axis, tensor: int | None = None, **options: Any) -> None:
        """Notes that a kernel multiplies these channels, by default of the first tensor."""
        if labels is not None and not any(fold.kernel is variable for fold, _ in self.info.folds):
            tensor = self.only if tensor is None else tensor
            self.info.folds.append((Fold(variable, axis, tensor, **options), labels))

    def count(self, number: int, shape: Iterable[int], axes: tuple[Axis, ...]) -> None:
        """Notes multiply-adds of the call, instead of those of a formula.

        Args:
            number: of multiply-adds per element of a tensor, such as a kernel.
            shape: of the tensor.
            axes: labels of its axes.
        """
        products = self.info.products.setdefault(self.node.outputs[0], [])
        products.append((number, tuple(shape), axes))

    def freeze(self, axes: Iterable[Axis], reason: str) -> None:
        self.labels.freeze(axes, reason)

    def freeze_all(self, reason: str) -> None:
        """Keeps the channels of all tensors that the call takes."""
        for index in self.tensors():
            self.freeze(self.axes(index), reason)

    def channels(self, index: int) -> Axis:
        """The labels of the last axis of a tensor; the channels of its other axes stay."""
        axes = self.axes(index)
        self.freeze(axes[:-1], f"{self.operation.name} works along this axis")
        channels: Axis = axes[-1]
        return channels

    def broadcast(self, tensors: list[Any], reason: str) -> Axes:
        """Couples tensors that are combined element by element; constants keep what they touch."""
        shapes = [self.shape(leaf.index) if isinstance(leaf, Ref) else np.shape(leaf) for leaf in tensors]
        rank = max(map(len, shapes))
        result: Axes = [None] * rank
        for back in range(1, rank + 1):
            present, why = [], f"{self.operation.name} combines it with channels that stay"
            for tensor, shape in zip(tensors, shapes, strict=True):
                if back > len(shape):
                    continue
                axis = self.axes(tensor.index)[-back] if isinstance(tensor, Ref) else None
                if shape[-back] == 1:
                    self.freeze([axis], f"{self.operation.name} combines it with all channels")
                else:
                    present.append(axis)
                    why = why if isinstance(tensor, Ref) else reason
            labelled = [axis for axis in present if axis is not None]
            if len(labelled) != len(present):
                self.freeze(labelled, why)
                continue
            for axis in labelled[1:]:
                self.labels.unite(labelled[0], axis)
            result[-back] = labelled[0] if labelled else None
        return result


def refs(structure: Any) -> list[Ref]:
    """The tensors in an argument."""
    return [leaf for leaf in keras.tree.flatten(structure) if isinstance(leaf, Ref)]


def positive_axes(axis: int | Iterable[int] | None, rank: int) -> list[int]:
    """The axes that an operation's `axis` means, counted from the front; None means all."""
    axes = range(rank) if axis is None else [axis] if isinstance(axis, int) else axis
    return [place % rank for place in axes]
