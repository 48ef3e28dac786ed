"""Compiles training steps with XLA, where they can be: the setting `training.jit_compile`."""

import re
import warnings
from collections.abc import Callable, Sequence
from typing import Any, Literal

import keras
import tensorflow as tf

from tfsparsecap.core.keras_internals import nested_layers
from tfsparsecap.errors import InputError

Step = Callable[..., Any]
_FAILED = ("Detected unsupported operations", "tf2xla conversion failed")


def compiled_step(
    step: Step,
    models: Sequence[keras.Model],
    *,
    jit_compile: bool | Literal["auto"],
    strategy: tf.distribute.Strategy,
) -> Step:
    """A training step as a function in a graph, which XLA compiles if the setting asks for it.

    Args:
        step: takes a batch, and contains TensorFlow operations only.
        models: what the step calls; `pruning` of the first one is part of the step.
        jit_compile: True always uses XLA; False never does; `auto` does on a GPU, on one device, with models
            and pruning methods that support it. If XLA then fails, `auto` warns and continues without.
        strategy: the distribution strategy.

    Raises:
        InputError: `jit_compile` is True, and the step contains something that XLA cannot compile; also when
            the returned function is called.

    Examples:
        >>> dense = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1, kernel_initializer="ones")])
        >>> strategy = tf.distribute.get_strategy()
        >>> compiled_step(dense, [dense], jit_compile=True, strategy=strategy)(tf.ones([1, 2])).numpy()
        array([[2.]], dtype=float32)
    """
    required = jit_compile is True
    obstacle = _obstacle(models, strategy) if jit_compile else None
    if required and obstacle:
        raise _not_compiled(obstacle)
    if not required and (not jit_compile or obstacle or not tf.config.list_logical_devices("GPU")):
        return tf.function(step)
    function = tf.function(step, jit_compile=True)

    def run(batch: Any) -> Any:
        nonlocal function
        try:
            return function(batch)
        except tf.errors.OpError as error:
            reason = str(error)
            if required and any(text in reason for text in _FAILED):
                raise _not_compiled(_operations(reason)) from error
            if required:
                raise
        # A step changes variables only when all of it has succeeded, so it can be repeated. An error that is
        # not XLA's comes again.
        warnings.warn(
            f"XLA failed ({reason.splitlines()[0][:200]}): the training continues without it", stacklevel=2
        )
        function = tf.function(step)
        return function(batch)

    return run


def _obstacle(models: Sequence[keras.Model], strategy: tf.distribute.Strategy) -> str | None:
    """What XLA cannot compile, as known before; None for nothing."""
    if strategy.num_replicas_in_sync > 1:
        return f"steps of {strategy.num_replicas_in_sync} devices together"
    method = getattr(models[0], "pruning", None)
    if method is not None and not method.supports_jit:
        return f"the pruning method {type(method).__name__}"
    layers = [layer for model in models for layer in nested_layers(model)]
    layer = next((layer for layer in layers if not layer.supports_jit), None)
    return layer and f"the layer {layer.path} ({type(layer).__name__})"


def _operations(message: str) -> str:
    """What XLA cannot compile, according to TensorFlow's message."""
    operations = dict.fromkeys(re.findall(r"(\w+) \(No registered", message))
    return f"TensorFlow's {', '.join(operations)}" if operations else f"the step ({message.splitlines()[0]})"


def _not_compiled(what: str) -> InputError:
    return InputError(
        f"training.jit_compile is true, but XLA cannot compile {what}: set training.jit_compile=auto or false"
    )
