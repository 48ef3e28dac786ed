"""`export_model`: writes a Keras model as a .tflite file after checking the file against the model."""

import dataclasses
import functools
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import keras
import tensorflow as tf

from tfsparsecap.errors import InputError
from tfsparsecap.files import atomic_write
from tfsparsecap.inference.bundle import FORMAT_VERSION
from tfsparsecap.model_call import model_call
from tfsparsecap.models.captioner import UNKNOWN, Captioner
from tfsparsecap.search_options import SearchOptions
from tfsparsecap.search_rules import SearchRules
from tfsparsecap_export import int8_network
from tfsparsecap_export.convert import graph
from tfsparsecap_export.encode import calibration, formats, int8_encoder, int8_weights, sparse
from tfsparsecap_export.encode.costs import DEFAULT_TARGET, Costs, of_target
from tfsparsecap_export.encode.file import LayerReport, encode_file
from tfsparsecap_export.progress import Progress, silent
from tfsparsecap_export.report import ExportReport, Speedup
from tfsparsecap_export.samples import Sample, as_samples, check_samples, synthetic_samples
from tfsparsecap_export.verify import outputs, quality
from tfsparsecap_export.verify.quality import CaptionedSamples
from tfsparsecap_export.write import check_output, make_bundle, plain_description

if TYPE_CHECKING:
    from tfsparsecap.data.tokenizers import Tokenizer

#: Number of words per caption for which expected milliseconds are reported.
REPORTED_WORDS = 10
#: Which weights are rounded to float16. The next entry is tried if outputs change; it adds this note.
_ROUNDINGS = {
    "all": "",
    "convolutions": "Rounding all weights to float16 changed {}: only the convolutions are rounded.",
    "nothing": "Rounding weights to float16 changed {}: they are stored as float32.",
}


@dataclasses.dataclass(frozen=True)
class CaptionOptions:
    """Options for the export of a captioner.

    Attributes:
        beam: number of captions that beam search keeps and returns.
        max_length: maximum number of tokens per caption, including the end token.
        tokenizer: tokenizer that the captioner was trained with.
        vocabulary: token strings in the order of their ids, if there is no tokenizer.
        search: options of the search for complete sentences; None is the plain search.
        description: additional entries of `captioner.json`, such as `trained_on` and `scores`, which are
            those of the trained model, before rounding.
        tolerance: fraction of the captions that may differ from the Keras model's. By default 0 for a file
            with float weights only, and 1 for a file with int8 weights, whose scores are checked in any case.

    Raises:
        InputError: `tolerance` is not between 0 and 1, or JSON has no values such as in `description`.
    """

    beam: int = 3
    max_length: int = 20
    tokenizer: "Tokenizer | None" = None
    vocabulary: list[str] | None = None
    search: SearchOptions | None = dataclasses.field(default_factory=SearchOptions)
    description: dict = dataclasses.field(default_factory=dict)
    tolerance: float | None = None

    def __post_init__(self) -> None:
        if self.tolerance is not None and not 0 <= self.tolerance <= 1:
            raise InputError(f"tolerance is {self.tolerance}: give a fraction from 0 to 1")
        object.__setattr__(self, "description", plain_description(self.description))


def export_model(
    model: keras.Model,
    path: str | os.PathLike,
    format: str = "auto",
    *,
    captions: CaptionOptions | None = None,
    inputs: Any = None,
    batch: int | None = 1,
    samples: Any = None,
    sample_source: str = "given inputs",
    validation: CaptionedSamples | None = None,
    keep_float: Iterable[str] = (),
    target: str = DEFAULT_TARGET,
    progress: Progress = silent,
) -> ExportReport:
    """Writes a Keras model as a .tflite file, each layer in the encoding that suits its zeros.

    A `Captioner` becomes a self-contained bundle: one graph with the whole beam search, and the vocabulary
    and a description in the same file (see `tfsparsecap.inference.bundle`). Any other model becomes its
    forward pass with the signature `serving_default`. In both cases the file is run and compared with the
    Keras model first; it is written only if both agree.

    Args:
        model: built model without gates (`sc.strip_pruning`).
        path: path of the file. An existing file is replaced atomically.
        format: "auto", "int8", "fast", "compact", "dense" or "dense-int8"; see `formats.choose`.
        captions: options for a captioner.
        inputs: names and shapes of a captioner's inputs, see `caption_inputs`; by default the image that its
            encoder takes. For any other model, what it is called with, see `model_call.model_call`;
            by default what it was built with. The rows of arrays are the default of `samples`.
        batch: batch size of the file of any other model, or None for any (the caller resizes the input).
        samples: inputs for the comparison, each with a leading axis of size 1, or `batch`: a list of
            dictionaries, a data set, or for one input an array [N, ...] of N inputs, see
            `samples.as_samples`; synthetic by default. With two or more, a convolutional network becomes
            int8, weights and activations, in formats with int8 weights: every second one is for calibration.
            Activations, or weights too, stay float if outputs for the others differ too much.
        sample_source: what `samples` are, for the report.
        validation: images with reference captions. If given, the loss of CIDEr due to int8 is measured,
            layers that lose too much stay float, the encoder is stored as int8 too, and the confidence of
            captions is calibrated.
        keep_float: names of layers that stay float, such as `"output"`, `"encoder"`, `"convolutions"` or
            `"activations"` (of a convolutional network).
        target: the processor for which encodings are chosen, "arm64" (phones) or "x86_64"; see
            `encode.costs.TARGETS`. The file runs on both.
        progress: called with a short description of the current step, and the share of it that is done, from
            0 to 1 (None if it is not known).

    Returns:
        How each layer is stored, and the result of the comparison.

    Raises:
        InputError: the model cannot be exported, or the file does not agree with it; `path` is unchanged.

    Examples:
        >>> report = export_model(captioner, "captioner.tflite", captions=CaptionOptions(tokenizer=tokenizer))
        >>> report.verification.equal
        1.0
    """
    path = Path(path)
    formats.check_format(format)
    costs = of_target(target)
    check_output(path)
    job: _CaptionerJob | _ModelJob
    if isinstance(model, Captioner):
        if batch != 1:
            raise InputError(f"batch is {batch}: the file of a captioner takes one image; omit it")
        job = _CaptionerJob(model, captions or CaptionOptions(), inputs, costs)
    else:
        if captions is not None:
            raise InputError(f"captions are options for captioners; {model.name} is not one")
        job = _ModelJob(model, batch, inputs)
    given: Sequence[Sample] = job.examples
    if samples is not None:
        given = samples = as_samples(samples, job.inputs)
    else:
        samples = job.examples or synthetic_samples(job.inputs, 8)
        sample_source = sample_source if job.examples else "synthetic inputs"
    check_samples(given, job.inputs)
    with graph.float32_computation(model):
        graph.check_weights(model)
        outputs.check_deterministic(job.called, samples[0])
        progress("converting", None)
        dense = job.convert()
        sources = graph.weight_sources(model)
        encode_weights = functools.partial(
            encode_file, format=format, words=job.words, sources=sources, costs=costs
        )
        kept: Sequence[str] = ()
        if keep_float:
            layers = encode_weights(dense, format="dense")[1]
            names = [layer.name for layer in layers if layer.role != sparse.CONVOLUTION]
            kept = quality.matching_layers(keep_float, [*job.int8_parts, *names])
        calibrated, int8 = job.calibration(given, validation), {}
        if calibrated and format in formats.INT8_FORMATS and job.int8_parts[0] not in kept:
            options = {"format": format, "keep_float": kept, "sources": sources, "progress": progress}
            int8 = job.convert_to_int8(calibration.some(calibrated), content=dense, **options)

        def encode(kept: Sequence[str], rounded: str = "all") -> tuple[bytes, list[LayerReport]]:
            """The file in which some layers stay float, and the reports on its constants."""
            content, before = next((found for name, found in int8.items() if name not in kept), (dense, []))
            content, layers = encode_weights(content, keep_float=kept, rounded=rounded)
            return content, [*before, *layers]

        measured = None
        if validation is not None and isinstance(job, _CaptionerJob):
            measured = quality.choose_float_layers(encode, dense, validation, kept, progress)
            kept = measured.kept_float if measured is not None else kept
        progress("comparing the file with the Keras model", None)
        refused: list[str] = []
        if int8 and isinstance(job, _ModelJob):
            chosen, refused = int8_network.choose(
                dense,
                int8[job.int8_parts[0]],
                job.rounded,
                encode=lambda network: encode_weights(network[0], keep_float=kept)[0],
                verify=functools.partial(job.verify, samples=samples, all_float=False),
                calibration=calibration.some(calibrated),
                costs=costs,
                activations=int8_network.ACTIVATIONS not in kept,
                keep_zeros=format == "dense-int8",
            )
            int8 = {job.int8_parts[0]: chosen} if chosen is not None else {}
        for rounded, note in _ROUNDINGS.items():
            notes = [*job.notes, *refused, *([note.format(job.result)] if note else [])]
            content, layers = encode(kept, rounded)
            all_float = all(layer.is_float for layer in layers)
            is_rounded = all_float and rounded != "nothing" and format != "dense"
            tie = outputs.ROUNDED_TIE if is_rounded else outputs.TIE
            try:
                common: dict[str, Any] = {"all_float": all_float, "tie": tie, "source": sample_source}
                verification = job.verify(content, samples, **common)
                break
            except outputs.Differs:
                if not is_rounded or format == "compact":
                    raise
    if all(layer.pattern == "dense" for layer in layers):
        notes.append("No layer of the model is sparse: prune the model to make the file smaller and faster.")
    has_convolutions = any(layer.role == sparse.CONVOLUTION for layer in layers)
    if not calibrated and format in formats.INT8_FORMATS and has_convolutions:
        notes.append(job.no_calibration)
    confidence = None
    if validation is not None and isinstance(job, _CaptionerJob):
        confidence = quality.calibrate_confidence(content, validation, job.end_id, progress)
    speedup = Speedup.of(content, dense, costs, job.words)
    report = ExportReport(
        path, 0, format, job.words, tuple(layers), verification, speedup, tuple(notes), measured, confidence
    )
    content = job.finish(content, report)
    atomic_write(path, content)
    return dataclasses.replace(report, bytes=len(content))


class _ModelJob:
    """What is specific to the export of a model that is not a captioner."""

    words = REPORTED_WORDS  # time steps of a recurrent layer
    #: Names for `keep_float` of what becomes int8, and of a part of it; what rounding must not change.
    int8_parts, result = ("convolutions", int8_network.ACTIVATIONS), "outputs"
    no_calibration = "Convolutions stay float without samples: give two or more to store them as int8."

    def __init__(self, model: keras.Model, batch: int | None, inputs: Any) -> None:
        if batch is not None and batch < 1:
            raise InputError(f"batch is {batch}: give at least 1, or None for any batch size")
        if not model.built:
            graph.check_weights(model)
        self.called = model_call(model, inputs, batch)
        self.inputs, self.examples = self.called.inputs, self.called.examples
        self.rounded: dict[int, int8_weights.Rounded] = {}
        self.notes = [self.called.note] if self.called.note else []
        self.convert = functools.partial(graph.model_graph, model, batch, inputs)
        self.verify = functools.partial(outputs.verify_outputs, outputs.ExpectedOutputs(self.called))

    def calibration(self, samples: Sequence[Sample], validation: CaptionedSamples | None) -> Sequence[Sample]:
        """Every second given sample; the others are for the check."""
        return samples[::2] if len(samples) > 1 else ()

    def convert_to_int8(self, samples: Sequence[Sample], **options: Any) -> dict[str, int8_network.Network]:
        """The file of a convolutional network with int8 weights, and the reports on its layers."""
        self.notes += int8_weights.note_on_shared(options["content"])
        self.rounded = int8_weights.round_network(samples=samples, **options)
        if not self.rounded:
            return {}
        keep = {"samples": len(samples), "keep_zeros": options["format"] == "dense-int8"}
        return {self.int8_parts[0]: int8_weights.store_weights(options["content"], self.rounded, **keep)}

    def finish(self, content: bytes, report: ExportReport) -> bytes:
        return content


class _CaptionerJob:
    """What is specific to the export of a captioner."""

    int8_parts, result = (int8_encoder.NAME, int8_encoder.ACTIVATIONS), "a caption"
    no_calibration = "Without validation images the encoder stays float: give some to store it as int8."

    def __init__(self, model: Captioner, options: CaptionOptions, inputs: dict | None, costs: Costs) -> None:
        self.called, self.examples, self._costs = model, (), costs
        self.notes: list[str] = []
        self._model, self._options, self._tokenizer = model, options, options.tokenizer
        self.inputs = caption_inputs(model, inputs)
        self.has_encoder = "image" in self.inputs and getattr(model, "encoder", None) is not None
        known = self._tokenizer if self._tokenizer is not None else options.vocabulary
        if known is not None and len(known) != model.vocabulary_size:
            raise InputError(
                f"the vocabulary has {len(known)} tokens, the model {model.vocabulary_size}:"
                " give the vocabulary that the model was trained with"
            )
        self._rules = None if options.search is None else SearchRules(model, options.search, known)
        digits = self._tokenizer.digits if self._tokenizer is not None else 1
        self.words = min(REPORTED_WORDS * digits, options.max_length)
        # With a tokenizer, the file returns word ids, even if the captioner predicts digits of words.
        self.end_id = self._tokenizer.words.end_id if self._tokenizer is not None else model.end_id
        self.verify = functools.partial(
            outputs.verify_captions,
            model,
            beam=options.beam,
            max_length=options.max_length,
            rules=self._rules,
            tolerance=options.tolerance,
        )

    def convert(self, inputs: dict[str, tf.TensorSpec] | None = None) -> bytes:
        """The dense file; `inputs` are the file's by default."""
        tokenizer, options = self._tokenizer, self._options
        to_words = tokenizer.to_words if tokenizer is not None and tokenizer.words is not tokenizer else None
        inputs = self.inputs if inputs is None else inputs
        return graph.caption_graph(
            self._model, inputs, options.beam, options.max_length, to_words, self._rules
        )

    def calibration(self, samples: Sequence[Sample], validation: CaptionedSamples | None) -> Sequence[Sample]:
        """Validation images, if there is an encoder."""
        return validation.samples if validation is not None and self.has_encoder else ()

    def convert_to_int8(self, samples: Sequence[Sample], **options: Any) -> dict[str, int8_network.Network]:
        """The files with an int8 encoder, and the report on the encoder."""
        inputs = dict(self.inputs)
        encoder = graph.encoder_graph(self._model, inputs.pop("image"))
        features = tf.TensorSpec(int8_encoder.output_shape(encoder), tf.float32, name="features")
        found, notes = int8_network.encoders(
            encoder,
            self.convert({"features": features, **inputs}),
            [{"image": sample["image"]} for sample in samples],
            costs=self._costs,
            activations=int8_encoder.ACTIVATIONS not in options["keep_float"],
            progress=options["progress"],
            keep_zeros=options["format"] == "dense-int8",
        )
        self.notes += notes
        return found

    def finish(self, content: bytes, report: ExportReport) -> bytes:
        """Appends the vocabulary and `captioner.json`."""
        options, tokenizer = self._options, self._tokenizer
        kind = "image" if "image" in self.inputs else "features"
        spec = self.inputs[kind]
        special, unknown_id = (
            (tokenizer.words, tokenizer.words.unknown_id) if tokenizer else (self._model, UNKNOWN)
        )
        tokens = tf.zeros([options.max_length], tf.int32)
        words = tokenizer.to_words(tokens).shape[0] if tokenizer else options.max_length
        description = {
            "format_version": FORMAT_VERSION,
            "model": type(self._model).__name__,
            "input": kind,
            "input_shape": list(spec.shape),
            "image_size": spec.shape[1] if kind == "image" else None,
            "other_inputs": {name: list(x.shape) for name, x in self.inputs.items() if name != kind},
            "beam": options.beam,
            "max_length": words,
            "max_tokens": options.max_length,
            "vocabulary_size": len(tokenizer.words) if tokenizer else self._model.vocabulary_size,
            "special_ids": {"pad": special.pad_id, "start": special.start_id, "end": self.end_id},
            "unknown_id": unknown_id,
            "search": self._rules and self._rules.description(),
            "join": tokenizer.join if tokenizer else "words",
            "objects": list(self._model.objects),
            "sparsity": report.sparsity,
            "export_format": report.format,
            "verification": dataclasses.asdict(report.verification),
            "int8": report.quality and report.quality.as_dict(),
            "confidence": report.confidence and report.confidence.as_dict(),
            **options.description,
        }
        return make_bundle(content, description, tokenizer.vocabulary if tokenizer else options.vocabulary)


def caption_inputs(
    captioner: Captioner, shapes: dict[str, tuple[int, ...]] | None = None
) -> dict[str, tf.TensorSpec]:
    """The inputs of a captioner's file.

    Args:
        captioner: the model.
        shapes: shapes without the first axis: `{"image": (S, S, 3)}` or `{"features": (N, D)}`, and of the
            additional inputs of the captioner (`captioner.input_names`), such as Up-Down's `"pooled": (D,)`.
            By default the image size of the captioner's encoder.

    Returns:
        By name, all with batch size 1: an image uint8, a mask bool, the others float32.

    Raises:
        InputError: the shapes are unknown, or the captioner has no such input.
    """
    if shapes is None:
        size = getattr(getattr(captioner, "encoder", None), "image_size", None)
        if size is None:
            raise InputError(
                f'the input size of {captioner.name} is unknown: give inputs={{"features": (N, D)}}'
                ' or inputs={"image": (S, S, 3)}'
            )
        shapes = {"image": (size, size, 3)}
    images = ("image", "features", "frozen_features")
    if shapes.keys() - set(captioner.input_names) or len(shapes.keys() & set(images)) != 1:
        additional = [name for name in captioner.input_names if name not in images]
        accepted = ", and ".join(["image or features", ", ".join(additional)]).removesuffix(", and ")
        raise InputError(f"{captioner.name} takes {accepted}, not {' and '.join(shapes) or 'nothing'}")
    dtypes = {"image": tf.uint8, "mask": tf.bool}
    return {
        name: tf.TensorSpec((1, *shape), dtypes.get(name, tf.float32), name=name)
        for name, shape in shapes.items()
    }
