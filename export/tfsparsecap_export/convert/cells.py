"""LSTM and GRU cells as one product a word."""

import contextlib
import functools
from collections.abc import Iterator

import keras
import numpy as np
from keras import ops

from tfsparsecap import keras_internals

#: Inputs that a cell's state begins at a multiple of, so that blocks of weights stay whole.
_BLOCK = 16
#: Share of zeros from which on a GRU is one product: a quarter of its matrix is zeros then, which only sparse
#: kernels leave out.
_SPARSE = 0.5


@contextlib.contextmanager
def one_product_a_word(model: keras.Model) -> Iterator[None]:
    """Inside the block, the stock LSTM and GRU cells of a model multiply once a word instead of twice.

    What a sparse kernel does for each output, and the quantization of each input, is done once then. A cell
    computes what it did: its kernel and recurrent kernel stand below each other in one matrix, which becomes
    a constant. Cells that are not of the stock classes stay as they are, and so do GRUs whose reset gate
    comes before the product (`reset_after=False`), which need two, and GRUs that are not sparse.

    Args:
        model: a built model without gates; nothing of it is changed after the block.

    Example:
        >>> model = keras.Sequential([keras.Input((5, 16)), keras.layers.LSTM(32)])
        >>> with one_product_a_word(model):
        ...     content = graph.model_graph(model)
    """
    changed = []
    try:
        for cell, matrix in _matrices(model):
            call = _lstm if type(cell) is keras.layers.LSTMCell else _gru
            cell.call = functools.partial(call, cell, matrix)
            changed.append(cell)
        yield
    finally:
        for cell in changed:
            del cell.call


def matrices(model: keras.Model) -> list[tuple[str, np.ndarray, int]]:
    """The matrices that `one_product_a_word` makes.

    Returns:
        What to call it, float32 [inputs, outputs], and how many weights of the model are in it, for each.
    """
    return [
        (f"{cell.path}/kernels", matrix, np.size(cell.kernel) + np.size(cell.recurrent_kernel))
        for cell, matrix in _matrices(model)
    ]


def _matrices(model: keras.Model) -> Iterator[tuple[keras.Layer, np.ndarray]]:
    for layer in keras_internals.nested_layers(model):
        if type(layer) is keras.layers.LSTMCell and layer.built:
            yield layer, _below(np.asarray(layer.kernel), np.asarray(layer.recurrent_kernel))
        elif type(layer) is keras.layers.GRUCell and layer.built and layer.reset_after:
            kernel, recurrent = np.asarray(layer.kernel), np.asarray(layer.recurrent_kernel)
            weights = kernel.size + recurrent.size
            if np.count_nonzero(kernel) + np.count_nonzero(recurrent) > (1 - _SPARSE) * weights:
                continue
            # Update and reset gate, then the candidate's inputs and its state, which stay apart.
            units = layer.units
            nothing = (np.zeros((len(part), units), np.float32) for part in (kernel, recurrent))
            above = np.concatenate([kernel, next(nothing)], axis=1)
            below = np.concatenate(
                [recurrent[:, : 2 * units], next(nothing), recurrent[:, 2 * units :]], axis=1
            )
            yield layer, _below(above, below)


def _below(kernel: np.ndarray, recurrent: np.ndarray) -> np.ndarray:
    return np.concatenate([np.pad(kernel, ((0, -len(kernel) % _BLOCK), (0, 0))), recurrent])


def _product(matrix: np.ndarray, inputs, hidden, bias):
    inputs = ops.pad(inputs, ((0, 0), (0, -inputs.shape[-1] % _BLOCK)))
    product = ops.matmul(ops.concatenate([inputs, hidden], axis=-1), ops.convert_to_tensor(matrix))
    return product if bias is None else product + bias


def _lstm(cell: keras.layers.LSTMCell, matrix: np.ndarray, inputs, states, training: bool = False):
    """`LSTMCell.call` in inference."""
    hidden, carry = states
    entered, kept, candidate, shown = ops.split(
        _product(matrix, inputs, hidden, cell.bias if cell.use_bias else None), 4, axis=-1
    )
    gate, activation = cell.recurrent_activation, cell.activation
    carry = gate(kept) * carry + gate(entered) * activation(candidate)
    hidden = gate(shown) * activation(carry)
    return hidden, [hidden, carry]


def _gru(cell: keras.layers.GRUCell, matrix: np.ndarray, inputs, states, training: bool = False):
    """`GRUCell.call` in inference, with `reset_after`."""
    nested = isinstance(states, list | tuple)
    hidden = states[0] if nested else states
    bias = None
    if cell.use_bias:
        of_inputs, of_state = ops.split(cell.bias, 2, axis=0)
        gates = 2 * cell.units
        bias = ops.concatenate(
            [of_inputs[0, :gates] + of_state[0, :gates], of_inputs[0, gates:], of_state[0, gates:]]
        )
    update, reset, candidate, remembered = ops.split(_product(matrix, inputs, hidden, bias), 4, axis=-1)
    gate = cell.recurrent_activation
    update = gate(update)
    candidate = cell.activation(candidate + gate(reset) * remembered)
    hidden = update * hidden + (1 - update) * candidate
    return hidden, [hidden] if nested else hidden
