"""The export of a model that is not a captioner: convert, encode, verify, write; what captioners share."""

import dataclasses
import functools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import keras

from tfsparsecap.core.files import atomic_write
from tfsparsecap.core.model_call import model_call
from tfsparsecap.core.progress import Progress
from tfsparsecap.errors import InputError, check_whole
from tfsparsecap_export import int8_network
from tfsparsecap_export.encode import calibration, formats, int8_weights, sparse
from tfsparsecap_export.encode.costs import KernelCosts
from tfsparsecap_export.encode.encoded_file import EncodedFile, LayerReport, encode_file
from tfsparsecap_export.encode.network_cost import STEPS
from tfsparsecap_export.export_report import ExportReport, Speedup
from tfsparsecap_export.keras_to_tflite import graph
from tfsparsecap_export.samples import Sample, as_samples, check_samples, synthetic_samples, table_rows, vary
from tfsparsecap_export.verify import outputs
from tfsparsecap_export.verify.outputs import Verification

_CONVOLUTIONS = "convolutions"
_NO_SAMPLES = "Convolutions stay float without samples: give two or more to store them as int8."
_CONSTANT_SAMPLES = (
    "The given inputs are all the same number, which calibrates nothing: convolutions stay float. Give inputs"
    " like those of training."
)
#: Which weights are rounded to float16. The next entry is tried if outputs change; it adds this note.
_ROUNDINGS = {
    "all": "",
    "convolutions": "Rounding all weights to float16 changed {}: only the convolutions are rounded.",
    "nothing": "Rounding weights to float16 changed {}: they are stored as float32.",
}
_3D = "3D convolutions stay float32, with their zeros: TensorFlow Lite has no sparse or int8 kernel for them."
_NO_ZEROS = "No layer of the model is sparse: prune the model to make the file smaller and faster."


@dataclasses.dataclass(frozen=True)
class Request:
    """The arguments of `export_model` that do not depend on the kind of the model."""

    path: Path
    format: str
    costs: KernelCosts
    samples: Any
    sample_source: str
    keep_float: tuple[str, ...]
    progress: Progress

    @property
    def is_int8(self) -> bool:
        """Whether the format has int8 weights."""
        return self.format in formats.INT8_FORMATS

    def comparison(
        self, inputs: dict[str, Any], examples: Sequence[Sample] = ()
    ) -> tuple[Sequence[Sample], Sequence[Sample], str]:
        """The inputs for the comparison with the Keras model.

        Args:
            inputs: specifications of the file's inputs by name.
            examples: inputs that came with the model, the default of `samples`.

        Returns:
            The given inputs, perhaps none; those to compare; what they are, for the report.

        Raises:
            InputError: given inputs do not fit.
        """
        if self.samples is None and examples and not vary(examples):
            examples = ()  # they only tell a shape
        samples = as_samples(self.samples, inputs) if self.samples is not None else examples
        check_samples(samples, inputs)
        if self.samples is None and not examples:
            return samples, synthetic_samples(inputs, 8), "synthetic inputs"
        return samples, samples, self.sample_source

    def encoding_function(
        self, steps: int, sources: dict[bytes, graph.KerasWeight], names: bool = True
    ) -> Callable[..., EncodedFile]:
        """`encode_file` for this format and target."""
        return functools.partial(
            encode_file, format=self.format, steps=steps, sources=sources, costs=self.costs, names=names
        )

    def kept_layers(
        self, dense: bytes, encode: Callable[..., EncodedFile], parts: Sequence[str]
    ) -> Sequence[str]:
        """The layers that stay float.

        Args:
            dense: the float32 file.
            encode: see `encoding_function`.
            parts: names of what is not a single layer, such as "convolutions".

        Raises:
            InputError: there is no such layer.
        """
        if not self.keep_float:
            return ()
        layers = encode(dense, format="dense")[1]
        names = [layer.name for layer in layers if layer.role != sparse.CONVOLUTION]
        return matching_layers(self.keep_float, [*parts, *names])


def export_network(model: keras.Model, request: Request, inputs: Any, batch: int | None) -> ExportReport:
    """Writes the forward pass of a model, with the signature `serving_default`.

    Args:
        model: built model without gates.
        request, inputs, batch: see `export_model`.

    Raises:
        InputError: see `export_model`.
    """
    if batch is not None:
        batch = check_whole("batch", batch, at_least=1)
    graph.check_weights(model)
    with graph.kept_state(model) as check_state:
        called = model_call(model, inputs, batch)
        samples, compared, source = request.comparison(called.inputs, called.examples)
        with graph.float32_computation(model):
            outputs.check_deterministic(model.name, lambda: list(called(compared[0]).values()))
        check_state()
    notes = [called.note] if called.note else []
    with graph.float32_computation(model):
        request.progress("converting", None)
        dense = graph.model_graph(model, batch, inputs)
        if not samples:
            compared = synthetic_samples(called.inputs, len(compared), table_rows(dense))

        sources = graph.weight_sources(model)
        encode = request.encoding_function(STEPS, sources)
        float_layers = request.kept_layers(dense, encode, (_CONVOLUTIONS, int8_network.ACTIVATIONS))
        expected = outputs.ExpectedOutputs(called)
        verify = functools.partial(outputs.verify_outputs, expected, samples=compared)
        network: EncodedFile = dense, []
        calibrates = request.is_int8 and len(samples) > 1 and _CONVOLUTIONS not in float_layers
        if calibrates and not vary(samples):
            notes.append(_CONSTANT_SAMPLES)
        elif calibrates:
            int8, int8_notes = _int8_network(
                dense,
                samples,
                request,
                sources,
                float_layers,
                encode=lambda network: encode(network[0], keep_float=float_layers)[0],
                verify=functools.partial(verify, samples=samples[1::2], all_float=False),
            )
            network = int8 or network
            notes += int8_notes

        request.progress("comparing the file with the Keras model", None)
        content, layers, verification, rounding_notes = encode_and_verify(
            lambda rounded: _with_reports(
                network, encode(network[0], keep_float=float_layers, rounded=rounded)
            ),
            functools.partial(verify, source=source),
            request.format,
            "outputs",
        )
    notes += rounding_notes
    if request.is_int8 and len(samples) < 2:
        notes += note_on_convolutions(layers, _NO_SAMPLES)
    atomic_write(request.path, content)
    return ExportReport(
        path=request.path,
        bytes=len(content),
        format=request.format,
        words=STEPS,
        layers=tuple(layers),
        verification=verification,
        speedup=Speedup.of(content, dense, request.costs, STEPS),
        notes=tuple(notes),
    )


def _int8_network(
    dense: bytes,
    samples: Sequence[Sample],
    request: Request,
    sources: dict[bytes, graph.KerasWeight],
    float_layers: Sequence[str],
    encode: Callable[[EncodedFile], bytes],
    verify: Callable[[bytes], Verification],
) -> tuple[EncodedFile | None, list[str]]:
    """The network with int8 convolutions, or None, and notes.

    Every second sample is for calibration; the others are for the check. `encode` and `verify` are those of
    `int8_network.choose_network`.
    """
    examples, keep_zeros = calibration.calibration_samples(samples[::2]), request.format == "dense-int8"
    notes = int8_weights.note_on_shared(dense)
    rounded = int8_weights.round_network(
        dense,
        examples,
        format=request.format,
        keep_float=float_layers,
        sources=sources,
        progress=request.progress,
    )
    if not rounded:
        return None, notes
    request.progress("comparing files with the Keras model", None)
    network, more_notes = int8_network.choose_network(
        dense,
        int8_weights.store_weights(dense, rounded, samples=len(examples), keep_zeros=keep_zeros),
        rounded,
        encode=encode,
        verify=verify,
        calibration=examples,
        costs=request.costs,
        activations=int8_network.ACTIVATIONS not in float_layers,
        keep_zeros=keep_zeros,
    )
    return network, [*notes, *more_notes]


def _with_reports(network: EncodedFile, encoded: EncodedFile) -> EncodedFile:
    """A file with the reports on what was encoded before, too."""
    return encoded[0], [*network[1], *encoded[1]]


def encode_and_verify(
    encode: Callable[[str], EncodedFile], verify: Callable[..., Verification], format: str, result: str
) -> tuple[bytes, list[LayerReport], Verification, list[str]]:
    """Encodes a file and compares it with the Keras model; rounds fewer weights to float16 if they differ.

    Args:
        encode: which weights are rounded -> the file.
        verify: compares a file; takes `all_float` and `rounded`.
        format: of the file.
        result: what rounding must not change, for notes.

    Returns:
        The file, the reports on its constants, the comparison, and notes.

    Raises:
        InputError: the file does not agree with the model.
    """
    for rounded, note in _ROUNDINGS.items():
        content, layers = encode(rounded)
        all_float = all(layer.is_float for layer in layers)
        is_rounded = all_float and rounded != "nothing" and format != "dense"
        try:
            verification = verify(content, all_float=all_float, rounded=is_rounded)
        except outputs.Differs:
            if not is_rounded or format == "compact":
                raise
            continue
        notes = [note.format(result)] if note else []
        if all(layer.pattern == "dense" for layer in layers):
            notes.append(_NO_ZEROS)
        if format != "dense" and any(layer.role == sparse.CONVOLUTION_3D for layer in layers):
            notes.append(_3D)
        return content, layers, verification, notes
    raise AssertionError("nothing is rounded in the last attempt")


def note_on_convolutions(layers: Sequence[LayerReport], note: str) -> list[str]:
    """`note` if there are convolutions."""
    return [note] if any(layer.role == sparse.CONVOLUTION for layer in layers) else []


def matching_layers(patterns: Sequence[str], names: Sequence[str]) -> list[str]:
    """Layers whose path contains one of the patterns as whole parts: "lstm" matches "captioner/lstm/kernel".

    Raises:
        InputError: a pattern matches no layer.
    """
    layers = []
    for pattern in patterns:
        part = f"/{pattern.strip('/')}/"
        matching = [name for name in names if part in f"/{name}/"]
        if not matching:
            choices = ", ".join(names) or "none, the model has no such layers"
            raise InputError(f"there is no layer {pattern} to keep float: the layers are {choices}")
        layers.extend(matching)
    return list(dict.fromkeys(layers))
