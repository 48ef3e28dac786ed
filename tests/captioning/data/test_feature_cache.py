"""Cached features: computed once, never stale, and no partial files after a failure."""

import dataclasses
import fcntl
import json
import os
import shutil
from types import SimpleNamespace

import keras
import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from tfsparsecap.captioning.data import feature_cache
from tfsparsecap.captioning.data.feature_cache import cached_features, litert_encoder
from tfsparsecap.captioning.data.images import read_image
from tfsparsecap.captioning.data.records import Record
from tfsparsecap.captioning.models import MobileNetV1Encoder
from tfsparsecap.errors import InputError

SIZE = 16


@keras.saving.register_keras_serializable("tests")
class Means(keras.layers.Layer):
    """Means of four quarters: features whose correct values are known. Counts its calls."""

    def __init__(self, scale=1.0, **kwargs):
        super().__init__(**kwargs)
        self.scale, self.calls = scale, 0

    def call(self, images):
        self.calls += 1
        quarters = keras.ops.reshape(images, [-1, 2, SIZE // 2, 2, SIZE // 2, 3])
        return self.scale * keras.ops.reshape(keras.ops.mean(quarters, axis=(2, 4)), [-1, 4, 3])

    def get_config(self):
        return {**super().get_config(), "scale": self.scale}


class Convolution(keras.layers.Layer):
    """An encoder with weights."""

    def __init__(self, **options):
        super().__init__(**options)
        self.convolution = keras.layers.Conv2D(5, 8, 8)

    def build(self, shape):
        self.convolution.build(shape)

    def call(self, images):
        features = self.convolution(images)
        return keras.ops.reshape(features, [-1, features.shape[1] * features.shape[2], 5])


def convolution(seed=0, size=SIZE):
    keras.utils.set_random_seed(seed)
    encoder = Convolution()
    encoder.build((None, size, size, 3))
    return encoder


@pytest.fixture
def records(tmp_path):
    (tmp_path / "images é").mkdir()
    random = np.random.default_rng(0)
    records = []
    for number in range(7):
        path = tmp_path / "images é" / f"{number}.png"
        Image.fromarray(random.integers(0, 255, (20, 30, 3), dtype=np.uint8)).save(path)
        records.append(Record(path.name, path, ("a",), "train"))
    return records


def load(records, folder, encoder=None, **options):
    return cached_features(
        records, encoder or convolution(), SIZE, folder, batch_size=3, progress=False, **options
    )


def test_features_equal_the_encoders_output(records, tmp_path):
    cache = load(records, tmp_path / "new" / "cache", Means())
    assert cache.features.dtype == np.float16 and cache.features.shape == (7, 4, 3)
    assert isinstance(cache.features, np.memmap)
    image = read_image(records[2].image, SIZE).astype(float)
    expected = [image[y : y + 8, x : x + 8].mean(axis=(0, 1)) for y in (0, 8) for x in (0, 8)]
    np.testing.assert_allclose(cache.features[cache.rows(["2.png"])][0], expected, rtol=1e-3)
    assert cache.rows(["3.png", "0.png", "3.png"]).tolist() == [3, 0, 3]


def test_an_equal_encoder_and_images_in_any_order_reuse_the_file(records, tmp_path):
    first = load(records, tmp_path / "cache")
    changed = first.path.stat().st_mtime_ns
    again = load(records[::-1], tmp_path / "cache", convolution())
    assert again.path == first.path and again.path.stat().st_mtime_ns == changed
    assert again.row_of == first.row_of
    assert len(list((tmp_path / "cache").iterdir())) == 2


def test_any_change_of_encoder_or_images_recomputes_features(records, tmp_path):
    paths = {load(records, tmp_path / "cache").path}

    def is_new(*arguments):
        path = load(*arguments).path
        new = path not in paths
        paths.add(path)
        return new

    cache = tmp_path / "cache"
    assert is_new(records, cache, convolution(seed=1)), "weights"
    assert is_new(records, cache, Means()) and is_new(records, cache, Means(scale=2.0)), "configuration"
    assert is_new(records[:-1], cache), "fewer images"
    os.utime(records[0].image, ns=(1, 1))
    assert not is_new(records, cache), "only the time of change"
    content = bytearray(records[0].image.read_bytes())
    content[len(content) // 2] ^= 1
    records[0].image.write_bytes(content)
    assert is_new(records, cache), "content of the same size"
    Image.new("RGB", (9, 9)).save(records[0].image)
    assert is_new(records, cache), "content"
    assert cached_features(records, convolution(size=24), 24, cache, progress=False).path not in paths


def test_images_may_be_copied_to_another_folder(records, tmp_path):
    first = load(records, tmp_path / "cache")
    copies = shutil.copytree(records[0].image.parent, tmp_path / "copies", copy_function=shutil.copyfile)
    moved = [dataclasses.replace(record, image=copies / record.image_id) for record in records]
    assert load(moved, tmp_path / "cache").path == first.path


def test_two_processes_compute_the_same_features_once(records, tmp_path, monkeypatch, capsys):
    first = load(records, tmp_path / "first", Means())
    second = tmp_path / "second"
    second.mkdir()
    descriptor = os.open(second / f"{first.path.stem}.lock", os.O_RDWR | os.O_CREAT)
    fcntl.flock(descriptor, fcntl.LOCK_EX)

    def finish(seconds):
        """What the other process does while this one sleeps."""
        for suffix in (".npy", ".json"):
            shutil.copy(first.path.with_suffix(suffix), second)
        os.close(descriptor)

    monkeypatch.setattr("tfsparsecap.core.files.time", SimpleNamespace(sleep=finish))
    encoder = Means()
    cache = cached_features(records, encoder, SIZE, second)
    assert encoder.calls == 1, "only to determine the shape"
    np.testing.assert_array_equal(cache.features, first.features)
    assert f"computes the same features in {second}" in capsys.readouterr().out
    assert len(list(second.iterdir())) == 2


def test_unreadable_images_are_skipped_or_raise(records, tmp_path):
    records[0].image.write_bytes(b"text")
    records[4].image.unlink()
    for _ in range(2):  # computed, then read again
        cache = load(records, tmp_path / "cache", Means())
        assert [entry.where for entry in cache.skipped] == ["0.png", "4.png"]
        assert "no image" in cache.skipped[1].why
        assert sorted(cache.row_of) == ["1.png", "2.png", "3.png", "5.png", "6.png"]
        assert cache.features.shape == (5, 4, 3)
        image = read_image(records[5].image, SIZE).astype(float)
        np.testing.assert_allclose(
            cache.features[cache.row_of["5.png"], 0], image[:8, :8].mean(axis=(0, 1)), rtol=1e-3
        )
        with pytest.raises(InputError, match=r"0\.png"):
            load(records, tmp_path / "cache", Means(), on_bad_record="fail")
    with pytest.raises(InputError, match=r"0\.png"):
        load(records, tmp_path / "other", Means(), on_bad_record="fail")
    assert list((tmp_path / "other").iterdir()) == []


def test_no_readable_image_is_an_error(records, tmp_path):
    for record in records:
        record.image.write_bytes(b"")
    with pytest.raises(InputError, match="none of the 7 images can be read"):
        load(records, tmp_path / "cache")
    assert list((tmp_path / "cache").iterdir()) == []
    with pytest.raises(InputError, match="no images"):
        load([], tmp_path / "cache")


def array_of(header):
    """A `.npy` file with a header and 128 bytes of values."""
    header = header.ljust(117) + "\n"
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header.encode() + bytes(128)


@pytest.mark.slow
def test_a_damaged_cache_is_recomputed(records, tmp_path):
    cache = load(records, tmp_path / "cache")
    expected = np.array(cache.features)
    index_file = cache.path.with_suffix(".json")
    for damage in (
        lambda: cache.path.write_bytes(cache.path.read_bytes()[:-20]),
        lambda: cache.path.write_bytes(b""),
        # NumPy 2 divides by zero, and ends the process, if it maps this file.
        lambda: cache.path.write_bytes(array_of("{'descr': {}, 'fortran_order': False, 'shape': (-1,)}")),
        lambda: cache.path.write_bytes(array_of("{'descr': '<f2', 'fortran_order': False, 'shape': (-1,)}")),
        lambda: index_file.write_text("{"),
        lambda: index_file.write_text(json.dumps({"digest": "other"})),
        lambda: index_file.unlink(),
    ):
        damage()
        np.testing.assert_array_equal(load(records, tmp_path / "cache").features, expected)


def test_too_little_disk_space_is_reported_before_encoding(records, tmp_path, monkeypatch):
    usage = feature_cache.shutil.disk_usage(tmp_path)
    monkeypatch.setattr(feature_cache.shutil, "disk_usage", lambda _: usage._replace(free=10))
    encoder = Means()
    with pytest.raises(InputError, match="GB left"):
        load(records, tmp_path / "cache", encoder)
    assert encoder.calls == 1, "only to determine the shape"


def test_features_that_overflow_float16_are_rejected(records, tmp_path):
    with pytest.raises(InputError, match="65504"):
        load(records, tmp_path / "cache", Means(scale=1e6))
    assert list((tmp_path / "cache").iterdir()) == []


class Determinant(keras.layers.Layer):
    """An operation that LiteRT lacks."""

    def call(self, images):
        return tf.linalg.det(tf.einsum("bijc,bikc->bcjk", images, images))[:, None, :]


@pytest.fixture(scope="module")
def encoder():
    keras.utils.set_random_seed(0)
    return MobileNetV1Encoder(0.25, "conv_pw_3_relu", 48, None)


@pytest.mark.slow
def test_features_equal_those_of_tensorflow(encoder):
    images = np.random.default_rng(0).integers(0, 256, (3, 48, 48, 3), np.uint8)
    expected = keras.ops.convert_to_numpy(encoder(images.astype(np.float32)))
    features = litert_encoder(encoder, 48)(images)
    assert features.dtype == np.float32 and features.std() > 0
    np.testing.assert_allclose(features, expected, atol=1e-5 * np.abs(expected).max())


@pytest.mark.slow
def test_what_litert_cannot_run_is_left_to_tensorflow(encoder, monkeypatch):
    determinant = Determinant()
    determinant(np.zeros((1, 48, 48, 3), np.float32))
    assert litert_encoder(determinant, 48) is None
    half = MobileNetV1Encoder(0.25, "conv_pw_1_relu", 48, None, dtype="mixed_bfloat16")
    assert litert_encoder(half, 48) is None
    monkeypatch.setattr(tf.config, "list_logical_devices", lambda kind: [kind])
    assert litert_encoder(encoder, 48) is None


@pytest.mark.slow
def test_the_cache_of_many_images_is_computed_by_litert(encoder, tmp_path, monkeypatch):
    records = []
    for number in range(3):
        path = tmp_path / f"{number}.png"
        keras.utils.save_img(path, np.random.default_rng(number).integers(0, 256, (48, 48, 3)))
        records.append(Record(path.name, path, ("a",), "train"))

    def features(folder):
        return cached_features(records, encoder, 48, tmp_path / folder, batch_size=2, progress=False).features

    expected = np.array(features("tensorflow"))
    made = []

    def recording_encoder(*arguments):
        made.append(litert_encoder(*arguments))
        return made[0]

    monkeypatch.setattr(feature_cache, "_MANY_IMAGES", 3)
    monkeypatch.setattr(feature_cache, "litert_encoder", recording_encoder)
    litert_features = features("litert")
    assert made[0] is not None
    np.testing.assert_allclose(litert_features, expected, atol=2e-3 * np.abs(expected).max())


def test_an_encoder_with_another_output_shape_is_rejected(records, tmp_path):
    with pytest.raises(ValueError, match="regions, depth"):
        load(records, tmp_path, keras.layers.Flatten())
