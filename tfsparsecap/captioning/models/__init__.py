"""Captioners and their image encoders."""

from tfsparsecap.captioning.models import captioner_flops  # noqa: F401 (registers what summaries count)
from tfsparsecap.captioning.models.captioner_base import Captioner
from tfsparsecap.captioning.models.image_encoders import (
    ApplicationsEncoder,
    EfficientNetLiteEncoder,
    InceptionV1Encoder,
    KerasHubEncoder,
    MobileNetV1Encoder,
    TinyViTEncoder,
)
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
