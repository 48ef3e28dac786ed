"""Encoders: networks that turn images into feature maps for a captioner.

`encoder_base` cuts a network at one of its layers, scales its images, and freezes all of it or its first part
(`frozen_part`). `tiny_vit`, `efficientnet_lite` and `inception_v1` are built here and read their
`published_weights`; `applications` has the networks of Keras, `hub` those of KerasHub.
"""

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
