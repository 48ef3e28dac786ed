"""Stock Keras layers with gates on their weights.

`GatedDense` is `keras.layers.Dense` in all but one thing: whatever reads its kernel gets the kernel times its
gates (`tfsparsecap.gates`), each of which is open, closed, or sampled once per pass. With open gates it
computes what `Dense` computes. `block_shape=(16, 1)` gives one gate to 16 neighbouring inputs of an output.

`sc.prune` turns the layers of a model into these in place, and `sc.strip_pruning` turns them back (`gated`).
The forms are listed in `dense_embedding`, `convolutional` and `recurrent`; a new one is a class of two lines:
`class GatedDense(GatedLayer, keras.layers.Dense): kernel = GatedWeight()`.
"""

from tfsparsecap.layers.convolutional import (
    GatedConv1D,
    GatedConv1DTranspose,
    GatedConv2D,
    GatedConv2DTranspose,
    GatedConv3D,
    GatedConv3DTranspose,
    GatedDepthwiseConv1D,
    GatedDepthwiseConv2D,
    GatedSeparableConv1D,
    GatedSeparableConv2D,
)
from tfsparsecap.layers.dense_embedding import (
    GatedDense,
    GatedEinsumDense,
    GatedEmbedding,
    GatedReversibleEmbedding,
)
from tfsparsecap.layers.recurrent import (
    GatedConvLSTMCell,
    GatedGRUCell,
    GatedLSTMCell,
    GatedSimpleRNNCell,
)

__all__ = [
    "GatedConv1D",
    "GatedConv1DTranspose",
    "GatedConv2D",
    "GatedConv2DTranspose",
    "GatedConv3D",
    "GatedConv3DTranspose",
    "GatedConvLSTMCell",
    "GatedDense",
    "GatedDepthwiseConv1D",
    "GatedDepthwiseConv2D",
    "GatedEinsumDense",
    "GatedEmbedding",
    "GatedGRUCell",
    "GatedLSTMCell",
    "GatedReversibleEmbedding",
    "GatedSeparableConv1D",
    "GatedSeparableConv2D",
    "GatedSimpleRNNCell",
]
