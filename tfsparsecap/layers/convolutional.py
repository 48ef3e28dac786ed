"""Gated forms of Keras's convolutions."""

import math

import keras

from tfsparsecap.layers.gated import GatedLayer, GatedWeight, register


class GatedConvolution(GatedLayer):
    """Mixin for convolutions: blocks stay within one pixel, and run along its input channels.

    Kernels are [pixels…, inputs, outputs], or, in transposed convolutions, [pixels…, outputs, inputs]. Each
    weight of a depthwise kernel has its own gate.
    """

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
class GatedConv3D(GatedConvolution, keras.layers.Conv3D):
    """`keras.layers.Conv3D` whose kernel [depth, height, width, inputs, outputs] is gated.

    Blocks run along the inputs.

    Examples:
        >>> GatedConv3D(8, 3)(keras.ops.ones((1, 5, 5, 5, 4))).shape
        TensorShape([1, 3, 3, 3, 8])
    """

    kernel = GatedWeight()


@register
class GatedConv1DTranspose(GatedConvolution, keras.layers.Conv1DTranspose):
    """`keras.layers.Conv1DTranspose` whose kernel [width, outputs, inputs] is gated.

    Blocks run along the inputs.

    Examples:
        >>> GatedConv1DTranspose(8, 3)(keras.ops.ones((1, 10, 4))).shape
        TensorShape([1, 12, 8])
    """

    kernel = GatedWeight(transposed=True)


@register
class GatedConv2DTranspose(GatedConvolution, keras.layers.Conv2DTranspose):
    """`keras.layers.Conv2DTranspose` whose kernel [height, width, outputs, inputs] is gated.

    Blocks run along the inputs.

    Examples:
        >>> GatedConv2DTranspose(8, 3)(keras.ops.ones((1, 10, 10, 4))).shape
        TensorShape([1, 12, 12, 8])
    """

    kernel = GatedWeight(transposed=True)


@register
class GatedConv3DTranspose(GatedConvolution, keras.layers.Conv3DTranspose):
    """`keras.layers.Conv3DTranspose` whose kernel [depth, height, width, outputs, inputs] is gated.

    Blocks run along the inputs.

    Examples:
        >>> GatedConv3DTranspose(8, 3)(keras.ops.ones((1, 2, 2, 2, 4))).shape
        TensorShape([1, 4, 4, 4, 8])
    """

    kernel = GatedWeight(transposed=True)


@register
class GatedDepthwiseConv1D(GatedConvolution, keras.layers.DepthwiseConv1D):
    """`keras.layers.DepthwiseConv1D` whose kernel [width, inputs, multiplier] is gated.

    Each weight has its own gate: a depthwise convolution does not sum over channels, so `block_shape` is not
    used.

    Examples:
        >>> GatedDepthwiseConv1D(3)(keras.ops.ones((1, 10, 4))).shape
        TensorShape([1, 8, 4])
    """

    kernel = GatedWeight()
    single_names = ("kernel",)


@register
class GatedDepthwiseConv2D(GatedConvolution, keras.layers.DepthwiseConv2D):
    """`keras.layers.DepthwiseConv2D` whose kernel [height, width, inputs, multiplier] is gated.

    Each weight has its own gate, as in `GatedDepthwiseConv1D`.

    Examples:
        >>> GatedDepthwiseConv2D(3)(keras.ops.ones((1, 10, 10, 4))).shape
        TensorShape([1, 8, 8, 4])
    """

    kernel = GatedWeight()
    single_names = ("kernel",)


@register
class GatedSeparableConv1D(GatedConvolution, keras.layers.SeparableConv1D):
    """`keras.layers.SeparableConv1D` whose two kernels are gated.

    Blocks of the pointwise kernel run along the inputs; each weight of the depthwise kernel has its own gate.

    Examples:
        >>> GatedSeparableConv1D(8, 3)(keras.ops.ones((1, 10, 4))).shape
        TensorShape([1, 8, 8])
    """

    depthwise_kernel = GatedWeight()
    pointwise_kernel = GatedWeight()
    single_names = ("depthwise_kernel",)


@register
class GatedSeparableConv2D(GatedConvolution, keras.layers.SeparableConv2D):
    """`keras.layers.SeparableConv2D` whose two kernels are gated, as in `GatedSeparableConv1D`.

    Examples:
        >>> GatedSeparableConv2D(8, 3)(keras.ops.ones((1, 10, 10, 4))).shape
        TensorShape([1, 8, 8, 8])
    """

    depthwise_kernel = GatedWeight()
    pointwise_kernel = GatedWeight()
    single_names = ("depthwise_kernel",)
