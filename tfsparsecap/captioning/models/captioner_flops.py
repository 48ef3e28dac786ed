"""FLOPs of captioners for `sc.summary`: an image is encoded once, each token takes a step."""

from collections.abc import Mapping, Sequence
from typing import Any

import keras
import tensorflow as tf

from tfsparsecap.captioning.models.captioner_base import Captioner, Memory, State
from tfsparsecap.captioning.models.regions import AdditiveAttentionCaptioner
from tfsparsecap.captioning.models.transformer_layers import SharedAttention
from tfsparsecap.core.model_call import input_spec
from tfsparsecap.errors import InputError
from tfsparsecap.model_summary import formulas
from tfsparsecap.model_summary.formulas import PRODUCT, Uses, has_uncounted_operations, size_of
from tfsparsecap.model_summary.forward import Forward, parts_of, record

#: Default number of regions of an image: the largest in the papers' bottom-up features.
REGIONS = 36


@formulas.register(SharedAttention, method="attend")
def shared_attention(layer: Any, arguments: dict[str, Any], output: Any) -> Uses:
    """Scores and weighted values."""
    queries, keys = arguments["queries"].shape, arguments["keys"].shape
    return {PRODUCT: 2 * size_of(queries) * keys[1]}


@formulas.register(AdditiveAttentionCaptioner, method="weighted_mean")
def additive_attention(layer: Any, arguments: dict[str, Any], output: Any) -> Uses:
    """Weighted features."""
    return {PRODUCT: size_of(output.shape) * arguments["memory"]["keys"].shape[1]}


@parts_of.register
def captioner_parts(
    captioner: Captioner, layers: Sequence[keras.Layer], input_shapes: Any, beam: int, words: int
) -> Forward:
    """The layer calls of `encode` and of `beam * words` steps of one token; see `forward`."""
    if captioner.max_length is not None and words > captioner.max_length:
        raise InputError(
            f"words is {words}, but captions of {captioner.name} have at most {captioner.max_length} tokens"
        )
    shapes, notes = _shapes(captioner, input_shapes)
    specs = {name: input_spec(captioner, name, shape, 1, "input_shapes") for name, shape in shapes.items()}

    def encode(inputs: dict[str, Any]) -> tuple[Any, ...]:
        memory = captioner.encode(inputs, training=False)
        return memory, captioner.initial_state(memory)

    def step(token_ids: tf.Tensor, state: State, memory: Memory) -> tuple[Any, ...]:
        return captioner.step(token_ids, state, memory, training=False)

    image, encoded = record(layers, captioner.name, str(shapes), encode, specs)
    memory, state = tf.nest.map_structure(lambda x: tf.TensorSpec(x.shape, x.dtype), encoded)
    token_ids = tf.TensorSpec([1], tf.int32)
    token, _ = record(layers, captioner.name, str(shapes), step, token_ids, state, memory)
    if has_uncounted_operations(captioner, "step"):  # the class that defines it also defines the rest
        token.uncounted.add(id(captioner))
    about = f"one caption of {words} word{'s' if words > 1 else ''} (beam {beam})"
    return Forward(
        (("image", image, 1), ("token", token, beam * words)),
        about,
        notes,
        "{image} FLOPs per image, {token} per generated token and beam",
        getattr(captioner, "encoder", None),
    )


def _shapes(captioner: Captioner, input_shapes: Any) -> tuple[dict[str, Any], tuple[str, ...]]:
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
