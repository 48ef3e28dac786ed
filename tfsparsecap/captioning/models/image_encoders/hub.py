"""Image backbones of KerasHub as encoders of captioners."""

import types
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tfsparsecap.captioning.models.image_encoders.encoder_base import Encoder
from tfsparsecap.core.installation import pip_install
from tfsparsecap.core.keras_internals import nested_layers
from tfsparsecap.errors import InputError

#: What KerasHub raises if a preset does not exist, cannot be downloaded, or is damaged.
_PRESET_ERRORS = (OSError, ValueError, LookupError, TypeError, AttributeError, RuntimeError)


@keras.saving.register_keras_serializable("tfsparsecap")
class KerasHubEncoder(Encoder):
    """An image backbone of KerasHub, cut at one of its layers, with its preprocessing; see `Encoder`.

    Needs the extra `hub` of this package.

    Args:
        preset: name of a preset, such as `"resnet_18_imagenet"`, or anything else that
            `keras_hub.models.Backbone.from_preset` takes, such as a folder.
        layer: name of the layer whose output is the feature map, or, for a vision transformer, the tokens;
            None for the last one.
        image_size: height and width S of the images in pixels, at least 32. The default of 224 need not be
            the size that the preset was trained with.
        weights: `"imagenet"` for the weights of the preset, whatever they were trained on, or None for random
            weights. A saved encoder contains its weights.
        kwargs: `trainable`, `batch_norm_momentum` and `frozen_until`, see `Encoder`.
        architecture: serialized backbone, in the configuration of a saved encoder; replaces that of `preset`.
        scale, offset: of the preprocessing, `image * scale + offset`; with `architecture` only.

    Raises:
        InputError: KerasHub is not installed, the preset is not available or does not encode images, or a
            layer or size does not fit.

    Reference:
        https://keras.io/keras_hub/presets.

    Examples:
        >>> encoder = KerasHubEncoder("resnet_18_imagenet")  # doctest: +SKIP
        >>> encoder.features_shape  # doctest: +SKIP
        (49, 512)
    """

    def __init__(
        self,
        preset: str,
        layer: str | None = None,
        image_size: int = 224,
        weights: str | None = "imagenet",
        architecture: dict[str, Any] | None = None,
        scale: Any = None,
        offset: Any = None,
        **kwargs: Any,
    ) -> None:
        self.network_name = f"KerasHub's {preset}"
        super().__init__(layer=layer, image_size=image_size, **kwargs)
        if weights not in ("imagenet", None):
            raise InputError(f'weights is "{weights}": give "imagenet", or null for random ones')
        try:
            import keras_hub
        except ImportError as error:
            raise InputError(f"the encoder {preset} needs KerasHub: {pip_install('hub')}") from error
        self.preset = preset
        try:
            if architecture is not None:
                backbone = keras.saving.deserialize_keras_object(architecture)
            else:
                backbone = keras_hub.models.Backbone.from_preset(
                    preset, load_weights=weights is not None, dtype=self.dtype_policy
                )
                converter = keras_hub.layers.ImageConverter.from_preset(preset)
                scale, offset = converter.scale, converter.offset
        except _PRESET_ERRORS as error:
            reason = " ".join(str(error).split())[:200] or type(error).__name__
            remedy = "choose one of https://keras.io/keras_hub/presets, and connect to the network once"
            if Path(preset).is_dir():
                remedy = "copy or download the folder again, or give that of an image backbone"
            raise InputError(
                f"KerasHub's preset {preset} cannot be loaded as an image backbone ({reason}): {remedy}"
            ) from error
        self._architecture = keras.saving.serialize_keras_object(backbone)
        self._scale, self._offset = (
            None if values is None else np.asarray(values, "float32") for values in (scale, offset)
        )
        expected, image_shape = tuple(backbone.inputs[0].shape[1:]), (self.image_size, self.image_size, 3)
        pairs = zip(expected, image_shape, strict=False)
        if len(backbone.inputs) != 1 or len(expected) != 3 or any(a not in (None, b) for a, b in pairs):
            raise InputError(
                f"{self.network_name} takes inputs of shape {expected}, not images of shape {image_shape}:"
                " set image_size, or choose an image backbone"
            )
        self.cut(backbone)

    def _use(self, backbone: keras.Model) -> None:
        super()._use(backbone)
        # DINOv2 and SAM3 save position embeddings for another image size: trained ones would be interpolated,
        # or lost if the sum of their changes is positive.
        stock = keras.layers.Layer
        for part in nested_layers(self.backbone):
            kind = type(part)
            of_hub = kind.__module__.startswith("keras_hub.")
            if of_hub and kind.save_own_variables is not stock.save_own_variables:
                part.save_own_variables = types.MethodType(stock.save_own_variables, part)
                part.load_own_variables = types.MethodType(stock.load_own_variables, part)

    def preprocess(self, image: tf.Tensor) -> tf.Tensor:
        if self._scale is not None:
            image = image * self._scale
        return image if self._offset is None else image + self._offset

    def get_config(self) -> dict[str, Any]:
        lists = [None if values is None else values.tolist() for values in (self._scale, self._offset)]
        return {
            **super().get_config(),
            "preset": self.preset,
            "architecture": self._architecture,
            "scale": lists[0],
            "offset": lists[1],
        }
