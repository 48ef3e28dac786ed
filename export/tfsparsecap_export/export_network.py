"""The export of a model that is not a captioner: convert, encode, verify, write."""

import functools
from typing import Any

import keras

from tfsparsecap.core.files import atomic_write
from tfsparsecap.core.model_call import model_call
from tfsparsecap.errors import InputError
from tfsparsecap_export import int8_network
from tfsparsecap_export.encode import calibration, int8_weights
from tfsparsecap_export.export_report import ExportReport, Speedup
from tfsparsecap_export.keras_to_tflite import graph
from tfsparsecap_export.request import Request, encode_and_verify, stays_float
from tfsparsecap_export.verify import outputs

#: Time steps of a recurrent layer for which expected milliseconds are reported.
_STEPS = 10
_CONVOLUTIONS = "convolutions"
_NO_SAMPLES = "Convolutions stay float without samples: give two or more to store them as int8."


def export_network(model: keras.Model, request: Request, inputs: Any, batch: int | None) -> ExportReport:
    """Writes the forward pass of a model, with the signature `serving_default`.

    Args:
        model: built model without gates.
        request, inputs, batch: see `export_model`.

    Raises:
        InputError: see `export_model`.
    """
    if batch is not None and batch < 1:
        raise InputError(f"batch is {batch}: give at least 1, or None for any batch size")
    if not model.built:
        graph.check_weights(model)
    called = model_call(model, inputs, batch)
    given, compared, source = request.comparison(called.inputs, called.examples)
    notes = [called.note] if called.note else []
    with graph.float32_computation(model):
        graph.check_weights(model)
        outputs.check_deterministic(model.name, lambda: list(called(compared[0]).values()))
        request.progress("converting", None)
        dense = graph.model_graph(model, batch, inputs)

        sources = graph.weight_sources(model)
        encode = request.encoder(_STEPS, sources)
        kept = request.kept_layers(dense, encode, (_CONVOLUTIONS, int8_network.ACTIVATIONS))
        expected = outputs.ExpectedOutputs(called)
        verify = functools.partial(outputs.verify_outputs, expected, samples=compared)
        network: int8_network.Network = dense, []
        # Every second sample is for calibration; the others are for the check.
        samples = calibration.some(given[::2]) if len(given) > 1 and request.is_int8 else ()
        if samples and _CONVOLUTIONS not in kept:
            notes += int8_weights.note_on_shared(dense)
            rounded = int8_weights.round_network(
                dense,
                samples,
                format=request.format,
                keep_float=kept,
                sources=sources,
                progress=request.progress,
            )
            if rounded:
                request.progress("comparing files with the Keras model", None)
                keep_zeros = request.format == "dense-int8"
                chosen, refused = int8_network.choose(
                    dense,
                    int8_weights.store_weights(dense, rounded, samples=len(samples), keep_zeros=keep_zeros),
                    rounded,
                    encode=lambda network: encode(network[0], keep_float=kept)[0],
                    verify=functools.partial(verify, all_float=False),
                    calibration=samples,
                    costs=request.costs,
                    activations=int8_network.ACTIVATIONS not in kept,
                    keep_zeros=keep_zeros,
                )
                network = chosen or network
                notes += refused

        request.progress("comparing the file with the Keras model", None)
        content, layers, verification, found = encode_and_verify(
            lambda rounded: _with(network, encode(network[0], keep_float=kept, rounded=rounded)),
            functools.partial(verify, source=source),
            request.format,
            "outputs",
        )
    notes += found
    if request.is_int8 and len(given) < 2:
        notes += stays_float(layers, _NO_SAMPLES)
    speedup = Speedup.of(content, dense, request.costs, _STEPS)
    atomic_write(request.path, content)
    return ExportReport(
        request.path,
        len(content),
        request.format,
        _STEPS,
        tuple(layers),
        verification,
        speedup,
        tuple(notes),
    )


def _with(network: int8_network.Network, encoded: int8_network.Network) -> int8_network.Network:
    """A file with the reports on what was encoded before, too."""
    return encoded[0], [*network[1], *encoded[1]]
