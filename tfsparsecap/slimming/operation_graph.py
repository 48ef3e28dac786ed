"""The graph of a model: calls of layers and operations, and the tensors between them."""

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import keras

from tfsparsecap.core import keras_internals
from tfsparsecap.core.model_call import check_model, known_arguments
from tfsparsecap.errors import InputError, first_line

#: Length that stands for an unknown length of an input: of an image, or of a sequence.
IMAGE, SEQUENCE = 224, 32

#: Operations that move elements, and those that take whole numbers as well as others, by their classes.
_MOVES = {"Concatenate", "ExpandDims", "GetItem", "Reshape", "Split", "Squeeze", "Stack", "Transpose"}
_TAKES_INTEGERS = {"Cast", "Equal", "Greater", "GreaterEqual", "Less", "NotEqual", "OnesLike", "ZerosLike"}


@dataclass(frozen=True)
class Ref:
    """Takes the place of a tensor in the arguments of a call."""

    index: int


@dataclass(eq=False)
class Node:
    """A call of a layer or operation.

    Attributes:
        operation: the layer or operation.
        args, kwargs: its arguments, with a `Ref` for each tensor.
        outputs: indices of the tensors that it returns.
    """

    operation: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    outputs: tuple[int, ...]

    @property
    def inputs(self) -> list[int]:
        """Indices of the tensors that it takes."""
        return [leaf.index for leaf in keras.tree.flatten((self.args, self.kwargs)) if isinstance(leaf, Ref)]


@dataclass
class Graph:
    """A model without nesting.

    Attributes:
        name: of the model.
        nodes: in an order in which they can be called.
        inputs: the model's inputs: a structure of `Ref`s, and the input layer of each.
        outputs: a structure of `Ref`s.
        output_names: names of the model's outputs.
        shapes: shape of each tensor for a batch of one.
        is_sequential: whether the model is `Sequential` and has no models inside.
        notes: assumptions about the shapes.
    """

    name: str
    nodes: list[Node] = field(default_factory=list)
    inputs: Any = None
    input_layers: dict[int, keras.Layer] = field(default_factory=dict)
    outputs: Any = None
    output_names: tuple[str, ...] = ()
    shapes: list[tuple[int, ...]] = field(default_factory=list)
    is_sequential: bool = False
    notes: list[str] = field(default_factory=list)

    def operations(self) -> list[Any]:
        """The layers and operations, each once."""
        return list({id(node.operation): node.operation for node in self.nodes}.values())

    def renamed_outputs(self) -> list[str]:
        """Names of outputs that the operation which returns them does not have: those of nested models."""
        producers = {index: node.operation.name for node in self.nodes for index in node.outputs}
        refs = keras.tree.flatten(self.outputs)
        return [
            name
            for name, ref in zip(self.output_names, refs, strict=True)
            if producers.get(ref.index, name) != name
        ]

    def consumers(self) -> dict[int, list[Node]]:
        """Tensor -> calls that take it."""
        calls: dict[int, list[Node]] = {index: [] for index in range(len(self.shapes))}
        for node in self.nodes:
            for index in dict.fromkeys(node.inputs):
                calls[index].append(node)
        return calls


def replace_refs(structure: Any, replacement: Callable[[int], Any]) -> Any:
    """Replaces each `Ref` of a structure."""
    return keras.tree.map_structure(
        lambda leaf: replacement(leaf.index) if isinstance(leaf, Ref) else leaf, structure
    )


def check_built(model: Any, what: str, kind: type[keras.Layer] = keras.Model) -> None:
    """Checks that a model is one of Keras and has its weights.

    Args:
        what: the function that takes it.
        kind: the class of Keras that it must have.

    Raises:
        InputError: it is not.
    """
    check_model(model, what, kind)
    quantized = [
        layer.name
        for layer in keras_internals.nested_layers(model)
        if getattr(layer, "quantization_mode", None)
    ]
    if quantized:
        raise InputError(
            f"{model.name} was quantized by Keras ({', '.join(quantized[:3])}): use it as it was before"
            " model.quantize"
        )


def trace(model: keras.Model, what: str = "sc.slim") -> Graph:
    """Returns the graph of a functional, sequential or traceable subclassed model.

    Raises:
        InputError: the model is not a Keras model, is not built, calls TensorFlow directly, or two
            layers use the same weight.
    """
    check_built(model, what)
    functional = keras_internals.functional_of(model) or _traced(model)
    graph = Graph(model.name)
    indices: dict[int, int] = {}
    originals: list[Any] = []

    def tensor(symbolic: Any) -> int:
        if id(symbolic) not in indices:
            indices[id(symbolic)] = len(originals)
            originals.append(symbolic)
        return indices[id(symbolic)]

    structure, results = keras_internals.functional_structure(functional)
    graph.inputs = keras.tree.map_structure(lambda leaf: Ref(tensor(leaf)), structure)
    for symbolic in keras.tree.flatten(structure):
        graph.input_layers[tensor(symbolic)] = keras_internals.producer(symbolic)
    nested = _add(graph, functional, indices, tensor, {})
    graph.outputs = keras.tree.map_structure(lambda leaf: Ref(tensor(leaf)), results)
    graph.output_names = tuple(functional.output_names)
    graph.is_sequential = isinstance(model, keras.Sequential) and not nested
    _infer_shapes(graph, originals)
    _check_weights(graph, originals)
    return graph


def _add(
    graph: Graph, functional: Any, indices: dict[int, int], tensor: Callable[[Any], int], more: dict[str, Any]
) -> bool:
    """Appends the calls of a model; returns whether it contains other models."""
    has_nested = False
    for symbolic_node in keras_internals.functional_nodes(functional):
        operation, arguments = symbolic_node.operation, symbolic_node.arguments
        if isinstance(operation, keras.layers.InputLayer):
            continue
        inner = keras_internals.functional_of(operation)
        if inner is None:
            args, kwargs = arguments.convert(
                lambda leaf: Ref(tensor(leaf)) if isinstance(leaf, keras.KerasTensor) else leaf
            )
            if more and isinstance(operation, keras.Layer) and keras_internals.takes_training(operation):
                kwargs = {**kwargs, **more}
            outputs = tuple(tensor(output) for output in symbolic_node.outputs)
            graph.nodes.append(Node(operation, args, kwargs, outputs))
            continue
        has_nested = True
        training = arguments.kwargs.get("training", more.get("training"))
        inputs = _nested_inputs(graph.name, operation, inner, arguments)
        mapping = dict(zip(map(id, inner.inputs), map(tensor, inputs), strict=True))
        inside = _Nested(mapping, tensor)
        _add(graph, inner, mapping, inside, {} if training is None else {"training": training})
        for outer, result in zip(symbolic_node.outputs, inner.outputs, strict=True):
            indices[id(outer)] = inside(result)
    return has_nested


def _nested_inputs(name: str, model: keras.Model, inner: Any, arguments: Any) -> list[keras.KerasTensor]:
    """The tensors that a nested model is called with, in the order of its inputs."""
    passed = arguments.args[0] if arguments.args else arguments.kwargs["inputs"]
    structure, _ = keras_internals.functional_structure(inner)
    if isinstance(passed, dict) and not isinstance(structure, dict):
        passed = [passed[leaf.name] for leaf in keras.tree.flatten(structure)]
    flat: list[keras.KerasTensor] = keras.tree.flatten(passed)
    mask = arguments.args[2] if len(arguments.args) > 2 else arguments.kwargs.get("mask")
    own = [id(keras_internals.mask_of(leaf)) for leaf in flat]
    if any(leaf is not None and id(leaf) not in own for leaf in keras.tree.flatten(mask)):
        raise InputError(
            f"{name} calls the nested model {model.name} with mask=, which the slim model would lose: pass"
            " it to the layers inside, or let a layer such as keras.layers.Masking compute it"
        )
    return flat  # the layers inside find the masks of the tensors again


class _Nested:
    """Indices of the tensors in one call of a nested model, which may be called several times."""

    def __init__(self, mapping: dict[int, int], outer: Callable[[Any], int]) -> None:
        self.mapping, self.outer = mapping, outer
        # They must stay alive: another object could get the id of one that is gone.
        self.tensors: list[Any] = []

    def __call__(self, symbolic: Any) -> int:
        if id(symbolic) not in self.mapping:
            # A tensor of its own for each call of the nested model.
            own = keras.KerasTensor(symbolic.shape, symbolic.dtype)
            self.tensors.append(own)
            self.mapping[id(symbolic)] = self.outer(own)
        return self.mapping[id(symbolic)]


def _traced(model: keras.Model) -> Any:
    """A functional model of the layers that a subclassed model calls."""
    (args, kwargs), _ = known_arguments(model) or (((), {}), None)
    if kwargs or len(args) != 1:
        raise InputError(
            f"{model.name} is a subclassed model with inputs of unknown shape, as if its call method takes"
            " several tensors, or depends on their values (if, while): let it take one tensor or one list of"
            " them and use keras.ops, or build it as a functional model"
        )
    try:
        inputs = keras.tree.map_structure(lambda leaf: keras.Input(leaf.shape[1:], dtype=leaf.dtype), args[0])
        functional, read = _called(model, inputs)
        tokens = {
            id(symbolic)
            for symbolic in keras.tree.flatten(inputs)
            if symbolic.dtype == "float32" and _are_tokens(functional, symbolic)
        }
        if tokens:  # the shapes that the model was built with do not say so

            def with_type(symbolic: keras.KerasTensor) -> keras.KerasTensor:
                dtype = "int32" if id(symbolic) in tokens else symbolic.dtype
                return keras.Input(symbolic.shape[1:], dtype=dtype)

            inputs = keras.tree.map_structure(with_type, inputs)
            functional, read = _called(model, inputs)
    except (TypeError, ValueError, AttributeError, NotImplementedError, RuntimeError) as error:
        raise InputError(
            f"{model.name}, a subclassed {type(model).__name__}, cannot be traced ({first_line(error)}):"
            " use Keras layers and keras.ops in its call method, or build it as a functional model"
        ) from error
    nodes = keras_internals.functional_nodes(functional)
    arguments = [(node.arguments.args, node.arguments.kwargs) for node in nodes]
    read += [leaf for leaf in keras.tree.flatten(arguments) if isinstance(leaf, keras.Variable)]
    own = next((weight for weight in model.weights if any(weight is variable for variable in read)), None)
    if own is not None:
        raise InputError(
            f"the call method of {model.name} uses the weight {own.path} outside of any layer, so it would be"
            " missing in a copy: use it in the call method of a layer (keras.layers.Layer with add_weight)"
        )
    return functional


def _called(model: keras.Model, inputs: Any) -> tuple[Any, list[keras.Variable]]:
    """A functional model of a call, and the variables that are read outside of the layers."""
    # A call of `call` itself, instead of the model, records the calls of the layers inside.
    with keras_internals.recorded_reads() as read:
        outputs = model.call(inputs)
    return keras.Model(inputs, outputs, name=model.name), read


def _are_tokens(functional: Any, symbolic: keras.KerasTensor) -> bool:
    """Whether embeddings look up an input, and nothing else computes with it."""
    moved, looked_up = {id(symbolic)}, False
    for node in keras_internals.functional_nodes(functional):
        operation = node.operation
        if not any(id(leaf) in moved for leaf in node.arguments.keras_tensors):
            continue
        if type(operation).__name__ in _MOVES:
            moved |= {id(leaf) for leaf in node.outputs}
        elif isinstance(operation, keras.layers.Embedding):
            looked_up = True
        elif (inner := keras_internals.functional_of(operation)) is not None:
            inputs = _nested_inputs(functional.name, operation, inner, node.arguments)
            pairs = zip(inputs, inner.inputs, strict=True)
            if not all(_are_tokens(inner, own) for outer, own in pairs if id(outer) in moved):
                return False
            looked_up = True
        elif type(operation).__name__ not in _TAKES_INTEGERS:
            return False
    return looked_up


#: What an operation raises if it does not take the sizes that stand for unknown ones.
_SPEC_ERRORS = (TypeError, ValueError, AttributeError, NotImplementedError, RuntimeError)


def _infer_shapes(graph: Graph, originals: list[Any]) -> None:
    shapes: list[tuple[int, ...] | None] = [None] * len(originals)
    for index, layer in graph.input_layers.items():
        shape = originals[index].shape
        if None in shape[1:]:
            length = IMAGE if len(shape) == 4 else SEQUENCE
            graph.notes.append(f"multiply-adds are counted for a length of {length} of {layer.name}")
        else:
            length = 1
        shapes[index] = (1, *(length if size is None else size for size in shape[1:]))
    for node in graph.nodes:

        def spec(index: int) -> Any:
            return keras.KerasTensor(shapes[index], originals[index].dtype)

        args, kwargs = replace_refs((node.args, node.kwargs), spec)
        new = _output_shapes(node.operation, args, kwargs)
        if new is None:
            new = [originals[index].shape for index in node.outputs]
        if any(None in shape[1:] for shape in new):
            note = (
                f"multiply-adds are counted for a length of 1 where {node.operation.name} returns any length"
            )
            graph.notes += [note] if note not in graph.notes else []
        for index, shape in zip(node.outputs, new, strict=True):
            shapes[index] = tuple(1 if size is None else int(size) for size in shape)
    graph.shapes = [shape if shape is not None else () for shape in shapes]


def _output_shapes(operation: Any, args: Any, kwargs: Any) -> list[tuple[int | None, ...]] | None:
    """Shapes of what a call returns; None if it cannot be inferred."""
    shapes = None
    # The second calls the layer: `EinsumDense` has a length of None in its configuration.
    for infer in (type(operation).compute_output_spec, keras.Operation.compute_output_spec):
        with contextlib.suppress(*_SPEC_ERRORS):
            outputs = keras.tree.flatten(infer(operation, *args, **kwargs))
            shapes = [tuple(output.shape) for output in outputs]
            if not any(None in shape[1:] for shape in shapes):
                break
    return shapes


def _check_weights(graph: Graph, originals: list[Any]) -> None:
    """Checks that each weight is used by one layer only: copies of two would have one each."""
    owners: dict[int, Any] = {}
    for operation in graph.operations():
        for weight in getattr(operation, "weights", ()):
            _check_owner(graph, owners.setdefault(id(weight), operation), operation, weight)

    def spec(index: int) -> Any:
        return keras.KerasTensor(graph.shapes[index], originals[index].dtype)

    for node in graph.nodes:
        used = keras.tree.flatten((node.args, node.kwargs))
        if isinstance(node.operation, keras.layers.Lambda):
            args, kwargs = replace_refs((node.args, node.kwargs), spec)
            with keras_internals.recorded_reads(in_layers=True) as read, contextlib.suppress(*_SPEC_ERRORS):
                # Unlike that of Lambda, it calls the function even if the output shape is given.
                keras.Operation.compute_output_spec(node.operation, *args, **kwargs)
            used += read
        for leaf in used:
            if id(leaf) in owners:
                _check_owner(graph, owners[id(leaf)], node.operation, leaf)


def _check_owner(graph: Graph, owner: Any, user: Any, weight: keras.Variable) -> None:
    if owner is not user:
        raise InputError(
            f"{user.name} of {graph.name} uses the weight {weight.path} of {owner.name}, which copies of the"
            " two would not share: let one layer compute both and call it twice, such as"
            " keras.layers.ReversibleEmbedding, or a layer of your own"
        )
