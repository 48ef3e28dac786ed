"""Analysis of a model: which channels are removed together, and which stay whole."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import keras
import numpy as np

from tfsparsecap.core import keras_internals
from tfsparsecap.core.chosen_layers import is_meant
from tfsparsecap.core.keras_internals import nested_layers
from tfsparsecap.errors import InputError
from tfsparsecap.slimming.labels import ChannelSource, Labels
from tfsparsecap.slimming.layer_rules import unknown
from tfsparsecap.slimming.operation_graph import Graph, Node, trace
from tfsparsecap.slimming.rules import rule_of
from tfsparsecap.slimming.scope import Axes, Info, Scope

#: Why channels stay that the model returns.
RETURNED = "the model returns it"

#: What a source may count without being channels that a kernel creates.
_NOT_CREATED = {"fixed", "zeros before", "zeros after"}


@dataclass(frozen=True, eq=False)
class Group:
    """Channels that can be removed one by one, from all layers of the group at once.

    Attributes:
        name: its first layer, and the number of other layers that lose the same channels.
        unit: "channels", "units", "heads", …
        sources: the axes that create its channels.
        classes: the smallest label of each channel, int64 [channels].
        width: channels of a layer that are removed with one of them: several in grouped convolutions.
    """

    name: str
    unit: str
    sources: tuple[ChannelSource, ...]
    classes: np.ndarray
    width: int

    @property
    def size(self) -> int:
        return len(self.classes)

    @property
    def key(self) -> str:
        """What identifies the group in copies of the model that have lost some of its channels."""
        return " ".join(f"{source.name}/{source.unit}" for source in self.sources)

    def block(self, multiple: int) -> int:
        """Channels that are removed at once, so that each layer keeps a multiple of `multiple`."""
        return 1 if self.unit == "heads" else multiple // int(np.gcd(multiple, self.width))


def skipped(graph: Graph, model: keras.Model, skip: Iterable[str | keras.Layer]) -> dict[str, list[Any]]:
    """Returns what `skip` names -> its layers and operations: of nested models, all that are inside.

    Args:
        graph: of `model`.
        model: the model.
        skip: layers or nested models, or their names, also patterns such as `"block_1_*"`.

    Raises:
        InputError: there is no such layer.
    """
    layers = nested_layers(model, include_self=False)
    models = [layer for layer in layers if keras_internals.functional_of(layer) is not None]
    operations_of = {}
    for entry in skip:
        inside = [
            operation
            for nested in models
            if is_meant(nested, entry)
            for operation in trace(nested).operations()
            if isinstance(operation, keras.Layer)
        ]
        operations = [
            operation
            for operation in graph.operations()
            if is_meant(operation, entry) or any(operation is layer for layer in inside)
        ]
        name = entry if isinstance(entry, str) else entry.name
        if not operations:
            raise InputError(f"skip contains {name!r}, but {graph.name} has no such layer: check it")
        operations_of[name] = operations
    return operations_of


class Analysis:
    """The groups of a graph, and the labels of all tensors and weights.

    Args:
        graph: see `operation_graph.trace`.
        skip: name -> layers and operations whose channels stay, see `skipped`.
    """

    def __init__(self, graph: Graph, skip: Mapping[str, Iterable[Any]] | None = None) -> None:
        self.graph, self.labels = graph, Labels()
        self.axes: dict[int, Axes] = {}
        self.infos: dict[int, Info] = {}
        for leaf in keras.tree.flatten(graph.inputs):
            self.axes[leaf.index] = [None] * len(graph.shapes[leaf.index])
        #: Layers and operations without a rule: name -> class.
        self.unknown: dict[str, str] = {}
        #: Tensor -> calls that take it; id of a layer -> number of its calls.
        self.consumers = graph.consumers()
        self.calls = Counter(id(node.operation) for node in graph.nodes)
        for node in graph.nodes:
            self._apply(node)
        for leaf in keras.tree.flatten(graph.outputs):
            self.labels.freeze(self.axes[leaf.index], RETURNED)
        for name, operations in (skip or {}).items():
            for operation in operations:
                self._skip(name, self.info(operation))
        self.classes = self.labels.classes()
        self.fixed = self._of_class(self.labels.frozen())
        #: Whether a class takes part in a statistic, such as a mean over channels: bool [labels].
        self.mixed = self._of_class(self.labels.mixed())
        self.groups = self._groups()

    def info(self, operation: Any) -> Info:
        return self.infos[id(operation)]

    def _apply(self, node: Node) -> None:
        info = self.infos.setdefault(id(node.operation), Info(node.operation))
        scope = Scope(node, self.graph, self.labels, self.axes, info)
        rule = unknown if info.is_unknown else rule_of(node.operation)
        has_channels = any(axis is not None for index in node.inputs for axis in self.axes[index])
        rule(scope)
        if info.is_unknown and (has_channels or getattr(node.operation, "weights", None)):
            self.unknown[node.operation.name] = type(node.operation).__name__

    def _skip(self, name: str, info: Info) -> None:
        own = [info.slots[variable][axis] for variable, axis in info.kernels]
        every = [labels for axes in info.slots.values() for labels in axes]
        calls = [node for node in self.graph.nodes if node.operation is info.operation]
        outputs = [labels for node in calls for index in node.outputs for labels in self.axes[index]]
        self.labels.freeze(own or every or outputs, f"skip contains {name}")

    def _of_class(self, marked: np.ndarray) -> np.ndarray:
        """Whether any label of the class of each label is marked."""
        is_marked = np.zeros(self.labels.size, bool)
        is_marked[self.classes[marked]] = True
        return is_marked[self.classes] if self.labels.size else is_marked

    def _groups(self) -> list[Group]:
        """Classes that are created by the same sources, in the order of the model."""
        created = [source for source in self.labels.sources if source.unit not in _NOT_CREATED]
        members: dict[int, list[int]] = {}
        for number, source in enumerate(created):
            labels = np.arange(source.first, source.first + source.count)
            for label in self.classes[labels[~self.fixed[labels]]]:
                members.setdefault(int(label), []).append(number)
        by_sources: dict[tuple[int, ...], list[int]] = {}
        for label in sorted(members):
            by_sources.setdefault(tuple(members[label]), []).append(label)
        groups = []
        for numbers, classes in by_sources.items():
            sources = tuple(created[index] for index in dict.fromkeys(numbers))
            others = len(sources) - 1
            width = max(numbers.count(index) for index in set(numbers))
            name = sources[0].name + (f" + {others}" if others else "")
            units = {source.unit for source in sources}
            unit = "heads" if "heads" in units else sources[0].unit
            groups.append(Group(name, unit, sources, np.array(classes), width))
        return groups

    def reasons(self) -> dict[str, str]:
        """Source whose channels all stay -> the first reason."""
        reason_of = np.full(self.labels.size, -1)
        reasons = self.labels.reasons()
        for number, (axis, _) in reversed(list(enumerate(reasons))):
            reason_of[self.classes[axis]] = number
        source_reasons = {}
        for source in self.labels.sources:
            labels = self.classes[source.first : source.first + source.count]
            if source.unit not in _NOT_CREATED and source.count and self.fixed[labels].all():
                source_reasons[source.name] = reasons[reason_of[labels[0]]][1]
        return source_reasons

    def alive(self, removed: np.ndarray) -> np.ndarray:
        """Returns whether each label stays if the classes `removed` go, bool [labels]."""
        gone = np.zeros(self.labels.size, bool)
        gone[removed] = True
        return np.asarray(~gone[self.classes])
