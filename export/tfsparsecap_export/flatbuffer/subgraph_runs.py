"""How often a run of a file runs each of its subgraphs: the bodies of loops, once per time step."""

import collections

import numpy as np

from tfsparsecap_export.flatbuffer import model_file as flatfile
from tfsparsecap_export.flatbuffer.model_file import schema

_COUNTERS = {schema.TensorType.INT32: np.int32, schema.TensorType.INT64: np.int64}


def runs_of_subgraphs(model: schema.ModelT, steps: int) -> list[int]:
    """Number of runs of each subgraph in one run of the file.

    The branches of a condition all count.

    Args:
        model: from `flatfile.read_model`.
        steps: number of steps of loops whose number of steps the file does not tell, such as a search, which
            ends with the last caption. If such loops are nested, the outermost counts.
    """
    callers: dict[int, list[tuple[int, int | None]]] = collections.defaultdict(list)
    for number, graph in enumerate(model.subgraphs):
        for operator in graph.operators:
            is_loop = "WHILE" in flatfile.builtin_name(model, operator)
            count = steps_of_loop(model, graph, operator) if is_loop else 1
            for called in flatfile.called_subgraphs(operator):
                callers[called].append((number, count))
    #: Subgraph -> runs apart from loops of unknown length; whether it is in such a loop.
    found: dict[int, tuple[int, bool]] = {}

    def find(number: int) -> tuple[int, bool]:
        if number not in found:
            found[number] = 0, False  # so that a damaged file, whose subgraphs call each other, ends
            calls = [(*find(caller), count) for caller, count in callers[number]]
            runs = sum(times * (1 if count is None else count) for times, _, count in calls)
            found[number] = runs if calls else 1, any(inside or count is None for _, inside, count in calls)
        return found[number]

    counts = [find(number) for number in range(len(model.subgraphs))]
    return [runs * (steps if unknown else 1) for runs, unknown in counts]


def steps_of_loop(model: schema.ModelT, graph: schema.SubGraphT, operator: schema.OperatorT) -> int | None:
    """Number of steps of a WHILE that only counts, as those of recurrent layers do; None for others.

    Args:
        model: that contains the graph.
        graph: that contains the operator.
        operator: the WHILE.
    """
    options = operator.builtinOptions
    if not isinstance(options, schema.WhileOptionsT):
        return None
    condition, body = (model.subgraphs[i] for i in (options.condSubgraphIndex, options.bodySubgraphIndex))
    producers = {int(i): made for made in condition.operators for i in made.outputs}
    limits, waiting = [], [int(i) for i in condition.outputs]
    while waiting:
        test = producers.pop(waiting.pop(), None)
        name = "" if test is None else flatfile.builtin_name(model, test)
        if test is not None and name == "LOGICAL_AND":
            waiting += map(int, test.inputs)
        elif test is not None and name == "LESS":
            below = _whole_number(model, condition, flatfile.input_of(test, 1))
            limits.append((flatfile.input_of(test, 0), below))
        else:
            return None
    counts = []
    for counter, limit in limits:
        position = _position(condition.inputs, counter)
        values = min(map(len, (operator.inputs, body.inputs, body.outputs)))
        if limit is None or not 0 <= position < values:
            return None
        start = _whole_number(model, graph, int(operator.inputs[position]))
        step = _increment(model, body, position)
        if start is None or step is None or step < 1:
            return None
        counts.append(max(0, -((start - limit) // step)))
    return min(counts, default=None)


def _increment(model: schema.ModelT, body: schema.SubGraphT, position: int) -> int | None:
    """The number that the body of a loop adds to one of its inputs; None if it does something else."""
    for operator in body.operators:
        if int(body.outputs[position]) in operator.outputs and len(operator.inputs) == 2:
            inputs = [int(i) for i in operator.inputs]
            if flatfile.builtin_name(model, operator) == "ADD" and int(body.inputs[position]) in inputs:
                inputs.remove(int(body.inputs[position]))
                return _whole_number(model, body, inputs[0])
    return None


def _whole_number(model: schema.ModelT, graph: schema.SubGraphT, index: int) -> int | None:
    """The value of a constant that is one whole number; None for other tensors."""
    data, dtype = flatfile.constant(model, graph, index), _COUNTERS.get(graph.tensors[index].type)
    if data is None or dtype is None or len(data) != np.dtype(dtype).itemsize:
        return None
    return int(np.frombuffer(data, dtype)[0])


def _position(indices: np.ndarray, index: int) -> int:
    """Place of an index; -1 if it is not there."""
    places = np.flatnonzero(np.asarray(indices) == index)
    return int(places[0]) if places.size else -1
