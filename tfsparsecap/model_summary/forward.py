"""Records the layers that a model calls for one example or one caption, and their input shapes."""

import contextlib
import functools
import inspect
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import keras
import tensorflow as tf

from tfsparsecap import keras_internals
from tfsparsecap.errors import InputError
from tfsparsecap.model_summary.formulas import cells_of, formula_of, has_uncounted_operations, method_of
from tfsparsecap.models.captioner import Captioner, Memory, State

#: Default number of regions of an image: the largest in the papers' bottom-up features.
REGIONS = 36
#: Functions of `keras.ops` that multiply matrices; in functional models they are not layers.
_OPERATIONS = {"Conv", "ConvTranspose", "DepthwiseConv", "Dot", "Einsum", "Inner", "Matmul", "SeparableConv"}
_OPERATIONS |= {"Tensordot", "Vdot"}


@dataclass
class Calls:
    """The layer calls in one run of a function.

    Attributes:
        uses: (id of a layer, name of its weight or `PRODUCT`) -> see `formulas.Uses`.
        uncounted: ids of called layers that may contain products that no formula counts.
    """

    uses: Counter = field(default_factory=Counter)
    uncounted: set[int] = field(default_factory=set)


@dataclass(frozen=True)
class Forward:
    """The layer calls of a model for one example or caption.

    Attributes:
        parts: name, calls, and number of runs; a captioner has the parts `image` and `token`.
        about: what they compute, such as "one caption of 9 words (beam 3)".
        notes: assumptions, as sentences.
    """

    parts: tuple[tuple[str, Calls, int], ...]
    about: str
    notes: tuple[str, ...] = ()


def forward(
    model: keras.Layer, layers: Sequence[keras.Layer], input_shapes: Any = None, beam: int = 3, words: int = 9
) -> Forward:
    """Traces the layer calls of a model for one example, or of a captioner for one caption.

    A captioner encodes the image once, then makes `beam * words` steps of one token.

    Args:
        model: a built model or layer.
        layers: the layers whose calls are recorded.
        input_shapes: see `summary`.
        beam, words: of the caption.

    Raises:
        InputError: the shapes of the inputs are not known, or the model cannot be called with them.
    """
    try:
        if isinstance(model, Captioner):
            return _forward_captioner(model, layers, input_shapes, beam, words)
        args, kwargs = _example(model, input_shapes)
        specs = keras.tree.flatten((args, kwargs))
        given = ", ".join(str(tuple(spec.shape)) for spec in specs)

        def call(args: tuple, kwargs: dict) -> tf.Tensor:
            return model(*args, **kwargs, training=False)

        calls, _ = _record(layers, model.name, given, call, args, kwargs)
        batches = {spec.shape[0] for spec in specs if spec.shape.rank} - {1}
        notes = [f"batches have a fixed size: FLOPs are of {max(batches)} examples"] if batches else []
        for layer in layers:
            operations = [one for one in getattr(layer, "operations", []) if not isinstance(one, keras.Layer)]
            uncounted = [one.name for one in operations if type(one).__name__ in _OPERATIONS]
            notes += [f"FLOPs of {name}, an operation of {layer.name}, are not counted" for name in uncounted]
        return Forward((("example", calls, 1),), "one example", tuple(notes))
    finally:
        # Regularization losses recorded here belong to graphs that no longer exist.
        keras_internals.clear_losses(model)


def _forward_captioner(
    captioner: Captioner, layers: Sequence[keras.Layer], input_shapes: Any, beam: int, words: int
) -> Forward:
    if captioner.max_length is not None and words > captioner.max_length:
        raise InputError(
            f"words is {words}, but captions of {captioner.name} have at most {captioner.max_length} tokens"
        )
    shapes, notes = _captioner_shapes(captioner, input_shapes)
    specs = {name: _spec(shape, name) for name, shape in shapes.items()}

    def encode(inputs: dict) -> tuple:
        memory = captioner.encode(inputs, training=False)
        return memory, captioner.initial_state(memory)

    def step(token_ids: tf.Tensor, state: State, memory: Memory) -> tuple:
        return captioner.step(token_ids, state, memory, training=False)

    image, encoded = _record(layers, captioner.name, str(shapes), encode, specs)
    memory, state = tf.nest.map_structure(lambda x: tf.TensorSpec(x.shape, x.dtype), encoded)
    token_ids = tf.TensorSpec([1], tf.int32)
    token, _ = _record(layers, captioner.name, str(shapes), step, token_ids, state, memory)
    if has_uncounted_operations(captioner):
        token.uncounted.add(id(captioner))
    about = f"one caption of {words} word{'s' if words > 1 else ''} (beam {beam})"
    return Forward((("image", image, 1), ("token", token, beam * words)), about, notes)


def _record(layers: Sequence[keras.Layer], name: str, given: str, function: Callable, *specs: Any) -> tuple:
    """Traces a function and returns its `Calls` and outputs; unsuitable inputs raise InputError."""
    calls = Calls()
    try:
        with _recorded(layers, calls):
            traced = tf.function(function, autograph=False).get_concrete_function(*specs)
        return calls, traced.structured_outputs
    except InputError:
        raise
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError, tf.errors.OpError) as error:
        # Keras prefixes errors with their location, in colour.
        lines = re.sub(r"\x1b\[\d+m", "", str(error)).splitlines()
        reasons = [line for line in lines if line.strip() and not line.startswith("Exception encountered")]
        reason = (reasons or [type(error).__name__])[0].strip().rstrip(".")
        raise InputError(
            f"{name} cannot be called on inputs of shape {given} ({reason}): give suitable input_shapes="
        ) from error


@contextlib.contextmanager
def _recorded(layers: Sequence[keras.Layer], calls: Calls) -> Iterator[None]:
    """Inside the context, adds the calls of all layers to `calls`."""
    in_loop: list[keras.Layer] = []

    def recorded(layer: keras.Layer, method: Callable) -> Callable:
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


def _captioner_shapes(captioner: Captioner, input_shapes: Any) -> tuple[dict, tuple[str, ...]]:
    """Returns input name -> shape, and notes on assumptions."""
    encoder = getattr(captioner, "encoder", None)
    if isinstance(input_shapes, Mapping):
        unknown = sorted(set(input_shapes) - set(captioner.input_names))
        if unknown:
            raise InputError(
                f"input_shapes names {unknown}, but {captioner.name} takes {list(captioner.input_names)}"
            )
        return dict(input_shapes), ()
    if input_shapes is not None:
        return {"features" if encoder is None else "image": input_shapes}, ()
    if encoder is not None:
        side = getattr(encoder, "image_size", None)
        if side is not None:
            return {"image": (side, side, 3)}, (f"an image of {side} x {side} pixels",)
        inputs = getattr(encoder, "inputs", None)
        if inputs and None not in inputs[0].shape[1:]:
            return {"image": tuple(inputs[0].shape[1:])}, ()
        raise InputError(
            f"the size of {captioner.name}'s images is not known: give input_shapes, such as"
            ' {"image": (224, 224, 3)}'
        )
    size = getattr(captioner, "feature_size", None)
    if size is None:
        raise InputError(
            f"the shape of {captioner.name}'s features is not known: give input_shapes, such as"
            ' {"features": (36, 2048)}'
        )
    shapes = {"features": (REGIONS, size)}
    if "boxes" in captioner.input_names:
        shapes["boxes"] = (REGIONS, 4)
    return shapes, (f"features of {REGIONS} regions (input_shapes changes that)",)


def _example(model: keras.Layer, input_shapes: Any) -> tuple[tuple, dict]:
    """Returns specs of the arguments of a call on one example."""
    inputs = getattr(model, "inputs", None)
    if inputs:
        specs = _functional_specs(model, inputs, input_shapes)
        return (keras.tree.pack_sequence_as(getattr(model, "_inputs_struct", inputs[0]), specs),), {}
    if input_shapes is None:
        built = model.get_build_config() or {}
        if built.get("input_shape") is not None:
            shapes = built["input_shape"]
        elif built.get("shapes_dict"):
            shapes = {name.removesuffix("_shape"): shape for name, shape in built["shapes_dict"].items()}
        else:
            raise InputError(
                f"the shapes of {model.name}'s inputs are not known: give input_shapes=, such as"
                " (224, 224, 3), without the batch axis"
            )
        input_shapes = keras.tree.map_shape_structure(lambda shape: tuple(shape)[1:], shapes)
    specs = _specs(input_shapes, "input")
    # A pruned model's own `call` takes any arguments.
    call = getattr(type(model), "stock_class", type(model)).call
    if isinstance(specs, dict) and set(specs) <= set(inspect.signature(call).parameters) - {"self"}:
        return (), specs
    return (specs,), {}


def _functional_specs(model: keras.Layer, inputs: list, input_shapes: Any) -> list[tf.TensorSpec]:
    """Returns specs of the inputs of a functional model; `input_shapes` replaces their shapes."""
    names = [tensor.name for tensor in inputs]
    if input_shapes is None or isinstance(input_shapes, Mapping):
        given = dict(input_shapes or {})
    else:
        listed = [input_shapes] if _is_one_shape(input_shapes) else list(input_shapes)
        if len(listed) != len(names):
            raise InputError(
                f"input_shapes has {len(listed)} shapes, but {model.name} takes {len(names)} inputs: give one"
                f" for each of {names}"
            )
        given = dict(zip(names, listed, strict=True))
    unknown = sorted(set(given) - set(names))
    if unknown:
        raise InputError(f"input_shapes names {unknown}, but the inputs of {model.name} are {names}")
    specs = []
    for tensor in inputs:
        shape = _spec(given.get(tensor.name, tuple(tensor.shape)[1:]), tensor.name).shape[1:]
        specs.append(tf.TensorSpec([tensor.shape[0] or 1, *shape], tensor.dtype))
    return specs


def _is_one_shape(shapes: Any) -> bool:
    """Whether this is one shape, possibly malformed, and not several."""
    return not isinstance(shapes, (list, tuple)) or all(isinstance(n, int | None) for n in shapes)


def _specs(shapes: Any, name: str) -> Any:
    if isinstance(shapes, Mapping):
        return {key: _specs(shape, key) for key, shape in shapes.items()}
    if _is_one_shape(shapes):
        return _spec(shapes, name)
    return [_specs(shape, f"{name} {number}") for number, shape in enumerate(shapes)]


def _spec(shape: Any, name: str) -> tf.TensorSpec:
    """Returns the spec of one example from a shape without the batch axis, or from a spec with one."""
    dtype, lengths = tf.float32, shape
    if hasattr(shape, "dtype") and hasattr(shape, "shape"):
        dtype, lengths = tf.as_dtype(shape.dtype), tuple(shape.shape)[1:]
    valid = isinstance(lengths, (tuple, list)) and all(isinstance(n, int) and n > 0 for n in lengths)
    if not valid:
        raise InputError(
            f"the shape {lengths!r} of {name} cannot be used: give input_shapes= with whole numbers above 0,"
            " without the batch axis, such as (224, 224, 3)"
        )
    return tf.TensorSpec([1, *lengths], dtype)
