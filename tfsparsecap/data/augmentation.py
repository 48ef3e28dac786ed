"""Augmentation of training images with keras-cv layers, chosen by name in a configuration."""

import difflib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tfsparsecap.errors import InputError

#: Layers of keras-cv that keep what a caption says and the size of the picture, with the arguments they get
#: where none are given. `RandomFlip` turns left into right: use it where captions name no sides.
LAYERS: dict[str, dict[str, Any]] = {
    "RandomFlip": {"mode": "horizontal"},
    "RandomCropAndResize": {"crop_area_factor": (0.8, 1.0), "aspect_ratio_factor": (0.9, 1.1)},
    "RandAugment": {"augmentations_per_image": 2, "magnitude": 0.3},
    "RandomColorJitter": {
        "brightness_factor": (-0.1, 0.1),
        "contrast_factor": (0.1, 0.1),
        "saturation_factor": (0.45, 0.55),
        "hue_factor": (0.0, 0.02),
    },
    "RandomBrightness": {"factor": 0.15},
    "RandomContrast": {"factor": 0.15},
    "RandomSaturation": {"factor": (0.4, 0.6)},
    "RandomHue": {"factor": 0.02},
    "RandomColorDegeneration": {"factor": 0.3},
    "RandomSharpness": {"factor": 0.3},
    "RandomGaussianBlur": {"kernel_size": 3, "factor": (0.0, 1.0)},
    "RandomRotation": {"factor": 0.02, "fill_mode": "nearest"},
    "RandomTranslation": {"height_factor": 0.05, "width_factor": 0.05, "fill_mode": "nearest"},
    "RandomZoom": {"height_factor": (-0.1, 0.1), "fill_mode": "nearest"},
    "RandomShear": {"x_factor": 0.05, "y_factor": 0.05},
    "RandomCutout": {"height_factor": 0.2, "width_factor": 0.2},
}
_WITH_VALUE_RANGE = {"RandAugment", "RandomColorJitter", "RandomContrast", "RandomHue", "RandomSharpness"}


class Augmentation:
    """A chain of keras-cv layers for a data set of training batches.

    Args:
        layers: each the name of one of `LAYERS`, or a mapping of `name` and arguments of that layer's
            constructor; arguments that are not given are those of `LAYERS`.
        image_size: `S`, side of the images.

    Raises:
        InputError: a name or an argument is unknown, or a layer changes the size of the images.

    Example:
        >>> augmentation = Augmentation(["RandomCropAndResize", {"name": "RandomHue", "factor": 0.05}], 64)
    """

    def __init__(self, layers: Sequence[str | Mapping[str, Any]], image_size: int):
        self._specified = [_specified(layer, image_size) for layer in layers]
        # Called once outside of a graph, where a layer says in its own words what is wrong with an argument.
        images = tf.zeros([2, image_size, image_size, 3])
        for name, arguments in self._specified:
            try:
                shape = _made(name, arguments, seed=1)(images, training=True).shape
            except (TypeError, ValueError, LookupError, AttributeError, tf.errors.OpError) as error:
                reason = str(error).strip().split("\n")[0]
                raise InputError(
                    f"augmentation {name} does not work with {arguments} ({reason}): correct them"
                ) from error
            if shape != images.shape:
                raise InputError(
                    f"augmentation {name} turns images of {image_size} pixels into {tuple(shape[1:])}: "
                    "leave their size as it is"
                )

    def apply(self, dataset: tf.data.Dataset, seed: Sequence[int]) -> tf.data.Dataset:
        """Augments `"image"`, uint8 [B, S, S, 3], of `(inputs, targets)`; equal seeds give equal images.

        Args:
            dataset: of batches.
            seed: any number of integers.
        """
        random = np.random.default_rng(seed)
        # New layers, because theirs are running random states that another epoch has moved.
        layers = [
            _made(name, arguments, int(random.integers(1, 2**31))) for name, arguments in self._specified
        ]
        graph_seed = int(random.integers(1, 2**31))

        def augmented(inputs: dict[str, tf.Tensor], targets: tf.Tensor) -> tuple[dict, tf.Tensor]:
            # Sets the seed of this map's graph alone: some layers draw without the seed they were given.
            tf.compat.v1.set_random_seed(graph_seed)
            images = tf.cast(inputs["image"], tf.float32)
            for layer in layers:
                images = tf.cast(layer(images, training=True), tf.float32)
            images = tf.cast(tf.round(tf.clip_by_value(images, 0, 255)), tf.uint8)
            return {**inputs, "image": images}, targets

        # One call after the other: the order of the draws is part of what the seed decides.
        return dataset.map(augmented, num_parallel_calls=None)


def _specified(layer: str | Mapping[str, Any], image_size: int) -> tuple[str, dict[str, Any]]:
    given = dict(layer) if isinstance(layer, Mapping) else {"name": layer}
    name = given.pop("name", None)
    if not isinstance(name, str) or name not in LAYERS:
        near = difflib.get_close_matches(str(name), LAYERS, n=1)
        meant = f"did you mean {near[0]}" if near else f"choose from {', '.join(LAYERS)}"
        raise InputError(f"there is no augmentation {name!r}: {meant}")
    arguments = {**LAYERS[name], **given}
    if name in _WITH_VALUE_RANGE:
        arguments["value_range"] = (0, 255)
    if name == "RandomCropAndResize":
        arguments.setdefault("target_size", (image_size, image_size))
    return name, {key: tuple(value) if isinstance(value, list) else value for key, value in arguments.items()}


def _made(name: str, arguments: dict[str, Any], seed: int) -> Any:
    import keras_cv  # takes a second and is needed by few

    return getattr(keras_cv.layers, name)(**arguments, seed=seed)
