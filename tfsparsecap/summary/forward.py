"""What a model runs to do its work once, as traced functions: of a captioner a whole search for captions."""

import contextlib
import functools
import inspect
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import keras
import tensorflow as tf

from tfsparsecap import keras_internals
from tfsparsecap.errors import InputError
from tfsparsecap.models.captioner import Captioner

#: Regions of an image where nobody says how many: as in the papers' bottom-up features at most, 36.
REGIONS = 36
#: What the names of a layer's operations begin with, before its number.
_MARK = "tfsparsecap.layer."


@dataclass(frozen=True)
class Forward:
    """What is run, and what for.

    Attributes:
        parts: traced functions, and how often each is called.
        about: what it gives, such as "one caption of 9 words (beam 3)".
        notes: sentences on what was assumed.
    """

    parts: tuple[tuple[tf.types.experimental.ConcreteFunction, int], ...]
    about: str
    notes: tuple[str, ...] = ()


def forward(
    model: keras.Layer, layers: Sequence[keras.Layer], input_shapes=None, beam: int = 3, words: int = 9
) -> Forward:
    """Traces what a model runs for one example, or a captioner for one image.

    A captioner encodes the image once, then takes a step for each word of `beam` captions at a time, as
    `decoding.beam_search` has it.

    Args:
        model: a built model, or layer.
        layers: those whose operations are to be known by `layer_of`.
        input_shapes: see `cost.summary`.
        beam, words: of a captioner's search.

    Raises:
        InputError: the shapes of the inputs are not known, or the model cannot be called with them.
    """
    try:
        with _marked(layers):
            if isinstance(model, Captioner):
                return _of_captioner(model, input_shapes, beam, words)
            call, notes = _call_of(model, input_shapes)
            return Forward(((call, 1),), "one example", notes)
    finally:
        # What regularizers have noted down belongs to graphs that are gone.
        keras_internals.clear_losses(model)


def layer_of(operation_name: str) -> tuple[int | None, str]:
    """Which of the layers given to `forward` made an operation (its place, or None), and its name in there.

    Example:
        >>> layer_of("tfsparsecap.layer.3/while/tfsparsecap.layer.4/MatMul"), layer_of("MatMul")
        ((4, 'MatMul'), (None, 'MatMul'))
    """
    *_, number, name = [None, *re.split(rf"{re.escape(_MARK)}(\d+)/", operation_name)]
    return None if number is None else int(number), name


@contextlib.contextmanager
def _marked(layers: Sequence[keras.Layer]) -> Iterator[None]:
    """Inside, the operations of each layer's `call` begin with its number; cuDNN's, which hide what they
    multiply, are not used."""

    def marked(number: int, call: Callable) -> Callable:
        @functools.wraps(call)
        def wrapper(*args, **kwargs):
            # A scope that ends in a slash stands for itself, whatever scope is open.
            with tf.name_scope(f"{_MARK}{number}/"):
                return call(*args, **kwargs)

        return wrapper

    # Past Keras's own bookkeeping of attributes.
    before = [
        (layer, {name: vars(layer)[name] for name in ("call", "use_cudnn") if name in vars(layer)})
        for layer in layers
    ]
    try:
        for number, (layer, own) in enumerate(before):
            vars(layer)["call"] = marked(number, layer.call)
            if "use_cudnn" in own:
                vars(layer)["use_cudnn"] = False
        yield
    finally:
        for layer, own in before:
            vars(layer).pop("call", None)
            vars(layer).update(own)


def _traced(name: str, given: str, function: Callable, *specs):
    """Traces a function; what it raises on inputs that do not suit it becomes an `InputError`."""
    try:
        return tf.function(function, autograph=False).get_concrete_function(*specs)
    except InputError:
        raise
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError, tf.errors.OpError) as error:
        raise InputError(
            f"{name} cannot be called on inputs of shape {given} ({_told(error)}): give input_shapes= as it"
            " wants them"
        ) from error


def _told(error: Exception) -> str:
    """What an exception says, on one line; Keras puts where it happened before it."""
    lines = [line for line in re.sub(r"\x1b\[\d+m", "", str(error)).splitlines() if line.strip()]
    lines = [line for line in lines if not line.startswith("Exception encountered")] or [type(error).__name__]
    return lines[0].strip().rstrip(".")


def _of_captioner(captioner: Captioner, input_shapes, beam: int, words: int) -> Forward:
    if captioner.max_length is not None and words > captioner.max_length:
        raise InputError(
            f"words is {words}, and {captioner.name} has room for captions of {captioner.max_length} tokens:"
            " give no more"
        )
    shapes, notes = _shapes_of_captioner(captioner, input_shapes)
    specs = {name: _spec(shape, name) for name, shape in shapes.items()}

    def encode(inputs):
        memory = captioner.encode(inputs, training=False)
        return memory, captioner.initial_state(memory)

    def step(token_ids, state, memory):
        return captioner.step(token_ids, state, memory, training=False)

    encoded = _traced(captioner.name, str(shapes), encode, specs)
    memory, state = tf.nest.map_structure(
        lambda x: tf.TensorSpec([beam, *x.shape[1:]], x.dtype), encoded.structured_outputs
    )
    stepped = _traced(captioner.name, str(shapes), step, tf.TensorSpec([beam], tf.int32), state, memory)
    about = f"one caption of {words} word{'s' if words > 1 else ''} (beam {beam})"
    return Forward(((encoded, 1), (stepped, words)), about, notes)


def _shapes_of_captioner(captioner: Captioner, input_shapes) -> tuple[dict, tuple[str, ...]]:
    encoder = getattr(captioner, "encoder", None)
    if isinstance(input_shapes, Mapping):
        unknown = sorted(set(input_shapes) - set(captioner.input_names))
        if unknown:
            raise InputError(
                f"input_shapes names {unknown}, and {captioner.name} takes {list(captioner.input_names)}: use"
                " those"
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
            f"{captioner.name} does not say how large its images are: give input_shapes, such as"
            ' {"image": (224, 224, 3)}'
        )
    size = getattr(captioner, "feature_size", None)
    if size is None:
        raise InputError(
            f"{captioner.name} does not say what its features are: give input_shapes, such as"
            ' {"features": (36, 2048)}'
        )
    shapes = {"features": (REGIONS, size)}
    if "boxes" in captioner.input_names:
        shapes["boxes"] = (REGIONS, 4)
    return shapes, (f"features of {REGIONS} regions, where input_shapes does not say otherwise",)


def _call_of(model: keras.Layer, input_shapes):
    """A traced call of a model on one example, and notes."""
    symbolic = getattr(model, "inputs", None)
    args, kwargs = (), {}
    if symbolic:
        flat = _of_symbolic(model, symbolic, input_shapes)
        args = (keras.tree.pack_sequence_as(getattr(model, "_inputs_struct", symbolic[0]), flat),)
    elif input_shapes is not None:
        by_name = isinstance(input_shapes, Mapping)
        if by_name and _are_arguments(model, input_shapes):
            kwargs = {name: _spec(shape, name) for name, shape in input_shapes.items()}
        elif by_name:
            args = ({name: _spec(shape, name) for name, shape in input_shapes.items()},)
        elif _is_shape(input_shapes):
            args = (_spec(input_shapes, "input"),)
        else:
            args = ([_spec(shape, f"input {n}") for n, shape in enumerate(input_shapes)],)
    else:
        built = model.get_build_config() or {}
        if built.get("input_shape") is not None:
            args = (_as_built(built["input_shape"], model.name),)
        elif built.get("shapes_dict"):
            kwargs = {
                name.removesuffix("_shape"): _as_built(shape, model.name)
                for name, shape in built["shapes_dict"].items()
            }
        else:
            raise InputError(
                f"{model.name} does not say what shapes its inputs have: give input_shapes=, such as"
                " (224, 224, 3), without the axis of the batch"
            )
    specs = keras.tree.flatten((args, kwargs))
    given = ", ".join(str(tuple(spec.shape)) for spec in specs)

    def call(args, kwargs):
        return model(*args, **kwargs, training=False)

    batches = {spec.shape[0] for spec in specs if spec.shape.rank} - {1}
    notes = (f"its batches have a fixed size: FLOPs are of {max(batches)} examples",) if batches else ()
    return _traced(model.name, given, call, args, kwargs), notes


def _of_symbolic(model: keras.Layer, symbolic: list, input_shapes) -> list[tf.TensorSpec]:
    """The inputs of a functional or sequential model, in their order; `input_shapes` fills what is open."""
    names = [tensor.name for tensor in symbolic]
    if input_shapes is None:
        given = {}
    elif isinstance(input_shapes, Mapping):
        given = dict(input_shapes)
    else:
        listed = [input_shapes] if _is_shape(input_shapes) else list(input_shapes)
        if len(listed) != len(names):
            raise InputError(
                f"input_shapes has {len(listed)} shapes, and {model.name} takes {len(names)} inputs: give one"
                f" for each of {names}"
            )
        given = dict(zip(names, listed, strict=True))
    unknown = sorted(set(given) - set(names))
    if unknown:
        raise InputError(f"input_shapes names {unknown}, and {model.name} has the inputs {names}: use those")
    specs = []
    for tensor in symbolic:
        shape = _spec(given[tensor.name], tensor.name).shape if tensor.name in given else None
        if shape is None:
            shape = tuple(tensor.shape)
            if None in shape[1:]:
                raise InputError(
                    f"the input {tensor.name} of {model.name} has the shape {shape}, whose lengths are not"
                    f" all known: give input_shapes, such as {{{tensor.name!r}:"
                    f" {tuple(length or 10 for length in shape[1:])}}}"
                )
        batch = tensor.shape[0] if tensor.shape else None
        specs.append(tf.TensorSpec([batch or 1, *shape[1:]], tensor.dtype))
    return specs


def _are_arguments(model: keras.Layer, named: Mapping) -> bool:
    """Whether names are those of arguments of `call`, and not of a dictionary that it takes."""
    return set(named) <= set(inspect.signature(model.call).parameters)


def _is_shape(shape) -> bool:
    """Whether it is one shape (a malformed one is), and not several."""
    return not isinstance(shape, (list, tuple)) or all(isinstance(length, int) for length in shape)


def _spec(shape, name: str) -> tf.TensorSpec:
    """One example of a shape without the batch, or of what has a shape with it and a dtype."""
    if hasattr(shape, "dtype") and hasattr(shape, "shape"):
        dtype, lengths = tf.as_dtype(shape.dtype), tuple(shape.shape)[1:]
    else:
        dtype, lengths = tf.float32, tuple(shape) if isinstance(shape, (tuple, list)) else (None,)
    if not all(isinstance(length, int) and length > 0 for length in lengths):
        raise InputError(
            f"input_shapes gives {name} the shape {shape!r}: give whole numbers above 0, without the axis of"
            " the batch, such as (224, 224, 3)"
        )
    return tf.TensorSpec([1, *lengths], dtype)


def _as_built(shape, name: str):
    """The inputs that a model was built with, one example of each."""
    if isinstance(shape, Mapping):
        return {key: _as_built(one, name) for key, one in shape.items()}
    if not all(isinstance(length, int) or length is None for length in shape):
        return [_as_built(one, name) for one in shape]
    if None in shape[1:]:
        raise InputError(
            f"{name} was built for inputs of shape {tuple(shape)}, whose lengths are not all known: give"
            " input_shapes=, without the axis of the batch"
        )
    return tf.TensorSpec([1, *shape[1:]], tf.float32)
