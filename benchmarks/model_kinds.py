"""python -m benchmarks.model_kinds: how much faster and smaller sparse files are, by kind of model.

Models with random weights are pruned in (16, 1) blocks (convolutions: single weights; slimmed: half of the
channels removed), and exported three times: dense float32, dense int8, and `auto`. The time of a kernel does
not depend on the values of the weights. The three files of a model take turns on one thread; compare within a
row. Models that are written to FOLDER once are not written again. Takes about fifteen minutes.

examples:
  python -m benchmarks.model_kinds kinds --target x86_64
      files for this machine's processor instead of phones
  python -m benchmarks.model_kinds kinds --count
      instead of times, instructions of TFLite 2.16.1's arm64 library under qemu; needs what the tests of the
      Android library need (tests/runtimes)
"""

import argparse
import dataclasses
import functools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tfsparsecap.command import parser, run, start_tensorflow
from tfsparsecap.core.files import make_folder

FORMATS = ("dense", "dense-int8", "auto")
_SEED, _SAMPLES = 0, 8


@dataclasses.dataclass(frozen=True)
class Kind:
    """A kind of model.

    Attributes:
        make: creates it, with random weights.
        sparsity: share of zeros in `auto`; None for a model that is slimmed instead.
        beam: beam of a captioner, or None.
        sampled: whether inputs are given, so that convolutions become int8.
    """

    make: Callable[[], Any]
    sparsity: float | None = 0.9
    beam: int | None = None
    sampled: bool = False


def _recurrent(name: str):
    import keras

    layer = getattr(keras.layers, name)
    return keras.Sequential([keras.Input((32, 128)), layer(512), keras.layers.Dense(16)])


def _mlp():
    import keras

    layers = [keras.layers.Dense(2048, activation="relu") for _ in range(2)]
    return keras.Sequential([keras.Input((1024,)), *layers, keras.layers.Dense(16)])


def transformer(tokens: int, size: int = 256, layers: int = 3):
    """A transformer that classifies texts: 2.5 million weights."""
    import keras

    ids = keras.Input((tokens,), dtype="int32")
    states = keras.layers.Embedding(1000, size)(ids)
    for _ in range(layers):
        attended = keras.layers.MultiHeadAttention(4, size // 4)(states, states)
        states = keras.layers.LayerNormalization()(states + attended)
        hidden = keras.layers.Dense(4 * size, activation="relu")(states)
        states = keras.layers.LayerNormalization()(states + keras.layers.Dense(size)(hidden))
    return keras.Model(ids, keras.layers.Dense(16)(keras.layers.GlobalAveragePooling1D()(states)))


def _mobilenet():
    import keras

    return keras.applications.MobileNetV2(weights=None, classes=100)


def _captioner():
    import tfsparsecap as sc

    captioner = sc.SoftAttention(
        6000, embedding_size=256, rnn_size=1024, attention_size=128, feature_size=320, cell="lstm"
    )
    bias = np.array(captioner.output_layer.bias)
    bias[[captioner.end_id, captioner.pad_id]] = -100.0  # so that all captions have the full length
    captioner.output_layer.bias.assign(bias)
    return captioner


KINDS = {
    "LSTM, 512 units, 32 steps": Kind(functools.partial(_recurrent, "LSTM")),
    "GRU, 512 units, 32 steps": Kind(functools.partial(_recurrent, "GRU")),
    "MLP, 2 x 2048": Kind(_mlp),
    **{
        f"transformer, {tokens} token{'s' if tokens > 1 else ''}": Kind(
            functools.partial(transformer, tokens)
        )
        for tokens in (1, 16, 64)
    },
    "MobileNetV2, slimmed to a half": Kind(_mobilenet, sparsity=None, sampled=True),
    "MobileNetV2, 80 % zeros": Kind(_mobilenet, sparsity=0.8, sampled=True),
    **{
        f"captioner, 95 % zeros, {beam} beam{'s' if beam > 1 else ''}": Kind(_captioner, 0.95, beam)
        for beam in (1, 3, 8)
    },
}


def write_files(kind: Kind, paths: Sequence[Path], target: str) -> None:
    """Creates a model of a kind and exports it in each of `FORMATS`."""
    import keras
    from tfsparsecap_export import CaptionOptions, export_model

    import tfsparsecap as sc

    keras.utils.set_random_seed(_SEED)
    model = kind.make()
    options: dict[str, Any] = {}
    if kind.beam is not None:
        captions = CaptionOptions(beam=kind.beam, max_length=12, search=None)
        options = {"captions": captions, "inputs": {"features": (49, 320)}}
    if kind.sampled:
        shape = (_SAMPLES, *model.input_shape[1:])
        options["samples"] = np.random.default_rng(_SEED).uniform(-1, 1, shape).astype(np.float32)
    for format, path in zip(FORMATS, paths, strict=True):
        if format == "auto":
            if kind.sparsity is None:
                model = sc.slim(model, 0.5)
            else:
                block_shape = (1, 1) if kind.sampled else (16, 1)
                method = sc.Magnitude(kind.sparsity, block_shape=block_shape, allocation="uniform")
                model = sc.strip_pruning(sc.prune(model, method))
        export_model(model, path, format, target=target, **options)


def measure(kinds: Sequence[str], options: argparse.Namespace) -> list[tuple[str, list[int], list[float]]]:
    """For each kind the bytes of its files, and their milliseconds or millions of instructions."""
    from tfsparsecap_export import timing
    from tqdm import tqdm

    rows = []
    for name in tqdm(kinds, disable=None, leave=False):
        number, folder = list(KINDS).index(name), options.folder
        paths = [folder / f"{options.target}-{number}-{format}.tflite" for format in FORMATS]
        if not all(path.exists() for path in paths):
            write_files(KINDS[name], paths, options.target)
        samples = timing.samples(paths, count=4)
        if options.count:
            from tests.runtimes import tflite_2_16

            values, costs = samples[0].values(), []
            for path in paths:
                inputs = dict(zip(timing.same_inputs([path]), values, strict=True))
                costs.append(tflite_2_16.instructions(path, inputs) / 1e6)
        else:
            measurements = timing.measure(paths, samples, runs=options.runs, trust=True)
            costs = [measurement.ms for measurement in measurements]
        rows.append((name, [path.stat().st_size for path in paths], costs))
    return rows


def print_table(rows: Sequence[tuple[str, list[int], list[float]]], unit: str) -> None:
    """Prints a row for each kind of model."""
    from rich.console import Console
    from tfsparsecap_export.tables import new_table

    columns = [
        ">MB: float32",
        ">int8",
        ">auto",
        f">{unit}: float32",
        ">int8",
        ">auto",
        ">x float32",
        ">x int8",
    ]
    table = new_table("one thread", "model", *columns)
    for name, sizes, costs in rows:
        dense, int8, auto = costs
        cells = [*(f"{size / 1e6:.2f}" for size in sizes), *(f"{cost:.2f}" for cost in costs)]
        table.add_row(name, *cells, f"{dense / auto:.1f}", f"{int8 / auto:.1f}")
    Console().print(table)


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    options = parser(__doc__)
    options.add_argument("folder", type=Path, metavar="FOLDER", help="folder for the files")
    options.add_argument(
        "--kinds", nargs="+", choices=KINDS, default=list(KINDS), metavar="KIND", help="default: all"
    )
    options.add_argument("--target", default="arm64", help="of the export: arm64 or x86_64 (default: arm64)")
    options.add_argument("--count", action="store_true", help="count instructions on arm64")
    options.add_argument("--runs", type=int, default=60, metavar="N", help="runs of each file (default: 60)")
    return options.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> None:
    """Runs the command with `argv`, the arguments of the process by default."""
    options = _arguments(argv)
    make_folder(options.folder)
    start_tensorflow()
    print_table(measure(options.kinds, options), "million" if options.count else "ms")


if __name__ == "__main__":
    run(main)
