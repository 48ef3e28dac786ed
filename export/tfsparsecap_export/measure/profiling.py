"""Where a file's time goes, operation by operation.

LiteRT's Python interpreter has no profiler, so a run is replayed: each operation becomes a model of its own
with the inputs that it has in the file, and these models are run and timed in the file's order.
"""

import collections
import copy
import dataclasses
from pathlib import Path

import numpy as np

from tfsparsecap_export.flatbuffer import model_file as flatfile
from tfsparsecap_export.flatbuffer.contents import EXPANDING, read_contents
from tfsparsecap_export.flatbuffer.model_file import schema
from tfsparsecap_export.measure.single_runs import load, run_seconds
from tfsparsecap_export.samples import Sample

#: What runs an operation: TFLite's own kernels, or the delegate for dense arithmetic.
TFLITE, XNNPACK = "TFLite", "XNNPACK"


# Name, kernel, in_loop, shape and encoding of an `Operation`.
_Key = tuple[str, str, bool, tuple[int, ...] | None, str | None]


@dataclasses.dataclass(frozen=True)
class Operation:
    """All operations of one kind, or the fully connected layers of one shape and encoding.

    Attributes:
        name: the operator's name, such as "FULLY_CONNECTED".
        kernel: `TFLITE` or `XNNPACK`.
        in_loop: whether it runs for each word.
        shape: outputs and inputs of fully connected layers, else None.
        stored: how their weights are stored, as in `stored.Constant`, else None.
        layers: names of their weights in the file.
        calls: calls in a run, on average.
        ms: milliseconds of all its calls in a run, the median of the runs.
        share: of all operations' milliseconds, 0 to 1.
    """

    name: str
    kernel: str
    in_loop: bool
    shape: tuple[int, ...] | None
    stored: str | None
    layers: tuple[str, ...]
    calls: float
    ms: float
    share: float


@dataclasses.dataclass(frozen=True)
class Profile:
    """Where one file's time goes.

    Attributes:
        operations: the slowest first. A loop is not among them, the operations inside it are.
        ms: milliseconds of all operations in a run.
        not_timed: operators that do not run outside the file, such as those on variables.
    """

    operations: list[Operation]
    ms: float
    not_timed: tuple[str, ...]


def profile(path: Path, samples: list[Sample], *, threads: int = 1, runs: int = 20) -> Profile:
    """Times each operation of a file.

    The operations of a loop are run as often as in the file, so that caches hold what they hold in a real
    run. What differs from one: operations that the delegate fuses are timed one by one, and a loop's
    operations always get the inputs of its last iteration.

    Args:
        path: a .tflite file of one signature.
        samples: inputs on which the iterations of loops are counted; operations are timed on the last one.
        threads: CPU threads that kernels may use.
        runs: timed runs; one more before them is not timed.

    Raises:
        InputError: the file cannot be read.
    """
    contents = read_contents(path)
    constants = {buffer: constant for constant in contents.constants for buffer in constant.buffers}
    trace = _Trace(path, samples)
    calls = trace.calls()
    not_timed: dict[str, None] = {}
    # The operations of each subgraph: the first fields of an `Operation`, and the interpreter that runs it.
    replay: dict[int, list[tuple[_Key, object]]] = {g: [] for g in calls}
    layers: dict[_Key, list[str]] = collections.defaultdict(list)
    counts: dict[_Key, float] = collections.defaultdict(float)
    for g, operations in replay.items():
        graph = _Graph(contents.model, g)
        for operator in graph.timed:
            name, shape, stored = flatfile.builtin_name(contents.model, operator), None, None
            try:
                interpreter = graph.alone(operator, trace, threads)
            except (ValueError, RuntimeError):
                not_timed[name] = None
                continue
            layer = constants.get(graph.weights(operator)) if name == "FULLY_CONNECTED" else None
            if layer is not None:
                shape, stored = graph.shape(operator.inputs[1]), layer.stored
            # The only function that names delegates. It is private; the rest of the profile does without it.
            details: list[dict] = getattr(interpreter, "_get_ops_details", list)()
            delegated = any(detail["op_name"] == "DELEGATE" for detail in details)
            key = (name, XNNPACK if delegated else TFLITE, g in trace.looped, shape, stored)
            layers[key] += [layer.name] if layer is not None else []
            operations.append((key, interpreter))
            counts[key] += calls[g]
    seconds: dict[_Key, np.ndarray] = {key: np.zeros(runs + 1) for key in counts}
    nothing = schema.SubGraphT()
    nothing.tensors, nothing.operators = [], []
    empty = load(flatfile.write_model(_model_of(nothing, [schema.BufferT()], [])))
    overhead = float(np.median([run_seconds(empty) for _ in range(100)]))
    for run in range(runs + 1):
        for g, operations in replay.items():
            for _ in range(round(calls[g])):
                for key, interpreter in operations:
                    seconds[key][run] += max(0.0, run_seconds(interpreter) - overhead)
    ms = {key: 1e3 * float(np.median(of_runs[1:])) for key, of_runs in seconds.items()}
    total = sum(ms.values())
    found = [
        Operation(*key, tuple(layers[key]), counts[key], ms[key], ms[key] / total if total else 0.0)
        for key in sorted(ms, key=ms.__getitem__, reverse=True)
    ]
    return Profile(found, total, tuple(not_timed))


class _Trace:
    """A file that has been run with all intermediate tensors kept, and iterations of loops counted.

    Attributes:
        looped: subgraphs that loops run.
    """

    def __init__(self, path: Path, samples: list[Sample]):
        from ai_edge_litert.interpreter import Interpreter, OpResolverType

        model = flatfile.read_model(flatfile.map_file(path), str(path))
        self._main = model.signatureDefs[0].subgraphIndex if model.signatureDefs else 0
        self._loops = [
            (g, operator.builtinOptions, _count_iterations(model, graph, operator))
            for g, graph in enumerate(model.subgraphs)
            for operator in list(graph.operators)
            if flatfile.builtin_name(model, operator) == "WHILE"
        ]
        self.looped = {
            graph for _, loop, _ in self._loops for graph in (loop.condSubgraphIndex, loop.bodySubgraphIndex)
        }
        self._interpreter = Interpreter(
            model_content=flatfile.write_model(model),
            experimental_op_resolver_type=OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES,
            experimental_preserve_all_tensors=True,
        )
        run = self._interpreter.get_signature_runner(next(iter(self._interpreter.get_signature_list())))
        self._iterations = np.zeros(len(self._loops))
        for sample in samples:
            run(**sample)
            self._iterations += [self.value(g, count)[0] for g, _, count in self._loops]
        self._iterations /= len(samples)

    def value(self, graph: int, tensor: int) -> np.ndarray:
        """What a tensor held when it was last computed; raises ValueError if it never was."""
        return self._interpreter.get_tensor(tensor, graph)

    def calls(self) -> dict[int, float]:
        """Subgraph -> how often it runs in a run of the file, on average."""
        calls: dict[int, float] = collections.defaultdict(float)

        def add(graph: int, times: float) -> None:
            calls[graph] += times
            for (outer, loop, _), iterations in zip(self._loops, self._iterations, strict=True):
                if outer == graph:
                    add(loop.condSubgraphIndex, times * (iterations + 1))
                    add(loop.bodySubgraphIndex, times * iterations)

        add(self._main, 1.0)
        return dict(calls)


def _count_iterations(model: schema.ModelT, graph: schema.SubGraphT, loop: schema.OperatorT) -> int:
    """Gives a loop one more variable, which counts its iterations; the index of the tensor with the count."""
    zero = flatfile.add_constant(model, graph, np.zeros(1, np.int32), "iterations")
    total = flatfile.add_tensor(graph, zero, "total")
    loop.inputs, loop.outputs = (
        np.append(loop.inputs, np.int32(zero)),
        np.append(loop.outputs, np.int32(total)),
    )
    for index in flatfile.called_subgraphs(loop):
        inner = model.subgraphs[index]
        one = flatfile.add_constant(model, inner, np.ones(1, np.int32), "one")
        before, after = flatfile.add_tensor(inner, one, "before"), flatfile.add_tensor(inner, one, "after")
        inner.inputs = np.append(inner.inputs, np.int32(before))
        if index == loop.builtinOptions.bodySubgraphIndex:
            add = flatfile.new_operator(model, schema.BuiltinOperator.ADD, 1, [before, one], [after])
            inner.operators.append(add)
            inner.outputs = np.append(inner.outputs, np.int32(after))
    return total


class _Graph:
    """A subgraph whose operations can be cut out.

    Attributes:
        timed: its operations except loops and those that only expand constants, which the runtime does once.
    """

    def __init__(self, model: schema.ModelT, index: int):
        self._model, self._index = model, index
        self._graph = model.subgraphs[index]
        #: Tensor -> the operation that expands a constant into it.
        self._expanding: dict[int, schema.OperatorT] = {}
        self.timed = []
        for operator in self._graph.operators:
            name = flatfile.builtin_name(model, operator)
            if name in EXPANDING and self._is_constant(operator.inputs[0]):
                self._expanding[int(operator.outputs[0])] = operator
            elif name != "WHILE":
                self.timed.append(operator)

    def shape(self, tensor: int) -> tuple[int, ...]:
        """Shape of a tensor as the file says it."""
        return tuple(map(int, self._graph.tensors[tensor].shape))

    def weights(self, operator: schema.OperatorT) -> int:
        """Buffer of the constant that a fully connected layer multiplies with."""
        tensor = int(operator.inputs[1])
        while tensor in self._expanding:
            tensor = int(self._expanding[tensor].inputs[0])
        return self._graph.tensors[tensor].buffer

    def alone(self, operator: schema.OperatorT, trace: _Trace, threads: int):
        """An interpreter of a model with this operation only, which has run once.

        Raises:
            ValueError, RuntimeError: the operation does not run outside the file.
        """
        operators = [operator]
        for one in operators:
            operators += [self._expanding[int(i)] for i in one.inputs if int(i) in self._expanding]
        used = {int(i) for one in operators for i in (*one.inputs, *one.outputs) if i >= 0}
        place = {-1: -1, **{old: new for new, old in enumerate(sorted(used))}}
        graph, buffers = schema.SubGraphT(), [schema.BufferT()]
        graph.tensors = [copy.copy(self._graph.tensors[old]) for old in sorted(used)]
        given = {}
        for old, tensor in zip(sorted(used), graph.tensors, strict=True):
            data = self._model.buffers[tensor.buffer].data
            tensor.buffer = 0
            if data is not None and len(data):
                tensor.buffer = len(buffers)
                buffers.append(schema.BufferT())
                buffers[-1].data = data
            elif old in operator.inputs and old not in self._expanding and not tensor.isVariable:
                given[place[old]] = trace.value(self._index, old)
                tensor.shape, tensor.shapeSignature = np.array(given[place[old]].shape, np.int32), None
        graph.inputs, graph.outputs = np.array([*given], np.int32), _placed(operator.outputs, place)
        graph.operators = []
        for one in reversed(operators):
            moved = copy.copy(one)
            moved.inputs, moved.outputs = _placed(one.inputs, place), _placed(one.outputs, place)
            graph.operators.append(moved)
        model = _model_of(graph, buffers, self._model.operatorCodes)
        return load(flatfile.write_model(model), given, threads)

    def _is_constant(self, tensor: int) -> bool:
        data = self._model.buffers[self._graph.tensors[tensor].buffer].data
        return int(tensor) in self._expanding or (data is not None and len(data) > 0)


def _model_of(
    graph: schema.SubGraphT, buffers: list[schema.BufferT], codes: list[schema.OperatorCodeT]
) -> schema.ModelT:
    model = schema.ModelT()
    model.version, model.subgraphs, model.buffers, model.operatorCodes = 3, [graph], buffers, codes
    return model


def _placed(indices: np.ndarray, place: dict[int, int]) -> np.ndarray:
    return np.array([place[int(index)] for index in indices], np.int32)
