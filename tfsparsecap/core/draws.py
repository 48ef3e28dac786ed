"""Keeps the samples of gates during a forward pass, so that every read of a weight sees the same mask.

A forward pass is one outermost call of a Keras layer or model, and has one sample per gate. The samples are
attached to the context object that Keras keeps for the call and drops when it returns or raises.
Everything here is per thread, because `tf.distribute` runs each replica in its own thread.
"""

import contextlib
import threading
from collections.abc import Iterator

import tensorflow as tf

from tfsparsecap.core import keras_internals


class Draws:
    """Tensors by gate and training flag."""

    def __init__(self):
        self._tensors: dict[tuple, list[tf.Tensor]] = {}

    def find(self, *key) -> tf.Tensor | None:
        """Returns the tensor under `key` that the current graph can use; None if there is none."""
        return next((value for value in self._tensors.get(key, ()) if _usable(value)), None)

    def keep(self, value: tf.Tensor, *key) -> None:
        self._tensors.setdefault(key, []).append(value)


class _Scopes(threading.local):
    def __init__(self):
        self.open: list[Draws] = []


_scopes = _Scopes()


@contextlib.contextmanager
def scope() -> Iterator[Draws]:
    """Opens a set of samples that, inside the block, takes precedence over the samples of the pass."""
    draws = Draws()
    _scopes.open.append(draws)
    try:
        yield draws
    finally:
        _scopes.open.remove(draws)


def find_in_scopes(*key) -> tf.Tensor | None:
    """Returns the tensor under `key` of the innermost open scope that has one."""
    values = (draws.find(*key) for draws in reversed(_scopes.open))
    return next((value for value in values if value is not None), None)


def draws_of_pass() -> Draws | None:
    """Returns the samples of this thread's current forward pass; None outside of a pass."""
    context = keras_internals.call_context()
    if context is None:
        return None
    if not hasattr(context, "tfsparsecap_draws"):
        context.tfsparsecap_draws = Draws()
    return context.tfsparsecap_draws


def _usable(value: tf.Tensor) -> bool:
    """Whether the current code may use a tensor that was created earlier.

    An eager tensor would become a constant in a function that is being traced, and a tensor of one function
    does not exist in another; but the body of a loop or condition may use its function's tensors.
    """
    if not tf.is_symbolic_tensor(value):
        return tf.executing_eagerly()
    if tf.executing_eagerly():
        return False
    graph = tf.compat.v1.get_default_graph()
    while graph is not value.graph:
        if not keras_internals.is_nested_graph(graph):
            return False
        graph = graph.outer_graph
    return True
