"""Base class of encoders, which turn images into feature maps for a captioner, and may be frozen in part."""

import difflib
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import keras
import tensorflow as tf
from keras import ops

from tfsparsecap.core.keras_internals import nested_layers, unlocked, untrack
from tfsparsecap.errors import InputError


class EncoderSplit(NamedTuple):
    """A network in two parts, which share its layers.

    Attributes:
        frozen: from the network's input to the map between both parts.
        rest: from there to the network's output.
        shape: of the map, without the axis of images.
    """

    frozen: keras.Model
    rest: keras.Model
    shape: tuple[int, ...]


def split_network(network: keras.Model, layer: str, image_size: int, name: str) -> EncoderSplit:
    """Splits a functional network behind one of its layers.

    Args:
        network: from images [B, S, S, 3].
        layer: name of the last layer of the frozen part. All later layers must depend on earlier ones through
            its output only.
        image_size: S.
        name: of the network, for messages.

    Raises:
        InputError: there is no such layer, it is the last one, or later layers use other ones before it.

    Examples:
        >>> image = keras.Input((8, 8, 3))
        >>> middle = keras.layers.Conv2D(4, 1, name="first")(image)
        >>> network = keras.Model(image, keras.layers.Conv2D(2, 1)(middle))
        >>> split_network(network, "first", 8, "the network").shape
        (8, 8, 4)
    """
    names = [part.name for part in network.layers[1:]]
    if layer not in names:
        raise unknown_layer("frozen_until", name, layer, names)
    middle = network.get_layer(layer).output
    if middle is network.output:
        raise InputError(
            f"frozen_until is {layer}, the last layer of {name}: name an earlier one, or set trainable=false"
        )
    try:
        frozen, rest = keras.Model(network.inputs[0], middle), keras.Model(middle, network.output)
    except ValueError as error:
        raise InputError(
            f"{name} cannot be frozen until {layer}: later layers also use the output of earlier ones; name"
            " the last layer of a block"
        ) from error
    return EncoderSplit(frozen, rest, tuple(frozen.compute_output_shape((1, image_size, image_size, 3))[1:]))


def unknown_layer(
    setting: str, network: str, layer: str, names: Sequence[str], usual: str = ""
) -> InputError:
    """The error for a setting's layer that a network does not have, with similar names."""
    guesses = difflib.get_close_matches(layer, names, n=3) or [usual or names[-1]]
    return InputError(
        f"{setting} is {layer}, and {network} has no such layer: did you mean {' or '.join(guesses)}?"
    )


class Encoder(keras.layers.Layer):
    """Base class: an image network, cut at one of its layers, with its preprocessing inside.

    While it is frozen (`trainable=False`, which can be changed at any time), batch normalisation stays in
    inference mode. A subclass creates its network, calls `cut`, and overrides `preprocess` if needed.

    With `frozen_until`, training changes the later layers only, and batch normalisation stays in inference
    mode. What the frozen layers compute, `frozen_part()`, can then be computed once per image, and `finish`
    continues from it.

    Args:
        layer: name of the layer whose output is the feature map; None for the last one.
        image_size: height and width S of the images in pixels, at least 32.
        trainable: whether training changes the weights.
        batch_norm_momentum: of the moving averages of batch normalisation; None takes the network's usual
            one. A run of a few hundred steps from scratch needs less, such as 0.9.
        frozen_until: name of a layer: it and those before it stay frozen, whatever `trainable` is. All
            later layers must depend on earlier ones through its output only. None freezes no layer.

    Call arguments:
        image: uint8 or float [B, S, S, 3], RGB, values 0 to 255.

    Returns:
        Features [B, N, D], row by row from the top left of the image; N and D are `features_shape`.

    Raises:
        InputError: a size that is too small, or a layer that does not exist or cannot be `frozen_until`.

    Examples:
        >>> from tfsparsecap.captioning.models import MobileNetV1Encoder
        >>> encoder = MobileNetV1Encoder(
        ...     0.25, "conv_pw_5_relu", 64, None, trainable=True, frozen_until="conv_pw_3_relu"
        ... )
        >>> images = keras.random.uniform((1, 64, 64, 3), maxval=255)
        >>> frozen = encoder.frozen_part()(images)
        >>> frozen.shape, bool(ops.all(encoder.finish(frozen) == encoder(images)))
        (TensorShape([1, 256, 32]), True)
    """

    #: Name of the network, and the layer to suggest, in messages.
    network_name, usual_layer = "the network", ""
    #: Default of `batch_norm_momentum`; Keras's 0.99 suits fine-tuning.
    usual_momentum = 0.99

    def __init__(
        self,
        *,
        layer: str | None,
        image_size: int,
        trainable: bool = False,
        batch_norm_momentum: float | None = None,
        frozen_until: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(trainable=trainable, **kwargs)
        if image_size < 32:
            raise InputError(
                f"image_size is {image_size}: {self.network_name} needs images of at least 32 pixels a side"
            )
        self.layer, self.image_size = layer, image_size
        momentum = self.usual_momentum if batch_norm_momentum is None else batch_norm_momentum
        self.batch_norm_momentum, self.frozen_until = momentum, frozen_until
        self._split: Callable[[], EncoderSplit]
        self._replaced = False

    @property
    def trainable(self) -> bool:
        return bool(super().trainable)

    @trainable.setter
    def trainable(self, value: bool) -> None:
        keras.Layer.trainable.fset(self, value)
        self._freeze()

    def cut(self, network: keras.Model) -> None:
        """Keeps the part of a network up to `layer`; its input is what `preprocess` returns."""
        names = [part.name for part in network.layers[1:]]
        if self.layer is not None and self.layer not in names:
            raise unknown_layer("layer", self.network_name, self.layer, names, self.usual_layer)
        output = network.output if self.layer is None else network.get_layer(self.layer).output
        if not hasattr(output, "shape") or len(output.shape) not in (3, 4):
            raise InputError(
                f"the output of {self.network_name} is not one feature map: set layer, such as"
                f" {self.usual_layer or names[-1]}"
            )
        self._use(keras.Model(network.inputs[0], output, name="backbone"))

    def replace(self, backbone: keras.Model) -> None:
        """Replaces `backbone` by a smaller network with the same inputs and outputs, such as from slimming.

        The preprocessing stays. A saved encoder contains the architecture.

        Raises:
            InputError: another shape of inputs or outputs, or there is no layer `frozen_until` any more.

        Examples:
            >>> from tfsparsecap.captioning.models import MobileNetV1Encoder
            >>> encoder = MobileNetV1Encoder(0.25, "conv_pw_2_relu", 64, None)
            >>> encoder.replace(keras.models.clone_model(encoder.backbone))
        """
        shapes = [(model.input_shape, model.output_shape) for model in (backbone, self.backbone)]
        if shapes[0] != shapes[1]:
            raise InputError(
                f"a backbone with inputs and outputs of shapes {shapes[0]} cannot replace that of"
                f" {self.network_name}, whose shapes are {shapes[1]}: give one made from the same encoder"
            )
        self._replace(backbone)

    def _replace(self, backbone: keras.Model) -> None:
        self.built = False
        with unlocked(self):
            untrack(self, self.backbone)
            self._use(backbone)
        self._replaced = True

    def _use(self, backbone: keras.Model) -> None:
        self.backbone = backbone
        if self.frozen_until is not None:
            split = split_network(self.backbone, self.frozen_until, self.image_size, self.network_name)
            # In a closure, because Keras would save and count the layers of an attribute a second time.
            self._split = lambda: split
        if None in self.backbone.input_shape[1:]:
            image = keras.Input((self.image_size, self.image_size, 3), name="image")
            self.backbone = keras.Model(image, self.backbone(image), name="sized")
        for part in nested_layers(self.backbone):
            if isinstance(part, keras.layers.BatchNormalization):
                part.momentum = self.batch_norm_momentum
        # Keras skips a layer that has the value already, with all inside it, such as after loading.
        self.backbone.trainable = not self.trainable
        self.backbone.trainable = self.trainable
        self.built = True
        self._freeze()

    def _freeze(self) -> None:
        """Freezes the layers up to `frozen_until`, and batch normalisation."""
        if self.built and self.frozen_until is not None:
            split = self._split()
            normalisation = [
                part
                for part in nested_layers(split.rest)
                if isinstance(part, keras.layers.BatchNormalization)
            ]
            for part in (*split.frozen.layers, *normalisation):
                part.trainable = False

    def preprocess(self, image: tf.Tensor) -> tf.Tensor:
        """The network's input, from float images [B, S, S, 3] with values 0 to 255; here values -1 to 1."""
        return image / 127.5 - 1.0

    @property
    def features_shape(self) -> tuple[int, int]:
        """(N, D): number of features of an image, and length of each."""
        *cells, channels = self.backbone.output_shape[1:]
        return math.prod(cells), channels

    def frozen_part(self) -> "Encoder":
        """Returns an encoder of the layers up to `frozen_until`, with a copy of their weights, frozen."""
        config = {**self.get_config(), "layer": self.frozen_until, "frozen_until": None, "trainable": False}
        config.pop("backbone", None)
        part, frozen = type(self).from_config(config), self._split().frozen
        if self._replaced:
            part._replace(keras.models.clone_model(frozen))
        part.backbone.set_weights(frozen.get_weights())
        return part

    def finish(self, frozen: tf.Tensor, training: bool = False) -> tf.Tensor:
        """Computes the features from the output of `frozen_part()`.

        Args:
            frozen: float [B, n, d], the map behind the layer `frozen_until`, row by row.
            training: whether layers are in training mode.

        Returns:
            Features [B, N, D], as of `call`.

        Raises:
            InputError: `frozen_until` is None, or another shape.
        """
        if self.frozen_until is None:
            raise InputError("no layer of the encoder is frozen: set frozen_until")
        split = self._split()
        *cells, channels = split.shape
        if tuple(frozen.shape[1:]) != (math.prod(cells), channels):
            raise InputError(
                f"the output of the frozen layers has the shape {tuple(frozen.shape)}, not [images,"
                f" {math.prod(cells)}, {channels}]: compute it with frozen_part()"
            )
        middle = ops.reshape(ops.cast(frozen, self.compute_dtype), (-1, *split.shape))
        features = split.rest(middle, training=training if self.trainable else False)
        return ops.reshape(features, (-1, *self.features_shape))

    def call(self, image: tf.Tensor, training: bool = False) -> tf.Tensor:
        if image.shape[1:] != (self.image_size, self.image_size, 3):
            raise InputError(
                f"the encoder takes images of shape {(self.image_size, self.image_size, 3)}, not"
                f" {tuple(image.shape[1:])}: resize them, or set image_size"
            )
        scaled = ops.cast(self.preprocess(ops.cast(image, "float32")), self.compute_dtype)
        training = training if self.trainable else False
        if training and self.frozen_until is not None:
            split = self._split()
            features = split.rest(split.frozen(scaled, training=False), training=True)
        else:
            features = self.backbone(scaled, training=training)
        return ops.reshape(features, (-1, *self.features_shape))

    def compute_output_shape(self, image_shape: tuple[int | None, ...]) -> tuple[Any, ...]:
        return (image_shape[0], *self.features_shape)

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "layer": self.layer,
            "image_size": self.image_size,
            # The weights of a saved encoder are in the same file.
            "weights": None,
            "batch_norm_momentum": self.batch_norm_momentum,
            "frozen_until": self.frozen_until,
            **({"backbone": keras.saving.serialize_keras_object(self.backbone)} if self._replaced else {}),
        }

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> "Encoder":
        """Creates an encoder with the same network, without its weights."""
        config = dict(config)
        backbone = config.pop("backbone", None)
        encoder = cls(**config)
        if backbone is not None:
            encoder.replace(keras.saving.deserialize_keras_object(backbone))
        return encoder
