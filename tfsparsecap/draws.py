"""What a forward pass has drawn: one draw of each gate for a pass, forgotten when the pass ends.

A forward pass is one outermost call of a Keras layer or model. Keras keeps a context object for it and drops
it when the call returns or raises; the draws ride on that object, so nothing is left behind in either case.
Everything here is kept by thread, since `tf.distribute` runs each replica in a thread of its own.
"""

import contextlib
import threading
from collections.abc import Iterator

import tensorflow as tf

from tfsparsecap import keras_internals


class Draws:
    """Tensors by gate and training flag."""

    def __init__(self):
        self._kept: dict[tuple, list[tf.Tensor]] = {}

    def find(self, *key) -> tf.Tensor | None:
        """What was kept under `key` and can be used here: not what belongs to another graph."""
        return next((value for value in self._kept.get(key, ()) if _in_reach(value)), None)

    def keep(self, value: tf.Tensor, *key) -> None:
        self._kept.setdefault(key, []).append(value)


class _Scopes(threading.local):
    def __init__(self):
        self.open: list[Draws] = []


_scopes = _Scopes()


@contextlib.contextmanager
def scope() -> Iterator[Draws]:
    """Opens a set of draws that, inside the block, comes before that of the pass."""
    draws = Draws()
    _scopes.open.append(draws)
    try:
        yield draws
    finally:
        _scopes.open.remove(draws)


def find_in_scopes(*key) -> tf.Tensor | None:
    """What the innermost open scope that has it kept under `key`."""
    found = (draws.find(*key) for draws in reversed(_scopes.open))
    return next((value for value in found if value is not None), None)


def of_pass() -> Draws | None:
    """The draws of the forward pass that runs in this thread; None outside of any."""
    context = keras_internals.call_context()
    if context is None:
        return None
    if not hasattr(context, "tfsparsecap_draws"):
        context.tfsparsecap_draws = Draws()
    return context.tfsparsecap_draws


def _in_reach(value: tf.Tensor) -> bool:
    """Whether code that runs now may use a tensor that was made before.

    A tensor of an eager pass would be frozen into a function that is traced now, and a tensor of one function
    does not exist in another; but the body of a loop or a condition may use what its function has.
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
