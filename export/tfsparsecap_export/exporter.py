"""`export_model` writes a Keras model as a .tflite file; `check_exportable` says early whether it can."""

import os
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tfsparsecap.captioning.models.captioner_base import Captioner
from tfsparsecap.core.files import check_output, check_suffix
from tfsparsecap.core.model_call import check_model
from tfsparsecap.core.progress import Progress, shown_progress
from tfsparsecap.errors import InputError
from tfsparsecap.gates import gates
from tfsparsecap_export.caption_files.export_captioner import CaptionOptions, export_captioner
from tfsparsecap_export.caption_files.quality import CaptionedSamples
from tfsparsecap_export.encode import DEFAULT_TARGET, formats
from tfsparsecap_export.encode.costs import kernel_costs
from tfsparsecap_export.export_network import Request, export_network
from tfsparsecap_export.export_report import ExportReport
from tfsparsecap_export.verify.outputs import Verification


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
        format: "auto", "int8", "fast", "compact", "dense" or "dense-int8"; see `formats.choose_encoding`.
        captions: options for a captioner.
        inputs: names and shapes of a captioner's inputs, see `caption_inputs`; by default the image that its
            encoder takes. For any other model, what it is called with, see `core.model_call`; by default
            what it was built with. The rows of arrays are the default of `samples`.
        batch: batch size of the file of any other model, or None for any (the caller resizes the input).
        samples: inputs for the comparison, each with a leading axis of size 1, or `batch`: a list of
            dictionaries, a data set, or an array [N, ...] for each input of the model, see
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
    check_model(model, "export_model", keras.Layer)
    formats.check_format(format)
    costs = kernel_costs(target)
    check_output(path)
    check_suffix(path, ".tflite")
    is_captioner = isinstance(model, Captioner)
    if is_captioner and batch != 1:
        raise InputError(f"batch is {batch}: the file of a captioner takes one image; omit it")
    if captions is not None and not is_captioner:
        raise InputError(f"captions are options for captioners; {model.name} is not one")
    layers = (keep_float,) if isinstance(keep_float, str) else tuple(keep_float)
    with shown_progress(progress) as steps:
        request = Request(path, format, costs, samples, sample_source, layers, steps)
        if is_captioner:
            return export_captioner(model, request, captions or CaptionOptions(), inputs, validation)
        return export_network(model, request, inputs, batch)


def check_exportable(model: keras.Model, inputs: Any = None, *, batch: int | None = 1) -> Verification:
    """Converts a model that is not trained yet, and compares the file on LiteRT with it. Nothing is written.

    What the runtime lacks depends on operations, not on weights: Fourier transforms, tables of words, random
    numbers or a state at inference, Python code that reads values of tensors, and others. Call it before
    `sc.prune`. It takes seconds; networks with hundreds of layers take up to a minute.

    Args:
        model: built model without gates.
        inputs: what the model is called with, as for `export_model`.
        batch: batch size of the file, or None for any.

    Returns:
        The comparison: `error` is the largest difference, relative to the largest output.

    Raises:
        InputError: the model cannot be exported; the message names operations and layers.

    Examples:
        >>> model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(2)])
        >>> check_exportable(model).error < 1e-3
        True
    """
    check_model(model, "check_exportable", keras.Layer)
    if gates(model):
        raise InputError(
            f"{model.name} has gates already: check a model before sc.prune, or strip_pruning it"
        )
    captions = None
    if isinstance(model, Captioner):  # its captions are random: only their scores are compared
        captions = CaptionOptions(beam=1, max_length=4, search=None, tolerance=1.0)

    def few_rows(leaf: Any) -> Any:
        return leaf[: 8 * (batch or 1)] if isinstance(leaf, np.ndarray | tf.Tensor) and leaf.ndim else leaf

    inputs = keras.tree.map_structure(few_rows, inputs)  # more would take long, and say the same
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.tflite"
        report = export_model(model, path, "dense", captions=captions, inputs=inputs, batch=batch)
    return report.verification
