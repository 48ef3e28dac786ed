"""Augmentation with keras-cv layers: reproducible with a seed, and clear errors for invalid layers."""

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from tfsparsecap.captioning.data.augmentation import LAYERS, Augmentation, read_view
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


@pytest.mark.slow
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


def test_views_are_the_image_its_mirror_image_and_crops_of_it(tmp_path):
    path = tmp_path / "gradients.png"
    rows, columns = np.mgrid[0:256, 0:256]
    Image.fromarray(np.stack([columns, rows, 0 * rows], -1).astype(np.uint8)).save(path)
    image = read_view(path, 64, 0, "a").astype(int)
    np.testing.assert_array_equal(read_view(path, 64, 1, "a"), image[:, ::-1])
    areas, mirrored = [], []
    for view in range(2, 22):
        crop = read_view(path, 64, view, "a").astype(int)
        width, height = crop[0, -1, 0] - crop[0, 0, 0], crop[-1, 0, 1] - crop[0, 0, 1]
        # Straight lines from one edge of the crop to the other: nothing is bent, padded or turned.
        np.testing.assert_allclose(
            crop[:, :, 0], np.linspace(crop[:, 0, 0], crop[:, -1, 0], 64, axis=1), atol=3
        )
        np.testing.assert_allclose(
            crop[:, :, 1], np.linspace(crop[0, :, 1], crop[-1, :, 1], 64, axis=0), atol=3
        )
        areas.append(abs(width) * height / 256**2)
        mirrored.append(width < 0)
        np.testing.assert_array_equal(read_view(path, 64, view, "a"), crop)
    assert 0.5 < min(areas) < 0.7 and 0.8 < max(areas) <= 1.0
    assert 5 <= sum(mirrored) <= 15
    assert (read_view(path, 64, 2, "b") != read_view(path, 64, 2, "a")).any()
