"""Gated forms of Keras's recurrent cells and layers."""

from typing import Any

import keras

from tfsparsecap.core import keras_internals
from tfsparsecap.layers.convolutional import GatedConvolution
from tfsparsecap.layers.gated import GatedLayer, GatedWeight, register


class GatedCell(GatedLayer):
    """Mixin for gated cells: gates are sampled once per sequence.

    Keras's RNN gets dropout masks from its cell before the loop over time. The gates are sampled there,
    because inside the loop they would be sampled at each step.
    """

    def get_dropout_mask(self, step_input: Any) -> Any:
        for name in self.gated_names:
            getattr(self, name)
        return super().get_dropout_mask(step_input)


@register
class GatedLSTMCell(GatedCell, keras.layers.LSTMCell):
    """`keras.layers.LSTMCell` whose kernel and recurrent kernel are gated.

    In `keras.layers.RNN` the gates are sampled once per sequence. Wrap custom loops in
    `tfsparsecap.gates.sample_gates_once`.

    Examples:
        >>> layer = keras.layers.RNN(GatedLSTMCell(32, block_shape=(16, 1)))
        >>> layer(keras.ops.ones((2, 5, 16))).shape
        TensorShape([2, 32])
    """

    kernel = GatedWeight()
    recurrent_kernel = GatedWeight()


@register
class GatedGRUCell(GatedCell, keras.layers.GRUCell):
    """`keras.layers.GRUCell` whose kernel and recurrent kernel are gated. Use it like `GatedLSTMCell`.

    Examples:
        >>> layer = keras.layers.RNN(GatedGRUCell(32), return_sequences=True)
        >>> layer(keras.ops.ones((2, 5, 16))).shape
        TensorShape([2, 5, 32])
    """

    kernel = GatedWeight()
    recurrent_kernel = GatedWeight()


@register
class GatedSimpleRNNCell(GatedCell, keras.layers.SimpleRNNCell):
    """`keras.layers.SimpleRNNCell` whose kernel and recurrent kernel are gated. Use it like `GatedLSTMCell`.

    Examples:
        >>> layer = keras.layers.RNN(GatedSimpleRNNCell(32))
        >>> layer(keras.ops.ones((2, 5, 16))).shape
        TensorShape([2, 32])
    """

    kernel = GatedWeight()
    recurrent_kernel = GatedWeight()


@register
class GatedConvLSTMCell(GatedCell, GatedConvolution, keras_internals.ConvLSTMCell):
    """The cell of `keras.layers.ConvLSTM1D`, `ConvLSTM2D` and `ConvLSTM3D`, whose two kernels are gated.

    `prune` turns the cells of these layers into it. Blocks run along the channels of the inputs and of the
    state.

    Examples:
        >>> layer = keras.layers.RNN(GatedConvLSTMCell(2, 8, 3, padding="same"))
        >>> layer(keras.ops.ones((2, 5, 6, 6, 4))).shape
        TensorShape([2, 6, 6, 8])
    """

    kernel = GatedWeight()
    recurrent_kernel = GatedWeight()
