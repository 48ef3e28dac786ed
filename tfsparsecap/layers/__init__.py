"""Stock Keras layers with gates on their weights."""

from tfsparsecap.layers.convolutional import GatedConv1D, GatedConv2D, GatedDepthwiseConv2D
from tfsparsecap.layers.core import GatedDense, GatedEinsumDense, GatedEmbedding, GatedReversibleEmbedding
from tfsparsecap.layers.recurrent import GatedGRUCell, GatedLSTMCell

__all__ = [
    "GatedConv1D",
    "GatedConv2D",
    "GatedDense",
    "GatedDepthwiseConv2D",
    "GatedEinsumDense",
    "GatedEmbedding",
    "GatedGRUCell",
    "GatedLSTMCell",
    "GatedReversibleEmbedding",
]
