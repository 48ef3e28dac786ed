"""Faster LSTM and GRU layers in files: the two kernels of a cell become one matrix product per time step."""

import contextlib
import functools
from collections.abc import Iterator

import keras
import numpy as np
from keras import ops

from tfsparsecap.core.keras_internals import nested_layers

#: The recurrent kernel starts at a row that is a multiple of this, so that blocks of weights stay intact.
_BLOCK = 16
#: Fraction of zeros from which a GRU is fused. The fused matrix of a GRU has 25 % additional zeros, which
#: only sparse kernels skip.
_MIN_GRU_SPARSITY = 0.5


@contextlib.contextmanager
def fuse_rnn_kernels(model: keras.Model) -> Iterator[None]:
    """Inside the block, the standard LSTM and GRU cells of a model compute one matrix product per time step.

    The kernel and the recurrent kernel are stacked into one constant matrix. The outputs do not change, but a
    sparse kernel's work per output, and the quantization of the inputs, happen once instead of twice.

    These cells are not changed: subclasses of the standard cells, GRUs with `reset_after=False` (they need
    two products), and GRUs with fewer than 50 % zeros.

    Args:
        model: built model without gates. It is restored after the block.

    Examples:
        >>> model = keras.Sequential([keras.Input((5, 16)), keras.layers.LSTM(32)])
        >>> with fuse_rnn_kernels(model):
        ...     model(np.ones((1, 5, 16))).shape
        TensorShape([1, 32])
    """
    changed = []
    # With a GPU, Keras calls cuDNN instead of the cells, which TensorFlow Lite does not have.
    rnn_types = keras.layers.LSTM | keras.layers.GRU
    recurrent = [layer for layer in nested_layers(model) if isinstance(layer, rnn_types)]
    before = [layer.use_cudnn for layer in recurrent]
    try:
        for layer in recurrent:
            layer.use_cudnn = False
        for cell, matrix in _fused(model):
            call = _lstm if type(cell) is keras.layers.LSTMCell else _gru
            cell.call = functools.partial(call, cell, matrix)  # hides the method of the class
            changed.append(cell)
        yield
    finally:
        for cell in changed:
            del cell.call
        for layer, value in zip(recurrent, before, strict=True):
            layer.use_cudnn = value


def fused_kernels(model: keras.Model) -> list[tuple[str, np.ndarray, int]]:
    """The matrices that `fuse_rnn_kernels` creates.

    Returns:
        For each cell a name, the matrix float32 [inputs, outputs], and the number of weights of the model in
        it.
    """
    return [
        (f"{cell.path}/kernels", matrix, np.size(cell.kernel) + np.size(cell.recurrent_kernel))
        for cell, matrix in _fused(model)
    ]


def _fused(model: keras.Model) -> Iterator[tuple[keras.Layer, np.ndarray]]:
    for cell in nested_layers(model):
        if type(cell) not in (keras.layers.LSTMCell, keras.layers.GRUCell) or not cell.built:
            continue
        kernel, recurrent = np.asarray(cell.kernel), np.asarray(cell.recurrent_kernel)
        if type(cell) is keras.layers.GRUCell:
            zeros = np.count_nonzero(kernel == 0) + np.count_nonzero(recurrent == 0)
            if not cell.reset_after or zeros < _MIN_GRU_SPARSITY * (kernel.size + recurrent.size):
                continue
            # Outputs: update gate, reset gate, then the candidate's inputs and its state, which stay
            # separate.
            kernel = np.pad(kernel, ((0, 0), (0, cell.units)))
            gates, candidate = np.split(recurrent, [2 * cell.units], axis=1)
            recurrent = np.concatenate([gates, np.zeros_like(candidate), candidate], axis=1)
        yield cell, np.concatenate([np.pad(kernel, ((0, -len(kernel) % _BLOCK), (0, 0))), recurrent])


def _product(matrix: np.ndarray, inputs, hidden, bias):
    inputs = ops.pad(inputs, ((0, 0), (0, -inputs.shape[-1] % _BLOCK)))
    product = ops.matmul(ops.concatenate([inputs, hidden], axis=-1), ops.convert_to_tensor(matrix))
    return product if bias is None else product + bias


def _lstm(cell: keras.layers.LSTMCell, matrix: np.ndarray, inputs, states, training: bool = False):
    """`LSTMCell.call` at inference."""
    hidden, carry = states
    input_gate, forget_gate, candidate, output_gate = ops.split(
        _product(matrix, inputs, hidden, cell.bias if cell.use_bias else None), 4, axis=-1
    )
    gate, activation = cell.recurrent_activation, cell.activation
    carry = gate(forget_gate) * carry + gate(input_gate) * activation(candidate)
    hidden = gate(output_gate) * activation(carry)
    return hidden, [hidden, carry]


def _gru(cell: keras.layers.GRUCell, matrix: np.ndarray, inputs, states, training: bool = False):
    """`GRUCell.call` at inference, with `reset_after`."""
    nested = isinstance(states, list | tuple)
    hidden = states[0] if nested else states
    bias = None
    if cell.use_bias:
        (input_bias, state_bias), gates = ops.unstack(cell.bias), 2 * cell.units
        bias = ops.concatenate(
            [input_bias[:gates] + state_bias[:gates], input_bias[gates:], state_bias[gates:]]
        )
    update, reset, candidate, state = ops.split(_product(matrix, inputs, hidden, bias), 4, axis=-1)
    gate = cell.recurrent_activation
    update = gate(update)
    candidate = cell.activation(candidate + gate(reset) * state)
    hidden = update * hidden + (1 - update) * candidate
    return hidden, [hidden] if nested else hidden
