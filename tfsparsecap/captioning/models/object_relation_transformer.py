"""Object Relation Transformer: attention that uses the geometry of regions. ACORT is its compact form."""

import math

import keras
import numpy as np
import tensorflow as tf
from keras import ops

from tfsparsecap.captioning.models.captioner_base import Inputs, Memory
from tfsparsecap.captioning.models.transformer_captioner import TransformerCaptioner
from tfsparsecap.captioning.models.transformer_layers import RelationEncoderLayer, box_relations
from tfsparsecap.errors import InputError


@keras.saving.register_keras_serializable("tfsparsecap")
class ObjectRelationTransformer(TransformerCaptioner):
    """A transformer captioner whose encoder weights regions by the relative position and size of their boxes.

    With shared layers and projections it is ACORT. Inputs are `"features"` and `"boxes"` float [B, N, 4]
    (x_min, y_min, x_max, y_max, relative to the image). With an encoder, the boxes are the cells of its
    square feature map.

    Args:
        vocabulary_size: number of tokens, special tokens included.
        kwargs: sizes, depths and sharing, see `TransformerCaptioner`; `feature_size`, `encoder` and others,
            see `RegionCaptioner`.

    Raises:
        InputError: the length of the features is not known, or an argument is out of range.

    Reference:
        Herdade et al., "Image Captioning: Transforming Objects into Words",
        https://arxiv.org/abs/1906.05963; Tan et al., "ACORT", https://arxiv.org/abs/2202.05451.

    Examples:
        >>> captioner = ObjectRelationTransformer(1000, size=64, hidden_size=128, layers=2, feature_size=2048)
        >>> inputs = {"features": keras.random.normal((2, 36, 2048)), "boxes": ops.ones((2, 36, 4))}
        >>> captioner({**inputs, "tokens": ops.ones((2, 5), "int32")}).shape
        TensorShape([2, 5, 1000])
    """

    input_names: tuple[str, ...] = ("image", "features", "frozen_features", "boxes", "mask")
    encoder_layer = RelationEncoderLayer

    def encode(self, inputs: Inputs, training: bool = False) -> Memory:
        features, mask = self.regions(inputs, training)
        relations = ops.cast(box_relations(self._boxes(inputs, features)), self.compute_dtype)
        x, unseen = self.embedded_features(features, mask, training)
        for index in self.encoder_order:
            x = self.encoder_layers[index](x, relations, unseen, training=training)
        return self.image_memory(x, unseen) | self.object_memory(features, mask, inputs, training)

    def _boxes(self, inputs: Inputs, features: tf.Tensor) -> tf.Tensor:
        if "boxes" in inputs:
            boxes = ops.convert_to_tensor(inputs["boxes"])
            if len(boxes.shape) != 3 or boxes.shape[2] != 4:
                raise InputError(
                    f'"boxes" have shape [images, regions, 4], not {tuple(boxes.shape)}: give x_min, y_min,'
                    " x_max, y_max of each region, relative to the image"
                )
            return boxes
        side = math.isqrt(features.shape[1] or 0)
        if self.encoder is None or side * side != features.shape[1]:
            raise InputError(
                'a captioner of regions takes "boxes" beside "features": give x_min, y_min, x_max, y_max of'
                " each region, relative to the image"
            )
        edges = np.arange(side, dtype=np.float32) / side
        y, x = np.meshgrid(edges, edges, indexing="ij")
        cells = np.stack([x, y, x + 1 / side, y + 1 / side], axis=-1).reshape(1, side * side, 4)
        return ops.convert_to_tensor(cells)
