"""Augmentation with keras-cv layers: reproducible with a seed, and clear errors for invalid layers."""

import numpy as np
import pytest
import tensorflow as tf

from tfsparsecap.captioning.data.augmentation import LAYERS, Augmentation
from tfsparsecap.errors import InputError

SIZE = 16


@pytest.fixture
def dataset():
    images = np.random.default_rng(0).integers(0, 255, (3, 4, SIZE, SIZE, 3), dtype=np.uint8)
    tokens = np.arange(12).reshape(3, 4)
    return tf.data.Dataset.from_tensor_slices(({"image": images, "tokens": tokens}, tokens))


def images(dataset):
    return np.stack([inputs["image"].numpy() for inputs, _ in dataset])


@pytest.mark.slow
@pytest.mark.parametrize("name", LAYERS)
def test_every_layer_depends_on_its_seed_only(dataset, name):
    augmentation = Augmentation([name], SIZE)
    first = images(augmentation.apply(dataset, [1, 2]))
    assert first.dtype == np.uint8 and first.shape == (3, 4, SIZE, SIZE, 3)
    np.testing.assert_array_equal(first, images(augmentation.apply(dataset, [1, 2])))
    assert (first != images(augmentation.apply(dataset, [1, 3]))).any()


def test_a_flip_flips_images_and_changes_nothing_else(dataset):
    plain = images(dataset)
    flipped = images(Augmentation([{"name": "RandomFlip", "rate": 1.0}], SIZE).apply(dataset, [0]))
    np.testing.assert_array_equal(flipped, plain[:, :, :, ::-1])
    for (inputs, targets), (before, _) in zip(
        Augmentation([], SIZE).apply(dataset, [0]), dataset, strict=True
    ):
        np.testing.assert_array_equal(inputs["image"], before["image"])
        np.testing.assert_array_equal(inputs["tokens"], before["tokens"])
        np.testing.assert_array_equal(targets, before["tokens"])


def test_arguments_may_be_lists_as_in_yaml(dataset):
    layers = [{"name": "RandomCropAndResize", "crop_area_factor": [0.5, 0.6]}, "RandomFlip"]
    assert (images(Augmentation(layers, SIZE).apply(dataset, [0])) != images(dataset)).any()


@pytest.mark.parametrize(
    ("layer", "message"),
    [
        ("RandomFlop", "'RandomFlop': did you mean RandomFlip"),
        ("MixUp", "no augmentation 'MixUp'"),
        (3, "no augmentation 3"),
        ({"rate": 1}, "no augmentation None"),
        ({"name": "RandomHue", "faktor": 1}, "RandomHue fails with .*faktor"),
        ({"name": "RandomHue", "factor": "x"}, "RandomHue fails with"),
        (
            {"name": "RandomCropAndResize", "target_size": [8, 8]},
            r"changes images of 16 pixels to \(8, 8, 3\)",
        ),
    ],
)
def test_invalid_layers_are_rejected_before_training(layer, message):
    with pytest.raises(InputError, match=message) as caught:
        Augmentation([layer], SIZE)
    assert "\n" not in str(caught.value)
