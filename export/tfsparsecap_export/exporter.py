"""`export_model`: writes a Keras model as a .tflite file after checking the file against the model."""

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import keras

from tfsparsecap.captioning.models.captioner_base import Captioner
from tfsparsecap.core.files import check_output, check_suffix
from tfsparsecap.core.progress import Progress, shown
from tfsparsecap.errors import InputError
from tfsparsecap_export.caption_files.export_captioner import CaptionOptions, export_captioner
from tfsparsecap_export.caption_files.quality import CaptionedSamples
from tfsparsecap_export.encode import DEFAULT_TARGET, formats
from tfsparsecap_export.encode.costs import of_target
from tfsparsecap_export.export_network import Request, export_network
from tfsparsecap_export.export_report import ExportReport


def export_model(
    model: keras.Model,
    path: str | os.PathLike[str],
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
    progress: Progress | None = None,
) -> ExportReport:
    """Writes a Keras model as a .tflite file, each layer in the encoding that suits its zeros.

    A `Captioner` becomes a self-contained bundle: one graph with the whole beam search, and the vocabulary
    and a description in the same file (see docs/bundle.md). Any other model becomes its forward pass with the
    signature `serving_default`. In both cases the file is run and compared with the Keras model first; it is
    written only if both agree.

    Args:
        model: built model without gates (`sc.strip_pruning`).
        path: path of the file. An existing file is replaced atomically.
        format: "auto", "int8", "fast", "compact", "dense" or "dense-int8"; see `formats.choose`.
        captions: options for a captioner.
        inputs: names and shapes of a captioner's inputs, see `caption_inputs`; by default the image that its
            encoder takes. For any other model, what it is called with, see `core.model_call`; by default
            what it was built with. The rows of arrays are the default of `samples`.
        batch: batch size of the file of any other model, or None for any (the caller resizes the input).
        samples: inputs for the comparison, each with a leading axis of size 1, or `batch`: a list of
            dictionaries, a data set, or for one input an array [N, ...] of N inputs, see
            `samples.as_samples`; synthetic by default. With two or more, a convolutional network becomes
            int8, weights and activations, in formats with int8 weights: every second one is for calibration.
            Activations, or weights too, stay float if outputs for the others differ too much.
        sample_source: what `samples` are, for the report.
        validation: images with reference captions. If given, the loss of CIDEr due to int8 is measured,
            layers that lose too much stay float, the encoder is stored as int8 too, and, with at least
            `confidence.FEWEST_IMAGES` images, the confidence of captions is calibrated.
        keep_float: names of layers that stay float, such as `"output"`, `"encoder"`, `"convolutions"` or
            `"activations"` (of a convolutional network).
        target: the processor for which encodings are chosen, "arm64" (phones) or "x86_64"; see
            `encode.costs.TARGETS`. The file runs on both.
        progress: called with a short description of the current step, and the share of it that is done, from
            0 to 1 (None if it is not known). None shows a bar if standard error is a terminal;
            `core.progress.silent` shows nothing.

    Returns:
        How each layer is stored, and the result of the comparison.

    Raises:
        InputError: the model cannot be exported, the name of the file does not end in .tflite, or the file
            does not agree with the model; `path` is unchanged.

    Examples:
        >>> model = keras.Sequential([keras.Input((64,)), keras.layers.Dense(256), keras.layers.Dense(10)])
        >>> report = export_model(model, "model.tflite")
        >>> report.verification.rms_error < 0.01
        True
    """
    path = Path(path)
    formats.check_format(format)
    costs = of_target(target)
    check_output(path)
    check_suffix(path, ".tflite")
    is_captioner = isinstance(model, Captioner)
    if is_captioner and batch != 1:
        raise InputError(f"batch is {batch}: the file of a captioner takes one image; omit it")
    if captions is not None and not is_captioner:
        raise InputError(f"captions are options for captioners; {model.name} is not one")
    layers = (keep_float,) if isinstance(keep_float, str) else tuple(keep_float)
    with shown(progress) as steps:
        request = Request(path, format, costs, samples, sample_source, layers, steps)
        if is_captioner:
            return export_captioner(model, request, captions or CaptionOptions(), inputs, validation)
        return export_network(model, request, inputs, batch)
