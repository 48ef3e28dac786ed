"""Where a file's time goes, operation by operation, by LiteRT's own profiler."""

import collections
import dataclasses
import statistics
from pathlib import Path

import numpy as np

from tfsparsecap.errors import InputError
from tfsparsecap_export.encode import sparse
from tfsparsecap_export.flatbuffer import model_file as flatfile
from tfsparsecap_export.flatbuffer.model_file import schema
from tfsparsecap_export.verify.probe import Sample, in_own_process

#: Who runs an operation: TFLite's own kernels, or the delegate for dense arithmetic.
TFLITE, XNNPACK = "TFLite", "XNNPACK"

# `event_type` of LiteRT's events: a call of the runtime's, an operation, an operation inside a delegate.
_CALL, _OPERATION, _DELEGATED = 1, 2, (4, 8)
_CONTROL = ("WHILE", "IF", "CALL", "CALL_ONCE", "STABLEHLO_WHILE", "STABLEHLO_COMPOSITE")
# How XNNPACK's names of fully connected layers begin.
_XNNPACK_LAYER = "Fully Connected"


@dataclasses.dataclass(frozen=True)
class Operation:
    """Operations of one kind, or one layer, in a file.

    Attributes:
        name: the operation's name, TFLite's or XNNPACK's.
        kernel: `TFLITE` or `XNNPACK`.
        in_loop: whether it runs at every word.
        layer: name of a fully connected layer's matrix in the file, or None.
        shape: outputs and inputs of that layer.
        encoding: how its weights are stored, a name in `sparse`.
        calls: calls a run, on average.
        ms: milliseconds of all its calls in a run, the median of the runs. The clock counts microseconds:
            what takes less comes out too small.
        share: of all operations' milliseconds.
    """

    name: str
    kernel: str
    in_loop: bool
    layer: str | None
    shape: tuple[int, int] | None
    encoding: str | None
    calls: float
    ms: float
    share: float


@dataclasses.dataclass(frozen=True)
class Profile:
    """Where one file's time goes.

    Attributes:
        operations: the slowest first. Loops are none: what they run is.
        ms: milliseconds of all operations in a run.
        around_ms: what a run took beyond them, with the profiler on: passing from operation to operation and
            from word to word, and mostly the profiler's own work, which is not there without it.
    """

    operations: list[Operation]
    ms: float
    around_ms: float


def profile(path: Path, samples: list[Sample], *, threads: int = 1, runs: int = 20) -> Profile:
    """Runs a file with LiteRT's profiler on.

    It is run by the C library in LiteRT's wheel, in a process of its own: the same kernels as the Python
    interpreter's, which has no profiler.

    Args:
        path: a .tflite file of one signature.
        samples: inputs that it is run on, in turn.
        threads: CPU threads that kernels may use.
        runs: runs that count; some more before them do not.

    Raises:
        InputError: the file cannot be read, or the profiler does not run on it.

    Example:
        >>> profile(Path("captioner.tflite"), samples).operations[0].name
        'FULLY_CONNECTED'
    """
    model = flatfile.read_model(flatfile.map_file(path), str(path))
    try:
        events = in_own_process("tfsparsecap_export.measure.litert_events", path, samples, threads, runs)
    except InputError as error:
        raise InputError(
            f"LiteRT's profiler fails ({error}): leave the profile out, or install ai-edge-litert 2.3,"
            " which it is known to run with"
        ) from error
    return summarise(model, events)


def summarise(model: schema.ModelT, runs: list[list[list]]) -> Profile:
    """Adds up events.

    Args:
        model: the file that was run.
        runs: the events of each run as `litert_events.ProfiledModel.run` gives them.
    """
    layers, totals = _Layers(model), []
    calls: collections.Counter = collections.Counter()
    times: dict[tuple, list[int]] = collections.defaultdict(lambda: [0] * len(runs))
    for number, events in enumerate(runs):
        totals.append(_whole_microseconds(events))
        for key, us in _in_a_run(events, layers):
            calls[key] += 1
            times[key][number] += us
    taken = {key: statistics.median(us) / 1e3 for key, us in times.items()}
    total = sum(taken.values())
    operations = []
    for key, ms in taken.items():
        name, kernel, in_loop, buffer = key
        layer, shape, encoding = layers.described.get(buffer, (None, None, None))
        each, share = calls[key] / len(runs), ms / total if total else 0.0
        operations.append(Operation(name, kernel, in_loop, layer, shape, encoding, each, ms, share))
    operations.sort(key=lambda operation: -operation.ms)
    return Profile(operations, total, max(0.0, statistics.median(totals) / 1e3 - total))


def encoding_of(tensor: schema.TensorT) -> str:
    """The name in `sparse` of how a constant is stored."""
    block = 1
    if tensor.sparsity is not None and tensor.sparsity.blockMap is not None and len(tensor.sparsity.blockMap):
        block = int(np.prod([each.denseSize for each in tensor.sparsity.dimMetadata[2:]]))
    match tensor.type, tensor.sparsity is not None, block:
        case schema.TensorType.FLOAT32, True, 4:
            return sparse.BLOCK4
        case schema.TensorType.FLOAT32, True, _:
            return sparse.CSR
        case schema.TensorType.INT8, True, 16:
            return sparse.BLOCK16
        case schema.TensorType.INT8, False, _:
            return sparse.INT8
        case schema.TensorType.FLOAT32, False, _:
            return sparse.DENSE
    return "another"


class _Layers:
    """The fully connected layers of a file, and which operations of which graph they are.

    Attributes:
        described: buffer of a layer's matrix -> its name, shape and encoding.
        looped: subgraphs that run at every word.
    """

    def __init__(self, model: schema.ModelT):
        self._model, self._orders = model, {}
        self.described: dict[int, tuple] = {}
        self.looped: set[int] = set()
        self._buffers: dict[tuple[int, int], int] = {}
        for g, graph in enumerate(model.subgraphs):
            sources = {int(op.outputs[0]): op for op in graph.operators if len(op.outputs)}
            for o, operator in enumerate(graph.operators):
                name = flatfile.builtin_name(model, operator)
                if name == "WHILE":
                    options = operator.builtinOptions
                    self.looped |= {options.bodySubgraphIndex, options.condSubgraphIndex}
                if name == "FULLY_CONNECTED":
                    self._describe(graph, g, o, operator, sources)

    def buffer(self, graph: int, operator: int) -> int | None:
        """The buffer of the matrix that an operation multiplies with."""
        return self._buffers.get((graph, operator))

    def delegated(self, graph: int, ran: tuple[int, ...], count: int) -> list[int | None]:
        """The matrices' buffers of the layers that a delegate runs in a graph, in the order it runs them.

        Args:
            graph: index of the subgraph.
            ran: operations that TFLite itself ran in one call of the graph, in order.
            count: how many layers the delegate ran in that call.

        Returns:
            For each a buffer, or None for all of them where what ran is not what TFLite's partitioning of
            the graph, done over again here, foresees.
        """
        if (graph, ran) not in self._orders:
            self._orders[graph, ran] = self._partitioned(graph, ran)
        order = self._orders[graph, ran]
        return order if len(order) == count else [None] * count

    def _describe(self, graph, g: int, o: int, operator, sources: dict) -> None:
        index = int(operator.inputs[1])
        # Weights behind operations that expand them: what is stored is what is told.
        while index in sources and not self._data(graph.tensors[index]):
            index = int(sources[index].inputs[0])
        tensor = graph.tensors[index]
        if not self._data(tensor):
            return
        shape = tuple(int(size) for size in graph.tensors[int(operator.inputs[1])].shape)
        encoding = encoding_of(tensor)
        if index != int(operator.inputs[1]):
            wide = {schema.TensorType.FLOAT16: (sparse.FLOAT16, sparse.SPARSE16)}.get(
                tensor.type, (sparse.DENSE, sparse.SPARSE32)
            )
            encoding = wide[tensor.sparsity is not None]
        self.described.setdefault(tensor.buffer, (tensor.name.decode(errors="replace"), shape, encoding))
        self._buffers[g, o] = tensor.buffer

    def _data(self, tensor) -> bool:
        data = self._model.buffers[tensor.buffer].data
        return data is not None and len(data) > 0

    def _partitioned(self, g: int, ran: tuple[int, ...]) -> list[int | None]:
        """TFLite's partitioning: as many operations of one owner as are ready, then of the other."""
        graph, own = self._model.subgraphs[g], set(ran)
        made = {int(i) for operator in graph.operators for i in operator.outputs}
        ready = {-1, *(i for i in range(len(graph.tensors)) if i not in made)}
        waiting, order = list(range(len(graph.operators))), []
        while waiting:
            owner, found = None, True
            size = len(order)
            while found:
                found = False
                for o in list(waiting):
                    operator = graph.operators[o]
                    if {int(i) for i in operator.inputs} <= ready and owner in (None, o in own):
                        owner, found = o in own, True
                        ready.update(int(i) for i in operator.outputs)
                        waiting.remove(o)
                        order.append(o)
            if len(order) == size:
                return []
        if tuple(o for o in order if o in own) != ran:
            return []
        layers = [o for o in order if o not in own]
        return [self.buffer(g, o) for o in layers if self._is_layer(g, o)]

    def _is_layer(self, g: int, o: int) -> bool:
        return flatfile.builtin_name(self._model, self._model.subgraphs[g].operators[o]) == "FULLY_CONNECTED"


def _in_a_run(events: list[list], layers: _Layers) -> list[tuple[tuple, int]]:
    """Pairs of what ran (name, kernel, in_loop, buffer) and microseconds."""
    current, calls = {}, []
    for position, (tag, kind, *_, graph) in enumerate(events):
        if kind == _CALL and tag == "Invoke":
            calls.append((graph, current.setdefault(graph, [])))
            current[graph] = []
        elif kind == _OPERATION or kind in _DELEGATED:
            current.setdefault(graph, []).append(position)
    calls += list(current.items())

    found = []
    for graph, positions in calls:
        own = tuple(events[p][4] for p in positions if events[p][1] == _OPERATION)
        delegated = [
            p for p in positions if events[p][1] in _DELEGATED and events[p][0].startswith(_XNNPACK_LAYER)
        ]
        buffers = dict(zip(delegated, layers.delegated(graph, own, len(delegated)), strict=True))
        for p in positions:
            tag, kind, _, us, index, _ = events[p]
            kernel = TFLITE if kind == _OPERATION else XNNPACK
            buffer = layers.buffer(graph, index) if kind == _OPERATION else buffers.get(p)
            if kind != _OPERATION or tag not in _CONTROL:
                found.append(((tag, kernel, graph in layers.looped, buffer), us))
    return found


def _whole_microseconds(events: list[list]) -> int:
    """Of the call of the file's graph, within which its loops call theirs: the longest."""
    return max((event[3] for event in events if event[1] == _CALL and event[0] == "Invoke"), default=0)
