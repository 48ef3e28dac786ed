"""`export_model`: from a Keras model to the fastest correct .tflite file, written only when it is correct."""

import contextlib
import dataclasses
import os
from collections.abc import Iterator
from pathlib import Path

import keras
import tensorflow as tf
from tfsparsecap_export import FORMATS, flatfile, formats, graph, layout, sparse, verify
from tfsparsecap_export.bundle import bundled
from tfsparsecap_export.encodings import fits_float16, round_to_float16
from tfsparsecap_export.report import ExportReport, LayerReport
from tfsparsecap_export.samples import Sample, synthetic_samples

from tfsparsecap.bundle import FORMAT_VERSION
from tfsparsecap.errors import InputError
from tfsparsecap.files import atomic_write
from tfsparsecap.models.captioner import Captioner

#: Words of a caption for which expected milliseconds are given.
REPORTED_WORDS = 10
#: Which weights are rounded to float16, the next where captions change, and what is then said of it.
_ROUNDINGS = {
    "all": "",
    "convolutions": "Rounding all weights to float16 changed a caption: only the convolutions' are rounded.",
    "nothing": "Rounding weights to float16 changed a caption, so they are stored as float32.",
}


def export_model(
    model: keras.Model,
    path: str | os.PathLike,
    format: str = "auto",
    *,
    beam: int = 3,
    max_length: int = 20,
    inputs: dict[str, tuple[int, ...]] | None = None,
    vocabulary: list[str] | None = None,
    description: dict | None = None,
    samples: list[Sample] | None = None,
    sample_source: str = "given inputs",
    tolerance: float | None = None,
) -> ExportReport:
    """Writes a Keras model as a .tflite file, each layer stored the way that suits its zeros.

    A `Captioner` becomes a self-contained bundle: the whole beam search in one graph, its vocabulary and
    description in the same file (see `tfsparsecap.bundle`). Any other model becomes its forward pass for one
    example, with the signature `serving_default`. Either way the file is run against the Keras model first
    and appears under its name only if both say the same.

    Args:
        model: a built model without gates (`sc.strip_pruning`).
        path: where the file goes; what is there is replaced at once or not at all.
        format: "auto", "int8", "fast", "compact" or "dense"; see `formats.choose`.
        beam: captions that a captioner's search keeps, and gives.
        max_length: words of a caption at most.
        inputs: name and shape without the first axis of a captioner's input, `{"image": (S, S, 3)}` or
            `{"features": (N, D)}`; by default the image that its encoder takes.
        vocabulary: the captioner's tokens in the order of their ids.
        description: more for `captioner.json`, such as `trained_on` and `scores`.
        samples: inputs for the check, each with leading axis 1; made-up ones by default.
        sample_source: what `samples` are, for the report.
        tolerance: share of captions that may differ from the Keras model's; by default none for a file whose
            weights are all float, and any number, as long as the scores fit, for one with int8 weights.

    Returns:
        What was stored how, and what the check found.

    Raises:
        InputError: the model cannot be exported, or its file would not say the same; `path` is as it was.

    Example:
        >>> report = export_model(captioner, "captioner.tflite", vocabulary=tokenizer.vocabulary)
        >>> report.verification.equal
        1.0
    """
    path = Path(path)
    if tolerance is not None and not 0 <= tolerance <= 1:
        raise InputError(f"tolerance is {tolerance}: give a share from 0 to 1")
    if format not in FORMATS:
        raise InputError(f'there is no export format "{format}": choose one of {", ".join(FORMATS)}')
    if not path.parent.is_dir():
        raise InputError(f"cannot write {path}: the folder {path.parent} does not exist; make it first")
    is_captioner = isinstance(model, Captioner)
    with _float32_computation(model):
        if is_captioner:
            specs = caption_inputs(model, inputs)
            if vocabulary is not None and len(vocabulary) != model.vocabulary_size:
                raise InputError(
                    f"the vocabulary has {len(vocabulary)} tokens, the model {model.vocabulary_size}:"
                    " give the vocabulary that the model was trained with"
                )
            dense = graph.caption_graph(model, specs, beam, max_length)
        else:
            specs = graph.model_inputs(model)
            dense = graph.model_graph(model)
        names = graph.weight_names(model)
        if samples is None:
            samples, sample_source = synthetic_samples(specs, 8), "made-up inputs"

        def check(content, all_float, tie):
            if not is_captioner:
                return verify.verify_outputs(
                    content, model, samples, all_float=all_float, source=sample_source
                )
            return verify.verify_captions(
                content,
                model,
                samples,
                beam=beam,
                max_length=max_length,
                all_float=all_float,
                tolerance=tolerance,
                tie=tie,
                source=sample_source,
            )

        words, notes = min(REPORTED_WORDS, max_length), []
        for rounded, note in _ROUNDINGS.items():
            content, layers = encode(dense, format, words=words, names=names, rounded=rounded)
            all_float = all(formats.is_float(layer.encoding) for layer in layers)
            rounds = all_float and rounded != "nothing" and format != "dense"
            tie = verify.ROUNDED_TIE if rounds else verify.TIE
            try:
                verification = check(content, all_float, tie)
            except verify.CaptionsDiffer:
                if rounded == "nothing" or not all_float or format in ("compact", "dense"):
                    raise
                continue
            notes.extend([note] if note else [])
            break
    if all(layer.pattern == "dense" for layer in layers):
        notes.append(
            "No layer of the model is sparse, so the file is a dense one: prune the model to gain more."
        )
    report = ExportReport(path, 0, format, words, tuple(layers), verification, tuple(notes))
    if is_captioner:
        content = bundled(
            content, _description(model, specs, beam, max_length, report, description or {}), vocabulary
        )
    atomic_write(path, content)
    return dataclasses.replace(report, bytes=len(content))


def encode(
    dense: bytes, format: str, *, words: int, names: dict[bytes, str] | None = None, rounded: str = "all"
) -> tuple[bytes, list[LayerReport]]:
    """Stores the weights of a dense .tflite file as a format asks.

    Args:
        dense: a dense float32 .tflite file.
        format: one of `tfsparsecap_export.FORMATS`.
        words: words of a caption, for the expected milliseconds.
        names: names of weights by their content, as `graph.weight_names` gives them.
        rounded: which float weights may be rounded to float16: `all`, `convolutions` (the encoder's, most of
            the bytes that rounding saves) or `nothing`.

    Returns:
        The bytes of the new file, and what each constant became. The same input gives the same bytes.
    """
    model = flatfile.read_model(dense)
    names = names or {}
    cut = _cut_for_blocks(model, format, names)
    weights = sparse.find_weights(model)
    roles = {
        "all": {weight.role for weight in weights},
        "convolutions": {sparse.CONVOLUTION},
        "nothing": set(),
    }
    rounds = {
        weight.buffer: weight.role in roles[rounded] and fits_float16(weight.values) for weight in weights
    }
    patterns = {weight.buffer: formats.Pattern.of(weight.values) for weight in weights}

    def choices(int8_tables):
        return {
            weight.buffer: formats.choose(
                weight,
                patterns[weight.buffer],
                format,
                int8_tables=int8_tables,
                float16=rounds[weight.buffer],
            )
            for weight in weights
        }

    chosen = choices(False)
    if any(choice.encoding == sparse.BLOCK16 for choice in chosen.values()):
        chosen = choices(True)
    changes = []
    layers = []
    for weight in weights:
        choice, pattern = chosen[weight.buffer], patterns[weight.buffer]
        stored = weight.values.nbytes
        if choice.encoding != sparse.DENSE:
            values = weight.values
            if choice.encoding in (sparse.CSR, sparse.BLOCK4, sparse.SPARSE32) and rounds[weight.buffer]:
                values = round_to_float16(values)
            encoded = sparse.encode(choice.encoding, values, weight.role)
            changes.append(sparse.Change(weight, choice.encoding, encoded))
            stored = encoded.bytes
        columns, how = cut.get(weight.buffer, (weight.shape[-1], ""))
        layers.append(
            LayerReport(
                name=names.get(graph.content_key(weight.values), weight.name),
                role=weight.role,
                shape=(*weight.shape[:-1], columns),
                pattern=str(pattern),
                nonzeros=pattern.nonzeros,
                encoding=choice.encoding,
                bytes=stored,
                expected_ms=formats.expected_ms(weight, pattern, choice.encoding, words),
                reason=f"{choice.reason} ({how})" if how else choice.reason,
            )
        )
    sparse.rewrite(model, changes)
    return flatfile.write_model(model), layers


def _cut_for_blocks(model, format: str, names: dict[bytes, str]) -> dict[int, tuple[int, str]]:
    """Cuts the layers that are to be int8 1x16 blocks, and are not yet such that the kernel takes them.

    Returns:
        Buffer of each part -> its columns without padding, and what was done.
    """
    cut = {}
    for weight in sparse.find_weights(model):
        if not formats.suits_block16(weight, formats.Pattern.of(weight.values), format):
            continue
        how = layout.layout_of(weight.values)
        if not how.fits and layout.can_apply(model, weight):
            name = names.get(graph.content_key(weight.values), weight.name)
            parts = layout.apply(model, weight, how, name)
            cut.update({buffer: (columns, str(how)) for buffer, columns in parts.items()})
    return cut


def caption_inputs(
    captioner: Captioner, shapes: dict[str, tuple[int, ...]] | None = None
) -> dict[str, tf.TensorSpec]:
    """The input of a captioner's file.

    Args:
        captioner: the model.
        shapes: `{"image": (S, S, 3)}` or `{"features": (N, D)}`; by default what the captioner's encoder
            says.

    Raises:
        InputError: neither says it.
    """
    if shapes is None:
        size = getattr(getattr(captioner, "encoder", None), "image_size", None)
        if size is None:
            raise InputError(
                f'{captioner.name} does not say how large its input is: give inputs={{"features": (N, D)}}'
                ' or inputs={"image": (S, S, 3)}'
            )
        shapes = {"image": (size, size, 3)}
    dtypes = {"image": tf.uint8, "features": tf.float32}
    unknown = shapes.keys() - dtypes.keys()
    if unknown or len(shapes) != 1:
        raise InputError(f"a captioner takes image or features, not {' and '.join(shapes) or 'nothing'}")
    return {name: tf.TensorSpec((1, *shape), dtypes[name], name=name) for name, shape in shapes.items()}


def _description(
    captioner: Captioner,
    specs: dict[str, tf.TensorSpec],
    beam: int,
    max_length: int,
    report: ExportReport,
    more: dict,
) -> dict:
    """The content of `captioner.json`."""
    ((kind, spec),) = specs.items()
    return {
        "format_version": FORMAT_VERSION,
        "model": type(captioner).__name__,
        "input": kind,
        "input_shape": list(spec.shape),
        "image_size": spec.shape[1] if kind == "image" else None,
        "beam": beam,
        "max_length": max_length,
        "vocabulary_size": captioner.vocabulary_size,
        "special_ids": {"pad": captioner.pad_id, "start": captioner.start_id, "end": captioner.end_id},
        "join": "words",
        "sparsity": report.sparsity,
        "export_format": report.format,
        "verification": dataclasses.asdict(report.verification),
        **more,
    }


@contextlib.contextmanager
def _float32_computation(model: keras.Model) -> Iterator[None]:
    """Computes in float32 inside the block: mixed precision, too, keeps its weights as float32."""
    layers = [layer for layer in model._flatten_layers() if layer.compute_dtype != "float32"]
    policies = [layer.dtype_policy for layer in layers]
    for layer in layers:
        layer.dtype_policy = "float32"
    try:
        yield
    finally:
        for layer, policy in zip(layers, policies, strict=True):
            layer.dtype_policy = policy
