"""Choosing between int8 weights and int8 activations for a convolutional network."""

from collections.abc import Callable, Sequence
from typing import Any

from tfsparsecap.model_summary.storage import SMALLEST_ENCODED
from tfsparsecap_export.encode import int8_activations, sparse
from tfsparsecap_export.encode.calibration import CalibratedLayer, find_layers
from tfsparsecap_export.encode.costs import KernelCosts
from tfsparsecap_export.encode.encoded_file import EncodedFile
from tfsparsecap_export.encode.int8_weights import Rounded
from tfsparsecap_export.encode.network_cost import network_ms
from tfsparsecap_export.flatbuffer import model_file as flatfile
from tfsparsecap_export.samples import Sample
from tfsparsecap_export.verify import outputs

#: Name for `keep_float`.
ACTIVATIONS = "activations"
#: Int8 activations must take less than this share of the time that is expected with int8 weights only.
FASTER = 0.95


def choose_network(
    dense: bytes,
    weights: EncodedFile,
    rounded: dict[int, Rounded],
    *,
    encode: Callable[[EncodedFile], bytes],
    verify: Callable[[bytes], Any],
    calibration: Sequence[Sample],
    costs: KernelCosts,
    activations: bool,
    keep_zeros: bool,
) -> tuple[EncodedFile | None, list[str]]:
    """The fastest int8 network whose outputs are similar to those of the Keras model.

    Args:
        dense: the float32 file.
        weights: the network with int8 weights and float activations.
        rounded: the rounded layers, from `int8_weights.round_network`.
        encode: makes a finished file of a network, by storing the weights that are still float.
        verify: raises `OutputsDiffer` for a file whose outputs differ too much.
        calibration: inputs for the ranges of activations.
        costs: costs of the target's kernels.
        activations: whether activations may become int8.
        keep_zeros: whether to store zeros in any case.

    Returns:
        A network and the reports on its int8 layers, or None if int8 weights alone change outputs too much;
        and notes for the user.
    """
    weights_only = encode(weights)
    try:
        verify(weights_only)
    except outputs.OutputsDiffer as error:
        return None, [f"Convolutions stay float: int8 changes outputs by {error.difference}."]
    if not activations:
        return weights, []
    try:
        prepared = int8_activations.prepare(dense, rounded, calibration)
        network, content, note = _quantized(prepared, encode, verify, keep_zeros)
    except int8_activations.CannotQuantize as error:
        return weights, [f"Activations stay float: {error}."]
    before, after = network_ms(weights_only, costs), network_ms(content, costs)
    if after > FASTER * before:
        times = f"{after:.2g} ms on {costs.target} with int8 activations, {before:.2g} ms without"
        return weights, [f"Activations stay float: the file would take {times}."]
    return network, note


def expected_ms(dense: bytes, costs: KernelCosts, zeros: float = 0.0) -> float:
    """Milliseconds that the int8 file of a float32 file is expected to take, if its outputs are similar.

    Dense layers multiply int8 weights. Convolutions are int8 with their activations if `choose_network` would
    choose that.

    Args:
        dense: the float32 file.
        costs: costs of the target's kernels.
        zeros: share of zeros of dense layers, see `network_ms`.
    """

    def is_int8(layer: CalibratedLayer) -> bool:
        return layer.role == sparse.CONVOLUTION or layer.weights.size < SMALLEST_ENCODED

    def milliseconds(content: bytes) -> float:
        return network_ms(content, costs, int8=True, convolutions=False, zeros=zeros)

    float_activations = milliseconds(dense)
    if all(layer.role != sparse.CONVOLUTION for layer in find_layers(flatfile.read_model(dense))):
        return float_activations
    try:
        int8_activations_ms = milliseconds(int8_activations.likely_network(dense, is_int8))
    except int8_activations.CannotQuantize:
        return float_activations
    is_faster = int8_activations_ms <= FASTER * float_activations
    return int8_activations_ms if is_faster else float_activations


def _quantized(
    prepared: int8_activations.Prepared,
    encode: Callable[[EncodedFile], bytes],
    verify: Callable[[bytes], Any],
    keep_zeros: bool,
) -> tuple[EncodedFile, bytes, list[str]]:
    """The network with int8 activations, its finished file, and notes.

    If outputs change too much, the activations of 1, 2, 4, … layers stay float, up to half of the layers,
    those first that lose most.

    Raises:
        CannotQuantize: outputs change too much, or the network is not supported.
    """
    layers = len(prepared.rounded)
    floats, difference = 0, ""
    while floats <= layers // 2:
        network = int8_activations.quantized_network(prepared, floats, keep_zeros=keep_zeros)
        content = encode(network)
        try:
            verify(content)
        except outputs.OutputsDiffer as error:
            difference = difference or error.difference
            floats = max(1, 2 * floats)
            continue
        except outputs.DoesNotRun as error:
            raise int8_activations.CannotQuantize(f"the runtime fails ({error.reason})") from error
        note = (
            f"The activations of {floats} of {layers} layers stay float: int8 would change outputs by"
            f" {difference}."
        )
        return network, content, [note] if floats else []
    raise int8_activations.CannotQuantize(f"int8 changes outputs by {difference}")
