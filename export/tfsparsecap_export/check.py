"""`check_exportable`: whether a model can be exported, before it is trained."""

import tempfile
from pathlib import Path
from typing import Any

import keras

from tfsparsecap.captioning.models.captioner_base import Captioner
from tfsparsecap.errors import InputError
from tfsparsecap.gates import gates
from tfsparsecap_export.caption_files.export_captioner import CaptionOptions
from tfsparsecap_export.exporter import export_model
from tfsparsecap_export.verify.outputs import Verification


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
    if gates(model):
        raise InputError(
            f"{model.name} has gates already: check a model before sc.prune, or strip_pruning it"
        )
    captions = None
    if isinstance(model, Captioner):  # its captions are random: only their scores are compared
        captions = CaptionOptions(beam=1, max_length=4, search=None, tolerance=1.0)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.tflite"
        report = export_model(model, path, "dense", captions=captions, inputs=inputs, batch=batch)
    return report.verification
