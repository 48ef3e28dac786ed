"""python -m benchmarks.layer_distances: how much do the layers of a transformer differ?

Prints the root mean squared distance of each two layers of the encoder and of the decoder, after an L2
normalisation of the last axis of their weights: ACORT, Figure 9. The last axis of a kernel is its outputs
here and its inputs in the paper, which found similar results along either. Close layers can be shared.

examples:
  python -m benchmarks.layer_distances runs/flickr8k_ort
"""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import keras
import numpy as np
from rich.console import Console
from tfsparsecap_export.tables import new_table

from tfsparsecap.captioning.inference.finished_run import FinishedRun
from tfsparsecap.captioning.models.transformer_captioner import TransformerCaptioner
from tfsparsecap.command import parser, run
from tfsparsecap.errors import InputError


def layer_distances(layers: Sequence[keras.Layer]) -> np.ndarray:
    """Root mean squared distances of layers of equal shapes, float64 [layers, layers]."""
    vectors = []
    for layer in layers:
        weights = [np.asarray(weight.value, np.float64) for weight in layer.weights]
        lengths = [np.linalg.norm(weight, axis=-1, keepdims=True) for weight in weights]
        pairs = zip(weights, lengths, strict=True)
        vectors.append(
            np.concatenate([(weight / np.maximum(length, 1e-12)).ravel() for weight, length in pairs])
        )
    return np.array([[np.sqrt(np.mean((own - other) ** 2)) for other in vectors] for own in vectors])


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    options = parser(__doc__)
    options.add_argument("run", type=Path, metavar="RUN", help="folder of a finished run")
    return options.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> None:
    """Runs the command.

    Raises:
        InputError: the run is not finished, or has no transformer.
    """
    options = _arguments(argv)
    captioner: Any = FinishedRun.load(options.run).captioner
    if not isinstance(captioner, TransformerCaptioner):
        raise InputError(f"the captioner in {options.run} is no transformer: give another run")
    for part, layers in (("encoder", captioner.encoder_layers), ("decoder", captioner.decoder_layers)):
        table = new_table(f"{part}: distances", "layer", *(f">{number + 1}" for number in range(len(layers))))
        for number, row in enumerate(layer_distances(layers), 1):
            table.add_row(str(number), *(f"{value:.4f}" for value in row))
        Console().print(table)


if __name__ == "__main__":
    run(main)
