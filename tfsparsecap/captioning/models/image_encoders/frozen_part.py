"""Splits a network into layers that stay frozen and layers that are trained."""

import difflib
from collections.abc import Sequence
from typing import NamedTuple

import keras

from tfsparsecap.errors import InputError


class Split(NamedTuple):
    """A network in two parts, which share its layers.

    Attributes:
        frozen: from the network's input to the map between both parts.
        rest: from there to the network's output.
        shape: of the map, without the axis of images.
    """

    frozen: keras.Model
    rest: keras.Model
    shape: tuple[int, ...]


def split_network(network: keras.Model, layer: str, image_size: int, name: str) -> Split:
    """Splits a functional network behind one of its layers.

    Args:
        network: from images [B, S, S, 3].
        layer: name of the last layer of the frozen part. All later layers must depend on earlier ones through
            its output only.
        image_size: S.
        name: of the network, for messages.

    Raises:
        InputError: there is no such layer, it is the last one, or later layers use other ones before it.

    Examples:
        >>> image = keras.Input((8, 8, 3))
        >>> middle = keras.layers.Conv2D(4, 1, name="first")(image)
        >>> network = keras.Model(image, keras.layers.Conv2D(2, 1)(middle))
        >>> split_network(network, "first", 8, "the network").shape
        (8, 8, 4)
    """
    names = [part.name for part in network.layers[1:]]
    if layer not in names:
        raise unknown_layer("frozen_until", name, layer, names)
    middle = network.get_layer(layer).output
    if middle is network.output:
        raise InputError(
            f"frozen_until is {layer}, the last layer of {name}: name an earlier one, or set trainable=false"
        )
    try:
        frozen, rest = keras.Model(network.inputs[0], middle), keras.Model(middle, network.output)
    except ValueError as error:
        raise InputError(
            f"{name} cannot be frozen until {layer}: later layers also use the output of earlier ones; name"
            " the last layer of a block"
        ) from error
    return Split(frozen, rest, tuple(frozen.compute_output_shape((1, image_size, image_size, 3))[1:]))


def unknown_layer(
    setting: str, network: str, layer: str, names: Sequence[str], usual: str = ""
) -> InputError:
    """The error for a setting's layer that a network does not have, with similar names."""
    guesses = difflib.get_close_matches(layer, names, n=3) or [usual or names[-1]]
    return InputError(
        f"{setting} is {layer}, and {network} has no such layer: did you mean {' or '.join(guesses)}?"
    )
