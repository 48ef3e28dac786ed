"""A recurrent captioner's loop over words that are known beforehand."""

from collections.abc import Callable

import tensorflow as tf
from keras import ops

from tfsparsecap.models.captioner import State


def hidden_after_words(advance: Callable[..., State], embedded, state: State, name: str):
    """One entry of the state after each of T words, [B, T, units].

    Unrolled where T is known, which is as fast as a loop and which XLA takes; else a loop of the graph.

    Args:
        advance: from a word's vector [B, E] and a state to the next state, of the same structure.
        embedded: the vectors of all words, [B, T, E].
        state: before the first word.
        name: of the entry.

    Example:
        >>> add = lambda word, state: {"sum": state["sum"] + word}
        >>> sums = hidden_after_words(add, ops.ones((2, 3, 1)), {"sum": ops.zeros((2, 1))}, "sum")
        >>> ops.convert_to_numpy(sums[0, :, 0]).tolist()
        [1.0, 2.0, 3.0]
    """
    if embedded.shape[1] is None:
        return _looped(advance, embedded, state, name)
    hidden = []
    for position in range(embedded.shape[1]):
        state = advance(embedded[:, position], state)
        hidden.append(state[name])
    return ops.stack(hidden, axis=1)


def _looped(advance: Callable[..., State], embedded, state: State, name: str):
    length = tf.shape(embedded)[1]
    words = tf.TensorArray(embedded.dtype, length).unstack(tf.transpose(embedded, (1, 0, 2)))
    hidden = tf.TensorArray(state[name].dtype, length)

    def body(position, state, hidden):
        state = advance(words.read(position), state)
        return position + 1, state, hidden.write(position, state[name])

    _, _, hidden = tf.while_loop(lambda position, *_: position < length, body, (0, state, hidden))
    return tf.transpose(hidden.stack(), (1, 0, 2))
