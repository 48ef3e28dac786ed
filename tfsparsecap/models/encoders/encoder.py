"""Base class of encoders, which turn images into feature maps for a captioner."""

import difflib
import math
from typing import Any

import keras
import tensorflow as tf
from keras import ops

from tfsparsecap.errors import InputError
from tfsparsecap.keras_internals import nested_layers


class Encoder(keras.layers.Layer):
    """Base class: an image network, cut at one of its layers, with its preprocessing inside.

    While it is frozen (`trainable=False`, which can be changed at any time), batch normalisation stays in
    inference mode. A subclass creates its network, calls `cut`, and overrides `preprocess` if needed.

    Args:
        layer: name of the layer whose output is the feature map; None for the last one.
        image_size: height and width S of the images in pixels, at least 32.
        trainable: whether training changes the weights.
        batch_norm_momentum: of the moving averages of batch normalisation.

    Call arguments:
        image: uint8 or float [B, S, S, 3], RGB, values 0 to 255.

    Returns:
        Features [B, N, D], row by row from the top left of the image; N and D are `features_shape`.

    Raises:
        InputError: a size that is too small, or a layer that does not exist.
    """

    #: Name of the network, and the layer to suggest, in messages.
    network_name, usual_layer = "the network", ""

    def __init__(
        self,
        *,
        layer: str | None,
        image_size: int,
        trainable: bool,
        batch_norm_momentum: float,
        **kwargs: Any,
    ) -> None:
        super().__init__(trainable=trainable, **kwargs)
        if image_size < 32:
            raise InputError(
                f"image_size is {image_size}: {self.network_name} needs images of at least 32 pixels a side"
            )
        self.layer, self.image_size = layer, image_size
        self.batch_norm_momentum = batch_norm_momentum

    def cut(self, network: keras.Model) -> None:
        """Keeps the part of a network up to `layer`; its input is what `preprocess` returns."""
        names = [part.name for part in network.layers[1:]]
        if self.layer is not None and self.layer not in names:
            guesses = difflib.get_close_matches(self.layer, names, n=3) or [self.usual_layer or names[-1]]
            raise InputError(
                f'{self.network_name} has no layer "{self.layer}": did you mean {" or ".join(guesses)}?'
            )
        output = network.output if self.layer is None else network.get_layer(self.layer).output
        if not hasattr(output, "shape") or len(output.shape) not in (3, 4):
            raise InputError(
                f"the output of {self.network_name} is not one feature map: set layer, such as"
                f" {self.usual_layer or names[-1]}"
            )
        self.backbone = keras.Model(network.inputs[0], output, name="backbone")
        if None in self.backbone.input_shape[1:]:
            image = keras.Input((self.image_size, self.image_size, 3), name="image")
            self.backbone = keras.Model(image, self.backbone(image), name="sized")
        for part in nested_layers(self.backbone):
            if isinstance(part, keras.layers.BatchNormalization):
                part.momentum = self.batch_norm_momentum
        self.backbone.trainable = self.trainable
        self.built = True

    def preprocess(self, image: tf.Tensor) -> tf.Tensor:
        """The network's input, from float images [B, S, S, 3] with values 0 to 255; here values -1 to 1."""
        return image / 127.5 - 1.0

    @property
    def features_shape(self) -> tuple[int, int]:
        """(N, D): number of features of an image, and length of each."""
        *cells, channels = self.backbone.output_shape[1:]
        return math.prod(cells), channels

    def call(self, image: tf.Tensor, training: bool = False) -> tf.Tensor:
        if image.shape[1:] != (self.image_size, self.image_size, 3):
            raise InputError(
                f"the encoder takes images of shape {(self.image_size, self.image_size, 3)}, not"
                f" {tuple(image.shape[1:])}: resize them, or set image_size"
            )
        scaled = self.preprocess(ops.cast(image, "float32"))
        features = self.backbone(
            ops.cast(scaled, self.compute_dtype), training=training if self.trainable else False
        )
        return ops.reshape(features, (-1, *self.features_shape))

    def compute_output_shape(self, image_shape: tuple[int | None, ...]) -> tuple:
        return (image_shape[0], *self.features_shape)

    def get_config(self) -> dict:
        return {
            **super().get_config(),
            "layer": self.layer,
            "image_size": self.image_size,
            # The weights of a saved encoder are in the same file.
            "weights": None,
            "batch_norm_momentum": self.batch_norm_momentum,
        }
