"""Captioners and their image encoders."""

from tfsparsecap.models import captioner_flops  # noqa: F401 (registers what summaries count)
from tfsparsecap.models.captioner import Captioner
from tfsparsecap.models.encoders import (
    ApplicationsEncoder,
    EfficientNetLiteEncoder,
    InceptionV1Encoder,
    KerasHubEncoder,
    MobileNetV1Encoder,
    TinyViTEncoder,
)
from tfsparsecap.models.object_relation_transformer import ObjectRelationTransformer
from tfsparsecap.models.plain_transformer import Transformer
from tfsparsecap.models.soft_attention import SoftAttention
from tfsparsecap.models.up_down import UpDown

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
