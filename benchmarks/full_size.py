"""What sparse files gain at the papers' sizes, on random weights: no data and no training needed.

python -m benchmarks.full_size FOLDER
"""

import argparse
import dataclasses
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from tfsparsecap.command import parser, run, start_tensorflow
from tfsparsecap.errors import InputError

_DESCRIPTION = """\
Makes captioners at the papers' sizes with random weights, dense and with random zeros, writes each as a
.tflite file in FOLDER, and runs those side by side. Times of kernels do not depend on what the weights are,
so this shows what a trained captioner of this size and sparsity will gain. Files that FOLDER has already are
not made again. Takes some 3 GB of memory, and some minutes.

up_down         Up-Down: 53 million weights, vocabulary of 10 000, 36 regions
soft_attention  Soft-Attention: 12 million weights, vocabulary of 10 000, MobileNet-V1 0.75 for photographs
ort             Object Relation Transformer: 55 million weights, vocabulary of 10 000, 36 regions with boxes
acort           ACORT base: 15 million weights, two tokens a word of base 768, 36 regions with boxes
"""
_EXAMPLES = [
    ("python -m benchmarks.full_size sizes", "Up-Down, one beam"),
    ("python -m benchmarks.full_size sizes --beam 3", "three beams"),
    ("python -m benchmarks.full_size sizes --captioner soft_attention", "photographs"),
]
#: Words of all captions.
WORDS = 10
_SEED = 0
_CALIBRATION_PICTURES = 32


@dataclasses.dataclass(frozen=True)
class Variant:
    """A file to make.

    Attributes:
        name: of the file, without what all of a folder have in common.
        format: one of `tfsparsecap_export.FORMATS`.
        sparsity: share of zeros.
        block: neighbouring inputs of an output that are zero together.
    """

    name: str
    format: str
    sparsity: float = 0.0
    block: int = 1


VARIANTS = (
    Variant("float32_dense", "dense"),
    Variant("int8_dense", "int8"),
    Variant("int8_blocks_80", "int8", 0.80, 16),
    Variant("int8_blocks_95", "int8", 0.95, 16),
    Variant("int8_blocks_991", "int8", 0.991, 16),
    Variant("fast_95", "fast", 0.95),
    Variant("fast_991", "fast", 0.991),
    Variant("compact_991", "compact", 0.991),
)


def set_random_zeros(model, sparsity: float, block: int, rng: np.random.Generator) -> None:
    """Sets random blocks of all kernels and tables of a built Keras model to zero.

    Args:
        model: changed in place; biases and normalisation stay as they are, and so does its encoder, if any.
        sparsity: share of the blocks that become zero, 0 to 1.
        block: inputs of one output, or neighbouring values of a table's row, that are zero together.
        rng: random numbers.

    Example:
        >>> dense = keras.Sequential([keras.Input((64,)), keras.layers.Dense(32)])
        >>> set_random_zeros(dense, 0.75, 16, np.random.default_rng(0))
    """
    encoder = getattr(model, "encoder", None)
    encoding = {id(weight) for weight in encoder.weights} if encoder is not None else set()
    for weight in model.trainable_weights:
        if len(weight.shape) != 2 or id(weight) in encoding:
            continue
        values = np.array(weight)
        by_output = values if weight.path.endswith("embeddings") else values.T  # a view: changes `values`
        for start in range(0, by_output.shape[1], block):
            zero = rng.random(len(by_output)) < sparsity
            by_output[zero, start : start + block] = 0
        weight.assign(values)


#: Those of `models.paper_sizes` that are captioned with.
CAPTIONERS = ("up_down", "soft_attention", "ort", "acort")


def write_file(captioner: str, variant: Variant, beam: int, path: Path) -> None:
    """Makes one of `CAPTIONERS` with random weights and writes it as a checked .tflite file."""
    import keras
    from tfsparsecap_export.exporter import caption_inputs, export_model
    from tfsparsecap_export.samples import synthetic_samples
    from tfsparsecap_export.verify.quality import CaptionedSamples

    from tfsparsecap.models.paper_sizes import PAPER_CAPTIONERS

    keras.utils.set_random_seed(_SEED)
    paper = PAPER_CAPTIONERS[captioner]
    length = WORDS * paper.tokens_a_word
    model, inputs = paper.make(length), paper.inputs
    if variant.sparsity:
        set_random_zeros(model, variant.sparsity, variant.block, np.random.default_rng(_SEED))
    bias = np.array(model.output_layer.bias)
    bias[model.end_id] = -100.0  # no caption ends before it has all its words
    model.output_layer.bias.assign(bias)
    samples = synthetic_samples(caption_inputs(model, inputs), _CALIBRATION_PICTURES)
    # An encoder becomes int8 where pictures are at hand. These have no captions, and what int8 costs of a
    # CIDEr of 0 is nothing.
    validation = CaptionedSamples(samples, [["a"]] * len(samples), str) if "image" in inputs else None
    export_model(
        model,
        path,
        variant.format,
        beam=beam,
        max_length=length,
        inputs=inputs,
        samples=samples[:2],
        validation=validation,
    )


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    names = [variant.name for variant in VARIANTS]
    options = parser("python -m benchmarks.full_size", _DESCRIPTION, _EXAMPLES)
    options.add_argument("folder", type=Path, metavar="FOLDER", help="where the files go; made if absent")
    options.add_argument(
        "--captioner", choices=sorted(CAPTIONERS), default="up_down", help="which one (default: up_down)"
    )
    options.add_argument("--beam", type=int, default=1, metavar="N", help="beams of the search (default: 1)")
    options.add_argument(
        "--variants",
        nargs="+",
        choices=names,
        default=names,
        metavar="NAME",
        help=f"which files, the one to compare with first (default: {' '.join(names)})",
    )
    options.add_argument("--runs", type=int, default=40, metavar="N", help="runs of each file (default: 40)")
    options.add_argument("--threads", type=int, default=1, metavar="N", help="CPU threads (default: 1)")
    options.add_argument("--profile", action="store_true", help="show where each file's time goes, too")
    return options.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> None:
    """Runs the command with `argv`, the arguments of the process by default.

    Raises:
        InputError: the folder cannot be made, or an argument is out of range.
    """
    options = _arguments(argv)
    if options.beam < 1:
        raise InputError(f"--beam is {options.beam}: give at least 1")
    try:
        options.folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"cannot make the folder {options.folder}: {error.strerror}") from error
    start_tensorflow()
    from rich.console import Console
    from tfsparsecap_export import benchmark

    variants = {variant.name: variant for variant in VARIANTS}
    paths = [
        options.folder / f"{options.captioner}_beam{options.beam}_{name}.tflite" for name in options.variants
    ]
    with Console(stderr=True).status("") as status:
        for number, (name, path) in enumerate(zip(options.variants, paths, strict=True), 1):
            if not path.exists():
                status.update(f"writing {path} ({number} of {len(paths)})")
                write_file(options.captioner, variants[name], options.beam, path)
    more = ["--profile"] if options.profile else []
    measured = [*map(str, paths), "--runs", str(options.runs), "--threads", str(options.threads)]
    benchmark.main([*measured, "--inputs", "4", *more])


if __name__ == "__main__":
    run(main)
