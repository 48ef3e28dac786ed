"""What `export_model` was asked for, and the steps that networks and captioners share."""

import dataclasses
import functools
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from tfsparsecap.core.progress import Progress
from tfsparsecap.errors import InputError
from tfsparsecap_export.encode import formats, sparse
from tfsparsecap_export.encode.costs import Costs
from tfsparsecap_export.encode.encoded_file import LayerReport, encode_file
from tfsparsecap_export.keras_to_tflite.graph import Source
from tfsparsecap_export.samples import Sample, as_samples, check_samples, synthetic_samples
from tfsparsecap_export.verify import outputs
from tfsparsecap_export.verify.outputs import Verification

#: Which weights are rounded to float16. The next entry is tried if outputs change; it adds this note.
_ROUNDINGS = {
    "all": "",
    "convolutions": "Rounding all weights to float16 changed {}: only the convolutions are rounded.",
    "nothing": "Rounding weights to float16 changed {}: they are stored as float32.",
}
_NO_ZEROS = "No layer of the model is sparse: prune the model to make the file smaller and faster."

#: Content of a file and the reports on the constants that were encoded.
Encoded = tuple[bytes, list[LayerReport]]


@dataclasses.dataclass(frozen=True)
class Request:
    """The arguments of `export_model` that do not depend on the kind of the model."""

    path: Path
    format: str
    costs: Costs
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
        given = as_samples(self.samples, inputs) if self.samples is not None else examples
        check_samples(given, inputs)
        if self.samples is None and not examples:
            return given, synthetic_samples(inputs, 8), "synthetic inputs"
        return given, given, self.sample_source

    def encoder(self, words: int, sources: dict[bytes, Source], names: bool = True) -> Callable[..., Encoded]:
        """`encode_file` for this format and target."""
        return functools.partial(
            encode_file, format=self.format, words=words, sources=sources, costs=self.costs, names=names
        )

    def kept_layers(
        self, dense: bytes, encode: Callable[..., Encoded], parts: Sequence[str]
    ) -> Sequence[str]:
        """The layers that stay float.

        Args:
            dense: the float32 file.
            encode: see `encoder`.
            parts: names of what is not a single layer, such as "convolutions".

        Raises:
            InputError: there is no such layer.
        """
        if not self.keep_float:
            return ()
        layers = encode(dense, format="dense")[1]
        names = [layer.name for layer in layers if layer.role != sparse.CONVOLUTION]
        return matching_layers(self.keep_float, [*parts, *names])


def encode_and_verify(
    encode: Callable[[str], Encoded], verify: Callable[..., Verification], format: str, result: str
) -> tuple[bytes, list[LayerReport], Verification, list[str]]:
    """Encodes a file and compares it with the Keras model; rounds fewer weights to float16 if they differ.

    Args:
        encode: which weights are rounded -> the file.
        verify: compares a file; takes `all_float` and `tie`.
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
            verification = verify(
                content, all_float=all_float, tie=outputs.ROUNDED_TIE if is_rounded else outputs.TIE
            )
        except outputs.Differs:
            if not is_rounded or format == "compact":
                raise
            continue
        notes = [note.format(result)] if note else []
        if all(layer.pattern == "dense" for layer in layers):
            notes.append(_NO_ZEROS)
        return content, layers, verification, notes
    raise AssertionError("nothing is rounded in the last attempt")


def stays_float(layers: Sequence[LayerReport], note: str) -> list[str]:
    """`note` if there are convolutions."""
    return [note] if any(layer.role == sparse.CONVOLUTION for layer in layers) else []


def matching_layers(patterns: Iterable[str], names: Sequence[str]) -> list[str]:
    """Layers whose path contains one of the patterns as whole parts: "lstm" matches "captioner/lstm/kernel".

    Raises:
        InputError: a pattern matches no layer.
    """
    found = []
    for pattern in [patterns] if isinstance(patterns, str) else patterns:
        part = f"/{pattern.strip('/')}/"
        matching = [name for name in names if part in f"/{name}/"]
        if not matching:
            known = ", ".join(names) or "none, the model has no such layers"
            raise InputError(f"there is no layer {pattern} to keep float: the layers are {known}")
        found.extend(matching)
    return list(dict.fromkeys(found))
