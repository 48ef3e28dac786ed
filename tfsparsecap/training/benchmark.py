"""python -m tfsparsecap.training.benchmark: what a training step costs with gates, against the dense one.

Steps of all variants are interleaved in one process, so that what else the machine does falls on all alike.
"""

import json
import statistics
import time
from collections.abc import Callable, Sequence

import keras
import numpy as np
import tensorflow as tf
from rich.console import Console
from rich.table import Table
from tqdm import tqdm

from tfsparsecap.command import parser, run
from tfsparsecap.models.soft_attention import SoftAttention
from tfsparsecap.pruning import PruningMethod, Supermask, SupermaskLoss, prune
from tfsparsecap.training.loop import Loop

VARIANTS: dict[str, Callable[[int], PruningMethod | None]] = {
    "dense": lambda steps: None,
    "Supermask, single gates": lambda steps: Supermask(0.95, steps),
    "Supermask, (16, 1) gates": lambda steps: Supermask(0.95, steps, block_shape=(16, 1)),
    "SupermaskLoss, single gates": lambda steps: SupermaskLoss(0.95, steps),
    "SupermaskLoss, (16, 1) gates": lambda steps: SupermaskLoss(0.95, steps, block_shape=(16, 1)),
}


def measure(
    *,
    steps: int = 30,
    total_steps: int = 1000,
    batch_size: int = 32,
    words: int = 16,
    vocabulary_size: int = 10_000,
    **sizes,
) -> dict[str, list[float]]:
    """Seconds of each of `steps` training steps of a Soft-Attention captioner, by variant.

    The features are a 7 x 7 map of 768 values. A method's steps are taken from the middle of a training of
    `total_steps`, where Supermask learns, ranks and shrinks.

    Args:
        steps: measured steps of each variant, after two that trace and warm up.
        total_steps: of the training that the steps are taken from.
        batch_size, words: captions a step, and words of each.
        vocabulary_size: words that the model knows.
        sizes: other arguments of `SoftAttention`; the papers' sizes by default.
    """
    random = np.random.default_rng(0)
    features = random.random((batch_size, 49, 768), dtype="float32")
    tokens = random.integers(4, vocabulary_size, (batch_size, words + 1)).astype("int32")
    batch = (
        {"features": tf.constant(features), "tokens": tf.constant(tokens[:, :-1])},
        tf.constant(tokens[:, 1:]),
    )
    compiled = {}
    for name, make in VARIANTS.items():
        keras.utils.set_random_seed(0)
        captioner = SoftAttention(vocabulary_size, feature_size=768, **sizes)
        optimizer = keras.optimizers.Adam(1e-3)
        method = make(total_steps)
        if method is not None:
            prune(captioner, method)
            method.steps_done.assign(total_steps // 3)
            optimizer = method.wrap(optimizer)
        compiled[name] = Loop(captioner, optimizer).train_step
    seconds = {name: [] for name in compiled}
    for round_number in tqdm(range(steps + 2), desc="steps of each", unit="step"):
        for name, step in compiled.items():
            began = time.perf_counter()
            float(step(batch)["loss"])
            if round_number >= 2:  # the first traces, the second warms up
                seconds[name].append(time.perf_counter() - began)
    return seconds


def main(argv: Sequence[str] | None = None) -> None:
    """Measures as the command line says and prints a table."""
    command = parser(
        "python -m tfsparsecap.training.benchmark",
        "Times training steps of the Soft-Attention captioner at paper size, dense and with gates, side by\n"
        "side: the median of each, and the median ratio to the dense step of the same round.",
        [
            ("python -m tfsparsecap.training.benchmark", "30 steps of each, some minutes"),
            (
                "python -m tfsparsecap.training.benchmark --batch-size 128 --vocabulary-size 3000",
                "Flickr8k's",
            ),
        ],
    )
    command.add_argument("--steps", type=int, default=30, help="measured steps of each variant (default 30)")
    command.add_argument("--batch-size", type=int, default=32, help="captions a step (default 32)")
    command.add_argument("--vocabulary-size", type=int, default=10_000, help="words (default 10000)")
    command.add_argument("--json", action="store_true", help="print the medians and ratios as JSON")
    options = command.parse_args(argv)
    seconds = measure(
        steps=options.steps, batch_size=options.batch_size, vocabulary_size=options.vocabulary_size
    )
    rows = {}
    for name, values in seconds.items():
        # The ratio is taken pair by pair: both steps of a pair saw the same machine.
        ratios = [value / dense for value, dense in zip(values, seconds["dense"], strict=True)]
        rows[name] = {"milliseconds": 1000 * statistics.median(values), "ratio": statistics.median(ratios)}
    if options.json:
        print(json.dumps(rows))
        return
    table = Table(title=f"A training step of Soft-Attention at paper size, batch {options.batch_size}")
    table.add_column("variant")
    table.add_column("median ms", justify="right")
    table.add_column("ratio to dense", justify="right")
    for name, row in rows.items():
        table.add_row(name, f"{row['milliseconds']:.0f}", f"{row['ratio']:.2f}")
    Console().print(table)


if __name__ == "__main__":
    run(main)
