"""Gated forms of Keras's convolutions."""

import math

import keras

from tfsparsecap.layers.gated import GatedLayer, GatedWeight, register


class GatedConvolution(GatedLayer):
    """Mixin for convolutions: blocks run along the input channels of one pixel."""

    def tiling(
        self, name: str, shape: tuple[int, ...], block_shape: tuple[int, int]
    ) -> tuple[int, tuple[int, int]]:
        return math.prod(shape[:-1]), (math.gcd(shape[-2], block_shape[0]), block_shape[1])


@register
class GatedConv1D(GatedConvolution, keras.layers.Conv1D):
    """`keras.layers.Conv1D` whose kernel [width, inputs, outputs] is gated; blocks run along the inputs.

    Examples:
        >>> GatedConv1D(8, 3)(keras.ops.ones((1, 10, 4))).shape
        TensorShape([1, 8, 8])
    """

    kernel = GatedWeight()


@register
class GatedConv2D(GatedConvolution, keras.layers.Conv2D):
    """`keras.layers.Conv2D` whose kernel [height, width, inputs, outputs] is gated.

    Blocks run along the inputs.

    Examples:
        >>> GatedConv2D(8, 3)(keras.ops.ones((1, 10, 10, 4))).shape
        TensorShape([1, 8, 8, 8])
    """

    kernel = GatedWeight()


@register
class GatedDepthwiseConv2D(GatedLayer, keras.layers.DepthwiseConv2D):
    """`keras.layers.DepthwiseConv2D` whose kernel [height, width, inputs, multiplier] is gated.

    Each weight has its own gate: a depthwise convolution does not sum over channels, so `block_shape` is not
    used.

    Examples:
        >>> GatedDepthwiseConv2D(3)(keras.ops.ones((1, 10, 10, 4))).shape
        TensorShape([1, 8, 8, 4])
    """

    kernel = GatedWeight()
    warns_of_other_blocks = False

    def tiling(
        self, name: str, shape: tuple[int, ...], block_shape: tuple[int, int]
    ) -> tuple[int, tuple[int, int]]:
        return math.prod(shape[:-1]), (1, 1)
