"""How a Keras model is called: the names, shapes and dtypes of its inputs, and the names of its outputs."""

import dataclasses
import functools
import inspect
import keyword
import re
from collections.abc import Mapping, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tfsparsecap.core import keras_internals
from tfsparsecap.core.array_files import spread
from tfsparsecap.errors import InputError, first_line

#: What a call on unsuitable inputs raises.
CALL_ERRORS = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError, tf.errors.OpError)


def check_model(model: Any, what: str, kind: type[keras.Layer] = keras.Model) -> None:
    """Raises InputError if `model`, the argument of the function `what`, is no built model of Keras 3."""
    if not isinstance(model, kind):
        raise InputError(
            f"{what} takes a Keras 3 model, not a {type(model).__module__}.{type(model).__name__}: create the"
            " model with keras instead of tf_keras or torch"
        )
    if not model.built:
        raise InputError(
            f"{model.name} is not built, so it has no weights yet: first call it on a batch, or"
            " model.build(input_shape)"
        )


@dataclasses.dataclass(frozen=True)
class ModelCall:
    """A call of a model on named tensors.

    Attributes:
        model: the model.
        inputs: names, shapes and dtypes of all tensors.
        arguments: the positional and keyword arguments of the call, with names instead of tensors.
        examples: arrays for each name if the user gave arrays, each with the batch size of `inputs`.
        note: what is assumed, as a sentence, or None.
        option: name of the argument with which the user gives `inputs`, for messages.
    """

    model: keras.Layer
    inputs: dict[str, tf.TensorSpec]
    arguments: tuple[Sequence[Any], Mapping[str, Any]]
    examples: tuple[dict[str, np.ndarray], ...] = ()
    note: str | None = None
    option: str = "inputs"

    def structured(self, tensors: Mapping[str, Any]) -> tuple[tuple, dict[str, Any]]:
        """The positional and keyword arguments of the call, with a value of `tensors` for each name."""
        return keras.tree.map_structure(lambda name: tensors[name], self.arguments)

    def __call__(self, tensors: Mapping[str, Any]) -> dict[str, tf.Tensor]:
        """Calls the model in inference mode.

        Args:
            tensors: a tensor or array for each name in `inputs`.

        Returns:
            The outputs: under its keys, as unique identifiers, if the model returns a dictionary of tensors,
            else `output_0`, `output_1`, … in the order of `keras.tree.flatten`.

        Raises:
            InputError: the model cannot be called with such inputs.
        """
        missing = sorted(set(self.inputs) - set(tensors))
        if missing:
            raise InputError(
                f"a sample lacks {missing}: the inputs of {self.model.name} are {[*self.inputs]}"
            )
        args, kwargs = self.structured({name: tf.convert_to_tensor(tensors[name]) for name in self.inputs})
        try:
            outputs = self.model(*args, **kwargs, training=False)
        except InputError:
            raise
        except CALL_ERRORS as error:
            if "symbolic" in str(error).lower():
                raise InputError(
                    f"{self.model.name} runs Python code that depends on the values of tensors, which a file"
                    f" cannot ({first_line(error)}): use keras.ops, such as where and cond"
                ) from error
            inputs = ", ".join(f"{name} {spec.dtype.name} {spec.shape}" for name, spec in self.inputs.items())
            sizes = {tensor.shape[0] for tensor in getattr(self.model, "inputs", None) or ()}
            batch = (sizes.pop() or "") if len(sizes) == 1 else ""  # what a functional model was built for
            raise InputError(
                f"{self.model.name} cannot be called with the inputs {inputs} ({first_line(error)}):"
                f" {_advice(self.option)}; if it needs a batch of fixed size, give batch={batch} (or --batch)"
            ) from error
        leaves = [value for value in keras.tree.flatten(outputs) if value is not None]
        if not leaves or any(isinstance(leaf, tf.RaggedTensor | tf.SparseTensor) for leaf in leaves):
            raise InputError(
                f"{self.model.name} returns {'a ragged or sparse tensor' if leaves else 'nothing'}, which"
                " files cannot: return dense tensors"
            )
        if isinstance(outputs, Mapping) and all(tf.is_tensor(value) for value in outputs.values()):
            names = _unique([str(key) for key in outputs], "output")
            return dict(zip(names, outputs.values(), strict=True))
        return {f"output_{number}": value for number, value in enumerate(leaves)}


def model_call(
    model: keras.Layer, inputs: Any = None, batch: int | None = 1, option: str = "inputs"
) -> ModelCall:
    """Finds out how a model is called.

    Args:
        model: a built model or layer that is not a captioner.
        inputs: what the model is called with: an array, tensor, `tf.TensorSpec` or `keras.Input`, or a list
            or dictionary of them; tuples of integers are shapes without the first axis, float32. A
            dictionary is either the model's first argument, or has the names of its arguments. By default
            the inputs of a functional or sequential model, or the shapes of the first call of a subclassed
            one.
        batch: size of the first axis of each input, or None for any.
        option: name of the argument with which the user gives `inputs`, for messages.

    Returns:
        The call. Names are those of the model's inputs, of the keys or of the arguments of `call`.

    Raises:
        InputError: the shapes are unknown, or another axis than the first has no fixed size, or `inputs` does
            not suit the model.

    Examples:
        >>> model = keras.Sequential([keras.Input((8,), name="x"), keras.layers.Dense(2)])
        >>> model_call(model, batch=4).inputs["x"].shape
        TensorShape([4, 8])
    """
    own, note = getattr(model, "inputs", None), None
    if own:
        leaves = _for_functional(model, own, {} if inputs is None else inputs, option)
        names = _unique([tensor.name for tensor in own])
        arguments: tuple = ((_packed(model, names),), {})
    else:
        if inputs is not None:
            arguments = _arguments(model, _map(_leaf, inputs))
        elif (earlier_call := known_arguments(model)) is not None:
            arguments, note = earlier_call
        else:
            raise InputError(f"{model.name} has no known input shapes: {_advice(option)}")
        leaves, names = _flat(arguments), _unique(_names(model, arguments))
        remaining = iter(names)
        arguments = _map(lambda leaf: next(remaining), arguments)
    if not leaves:
        raise InputError(f"inputs of {model.name} contains no array or shape: {_advice(option)}")
    specs = {
        name: input_spec(model, name, leaf, batch, option, is_given=inputs is not None)
        for name, leaf in zip(names, leaves, strict=True)
    }
    return ModelCall(model, specs, arguments, _examples(names, leaves, batch), note, option)


def _advice(option: str) -> str:
    example = f"{option}=keras.Input((224, 224, 3))"
    return f"give {option}=, such as {example}, or a list or dictionary as the model takes it"


@dataclasses.dataclass(frozen=True)
class _Leaf:
    """An input: its shape with the first axis, its dtype, and the array and name that the user gave."""

    shape: tuple[int | None, ...]
    dtype: str
    array: np.ndarray | None = None
    name: str | None = None


def _leaf(value: Any, like: Any = None) -> _Leaf:
    """Describes one input; `like` is the symbolic input of a functional model."""
    if isinstance(value, _Leaf):
        return value
    if _is_shape(value):
        return _Leaf((None, *value), "float32" if like is None else str(like.dtype))
    if isinstance(value, keras.KerasTensor | tf.TensorSpec):
        name = value.name if value.name and not value.name.startswith("keras_tensor") else None
        dtype = value.dtype if isinstance(value.dtype, str) else value.dtype.name
        return _Leaf(tuple(value.shape), dtype, name=name)
    array = np.asarray(value)
    if array.dtype.kind not in "biuf":
        raise InputError(
            f"{value!r:.60} cannot be an input: give an array, tf.TensorSpec or keras.Input, or a shape"
            " without the first axis"
        )
    if array.dtype == np.float64:
        array = array.astype(np.float32)
    if like is not None:
        array = array.astype(like.dtype)
    return _Leaf(array.shape, array.dtype.name, array)


def _is_shape(value: Any) -> bool:
    return isinstance(value, list | tuple) and all(
        size is None or (isinstance(size, int) and not isinstance(size, bool)) for size in value
    )


def _is_container(value: Any) -> bool:
    return isinstance(value, Mapping) or (isinstance(value, list | tuple) and not _is_shape(value))


def _map(function: Any, structure: Any) -> Any:
    """Maps the leaves of lists, tuples and dictionaries, in the order of `_flat`; shapes are leaves."""
    if isinstance(structure, Mapping):
        return {key: _map(function, structure[key]) for key in structure}
    if isinstance(structure, list | tuple) and (not structure or _is_container(structure)):
        return type(structure)([_map(function, part) for part in structure])
    return function(structure)


def _flat(structure: Any) -> list:
    leaves: list = []
    _map(leaves.append, structure)
    return leaves


def _packed(model: keras.Layer, leaves: Sequence[Any]) -> Any:
    """The structure of a functional model's inputs, with other leaves in Keras's order."""
    structure, _ = keras_internals.functional_structure(keras_internals.functional_of(model))
    return keras.tree.pack_sequence_as(structure, list(leaves))


def _places(structure: Any, values: Any) -> list[tuple[int, Any]]:
    """What is given for each number in a structure of numbers; dictionaries may have another order."""
    if isinstance(structure, Mapping) and isinstance(values, Mapping) and set(structure) == set(values):
        pairs = [(structure[key], values[key]) for key in structure]
    elif isinstance(structure, list | tuple) and _is_container(values) and len(structure) == len(values):
        pairs = list(zip(structure, values.values() if isinstance(values, Mapping) else values, strict=True))
    elif isinstance(structure, int) and not _is_container(values):
        return [(structure, values)]
    else:
        return []
    return [place for pair in pairs for place in _places(*pair)]


def _for_functional(model: keras.Layer, own: Sequence[Any], inputs: Any, option: str) -> list[_Leaf]:
    """The given inputs in the order of a functional model's; a dictionary may name some of them only."""
    names = [tensor.name for tensor in own]
    if isinstance(inputs, Mapping):
        unknown = sorted(set(inputs) - set(names))
        if unknown:
            raise InputError(f"{option} names {unknown}, but the inputs of {model.name} are {names}")
        values = [inputs.get(tensor.name, tensor) for tensor in own]
    else:
        values = _flat(inputs) if _is_container(inputs) else [inputs]
        places = dict(_places(_packed(model, range(len(own))), inputs))
        if len(places) == len(own) == len(values):  # else in the order of model.inputs
            values = [places[number] for number in range(len(own))]
        if len(values) != len(own):
            raise InputError(
                f"{option} has {len(values)} entries, but {model.name} takes {len(own)}: give one for each of"
                f" {names}"
            )
    leaves = list(map(_leaf, values, own))
    for leaf, tensor in zip(leaves, own, strict=True):
        fits = len(leaf.shape) == len(tensor.shape) and all(
            None in (size, expected_size) or size == expected_size
            for size, expected_size in zip(leaf.shape[1:], tensor.shape[1:], strict=False)
        )
        if not fits:
            raise InputError(
                f"{option} has the shape {leaf.shape} for {tensor.name}, but {model.name} takes"
                f" {tuple(tensor.shape)}"
            )
    return leaves


def known_arguments(model: keras.Layer) -> tuple[tuple, str | None] | None:
    """The arguments of an earlier call, and a note on what is assumed; None if they are not known.

    Returns:
        Positional and keyword arguments; instead of tensors, objects with a `shape` and a `dtype`.
    """
    called = getattr(model, "called_with", None)  # while it was pruned, see `pruning.pruned_model`
    if called is not None:
        return _map(_leaf, called), None
    built = model.get_build_config() or {}
    shapes = built.get("input_shape", built.get("shapes_dict"))
    if not shapes:
        return None
    if "input_shape" not in built:
        shapes = {name.removesuffix("_shape"): shape for name, shape in shapes.items()}
    leaves = _map(lambda shape: _Leaf(tuple(shape), "float32"), shapes)
    note = (
        f"The inputs of {model.name} are assumed to be float32, because Keras remembers only their shapes;"
        " inputs= sets other dtypes."
    )
    return _arguments(model, leaves), note


def _parameters(model: keras.Layer) -> list[inspect.Parameter]:
    """The parameters of `call` that can be tensors."""
    # A pruned model's own `call` takes any arguments.
    stock = getattr(type(model), "stock_class", None)
    call = model.call if stock is None else functools.partial(stock.call, model)
    parameters = inspect.signature(call).parameters.values()
    named = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return [parameter for parameter in parameters if parameter.kind in named and parameter.name != "training"]


def _arguments(model: keras.Layer, inputs: Any) -> tuple:
    """Positional and keyword arguments of a subclassed model."""
    defaults = {parameter.name: parameter.default for parameter in _parameters(model)}
    required = sum(default is inspect.Parameter.empty for default in defaults.values())
    # Keras itself passes a mask if the user does not: only with other arguments it is one.
    if isinstance(inputs, Mapping) and {"mask"} != set(inputs) <= set(defaults):
        return (), dict(inputs)
    if isinstance(inputs, list | tuple) and _is_container(inputs) and required > 1:
        return tuple(inputs), {}
    return (inputs,), {}


def _names(model: keras.Layer, arguments: tuple) -> list[str]:
    """A name for each leaf: the user's, the key of a dictionary, or the argument with a number."""
    args, kwargs = arguments
    parameters = [item.name for item in _parameters(model)]
    names: list[str] = []

    def visit(part: Any, name: str) -> None:
        if isinstance(part, Mapping):
            for key in part:
                visit(part[key], str(key))
        elif isinstance(part, list | tuple):
            for number, item in enumerate(part):
                visit(item, f"{name}_{number}")
        else:
            names.append(part.name or name)

    for number, argument in enumerate(args):
        visit(argument, parameters[number] if number < len(parameters) else f"inputs_{number}")
    for name, argument in kwargs.items():
        visit(argument, name)
    return names


def identifier(name: str, kind: str = "input") -> str:
    """A name that TensorFlow accepts in signatures: ASCII letters, digits and underscores."""
    name = re.sub(r"[^a-zA-Z0-9_]", "_", name)
    # An argument "self" would be that of TensorFlow's functions.
    usable = name[:1].isalpha() and not keyword.iskeyword(name) and name != "self"
    return name if usable else f"{kind}_{name.strip('_')}"


def _unique(names: Sequence[str], kind: str = "input") -> list[str]:
    """The names as identifiers, with a number where two are equal; TensorFlow's graphs ignore case."""
    used: dict[str, str] = {}  # lower case -> name
    for name in (identifier(name, kind) for name in names):
        number, unique = 1, name
        while unique.lower() in used:
            number, unique = number + 1, f"{name}_{number}"
        used[unique.lower()] = unique
    return [*used.values()]


def input_spec(
    model: keras.Layer, name: str, value: Any, batch: int | None, option: str, is_given: bool = True
) -> tf.TensorSpec:
    """The spec of one input; see `model_call` for the arguments and errors."""
    leaf = _leaf(value)
    if not leaf.shape:
        raise InputError(f"input {name} of {model.name} has no axes: its first axis must be the batch")
    if leaf.dtype == "string" and option == "inputs":
        raise InputError(
            f"input {name} of {model.name} is text, which files do not take: export the part of the model"
            " behind its text layers"
        )
    if None in leaf.shape[1:]:
        example = f"keras.Input({tuple(size or 32 for size in leaf.shape[1:])}, dtype={leaf.dtype!r})"
        example = f"{{{name!r}: {example}, …}}" if len(getattr(model, "inputs", None) or ()) > 1 else example
        shape = "give {0}= (or --shape), such as {0}=" if option == "inputs" else "give {0}=, such as {0}="
        fixed = "give all other axes a fixed size" if is_given else shape.format(option) + example
        raise InputError(
            f"input {name} of {model.name} has shape {leaf.shape}: only the first axis may have any size;"
            f" {fixed}"
        )
    if any(size is not None and size < 1 for size in leaf.shape[1:]):
        raise InputError(
            f"{option} gives the shape {leaf.shape[1:]} for {name}: give whole numbers above 0, without the"
            " first axis"
        )
    return tf.TensorSpec((batch, *leaf.shape[1:]), leaf.dtype, name=name)


def _examples(
    names: Sequence[str], leaves: Sequence[_Leaf], batch: int | None
) -> tuple[dict[str, np.ndarray], ...]:
    """The rows of the user's arrays in batches; nothing if an input is not an array or has too few rows."""
    arrays = {name: leaf.array for name, leaf in zip(names, leaves, strict=True) if leaf.array is not None}
    count = min((len(array) // (batch or 1) for array in arrays.values()), default=0)
    if len(arrays) < len(names):
        return ()
    starts = [number * (batch or 1) for number in spread(count)]
    return tuple({name: x[start : start + (batch or 1)] for name, x in arrays.items()} for start in starts)
