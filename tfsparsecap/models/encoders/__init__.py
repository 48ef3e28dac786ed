"""Encoders: networks that turn images into feature maps for a captioner."""

from tfsparsecap.models.encoders.applications import MobileNetV1Encoder
from tfsparsecap.models.encoders.encoder import Encoder
from tfsparsecap.models.encoders.inception_v1 import InceptionV1Encoder
from tfsparsecap.models.encoders.tiny_vit import TinyViTEncoder

__all__ = ["Encoder", "InceptionV1Encoder", "MobileNetV1Encoder", "TinyViTEncoder"]
