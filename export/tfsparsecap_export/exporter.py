"""`export_model`: from a Keras model to the fastest correct .tflite file, written only when it is correct."""

import contextlib
import dataclasses
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import keras
import tensorflow as tf

from tfsparsecap import keras_internals
from tfsparsecap.data.tokenizers import Tokenizer
from tfsparsecap.errors import InputError
from tfsparsecap.files import atomic_write
from tfsparsecap.inference.bundle import FORMAT_VERSION
from tfsparsecap.models.captioner import UNKNOWN, Captioner
from tfsparsecap_export import FORMATS
from tfsparsecap_export.convert import graph
from tfsparsecap_export.encode import formats, sparse
from tfsparsecap_export.encode import int8_encoder as encoder
from tfsparsecap_export.encode.assembly import encode, whole
from tfsparsecap_export.encode.costs import Costs
from tfsparsecap_export.report import ExportReport, LayerReport
from tfsparsecap_export.samples import Sample, synthetic_samples
from tfsparsecap_export.verify import outputs as verify
from tfsparsecap_export.verify import quality
from tfsparsecap_export.verify.quality import CaptionedSamples, matching_layers
from tfsparsecap_export.write.bundle import bundled

#: Formats that store weights as int8.
_CALIBRATED = ("auto", "int8", "dense-int8")
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
    batch: int | None = 1,
    tokenizer: Tokenizer | None = None,
    vocabulary: list[str] | None = None,
    description: dict | None = None,
    samples: list[Sample] | None = None,
    sample_source: str = "given inputs",
    tolerance: float | None = None,
    validation: CaptionedSamples | None = None,
    keep_float: Iterable[str] = (),
    costs: Costs | None = None,
    progress: Callable[[str], None] = lambda text: None,
) -> ExportReport:
    """Writes a Keras model as a .tflite file, each layer stored the way that suits its zeros.

    A `Captioner` becomes a self-contained bundle: the whole beam search in one graph, its vocabulary and
    description in the same file (see `tfsparsecap.inference.bundle`). Any other model becomes its forward
    pass, with the signature `serving_default`. Either way the file is run against the Keras model first and
    appears under its name only if both say the same.

    Args:
        model: a built model without gates (`sc.strip_pruning`).
        path: where the file goes; what is there is replaced at once or not at all.
        format: "auto", "int8", "fast", "compact", "dense" or "dense-int8"; see `formats.choose`.
        beam: captions that a captioner's search keeps, and gives.
        max_length: words of a caption at most.
        inputs: names and shapes of a captioner's inputs, see `caption_inputs`; by default the image that its
            encoder takes.
        batch: examples that a file of any other model takes at a time, or None for any number (the caller
            resizes the input then); a captioner's file takes one picture.
        tokenizer: what the captioner was trained with.
        vocabulary: in place of a tokenizer, the captioner's words in the order of their ids.
        description: more for `captioner.json`, such as `trained_on` and `scores`.
        samples: inputs for the check, each with leading axis 1, or `batch`; made-up ones by default.
        sample_source: what `samples` are, for the report.
        tolerance: share of captions that may differ from the Keras model's; by default none for a file whose
            weights are all float, and any number, as long as the scores fit, for one with int8 weights.
        validation: pictures with their captions. With them, what int8 costs in CIDEr is measured, layers
            whose rounding costs too much stay float, and the encoder becomes int8, too.
        keep_float: names of layers to keep float, such as `"output"`, or `"encoder"`.
        costs: what the runtime's kernels cost, for `auto`; the shipped constants by default.
        progress: is told in a few words what is being done.

    Returns:
        What was stored how, and what the check found.

    Raises:
        InputError: the model cannot be exported, or its file would not say the same; `path` is as it was.

    Example:
        >>> report = export_model(captioner, "captioner.tflite", tokenizer=tokenizer)
        >>> report.verification.equal
        1.0
    """
    path = Path(path)
    if tolerance is not None and not 0 <= tolerance <= 1:
        raise InputError(f"tolerance is {tolerance}: give a share from 0 to 1")
    if format not in FORMATS:
        raise InputError(f'there is no export format "{format}": choose one of {", ".join(FORMATS)}')
    if batch != 1 and isinstance(model, Captioner):
        raise InputError(f"batch is {batch}: a captioner's file takes one picture at a time; leave it out")
    if batch is not None and batch < 1:
        raise InputError(f"batch is {batch}: give at least 1, or None for any number")
    if not path.parent.is_dir():
        raise InputError(f"cannot write {path}: the folder {path.parent} does not exist; make it first")
    is_captioner = isinstance(model, Captioner)
    tokens = REPORTED_WORDS * (1 if tokenizer is None else tokenizer.digits)
    words, notes = min(tokens, max_length), []
    with _float32_computation(model):
        if is_captioner:
            specs = caption_inputs(model, inputs)
            given = vocabulary if tokenizer is None else tokenizer
            if given is not None and len(given) != model.vocabulary_size:
                raise InputError(
                    f"the vocabulary has {len(given)} tokens, the model {model.vocabulary_size}:"
                    " give the vocabulary that the model was trained with"
                )
            if tokenizer is not None:
                vocabulary = tokenizer.vocabulary
        else:
            specs = graph.model_inputs(model, batch)
        graph.check_weights(model)
        if samples is None:
            samples, sample_source = synthetic_samples(specs, 8), "made-up inputs"
        verify.check_deterministic(model, samples[0])
        if is_captioner:
            to_words = None
            if tokenizer is not None and tokenizer.words is not tokenizer:
                to_words = tokenizer.to_words
            dense = graph.caption_graph(model, specs, beam, max_length, to_words)
        else:
            dense = graph.model_graph(model, batch)
        calibration = _calibration(specs, validation) if format in _CALIBRATED else []
        quantized = None
        if is_captioner and calibration and model.encoder is not None:
            quantized = _with_int8_encoder(model, specs, beam, max_length, to_words, calibration)
        files = _Files(dense, quantized, format, words, graph.weight_sources(model), costs)
        kept = frozenset(matching_layers(keep_float, files.layers()))

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

        measured = None
        if is_captioner and validation is not None and files.build(kept)[1]:
            measured = quality.choose_float_layers(
                files.build, dense, validation, keep_float=sorted(kept), progress=progress
            )
            kept = frozenset(measured.kept_float)
        progress("checking against the Keras model")
        for rounded, note in _ROUNDINGS.items():
            content, layers = files.encoded(kept, rounded)
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
    report = ExportReport(path, 0, format, words, tuple(layers), verification, tuple(notes), measured)
    if is_captioner:
        described = _description(model, specs, beam, max_length, report, tokenizer)
        content = bundled(content, {**described, **(description or {})}, vocabulary)
    atomic_write(path, content)
    return dataclasses.replace(report, bytes=len(content))


@dataclasses.dataclass
class _Files:
    """The files that one model can become.

    Attributes:
        dense: the model with all weights float32.
        quantized: the same with an int8 encoder, or None where there is none.
        format, words, sources, costs: as in `assembly.encode`.
    """

    dense: bytes
    quantized: tuple[bytes, LayerReport] | None
    format: str
    words: int
    sources: dict[bytes, graph.Source]
    costs: Costs | None

    def encoded(self, keep_float: frozenset[str], rounded: str) -> tuple[bytes, list[LayerReport]]:
        """The file, and what each of its constants became."""
        int8_encoder = self.quantized is not None and encoder.NAME not in keep_float
        content, layers = encode(
            self.quantized[0] if int8_encoder else self.dense,
            self.format,
            words=self.words,
            sources=self.sources,
            rounded=rounded,
            keep_float=keep_float,
            costs=self.costs,
        )
        return content, [self.quantized[1], *layers] if int8_encoder else layers

    def build(self, keep_float: frozenset[str]) -> tuple[bytes, list[str]]:
        """The file, and the names of its int8 layers."""
        content, layers = self.encoded(keep_float, "all")
        names = [whole(layer.name) for layer in layers if not formats.is_float(layer.encoding)]
        return content, list(dict.fromkeys(names))

    def layers(self) -> list[str]:
        """Names of all layers that can be kept float; the encoder may be so already."""
        _, layers = encode(self.dense, "dense", words=1, sources=self.sources)
        names = [layer.name for layer in layers if layer.role != sparse.CONVOLUTION]
        return [encoder.NAME, *names]


def _calibration(specs: dict, validation: CaptionedSamples | None) -> list:
    """Pictures to take the ranges of an encoder's values from: none where its loss could not be measured."""
    if validation is None or "image" not in specs:
        return []
    step = max(1, len(validation.samples) // encoder.CALIBRATION_IMAGES)
    return [sample["image"] for sample in validation.samples[::step][: encoder.CALIBRATION_IMAGES]]


def _with_int8_encoder(
    captioner: Captioner,
    specs: dict,
    beam: int,
    max_length: int,
    to_words: Callable | None,
    calibration: list,
) -> tuple[bytes, LayerReport]:
    """The captioner's graph with an int8 encoder, and what is to be said of that in the report."""
    quantized = graph.encoder_graph(captioner, specs["image"], calibration)
    features = tf.TensorSpec(encoder.output_shape(quantized), tf.float32, name="features")
    others = {name: spec for name, spec in specs.items() if name != "image"}
    decoder = graph.caption_graph(captioner, {"features": features, **others}, beam, max_length, to_words)
    return encoder.joined(quantized, decoder), encoder.report_of(quantized, len(calibration))


def caption_inputs(
    captioner: Captioner, shapes: dict[str, tuple[int, ...]] | None = None
) -> dict[str, tf.TensorSpec]:
    """The inputs of a captioner's file.

    Args:
        captioner: the model.
        shapes: without the first axis, `{"image": (S, S, 3)}` or `{"features": (N, D)}`, and of whatever else
            the captioner takes beside it (`captioner.input_names`), such as Up-Down's `"pooled": (D,)`; by
            default what the captioner's encoder says.

    Returns:
        By name, all of batch 1: an image uint8, a mask bool, the others float32.

    Raises:
        InputError: neither says it, or the captioner has no such input.
    """
    if shapes is None:
        size = getattr(getattr(captioner, "encoder", None), "image_size", None)
        if size is None:
            raise InputError(
                f'{captioner.name} does not say how large its input is: give inputs={{"features": (N, D)}}'
                ' or inputs={"image": (S, S, 3)}'
            )
        shapes = {"image": (size, size, 3)}
    unknown = shapes.keys() - set(captioner.input_names)
    if unknown or len(shapes.keys() & {"image", "features"}) != 1:
        beside = [name for name in captioner.input_names if name not in ("image", "features")]
        raise InputError(
            f"{captioner.name} takes image or features{', and ' + ', '.join(beside) if beside else ''},"
            f" not {' and '.join(shapes) or 'nothing'}"
        )
    dtypes = {"image": tf.uint8, "mask": tf.bool}
    return {
        name: tf.TensorSpec((1, *shape), dtypes.get(name, tf.float32), name=name)
        for name, shape in shapes.items()
    }


def _description(
    captioner: Captioner,
    specs: dict[str, tf.TensorSpec],
    beam: int,
    max_length: int,
    report: ExportReport,
    tokenizer: Tokenizer | None,
) -> dict:
    """What `captioner.json` says of the file itself."""
    kind = "image" if "image" in specs else "features"
    spec = specs[kind]
    said = tokenizer.words if tokenizer else captioner
    words = max_length
    if tokenizer is not None:
        words = tokenizer.to_words(tf.zeros([max_length], tf.int32)).shape[0]
    return {
        "format_version": FORMAT_VERSION,
        "model": type(captioner).__name__,
        "input": kind,
        "input_shape": list(spec.shape),
        "image_size": spec.shape[1] if kind == "image" else None,
        "other_inputs": {name: list(other.shape) for name, other in specs.items() if name != kind},
        "beam": beam,
        "max_length": words,
        "max_tokens": max_length,
        # What comes out are words, where the captioner predicts their digits, too.
        "vocabulary_size": len(tokenizer.words) if tokenizer else captioner.vocabulary_size,
        "special_ids": {"pad": said.pad_id, "start": said.start_id, "end": said.end_id},
        "unknown_id": tokenizer.words.unknown_id if tokenizer else UNKNOWN,
        "join": tokenizer.join if tokenizer else "words",
        "sparsity": report.sparsity,
        "export_format": report.format,
        "verification": dataclasses.asdict(report.verification),
        "int8": None if report.quality is None else report.quality.as_dict(),
    }


@contextlib.contextmanager
def _float32_computation(model: keras.Model) -> Iterator[None]:
    """Computes in float32 inside the block: mixed precision, too, keeps its weights as float32."""
    layers = [layer for layer in keras_internals.nested_layers(model) if layer.compute_dtype != "float32"]
    policies = [layer.dtype_policy for layer in layers]
    for layer in layers:
        layer.dtype_policy = "float32"
    try:
        yield
    finally:
        for layer, policy in zip(layers, policies, strict=True):
            layer.dtype_policy = policy
