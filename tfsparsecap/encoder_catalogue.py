"""The encoders that settings can name, with their published accuracy, size and licence."""

import difflib
from dataclasses import dataclass

from tfsparsecap.errors import InputError

#: Start of the names of KerasHub's presets.
KERAS_HUB = "keras_hub:"


@dataclass(frozen=True)
class EncoderEntry:
    """Facts about an encoder, cut at its last feature map (or the layer that the papers use).

    Attributes:
        top_1: published top-1 accuracy of the whole classifier on ImageNet's validation split, in percent.
        parameters: number of weights up to the feature map, including batch normalisation.
        multiply_adds: for one image, up to the feature map.
        image_size: height and width of the images in pixels that the weights were trained with.
        feature_map: height, width and channels.
        licence: of the published weights.
        source: where `weights=imagenet` takes them from, or which file to give.
    """

    top_1: float
    parameters: int
    multiply_adds: int
    image_size: int
    feature_map: tuple[int, int, int]
    licence: str
    source: str


CATALOGUE = {
    "mobilenet_v1": EncoderEntry(68.4, 1_832_976, 325_000_000, 224, (7, 7, 768), "Apache-2.0", "Keras"),
    "inception_v1": EncoderEntry(69.8, 5_000_000, 1_300_000_000, 224, (14, 14, 832), "Apache-2.0", "TF-Slim"),
    "tiny_vit_5m": EncoderEntry(80.7, 5_066_196, 1_200_000_000, 224, (7, 7, 320), "MIT", "timm"),
}


def entry_of(network: str) -> EncoderEntry | None:
    """The facts about a network; None for presets of KerasHub.

    Raises:
        InputError: there is no such network.
    """
    if network in CATALOGUE or network.startswith(KERAS_HUB):
        return CATALOGUE.get(network)
    names = {name.lower(): name for name in CATALOGUE}
    similar = difflib.get_close_matches(network.lower(), names, n=1)
    hint = f"did you mean {names[similar[0]]}? " if similar else ""
    raise InputError(
        f"there is no network {network!r}: {hint}python -m tfsparsecap.encoders lists all networks"
    )
