"""Self-attention within windows of a feature map, as in TinyViT: the layer, its FLOPs, its slimming rule."""

import math
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras import ops

from tfsparsecap.model_summary import formulas
from tfsparsecap.slimming import rules
from tfsparsecap.slimming.scope import Scope


@keras.saving.register_keras_serializable("tfsparsecap")
class WindowAttention(keras.layers.Layer):
    """Self-attention within square windows of a feature map, with a learned bias for each relative position.

    `softmax(Q K^T / sqrt(d) + B) V` in each window, where B depends on the vertical and horizontal distance.
    Layer normalisation comes first. A map whose size is not a multiple of the window is padded with zeros.

    Args:
        heads: number of heads; divides the channels, unless `head_size` is given.
        window: height and width of a window, in cells of the map.
        head_size: size d of the queries, keys and values of a head; by default the channels divided by the
            number of heads.

    Call arguments:
        x: float [B, H, W, C].

    Returns:
        float [B, H, W, C].

    Reference:
        Wu et al., "TinyViT", https://arxiv.org/abs/2207.10666, section 3.3; the biases are those of LeViT,
        https://arxiv.org/abs/2104.01136, section 4.2.

    Examples:
        >>> WindowAttention(heads=2, window=7)(keras.ops.ones((1, 14, 14, 8))).shape
        TensorShape([1, 14, 14, 8])
    """

    def __init__(self, heads: int, window: int, head_size: int | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.heads, self.window, self.head_size = heads, window, head_size
        cells = np.arange(window, dtype="int32")
        self._distances = np.abs(cells[:, None] - cells)

    def build(self, input_shape: Any) -> None:
        channels = input_shape[-1]
        options = {"dtype": self.dtype_policy}
        self.norm = keras.layers.LayerNormalization(epsilon=1e-5, name="norm", **options)
        depth = self.depth(channels)
        self.qkv = keras.layers.Dense(3 * self.heads * depth, name="qkv", **options)
        self.proj = keras.layers.Dense(channels, name="proj", **options)
        for layer in (self.norm, self.qkv):
            layer.build((None, None, channels))
        self.proj.build((None, None, self.heads * depth))
        self.attention_biases = self.add_weight(
            name="attention_biases", shape=(self.heads, self.window**2), initializer="zeros"
        )

    def depth(self, channels: int) -> int:
        """Size of the queries, keys and values of a head."""
        return self.head_size or channels // self.heads

    def call(self, x: tf.Tensor) -> tf.Tensor:
        _, height, width, channels = x.shape
        window, tokens = self.window, self.window**2
        down, right = -height % window, -width % window
        if down or right:
            x = ops.pad(x, ((0, 0), (0, down), (0, right), (0, 0)))
        rows, columns = (height + down) // window, (width + right) // window

        def exchange(values: tf.Tensor, first: int, second: int) -> tf.Tensor:
            # With four axes instead of six, which mobile runtimes do not transpose.
            values = ops.reshape(values, (-1, first, second, window * channels))
            return ops.transpose(values, (0, 2, 1, 3))

        if columns > 1:
            x = exchange(x, window, columns)
        x = self._attend(ops.reshape(x, (-1, tokens, channels)))
        if columns > 1:
            x = exchange(x, columns, window)
        x = ops.reshape(x, (-1, rows * window, columns * window, channels))
        return x[:, :height, :width] if down or right else x

    def _attend(self, x: tf.Tensor) -> tf.Tensor:
        """Self-attention between the tokens of each window, [windows, window ** 2, C]."""
        _, tokens, channels = x.shape
        depth = self.depth(channels)
        x = ops.reshape(self.qkv(self.norm(x)), (-1, tokens, self.heads, 3 * depth))
        queries, keys, values = ops.split(ops.transpose(x, (0, 2, 1, 3)), 3, axis=-1)
        scores = ops.matmul(queries * depth**-0.5, ops.transpose(keys, (0, 1, 3, 2)))
        # The index of the largest of one value is 0. A constant index would make the TFLite converter store
        # the biases of all pairs of tokens, 4.9 MB in TinyViT-5M, instead of those of all distances.
        zero = tf.argmax(x[0, 0, 0, :1], output_type=tf.int32)
        biases = self._pair_biases(self._distances + zero)
        weights = ops.softmax(ops.cast(scores + ops.cast(biases, scores.dtype), "float32"))
        mixed = ops.matmul(ops.cast(weights, values.dtype), values)
        return self.proj(ops.reshape(ops.transpose(mixed, (0, 2, 1, 3)), (-1, tokens, self.heads * depth)))

    def _pair_biases(self, distances: tf.Tensor) -> tf.Tensor:
        """The biases [heads, tokens, tokens] of all pairs of tokens, for the distances [window, window].

        They are looked up in two steps, for each pair of columns first and then for each pair of rows: the
        second copies rows of values, which takes a tenth of the time of looking up each value.
        """
        window, tokens = self.window, self.window**2
        table = ops.reshape(self.attention_biases, (self.heads, window, window))
        # For each vertical distance and column, one value for each other column.
        of_columns = ops.reshape(tf.gather(table, distances, axis=2), (self.heads, tokens, window))
        cells = np.arange(window, dtype="int32")
        # For each row, column, and other row.
        places = self._distances[:, None, :] * window + cells[:, None]
        biases = tf.gather(of_columns, places.reshape(-1), axis=1)
        return ops.reshape(biases, (self.heads, tokens, tokens))

    def compute_output_shape(self, input_shape: Any) -> Any:
        return input_shape

    def get_config(self) -> dict[str, Any]:
        own = {"heads": self.heads, "window": self.window, "head_size": self.head_size}
        return {**super().get_config(), **own}


@formulas.register(WindowAttention)
def attention_products(layer: WindowAttention, arguments: dict[str, Any], output: Any) -> formulas.Uses:
    """Scores and weighted values of all windows."""
    windows = math.prod(-(-length // layer.window) for length in output.shape[1:3])
    return {formulas.PRODUCT: 2 * windows * layer.window**4 * layer.heads * layer.depth(output.shape[3])}


@rules.register(WindowAttention)
def slim_window_attention(scope: Scope) -> None:
    """Heads are removed with their biases; the layer returns as many channels as it takes."""
    layer = scope.operation
    into = scope.tie("inputs", scope.channels(scope.only))
    heads = scope.create("heads", layer.heads, size="heads")
    depth = layer.proj.kernel.shape[0] // layer.heads
    for variable in (layer.norm.gamma, layer.norm.beta, layer.proj.bias):
        scope.slot(variable, into)
    # The queries, keys and values of a head lie one after the other.
    columns = np.repeat(heads, 3 * depth)
    scope.kernel(layer.qkv.kernel, into, columns, creates=(1,))
    scope.slot(layer.qkv.bias, columns)
    scope.kernel(layer.proj.kernel, np.repeat(heads, depth), into, creates=(1,))
    scope.slot(layer.attention_biases, heads, None)
    scope.labels.mix(heads)
    scope.labels.mix(into)
    scope.info.sizes["head_size"] = lambda count: depth
    _, height, width, _ = scope.shape(scope.only)
    windows, tokens = -(-height // layer.window) * -(-width // layer.window), layer.window**2
    for kernel in (layer.qkv.kernel, layer.proj.kernel):
        scope.count(windows * tokens, kernel.shape, scope.info.slots[id(kernel)])
    scope.count(2 * windows * tokens**2 * depth, (layer.heads,), (heads,))
    scope.emit_channels(into)
