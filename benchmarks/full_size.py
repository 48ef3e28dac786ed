"""python -m benchmarks.full_size: size and latency of sparse files at the papers' sizes.

Creates captioners at the papers' sizes with random weights, dense and with random zeros, exports each to
a .tflite file in FOLDER, and compares the files. The time of a kernel does not depend on the values of
the weights, so a trained captioner of the same size and sparsity is as fast. Existing files are not
exported again. Needs about 3 GB of memory and takes some minutes.

up_down         Up-Down: 53 million weights, vocabulary of 10,000 words, 36 regions
soft_attention  Soft-Attention: 12 million weights, vocabulary of 10,000 words, MobileNet-V1 0.75 on images
ort             Object Relation Transformer: 55 million weights, vocabulary of 10,000 words, 36 boxes
acort           ACORT base: 15 million weights, two tokens of base 768 per word, 36 boxes

examples:
  python -m benchmarks.full_size sizes
      Up-Down, one beam
  python -m benchmarks.full_size sizes --beam 3
      three beams
  python -m benchmarks.full_size sizes --captioner soft_attention
      from images
"""

import argparse
import dataclasses
import functools
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from benchmarks.file_comparison import add_options, compare
from tfsparsecap.command import parser, run
from tfsparsecap.errors import check_number

#: Those of `paper_sizes` that can be exported.
CAPTIONERS = ("acort", "ort", "soft_attention", "up_down")
#: Length of all captions.
WORDS = 10
_SEED = 0
_CALIBRATION_IMAGES = 32


@dataclasses.dataclass(frozen=True)
class Variant:
    """How to prune and export: a format of `tfsparsecap_export.FORMATS`, the share of zeros, and the number
    of neighbouring inputs of an output that are zero together."""

    format: str
    sparsity: float = 0.0
    block: int = 1


VARIANTS = {
    "float32_dense": Variant("dense"),
    "int8_dense": Variant("int8"),
    "int8_blocks_80": Variant("int8", 0.80, 16),
    "int8_blocks_95": Variant("int8", 0.95, 16),
    "int8_blocks_991": Variant("int8", 0.991, 16),
    "fast_95": Variant("fast", 0.95),
    "fast_991": Variant("fast", 0.991),
    "compact_991": Variant("compact", 0.991),
}


def set_random_zeros(model, sparsity: float, block: int, rng: np.random.Generator) -> None:
    """Sets random blocks of all kernels and tables of a built Keras model to zero.

    Args:
        model: changed in place, except for biases, normalization and an encoder.
        sparsity: share of the blocks that become zero, 0 to 1.
        block: inputs of one output, or neighbouring values of a table's row, that become zero together.
        rng: random numbers.

    Examples:
        >>> dense = keras.Sequential([keras.Input((64,)), keras.layers.Dense(32)])
        >>> set_random_zeros(dense, 0.75, 16, np.random.default_rng(0))
    """
    encoder = getattr(model, "encoder", None)
    of_encoder = {id(weight) for weight in encoder.weights} if encoder is not None else set()
    for weight in model.trainable_weights:
        if len(weight.shape) != 2 or id(weight) in of_encoder:
            continue
        values = np.array(weight)
        by_output = values if weight.path.endswith("embeddings") else values.T  # a view of `values`
        for start in range(0, by_output.shape[1], block):
            zero = rng.random(len(by_output)) < sparsity
            by_output[zero, start : start + block] = 0
        weight.assign(values)


def write_file(captioner: str, variant: Variant, beam: int, path: Path) -> None:
    """Creates one of `CAPTIONERS` with random weights and exports it with the plain search."""
    import keras
    from tfsparsecap_export.caption_files.export_captioner import CaptionOptions, caption_inputs
    from tfsparsecap_export.caption_files.quality import CaptionedSamples
    from tfsparsecap_export.exporter import export_model
    from tfsparsecap_export.samples import synthetic_samples

    from benchmarks.paper_sizes import PAPER_CAPTIONERS

    keras.utils.set_random_seed(_SEED)
    paper = PAPER_CAPTIONERS[captioner]
    length = WORDS * paper.tokens_a_word
    model = paper.make(length)
    set_random_zeros(model, variant.sparsity, variant.block, np.random.default_rng(_SEED))
    bias = np.array(model.output_layer.bias)
    bias[[model.end_id, model.pad_id]] = -100.0  # so that all captions have the full length
    model.output_layer.bias.assign(bias)
    samples = synthetic_samples(caption_inputs(model, paper.inputs), _CALIBRATION_IMAGES)
    # With images and captions, the encoder becomes int8. No caption is correct, so the CIDEr is 0, and int8
    # cannot reduce it.
    captioned = CaptionedSamples(samples, [["a"]] * len(samples), str)
    export_model(
        model,
        path,
        variant.format,
        captions=CaptionOptions(beam=beam, max_length=length, search=None),
        inputs=paper.inputs,
        samples=samples[:2],
        validation=captioned if "image" in paper.inputs else None,
    )


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    options = parser(__doc__)
    add_options(options, VARIANTS)
    options.add_argument("--captioner", choices=CAPTIONERS, default="up_down", help="default: up_down")
    options.add_argument("--beam", type=int, default=1, metavar="N", help="beam size (default: 1)")
    return options.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> None:
    """Runs the command with `argv`, the arguments of the process by default.

    Raises:
        InputError: the folder cannot be created, or an argument is out of range.
    """
    options = _arguments(argv)
    check_number("--beam", options.beam, at_least=1)
    files = {
        f"{options.captioner}_beam{options.beam}_{name}.tflite": functools.partial(
            write_file, options.captioner, VARIANTS[name], options.beam
        )
        for name in options.variants
    }
    compare(options, files)


if __name__ == "__main__":
    run(main)
