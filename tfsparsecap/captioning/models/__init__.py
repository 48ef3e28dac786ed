"""Captioners and their image encoders.

A captioner encodes an image into a memory, and then predicts one word after the other from the memory and a
state: this is the interface in `captioner_base`, with which search, training and export work.
`soft_attention` and `up_down` have a recurrent decoder with attention; `plain_transformer` and
`object_relation_transformer` are transformers, built of `transformer_layers` and `transformer_captioner`. All
of them are Keras models that are called and trained like any other. `image_encoders` are networks for the
photographs.
"""

from tfsparsecap.captioning.models import captioner_flops  # noqa: F401 (registers what summaries count)
from tfsparsecap.captioning.models.captioner_base import Captioner
from tfsparsecap.captioning.models.image_encoders.applications import ApplicationsEncoder, MobileNetV1Encoder
from tfsparsecap.captioning.models.image_encoders.efficientnet_lite import EfficientNetLiteEncoder
from tfsparsecap.captioning.models.image_encoders.hub import KerasHubEncoder
from tfsparsecap.captioning.models.image_encoders.inception_v1 import InceptionV1Encoder
from tfsparsecap.captioning.models.image_encoders.tiny_vit import TinyViTEncoder
from tfsparsecap.captioning.models.object_relation_transformer import ObjectRelationTransformer
from tfsparsecap.captioning.models.plain_transformer import Transformer
from tfsparsecap.captioning.models.soft_attention import SoftAttention
from tfsparsecap.captioning.models.up_down import UpDown

__all__ = [
    "ApplicationsEncoder",
    "Captioner",
    "EfficientNetLiteEncoder",
    "InceptionV1Encoder",
    "KerasHubEncoder",
    "MobileNetV1Encoder",
    "ObjectRelationTransformer",
    "SoftAttention",
    "TinyViTEncoder",
    "Transformer",
    "UpDown",
]
