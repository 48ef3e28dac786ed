"""The multiply-adds in a TensorFlow graph: of matrix products and convolutions, loops and functions included.

They are read off the graph that a call traces and not off the layers, so that what a layer of any class, or a
model between its layers, multiplies is counted as well.
"""

import math
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import tensorflow as tf

#: Which variables a tensor is made of; None where it depends on what the function is called with.
_Sources = frozenset | None


@dataclass(frozen=True)
class Product:
    """A matrix product or convolution.

    Attributes:
        multiply_adds: of all times that it is computed in one call.
        variables: keys of the variables that one side of it is made of, and nothing else; empty where both
            sides depend on the inputs.
        name: of its operation, after those of the loops and functions that it is in.
    """

    multiply_adds: int
    variables: frozenset
    name: str

    def times(self, rounds: int) -> "Product":
        """The same product, computed so many times as often."""
        return replace(self, multiply_adds=self.multiply_adds * rounds)


def products(
    function: tf.types.experimental.ConcreteFunction, keys: Mapping[int, object]
) -> tuple[list[Product], list[tuple[str, str]]]:
    """What a traced function multiplies when it is called.

    Every position of a convolution counts as a whole window, at the edges too. A loop makes as many rounds as
    it may make at most; of the branches of a condition the dearest counts. What no output depends on does not
    count: TensorFlow does not run it.

    Args:
        function: with static shapes wherever something is multiplied.
        keys: `id` of a variable's handle -> what to call the variable. Others make nothing of a side's own.

    Returns:
        `(products, doubts)`; a doubt is the name of an operation and why it is not counted, or not rightly.

    Example:
        >>> kernel = tf.Variable(tf.ones([3, 5]))
        >>> function = tf.function(lambda x: x @ kernel).get_concrete_function(tf.TensorSpec([2, 3]))
        >>> products(function, {id(kernel.handle): "kernel"})[0][0].multiply_adds
        30
    """
    captured = [
        frozenset([keys[id(tensor)]] if id(tensor) in keys else []) for tensor in function.captured_inputs
    ]
    given: list[_Sources] = [None] * (len(function.inputs) - len(captured)) + captured
    count = _Count()
    count.walk(function.graph, given, 1)
    return count.found, list(dict.fromkeys(count.doubts))


class _Count:
    """Goes through graphs and collects what they multiply."""

    def __init__(self, inside: str = ""):
        self.inside = inside
        self.found: list[Product] = []
        self.doubts: list[tuple[str, str]] = []

    def walk(self, graph, given: list[_Sources], rounds: int) -> list[_Sources]:
        """One graph, computed `rounds` times; returns what its outputs are made of."""
        known = dict(zip((tensor.name for tensor in graph.inputs), given, strict=True))
        needed = _needed(graph)
        for operation in graph.get_operations():
            if operation in needed and not all(tensor.name in known for tensor in operation.outputs):
                sources = self._sources(operation, known, rounds)
                for tensor, of_tensor in zip(operation.outputs, sources, strict=True):
                    known[tensor.name] = of_tensor
                self._multiplied(operation, known, rounds)
        return [known[tensor.name] for tensor in graph.outputs]

    def _sources(self, operation: tf.Operation, known: dict, rounds: int) -> list[_Sources]:
        inputs = [known.get(tensor.name) for tensor in operation.inputs]
        if _is_of_shape_alone(operation):
            inputs = []
        if operation.type in ("While", "StatelessWhile"):
            return self._loop(operation, inputs, rounds)
        if operation.type in ("If", "StatelessIf", "Case", "StatelessCase"):
            return self._branches(operation, inputs[1:], rounds)
        if operation.type in ("PartitionedCall", "StatefulPartitionedCall"):
            body = self._function(operation, "f")
            if body is None:
                return [None] * len(operation.outputs)
            return self._inside(operation, body, inputs, rounds)
        if operation.type == "IdentityN":
            return inputs
        return [_joined(inputs)] * len(operation.outputs)

    def _loop(self, operation: tf.Operation, inputs: list[_Sources], rounds: int) -> list[_Sources]:
        body, condition = self._function(operation, "body"), self._function(operation, "cond")
        if body is None or condition is None:
            return [None] * len(operation.outputs)
        state, before = inputs, None
        while state != before:  # a variable that the loop changes is made of all that it ever was
            before = state
            after = _Count().walk(body, state, 0)
            state = [_joined(pair) for pair in zip(before, after, strict=True)]
        turns = _turns(operation, condition, body)
        if turns is None:
            turns = 1
            if self._multiplies(body, state):
                self._doubt(operation, "the loop does not say how many rounds it makes, one is counted")
        self._inside(operation, body, state, rounds * turns)
        self._inside(operation, condition, state, rounds * (turns + 1))
        return state

    def _inside(self, operation: tf.Operation, graph, given: list[_Sources], rounds: int) -> list[_Sources]:
        count = _Count(f"{self.inside}{operation.name}/")
        sources = count.walk(graph, given, rounds)
        self.found += count.found
        self.doubts += count.doubts
        return sources

    def _multiplies(self, graph, given: list[_Sources]) -> bool:
        count = _Count()
        count.walk(graph, given, 1)
        return bool(count.found)

    def _branches(self, operation: tf.Operation, inputs: list[_Sources], rounds: int) -> list[_Sources]:
        names = ["then_branch", "else_branch"] if operation.type.endswith("If") else None
        if names is None:
            graphs = [_graph_of(operation, branch.name) for branch in operation.get_attr("branches")]
        else:
            graphs = [self._function(operation, name) for name in names]
        if None in graphs:
            return [None] * len(operation.outputs)
        counts = [_Count(f"{self.inside}{operation.name}/") for _ in graphs]
        ends = [count.walk(graph, inputs, rounds) for count, graph in zip(counts, graphs, strict=True)]
        dearest = max(counts, key=lambda count: sum(product.multiply_adds for product in count.found))
        self.found += dearest.found
        self.doubts += dearest.doubts
        return [_joined(of_output) for of_output in zip(*ends, strict=True)]

    def _function(self, operation: tf.Operation, attribute: str):
        graph = _graph_of(operation, operation.get_attr(attribute).name)
        if graph is None:
            self._doubt(operation, "the function that it calls cannot be looked into and is not counted")
        return graph

    def _doubt(self, operation: tf.Operation, why: str) -> None:
        self.doubts.append((self.inside + operation.name, why))

    def _multiplied(self, operation: tf.Operation, known: dict, rounds: int) -> None:
        if operation.type in _UNCOUNTED:
            self._doubt(operation, f"{operation.type} is not counted")
        if operation.type not in _MULTIPLY_ADDS:
            return
        try:
            number = _MULTIPLY_ADDS[operation.type](operation)
        except (TypeError, ValueError):  # what TensorShape and int() say of a length that is not known
            self._doubt(operation, "its shapes are not known, it is not counted")
            return
        if number and rounds:
            name = self.inside + operation.name
            self.found.append(Product(number * rounds, _weights(operation, known), name))


def _needed(graph) -> set[tf.Operation]:
    """The operations that run when the function is called: Keras, for one, traces some for their shapes."""
    waiting = [tensor.op for tensor in graph.outputs] + list(graph.control_outputs)
    needed = set(waiting)
    while waiting:
        operation = waiting.pop()
        inputs = [] if _is_of_shape_alone(operation) else operation.inputs
        for before in (*(tensor.op for tensor in inputs), *operation.control_inputs):
            if before not in needed:
                needed.add(before)
                waiting.append(before)
    return needed


def _is_of_shape_alone(operation: tf.Operation) -> bool:
    """Whether TensorFlow makes it a constant, as it does where only a static shape is asked for."""
    return (
        operation.type in ("Shape", "ShapeN", "Size", "Rank", "ZerosLike", "OnesLike")
        and operation.inputs[0].shape.is_fully_defined()
    )


def _joined(sources) -> _Sources:
    sources = list(sources)
    return None if None in sources else frozenset().union(*sources)


def _weights(operation: tf.Operation, known: dict) -> frozenset:
    """The variables of the side that is made of nothing but variables; of two such sides the larger."""
    sides = [
        (tensor.shape.num_elements() or 0, known.get(tensor.name))
        for tensor in operation.inputs
        if known.get(tensor.name)
    ]
    return max(sides, key=lambda side: side[0])[1] if sides else frozenset()


def _graph_of(operation: tf.Operation, name: str):
    """The graph of a function that a graph, or one around it, knows by its name."""
    graph = operation.graph
    while graph is not None:
        function = graph._get_function(name)
        if function is not None:
            return getattr(function, "graph", None)
        graph = getattr(graph, "outer_graph", None)
    return None


def _turns(loop: tf.Operation, condition, body) -> int | None:
    """How many rounds a loop makes that counts them, or may make at most; None where it does not say."""
    start = [_scalar(tensor, {}) for tensor in loop.inputs]
    values = start
    for turn in range(_MOST_TURNS):
        goes_on = _scalar(condition.outputs[0], _by_name(condition, values))
        if goes_on is None:
            break
        if not goes_on:
            return turn
        known = _by_name(body, values)
        values = [_scalar(tensor, known) for tensor in body.outputs]
    # The second thing that tf.while_loop hands on is how many rounds there are at most, -1 for any number.
    most = start[1] if len(start) > 1 and loop.inputs[1].dtype == tf.int32 else None
    return None if most is None or most < 0 else int(most)


def _by_name(graph, values: list) -> dict:
    return {tensor.name: value for tensor, value in zip(graph.inputs, values, strict=True)}


def _scalar(tensor: tf.Tensor, known: dict):
    """The value of a whole number or truth value; None for others, and where the graph does not fix it."""
    if tensor.name in known:
        return known[tensor.name]
    if tensor.shape.rank != 0 or not (tensor.dtype.is_integer or tensor.dtype.is_bool):
        return None
    operation = tensor.op
    if operation.type in _SCALAR:
        # Keras takes the maximum of a single length; the axes are the other input.
        inputs = operation.inputs[:1] if operation.type == "Max" else operation.inputs
        values = [_scalar(one, known) for one in inputs]
        if operation.type == "LogicalAnd" and False in values:
            return False
        return None if None in values else _SCALAR[operation.type](*values)
    if operation.type == "StridedSlice":  # a length, out of a shape
        lengths, place = (tf.get_static_value(one) for one in operation.inputs[:2])
        return None if lengths is None or place is None else lengths[tuple(place)].item()
    value = tf.get_static_value(tensor)
    return None if value is None else value.item()


def _size(tensor: tf.Tensor) -> int:
    return math.prod(int(length) for length in tensor.shape)


def _matrix_product(summed: Callable[[tf.Operation], int]) -> Callable[[tf.Operation], int]:
    return lambda operation: _size(operation.outputs[0]) * int(operation.inputs[0].shape[summed(operation)])


def _einsum(operation: tf.Operation) -> int:
    left, _, output = operation.get_attr("equation").decode().replace(" ", "").partition("->")
    operands = left.split(",")
    if len(operands) == 1:
        return 0
    # What only one side has and the output has not is summed up before the product.
    lengths = {}
    for letters, tensor in zip(operands, operation.inputs, strict=True):
        shape = list(tensor.shape)
        before, dots, after = letters.partition("...")
        lengths |= dict(zip(before, shape, strict=not dots))
        lengths |= dict(zip(reversed(after), reversed(shape), strict=False))
    summed = set(operands[0]) & set(operands[1]) - set(output) - {"."}
    return _size(operation.outputs[0]) * math.prod(int(lengths[letter]) for letter in summed)


def _convolution(of_kernel: slice) -> Callable[[tf.Operation], int]:
    def multiply_adds(operation: tf.Operation) -> int:
        output = operation.outputs[0]
        # A dilated convolution becomes one of pieces, filled up to the same size and cut in the end.
        if len(output.consumers()) == 1 and output.consumers()[0].type == "BatchToSpaceND":
            output = output.consumers()[0].outputs[0]
        kernel = [int(length) for length in operation.inputs[1].shape]
        return _size(output) * math.prod(kernel[of_kernel])

    return multiply_adds


def _transposed_convolution(of_kernel: slice) -> Callable[[tf.Operation], int]:
    def multiply_adds(operation: tf.Operation) -> int:
        kernel = [int(length) for length in operation.inputs[1].shape]
        return _size(operation.inputs[2]) * math.prod(kernel[of_kernel])

    return multiply_adds


_batched = _matrix_product(lambda operation: -2 if operation.get_attr("adj_x") else -1)
_whole, _one_channel = slice(0, -1), slice(0, 2)
_MULTIPLY_ADDS: dict[str, Callable[[tf.Operation], int]] = {
    "MatMul": _matrix_product(lambda operation: 0 if operation.get_attr("transpose_a") else 1),
    "BatchMatMul": _batched,
    "BatchMatMulV2": _batched,
    "BatchMatMulV3": _batched,
    "Einsum": _einsum,
    "Conv": _convolution(_whole),
    "Conv2D": _convolution(_whole),
    "Conv3D": _convolution(_whole),
    "DepthwiseConv2dNative": _convolution(_one_channel),
    "Conv2DBackpropInput": _transposed_convolution(_whole),
    "Conv3DBackpropInputV2": _transposed_convolution(_whole),
    "DepthwiseConv2dNativeBackpropInput": _transposed_convolution(_one_channel),
}
#: Rounds after which a loop is not followed any further.
_MOST_TURNS = 100_000
#: What loops count with.
_SCALAR: dict[str, Callable] = {
    "Identity": lambda x: x,
    "Max": lambda x: x,
    "AddV2": operator.add,
    "Add": operator.add,
    "Sub": operator.sub,
    "Mul": operator.mul,
    "Minimum": min,
    "Maximum": max,
    "Less": operator.lt,
    "LessEqual": operator.le,
    "Greater": operator.gt,
    "GreaterEqual": operator.ge,
    "Equal": operator.eq,
    "NotEqual": operator.ne,
    "LogicalAnd": lambda x, y: x and y,
    "LogicalOr": lambda x, y: x or y,
    "LogicalNot": operator.not_,
}
#: They multiply, too, in ways that are not known here.
_UNCOUNTED = {"CudnnRNN", "CudnnRNNV2", "CudnnRNNV3", "XlaConvV2", "XlaDotV2", "SparseTensorDenseMatMul"}
_UNCOUNTED |= {"SparseMatMul", "PyFunc", "EagerPyFunc", "PyFuncStateless"}
