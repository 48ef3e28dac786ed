"""Augmentation of training images with keras-cv layers: at each step, or once before features are cached."""

import functools
import os
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tfsparsecap.captioning.data.images import read_image
from tfsparsecap.errors import InputError, unknown_name

#: Layers of keras-cv that keep the caption valid and the image size, with default arguments. `RandomFlip`
#: swaps left and right: do not use it if captions mention sides.
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
_CROP = {"crop_area_factor": (0.55, 1.0), "aspect_ratio_factor": (0.8, 1.25)}
_WITH_VALUE_RANGE = {"RandAugment", "RandomColorJitter", "RandomContrast", "RandomHue", "RandomSharpness"}


class Augmentation:
    """A sequence of keras-cv layers, applied to training batches.

    Args:
        layers: each the name of one of `LAYERS`, or a mapping with `name` and arguments of the layer's
            constructor; the other arguments have the defaults of `LAYERS`.
        image_size: `S`, side of the images in pixels.

    Raises:
        InputError: a name or an argument is unknown, or a layer changes the size of the images.

    Examples:
        >>> augmentation = Augmentation(["RandomCropAndResize", {"name": "RandomHue", "factor": 0.05}], 64)
    """

    def __init__(self, layers: Sequence[str | Mapping[str, Any]], image_size: int):
        self._specified = [_specified(layer, image_size) for layer in layers]
        # Called once eagerly, so that errors in arguments have the layer's own message.
        images = tf.zeros([2, image_size, image_size, 3])
        for name, arguments in self._specified:
            try:
                shape = _make(name, arguments, seed=1)(images, training=True).shape
            except (TypeError, ValueError, LookupError, AttributeError, tf.errors.OpError) as error:
                reason = str(error).strip().split("\n")[0]
                raise InputError(
                    f"augmentation {name} fails with the arguments {arguments} ({reason}): correct them"
                ) from error
            if shape != images.shape:
                raise InputError(
                    f"augmentation {name} changes images of {image_size} pixels to {tuple(shape[1:])}: "
                    "choose arguments that keep the size"
                )

    def apply(self, dataset: tf.data.Dataset, seed: Sequence[int]) -> tf.data.Dataset:
        """Augments `"image"`, uint8 [B, S, S, 3], of `(inputs, targets)`; equal seeds give equal images.

        Args:
            dataset: dataset of batches.
            seed: any integers.
        """
        random = np.random.default_rng(seed)
        # New layers for each epoch, because layers have random states that change.
        layers = [
            _make(name, arguments, int(random.integers(1, 2**31))) for name, arguments in self._specified
        ]
        graph_seed = int(random.integers(1, 2**31))

        def augmented(inputs: dict[str, tf.Tensor], targets: tf.Tensor) -> tuple[dict, tf.Tensor]:
            # Sets the seed of this map's graph only: some layers ignore the seed that they were given.
            tf.compat.v1.set_random_seed(graph_seed)
            images = tf.cast(inputs["image"], tf.float32)
            for layer in layers:
                images = tf.cast(layer(images, training=True), tf.float32)
            images = tf.cast(tf.round(tf.clip_by_value(images, 0, 255)), tf.uint8)
            return {**inputs, "image": images}, targets

        # Sequentially, so that random numbers are drawn in a fixed order.
        return dataset.map(augmented, num_parallel_calls=None)


def read_view(path: str | os.PathLike, size: int, view: int, name: str) -> np.ndarray:
    """Reads one of several views of an image, for features that are computed once.

    View 0 is `read_image`, view 1 its mirror image. Higher views are crops by keras-cv's
    `RandomCropAndResize`, with 55 to 100 % of the area and an aspect ratio within 25 % of the image's; half
    of them are mirrored.

    Args:
        path, size: see `read_image`.
        view: number of the view, from 0.
        name: id of the image; view and name determine the crop.

    Returns:
        uint8 [S, S, 3].

    Raises:
        InputError: as `read_image`.

    Examples:
        >>> from PIL import Image
        >>> Image.linear_gradient("L").rotate(90).save("gradient.png")
        >>> [read_view("gradient.png", 32, view, "gradient")[0, :, 0].argmax() for view in (0, 1)]
        [np.int64(31), np.int64(0)]
    """
    if view < 2:
        image = read_image(path, size)
        return image[:, ::-1] if view else image
    random = np.random.default_rng([view, zlib.crc32(name.encode("utf-8", "backslashreplace"))])
    # Larger than `size`, so that a crop has as much detail as the whole image.
    large_image = tf.constant(read_image(path, size * 4 // 3), tf.float32)
    # Drawn here, not by the layers: theirs depend on the images before, and several threads read images.
    area, aspect = random.uniform(*_CROP["crop_area_factor"]), random.uniform(*_CROP["aspect_ratio_factor"])
    height, width = np.minimum(1.0, np.sqrt([area / aspect, area * aspect]))
    top, left = random.uniform(0.0, [1.0 - height, 1.0 - width])
    box = tf.constant([top, left, top + height, left + width], tf.float32)
    mirrored = tf.cast(random.integers(2), tf.float32)
    return _crop_and_flip(size)(large_image, box, mirrored).numpy()


@functools.cache
def _crop_and_flip(size: int) -> Callable[..., tf.Tensor]:
    crop = _make("RandomCropAndResize", {**_CROP, "target_size": (size, size)}, seed=1)
    flip = _make("RandomFlip", {"mode": "horizontal"}, seed=1)

    @tf.function(input_signature=[tf.TensorSpec([None, None, 3]), tf.TensorSpec([4]), tf.TensorSpec([])])
    def changed(image: tf.Tensor, box: tf.Tensor, mirrored: tf.Tensor) -> tf.Tensor:
        images = crop.augment_image(image, box[tf.newaxis])[tf.newaxis]
        flips = {"flip_horizontals": mirrored[tf.newaxis, tf.newaxis], "flip_verticals": tf.zeros([1, 1])}
        return tf.cast(tf.round(flip.augment_images(images, flips)[0]), tf.uint8)

    return changed


def _specified(layer: str | Mapping[str, Any], image_size: int) -> tuple[str, dict[str, Any]]:
    options = dict(layer) if isinstance(layer, Mapping) else {"name": layer}
    name = options.pop("name", None)
    if not isinstance(name, str) or name not in LAYERS:
        raise unknown_name("augmentation", name, LAYERS)
    arguments = {**LAYERS[name], **options}
    if name in _WITH_VALUE_RANGE:
        arguments["value_range"] = (0, 255)
    if name == "RandomCropAndResize":
        arguments.setdefault("target_size", (image_size, image_size))
    return name, {key: tuple(value) if isinstance(value, list) else value for key, value in arguments.items()}


def _make(name: str, arguments: dict[str, Any], seed: int) -> Any:
    import keras_cv  # takes a second

    return getattr(keras_cv.layers, name)(**arguments, seed=seed)
