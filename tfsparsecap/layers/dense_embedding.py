"""Gated forms of Keras's core layers."""

import math

import keras

from tfsparsecap.layers.gated import GatedLayer, GatedWeight, register


@register
class GatedDense(GatedLayer, keras.layers.Dense):
    """`keras.layers.Dense` whose kernel is gated: `activation(inputs @ (kernel * z(sigmoid(G))) + bias)`.

    Takes the arguments of `keras.layers.Dense` and `block_shape`, (inputs, outputs) weights per gate. The
    bias is never gated.

    Examples:
        >>> layer = GatedDense(128, block_shape=(16, 1))
        >>> layer(keras.ops.ones((2, 64))).shape
        TensorShape([2, 128])
    """

    kernel = GatedWeight()


@register
class GatedEinsumDense(GatedLayer, keras.layers.EinsumDense):
    """`keras.layers.EinsumDense` whose kernel is gated; `keras.layers.MultiHeadAttention` consists of these.

    Blocks run along the axes that the equation sums over. If those are not the kernel's first axes
    (`"btd,ndh->btnh"`), a block would not be contiguous, so every weight gets its own gate.

    Examples:
        >>> layer = GatedEinsumDense("abc,cde->abde", output_shape=(None, 4, 8))
        >>> layer(keras.ops.ones((2, 3, 16))).shape
        TensorShape([2, 3, 4, 8])
    """

    kernel = GatedWeight()

    def tiling(
        self, name: str, shape: tuple[int, ...], block_shape: tuple[int, int]
    ) -> tuple[int, tuple[int, int]]:
        operands, output = self.equation.replace(" ", "").split("->")
        # Ellipses occur in the inputs only, not in the kernel.
        letters = operands.split(",")[1]
        summed = [letter not in output for letter in letters]
        rows = math.prod(size for size, is_summed in zip(shape, summed, strict=True) if is_summed)
        if summed != sorted(summed, reverse=True):
            return rows, (1, 1)
        return rows, block_shape


@register
class GatedEmbedding(GatedLayer, keras.layers.Embedding):
    """`keras.layers.Embedding` whose table is gated.

    Blocks run along the vector of a token: a `block_shape` of (16, 1) covers 16 neighbouring values of one
    token, not 16 tokens.

    Examples:
        >>> layer = GatedEmbedding(1000, 64, block_shape=(16, 1))
        >>> layer(keras.ops.array([[1, 2, 3]])).shape
        TensorShape([1, 3, 64])
    """

    embeddings = GatedWeight(transposed=True)


@register
class GatedReversibleEmbedding(GatedLayer, keras.layers.ReversibleEmbedding):
    """`keras.layers.ReversibleEmbedding` whose table is gated, with the same sample for lookup and logits.

    Blocks run as in `GatedEmbedding`. The separate output table of `tie_weights=False` is not gated.

    Examples:
        >>> layer = GatedReversibleEmbedding(1000, 64, block_shape=(16, 1))
        >>> layer(layer(keras.ops.array([[1, 2, 3]])), reverse=True).shape
        TensorShape([1, 3, 1000])
    """

    embeddings = GatedWeight(transposed=True)
