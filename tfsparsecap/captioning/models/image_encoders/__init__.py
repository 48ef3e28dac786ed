"""Encoders: networks that turn images into feature maps for a captioner."""

from tfsparsecap.captioning.models.image_encoders.applications import ApplicationsEncoder, MobileNetV1Encoder
from tfsparsecap.captioning.models.image_encoders.efficientnet_lite import EfficientNetLiteEncoder
from tfsparsecap.captioning.models.image_encoders.encoder_base import Encoder
from tfsparsecap.captioning.models.image_encoders.hub import KerasHubEncoder
from tfsparsecap.captioning.models.image_encoders.inception_v1 import InceptionV1Encoder
from tfsparsecap.captioning.models.image_encoders.tiny_vit import TinyViTEncoder

__all__ = [
    "ApplicationsEncoder",
    "EfficientNetLiteEncoder",
    "Encoder",
    "InceptionV1Encoder",
    "KerasHubEncoder",
    "MobileNetV1Encoder",
    "TinyViTEncoder",
]
