"""Stock Keras layers with gates on their weights.

Each layer reads its weights through gates (`tfsparsecap.gates`), which are open, closed, or sampled once per
pass; with open gates it computes what the layer of Keras computes. `gated` turns layers of a model into
these, `dense_embedding`, `convolutional` and `recurrent` list the forms.
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
