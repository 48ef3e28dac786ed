"""Transformer: a captioner that attends to an image encoder's feature map, as in the paper RTIC."""

import keras
import numpy as np
from keras import ops

from tfsparsecap.captioning.models.captioner_base import Inputs, Memory
from tfsparsecap.captioning.models.transformer_captioner import TransformerCaptioner
from tfsparsecap.captioning.models.transformer_layers import map_positions


@keras.saving.register_keras_serializable("tfsparsecap")
class Transformer(TransformerCaptioner):
    """A plain transformer behind an image encoder.

    Sinusoidal encodings of row and column are added to the cells of the encoder's feature map. Region
    features, without an encoder, have no order and get none.

    Args:
        vocabulary_size: number of tokens, special tokens included.
        kwargs: sizes, depths and sharing, see `TransformerCaptioner`; `feature_size`, `encoder` and others,
            see `RegionCaptioner`.

    Raises:
        InputError: the length of the features is not known, or an argument is out of range.

    Reference:
        Sen Gupta et al., "Optimization of Image Captioning Networks Using Targeted Component Pruning Method"
        (RTIC). It does not say how it encodes positions.

    Examples:
        >>> captioner = Transformer(1000, size=64, hidden_size=128, layers=2, feature_size=320)
        >>> inputs = {"features": keras.random.normal((2, 49, 320)), "tokens": ops.ones((2, 5), "int32")}
        >>> captioner(inputs).shape
        TensorShape([2, 5, 1000])
    """

    def encode(self, inputs: Inputs, training: bool = False) -> Memory:
        features, mask = self.regions(inputs, training)
        x, unseen = self.embedded_features(features, mask, training)
        if self.encoder is not None:
            x = x + ops.cast(map_positions(x.shape[1], self.size)[None], x.dtype)
        for index in self.encoder_order:
            x = self.encoder_layers[index](x, unseen, training=training)
        return self.image_memory(x, unseen) | self.object_memory(features, mask, inputs, training)

    def constant_tables(self) -> dict[str, np.ndarray]:
        tables = super().constant_tables()
        if self.encoder is not None and hasattr(self.encoder, "features_shape"):
            tables["map_positions"] = map_positions(self.encoder.features_shape[0], self.size)
        return tables
