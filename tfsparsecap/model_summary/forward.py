"""Counts how often a model uses its weights for one example or caption, by recording its calls of layers."""

import contextlib
import functools
import inspect
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import keras
import tensorflow as tf

from tfsparsecap.core import keras_internals
from tfsparsecap.core.model_call import CALL_ERRORS, model_call
from tfsparsecap.errors import InputError, first_line
from tfsparsecap.model_summary.formulas import (
    PRODUCT_OPERATIONS,
    cells_of,
    formula_of,
    has_uncounted_operations,
    method_of,
)


@dataclass
class Calls:
    """The layer calls in one run of a function.

    Attributes:
        uses: (id of a layer, name of its weight or `PRODUCT`) -> see `formulas.Uses`.
        uncounted: ids of called layers that may contain products that no formula counts.
    """

    uses: Counter[tuple[int, str]] = field(default_factory=Counter)
    uncounted: set[int] = field(default_factory=set)


@dataclass(frozen=True)
class Forward:
    """The layer calls of a model for one example or caption.

    Attributes:
        parts: name, calls, and number of runs; a captioner has the parts `image` and `token`.
        about: what they compute, such as "one caption of 9 words (beam 3)".
        notes: assumptions, as sentences.
        rates: a sentence with the FLOPs of one run of each part in the place of its name in braces.
        encoder: the image encoder of a captioner, whose figures are also added up apart.
    """

    parts: tuple[tuple[str, Calls, int], ...]
    about: str
    notes: tuple[str, ...] = ()
    rates: str = ""
    encoder: keras.Layer | None = None


def forward(
    model: keras.Layer, layers: Sequence[keras.Layer], input_shapes: Any = None, beam: int = 3, words: int = 9
) -> Forward:
    """Traces the layer calls of a model for one example, or of a captioner for one caption.

    Args:
        model: a built model or layer.
        layers: the layers whose calls are recorded.
        input_shapes: see `summary`.
        beam, words: of the caption.

    Raises:
        InputError: the shapes of the inputs are not known, or the model cannot be called with them.
    """
    try:
        return parts_of(model, layers, input_shapes, beam, words)
    finally:
        # Regularization losses recorded here belong to graphs that no longer exist.
        keras_internals.clear_losses(model)


@functools.singledispatch
def parts_of(
    model: keras.Layer, layers: Sequence[keras.Layer], input_shapes: Any, beam: int, words: int
) -> Forward:
    """The layer calls of a model, with the arguments of `forward`.

    A class of models that does not compute its result in one call registers a function of its own
    (`@parts_of.register`).
    """
    fixed = {tensor.shape[0] for tensor in getattr(model, "inputs", None) or ()} - {None}
    batch = max(fixed, default=1)
    called = model_call(model, input_shapes, batch, option="input_shapes")
    shapes = ", ".join(str(tuple(spec.shape)) for spec in called.inputs.values())

    def call(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tf.Tensor:
        return model(*args, **kwargs, training=False)

    calls, _ = record(layers, model.name, shapes, call, *called.structured(called.inputs))
    notes = [f"batches have a fixed size: FLOPs are of {batch} examples"] if batch > 1 else []
    for layer in layers:
        for operation in getattr(layer, "operations", []):
            if not isinstance(operation, keras.Layer) and type(operation).__name__ in PRODUCT_OPERATIONS:
                notes.append(f"FLOPs of {operation.name}, an operation of {layer.name}, are not counted")
    return Forward((("example", calls, 1),), "one example", tuple(notes))


def record(
    layers: Sequence[keras.Layer], name: str, shapes: str, function: Callable[..., Any], *specs: Any
) -> tuple[Any, ...]:
    """Traces a function and records the calls of layers.

    Args:
        layers: the layers whose calls are recorded.
        name: of the model, and
        shapes: its inputs, for messages.
        function: what is traced.
        specs: its arguments, with a `tf.TensorSpec` for each tensor.

    Returns:
        Its `Calls` and outputs.

    Raises:
        InputError: the inputs are not suitable.
    """
    calls = Calls()
    try:
        with _recorded(layers, calls):
            traced = tf.function(function, autograph=False).get_concrete_function(*specs)
        return calls, traced.structured_outputs
    except InputError:
        raise
    except CALL_ERRORS as error:
        raise InputError(
            f"{name} cannot be called on inputs of shape {shapes} ({first_line(error)}): give suitable"
            " input_shapes="
        ) from error


@contextlib.contextmanager
def _recorded(layers: Sequence[keras.Layer], calls: Calls) -> Iterator[None]:
    """Inside the context, adds the calls of all layers to `calls`."""
    in_loop: list[keras.Layer] = []

    def recorded(layer: keras.Layer, method: Callable[..., Any]) -> Callable[..., Any]:
        # `quantized_call` takes any arguments.
        arguments_of = layer.call if method.__name__ == "quantized_call" else method
        signature, formula = inspect.signature(arguments_of), formula_of(layer)
        is_loop = isinstance(layer, keras.layers.RNN)
        owners = cells_of(layer.cell) if is_loop else [layer]

        @functools.wraps(method)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            if in_loop:  # calls inside a recurrent layer are counted with the layer
                return method(*args, **kwargs)
            in_loop.extend([layer] if is_loop else [])
            try:
                output = method(*args, **kwargs)
            finally:
                in_loop.clear()
            try:
                if has_uncounted_operations(layer):
                    raise ValueError("no formula")
                uses = formula(layer, signature.bind(*args, **kwargs).arguments, output) if formula else {}
                for owner in owners:
                    calls.uses.update({(id(owner), name): number for name, number in uses.items()})
            except ValueError:
                calls.uncounted.add(id(layer))
            return output

        return wrapper

    # Set attributes of the instances without Keras's attribute tracking.
    before = [(layer, method_of(layer), vars(layer).get(method_of(layer))) for layer in layers]
    try:
        for layer, name, _ in before:
            vars(layer)[name] = recorded(layer, getattr(layer, name))
        yield
    finally:
        for layer, name, own in before:
            vars(layer).pop(name, None)
            if own is not None:
                vars(layer)[name] = own
