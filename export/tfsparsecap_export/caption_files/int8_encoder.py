"""The int8 encoder of a captioner: two .tflite files, of the encoder and of the decoder, become one."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from tfsparsecap.core.progress import Progress, silent
from tfsparsecap_export.encode import encodings, int8_activations, int8_weights, sparse
from tfsparsecap_export.encode.costs import KernelCosts
from tfsparsecap_export.encode.encoded_file import EncodedFile, LayerReport
from tfsparsecap_export.encode.network_cost import network_ms
from tfsparsecap_export.flatbuffer import model_file as flatfile
from tfsparsecap_export.int8_network import FASTER
from tfsparsecap_export.samples import Sample

#: Names of the encoder among the layers: with float and with int8 activations.
NAME, ACTIVATIONS = "encoder", "encoder/activations"
_HOW = {NAME: "small layers float16", ACTIVATIONS: "int8 activations"}


def files_with_int8_encoder(
    encoder: bytes,
    decoder: bytes,
    images: Sequence[Sample],
    *,
    costs: KernelCosts,
    activations: bool,
    keep_zeros: bool,
    progress: Progress = silent,
) -> tuple[dict[str, EncodedFile], list[str]]:
    """A captioner with each of the int8 networks that may take the place of its encoder.

    Args:
        encoder, decoder: its float32 files, see `join_encoder`.
        images: inputs to round weights and to find the ranges of activations for.
        costs: costs of the target's kernels.
        activations: whether activations may become int8.
        keep_zeros: whether to store zeros in any case.
        progress: see `Progress`.

    Returns:
        By name for `keep_float`: first the network with int8 activations, if it is faster, then that with
        int8 weights; and notes for the user.
    """
    notes = int8_weights.note_on_shared(encoder)
    rounded = int8_weights.round_layers(encoder, images, progress=progress)
    options: dict[str, Any] = {"samples": len(images), "keep_zeros": keep_zeros, "multiplied": True}
    networks = {NAME: int8_weights.store_weights(encoder, rounded, **options)}
    if activations:
        try:
            prepared = int8_activations.prepare(encoder, rounded, images)
            quantized = int8_activations.quantized_network(prepared, keep_zeros=keep_zeros)
            before = network_ms(networks[NAME][0], costs)
            if network_ms(quantized[0], costs) <= FASTER * before:
                networks = {ACTIVATIONS: quantized, **networks}
        except int8_activations.CannotQuantize as error:
            notes.append(f"The encoder's activations stay float: {error}.")
    return {
        name: (
            join_encoder(content, decoder),
            [encoder_report(name, layers, len(images))],
        )
        for name, (content, layers) in networks.items()
    }, notes


def join_encoder(encoder: bytes, decoder: bytes) -> bytes:
    """Inserts the graph of an encoder in front of the graph of a decoder.

    The weights of an encoder are rounded for its activations, which only a file of its own can return.

    Args:
        encoder: a file of one subgraph with one input and one output, the decoder's `features`.
        decoder: a file of one signature with an input `features`.

    Returns:
        The decoder's file with the encoder's input instead of `features`.
    """
    first, second = flatfile.read_model(encoder), flatfile.read_model(decoder)
    (source,) = first.subgraphs
    target, (signature,) = second.subgraphs[0], second.signatureDefs
    replaced = next(entry for entry in signature.inputs if entry.name == b"features")
    features = replaced.tensorIndex
    (result,) = source.outputs

    offset = len(target.tensors)
    for tensor in source.tensors:
        tensor.buffer += len(second.buffers)
    target.tensors = [*target.tensors, *source.tensors]
    second.buffers = [*second.buffers, *first.buffers]

    def moved(indices):
        """New indices of the encoder's tensors; its result becomes the decoder's input."""
        return np.array([features if i == result else i + offset if i >= 0 else i for i in indices], np.int32)

    for operator in source.operators:
        code = first.operatorCodes[operator.opcodeIndex]
        builtin = max(code.builtinCode, code.deprecatedBuiltinCode)
        operator.opcodeIndex = flatfile.operator_code(second, builtin, code.version)
        operator.inputs, operator.outputs = moved(operator.inputs), moved(operator.outputs)
        if operator.intermediates is not None:
            operator.intermediates = moved(operator.intermediates)
    target.operators = [*source.operators, *target.operators]
    (image,) = moved(source.inputs)
    target.inputs = np.array([image if index == features else index for index in target.inputs], np.int32)
    (entry,) = first.signatureDefs[0].inputs
    entry.tensorIndex = int(image)
    signature.inputs = [entry if other is replaced else other for other in signature.inputs]
    return flatfile.write_model(second)


def output_shape(encoder: bytes) -> tuple[int, ...]:
    """Shape of the only output of a file; [1, N, D] for an encoder."""
    graph = flatfile.read_model(encoder).subgraphs[0]
    return tuple(int(size) for size in graph.tensors[graph.outputs[0]].shape)


def encoder_report(name: str, layers: Sequence[LayerReport], calibration: int) -> LayerReport:
    """Report on an int8 encoder as a whole.

    Args:
        name: `NAME` or `ACTIVATIONS`.
        layers: the reports on its layers.
        calibration: number of images that its weights were rounded for.
    """
    weights = sum(layer.weights for layer in layers)
    return LayerReport(
        name=name,
        role=sparse.CONVOLUTION,
        shape=(weights,),
        pattern="dense",
        weights=weights,
        nonzeros=sum(layer.nonzeros for layer in layers),
        encoding=encodings.INT8,
        bytes=sum(layer.bytes for layer in layers),
        expected_ms=0.0,
        reason=f"{_HOW[name]}; rounded for {calibration} images",
    )
