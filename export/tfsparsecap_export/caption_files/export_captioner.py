"""The export of a captioner with the whole beam search: convert, encode, verify, write."""

import dataclasses
import functools
import io
import json
import zipfile
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from tfsparsecap.captioning.inference.bundle import FORMAT_VERSION, VOCABULARY
from tfsparsecap.captioning.inference.confidence import FEWEST_IMAGES
from tfsparsecap.captioning.inference.description import DESCRIPTION, DIGESTS, digests
from tfsparsecap.captioning.models.captioner_base import UNKNOWN, Captioner
from tfsparsecap.captioning.search.search_options import SearchOptions
from tfsparsecap.captioning.search.sentence_rules import SearchRules
from tfsparsecap.core.files import atomic_write
from tfsparsecap.errors import InputError
from tfsparsecap_export.caption_files import caption_check, caption_graph, int8_encoder, quality
from tfsparsecap_export.caption_files.captioner_report import CaptionerReport
from tfsparsecap_export.caption_files.quality import CaptionedSamples
from tfsparsecap_export.encode import calibration
from tfsparsecap_export.encode.encoded_file import EncodedFile
from tfsparsecap_export.export_network import Request, encode_and_verify, note_on_convolutions
from tfsparsecap_export.export_report import Speedup
from tfsparsecap_export.keras_to_tflite import graph
from tfsparsecap_export.verify import outputs

if TYPE_CHECKING:
    from tfsparsecap.captioning.data.tokenizers import Tokenizer

#: Number of words per caption for which expected milliseconds are reported.
REPORTED_WORDS = 10
_NO_IMAGES = "Without validation images the encoder stays float: give some to store it as int8."
_NO_CONFIDENCE = (
    f"The file has no confidence: give at least {FEWEST_IMAGES} validation images with captions to calibrate"
    " it."
)


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
        InputError: `tolerance` is not between 0 and 1, a token contains a line break, or JSON has no values
            such as in `description`.

    Examples:
        >>> options = CaptionOptions(beam=4, description={"trained_on": "my photographs"})
        >>> options.beam, options.max_length
        (4, 20)
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
        broken = next((i for i, token in enumerate(self.vocabulary or ()) if "\n" in token), None)
        if broken is not None:
            raise InputError(f"token {broken} of the vocabulary contains a line break: replace it")
        object.__setattr__(self, "description", plain_description(self.description))

    def tokens(self, captioner: Captioner) -> "Tokenizer | Sequence[str] | None":
        """What the captioner predicts: the tokenizer, the vocabulary, or None if neither is given.

        Raises:
            InputError: the captioner predicts another number of tokens.
        """
        tokens = self.tokenizer if self.tokenizer is not None else self.vocabulary
        if tokens is not None and len(tokens) != captioner.vocabulary_size:
            raise InputError(
                f"the vocabulary has {len(tokens)} tokens, the model {captioner.vocabulary_size}:"
                " give the vocabulary that the model was trained with"
            )
        return tokens

    def end_id(self, captioner: Captioner) -> int:
        """The id with which captions of the file end: with a tokenizer, the file returns ids of words, even
        if the captioner predicts their digits."""
        return captioner.end_id if self.tokenizer is None else self.tokenizer.words.end_id


def export_captioner(
    captioner: Captioner,
    request: Request,
    options: CaptionOptions,
    shapes: dict[str, tuple[int, ...]] | None,
    validation: CaptionedSamples | None,
) -> CaptionerReport:
    """Writes a captioner as a bundle: one graph with the whole beam search, vocabulary and description.

    Args:
        captioner: without gates.
        shapes: see `caption_inputs`.
        request, options, validation: see `export_model`.

    Raises:
        InputError: see `export_model`.
    """
    inputs, tokenizer = caption_inputs(captioner, shapes), options.tokenizer
    tokens = options.tokens(captioner)
    rules = None if options.search is None else SearchRules(captioner, options.search, tokens)
    words = min(REPORTED_WORDS * (tokenizer.digits if tokenizer else 1), options.max_length)
    _, compared, source = request.comparison(inputs)
    notes: list[str] = []
    with graph.float32_computation(captioner):
        graph.check_weights(captioner)
        start = {**compared[0], "tokens": tf.constant([[captioner.start_id] * 2], tf.int32)}
        outputs.check_deterministic(captioner.name, lambda: captioner(start, training=False))
        request.progress("converting", None)
        search_graph = functools.partial(
            caption_graph.caption_graph,
            captioner,
            beam=options.beam,
            max_length=options.max_length,
            to_words=tokenizer.to_words if tokenizer and tokenizer.words is not tokenizer else None,
            rules=rules,
        )
        dense = search_graph(inputs)

        encode_file = request.encoding_function(words, graph.weight_sources(captioner), names=False)
        parts = int8_encoder.NAME, int8_encoder.ACTIVATIONS
        float_layers = request.kept_layers(dense, encode_file, parts)
        has_encoder = "image" in inputs and getattr(captioner, "encoder", None) is not None
        images = (
            calibration.calibration_samples(validation.samples)
            if validation is not None and has_encoder
            else ()
        )
        encoders: dict[str, EncodedFile] = {}
        if images and request.is_int8 and int8_encoder.NAME not in float_layers:
            encoders, notes = _int8_encoders(captioner, request, inputs, search_graph, images, float_layers)

        def encode(keep_float: Sequence[str], rounded: str = "all") -> EncodedFile:
            """The file in which some layers stay float."""
            content, encoder_reports = next(
                (encoded for name, encoded in encoders.items() if name not in keep_float), (dense, [])
            )
            content, reports = encode_file(content, keep_float=keep_float, rounded=rounded)
            return content, [*encoder_reports, *reports]

        measured = None
        if validation is not None:
            measured = quality.choose_float_layers(encode, dense, validation, float_layers, request.progress)
            float_layers = measured.kept_float if measured is not None else float_layers
        request.progress("comparing the file with the Keras model", None)
        verify = functools.partial(
            caption_check.verify_captions,
            captioner,
            samples=compared,
            beam=options.beam,
            max_length=options.max_length,
            rules=rules,
            tolerance=options.tolerance,
            source=source,
        )
        content, layers, verification, rounding_notes = encode_and_verify(
            functools.partial(encode, float_layers), verify, request.format, "a caption"
        )
    notes += rounding_notes
    if request.is_int8 and not images:
        notes += note_on_convolutions(layers, _NO_IMAGES)
    confidence = None
    if validation is not None and len(validation.samples) >= FEWEST_IMAGES:
        end_id = options.end_id(captioner)
        confidence = quality.calibrate_confidence(content, validation, end_id, request.progress)
    else:
        notes.append(_NO_CONFIDENCE)
    report = CaptionerReport(
        path=request.path,
        bytes=0,  # known when it is written
        format=request.format,
        words=words,
        layers=tuple(layers),
        verification=verification,
        speedup=Speedup.of(content, dense, request.costs, words),
        notes=tuple(notes),
        quality=measured,
        confidence=confidence,
    )
    description = _description(captioner, options, inputs, rules, report)
    vocabulary = tokenizer.vocabulary if tokenizer else options.vocabulary
    content = make_bundle(content, description, vocabulary)
    atomic_write(request.path, content)
    return dataclasses.replace(report, bytes=len(content))


def _int8_encoders(
    captioner: Captioner,
    request: Request,
    inputs: dict[str, tf.TensorSpec],
    search_graph: Callable[[dict[str, tf.TensorSpec]], bytes],
    images: Sequence[dict],
    float_layers: Sequence[str],
) -> tuple[dict[str, EncodedFile], list[str]]:
    """The files with an int8 encoder, see `int8_encoder.files_with_int8_encoder`."""
    encoder = caption_graph.encoder_graph(captioner, inputs["image"])
    features = tf.TensorSpec(int8_encoder.output_shape(encoder), tf.float32, name="features")
    others = {name: spec for name, spec in inputs.items() if name != "image"}
    return int8_encoder.files_with_int8_encoder(
        encoder,
        search_graph({"features": features, **others}),
        [{"image": sample["image"]} for sample in images],
        costs=request.costs,
        activations=int8_encoder.ACTIVATIONS not in float_layers,
        keep_zeros=request.format == "dense-int8",
        progress=request.progress,
    )


def _description(
    captioner: Captioner,
    options: CaptionOptions,
    inputs: dict[str, tf.TensorSpec],
    rules: SearchRules | None,
    report: CaptionerReport,
) -> dict[str, Any]:
    """The content of `captioner.json`."""
    tokenizer = options.tokenizer
    kind = "image" if "image" in inputs else "features"
    spec = inputs[kind]
    special, unknown_id = (tokenizer.words, tokenizer.words.unknown_id) if tokenizer else (captioner, UNKNOWN)
    length = options.max_length
    words = tokenizer.to_words(tf.zeros([length], tf.int32)).shape[0] if tokenizer else length
    return {
        "format_version": FORMAT_VERSION,
        "model": type(captioner).__name__,
        "input": kind,
        "input_shape": list(spec.shape),
        "image_size": spec.shape[1] if kind == "image" else None,
        "other_inputs": {name: list(x.shape) for name, x in inputs.items() if name != kind},
        "beam": options.beam,
        "max_length": words,
        "max_tokens": length,
        "vocabulary_size": len(tokenizer.words) if tokenizer else captioner.vocabulary_size,
        "special_ids": {
            "pad": special.pad_id,
            "start": special.start_id,
            "end": options.end_id(captioner),
        },
        "unknown_id": unknown_id,
        "search": rules and rules.description(),
        "join": tokenizer.join if tokenizer else "words",
        "objects": list(captioner.objects),
        "sparsity": report.sparsity,
        "export_format": report.format,
        "verification": dataclasses.asdict(report.verification),
        "int8": report.quality and report.quality.as_dict(),
        "confidence": report.confidence and report.confidence.as_dict(),
        **options.description,
    }


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


def plain_description(description: dict) -> dict:
    """A description with Python's numbers and lists instead of NumPy's, as JSON has them.

    Raises:
        InputError: JSON has no such values.
    """
    plain = {}
    for name, value in description.items():
        try:
            plain.update(json.loads(json.dumps({name: value}, default=_plain)))
        except (TypeError, ValueError, RecursionError) as error:
            raise InputError(
                f"the entry {name!r:.60} of description cannot be written as JSON ({error}): give numbers,"
                " strings, lists and dictionaries"
            ) from error
    return plain


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    raise TypeError(f"it contains {type(value).__name__}")


def make_bundle(model: bytes, description: dict, vocabulary: list[str] | None) -> bytes:
    """Appends associated files to a model, as TFLite metadata does.

    The files form an uncompressed zip archive behind the FlatBuffer: `unzip` and every zip library read it,
    and the interpreter ignores it. The bytes of the model do not move. The same input gives the same bytes.
    The description gets the digests of model and vocabulary (`inference.description`).

    Args:
        model: a .tflite file.
        description: content of `captioner.json`, to which the digests are added; see docs/bundle.md.
        vocabulary: the token strings in the order of their ids for `vocabulary.txt`, or None if unknown.

    Returns:
        The bytes of the bundle, which `tfsparsecap.captioning.inference.bundle` reads.
    """
    files = {}
    if vocabulary is not None:
        files[VOCABULARY] = ("\n".join(vocabulary) + "\n").encode()
    others = {name: value for name, value in description.items() if name not in DIGESTS}
    description = {**others, **digests(model, files.get(VOCABULARY))}
    files[DESCRIPTION] = (json.dumps(description, ensure_ascii=False, indent=1) + "\n").encode()
    content = io.BytesIO()
    content.write(model)
    with zipfile.ZipFile(content, "a", zipfile.ZIP_STORED) as archive:
        for name, data in sorted(files.items()):
            # ZipInfo's default date is constant (1980).
            archive.writestr(zipfile.ZipInfo(name), data)
    return content.getvalue()
