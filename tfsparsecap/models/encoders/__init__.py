"""Encoders: networks that turn images into feature maps for a captioner."""

from tfsparsecap.models.encoders.applications import ApplicationsEncoder, MobileNetV1Encoder
from tfsparsecap.models.encoders.efficientnet_lite import EfficientNetLiteEncoder
from tfsparsecap.models.encoders.encoder import Encoder
from tfsparsecap.models.encoders.hub import KerasHubEncoder
from tfsparsecap.models.encoders.inception_v1 import InceptionV1Encoder
from tfsparsecap.models.encoders.tiny_vit import TinyViTEncoder

__all__ = [
    "ApplicationsEncoder",
    "EfficientNetLiteEncoder",
    "Encoder",
    "InceptionV1Encoder",
    "KerasHubEncoder",
    "MobileNetV1Encoder",
    "TinyViTEncoder",
]
