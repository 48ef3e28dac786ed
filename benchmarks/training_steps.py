"""python -m benchmarks.training_steps: what a training step costs with gates, how fast captions come.

Steps of all variants are interleaved in one process, so that what else the machine does falls on all alike.
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable, Iterable, Sequence

import keras
import numpy as np
import tensorflow as tf
from rich.console import Console
from rich.table import Table
from tqdm import tqdm

from benchmarks.rewards import TimedReward
from tfsparsecap.command import only_json_on_stdout, parser, run
from tfsparsecap.decoding import Decoder
from tfsparsecap.errors import InputError
from tfsparsecap.models.captioner import Captioner
from tfsparsecap.models.paper_sizes import PAPER_CAPTIONERS, RADIX_BASE, VOCABULARY, PaperCaptioner
from tfsparsecap.pruning import (
    SNIP,
    Gradual,
    L1Pruning,
    L2Pruning,
    LotteryTicket,
    Magnitude,
    PruningMethod,
    Relevance,
    Supermask,
    SupermaskLoss,
    prune,
)
from tfsparsecap.training.loop import Loop
from tfsparsecap.training.scst import SCSTLoop

DENSE, SELF_CRITICAL, REWARD = "dense", "self-critical", "reward"
VARIANTS: dict[str, Callable[[int], PruningMethod | None]] = {
    DENSE: lambda steps: None,
    "Supermask, single gates": lambda steps: Supermask(0.95, steps),
    "Supermask, (16, 1) gates": lambda steps: Supermask(0.95, steps, block_shape=(16, 1)),
    "SupermaskLoss, single gates": lambda steps: SupermaskLoss(0.95, steps),
    "SupermaskLoss, (16, 1) gates": lambda steps: SupermaskLoss(0.95, steps, block_shape=(16, 1)),
    "gradual": lambda steps: Gradual(0.95, steps),
    "magnitude": lambda steps: Magnitude(0.95),
    "SNIP": lambda steps: SNIP(0.95),
    "lottery": lambda steps: LotteryTicket(0.95, steps),
    "relevance": lambda steps: Relevance(0.95, steps, lower_bound=0.0, metric="validation_CIDEr"),
    "L2": lambda steps: L2Pruning(0.95, steps, lower_bound=0.0, metric="validation_CIDEr"),
    "L1": lambda steps: L1Pruning(0.95, steps, lower_bound=0.0, metric="validation_CIDEr"),
}
#: Captioners of features: an encoder's steps would cover what is measured.
CAPTIONERS = {name: paper for name, paper in PAPER_CAPTIONERS.items() if "features" in paper.inputs}
BEAM = 3
_FIRST_WORD = 4
# Whose references a reward of the benchmark knows: as many as Flickr8k has for training.
_REWARDED = 6000


def measure(
    captioners: Iterable[str] = ("soft_attention_of_map",),
    *,
    variants: Iterable[str] = tuple(VARIANTS),
    steps: int = 30,
    total_steps: int = 1000,
    batch_size: int = 32,
    words: int = 16,
    samples: int | None = None,
    **sizes,
) -> dict[tuple[str, str], list[float]]:
    """Seconds of each of `steps` training steps, by captioner and variant.

    With `samples` there is a variant `"self-critical"` of each captioner, which learns from as many captions
    as the others' steps, `samples` of them drawn of an image, by CIDEr-D; and `"reward"`, the part of it that
    scoring them takes. Captions are drawn at full length.

    A method's steps are taken from the middle of a training of `total_steps`, where Supermask learns, ranks
    and shrinks.

    Args:
        captioners: names of `CAPTIONERS`.
        variants: names of `VARIANTS`.
        steps: measured steps of each, after two that trace and warm up.
        total_steps: of the training that the steps are taken from.
        batch_size, words: captions a step, and words of each; ACORT takes two tokens for a word.
        samples: captions of an image in a self-critical step; None measures none.
        sizes: other arguments of the captioners' classes; the papers' sizes by default.

    Raises:
        InputError: `samples` is below 2, or `batch_size` no multiple of it.
    """
    if samples and batch_size % samples:
        raise InputError(
            f"{batch_size} captions a step are no whole number of images with {samples} captions each: give"
            f" a batch size that is a multiple of {samples}"
        )
    rewards = {}
    compiled = {}
    for name in captioners:
        batch = random_batch(CAPTIONERS[name], batch_size, words)
        for variant in variants:
            captioner = _made(name, words, **sizes)
            optimizer = keras.optimizers.Adam(1e-3)
            method = VARIANTS[variant](total_steps)
            if method is not None:
                prune(captioner, method)
                method.steps_done.assign(total_steps // 3)
                optimizer = method.wrap(optimizer)
            compiled[name, variant] = Loop(captioner, optimizer).train_step, batch
        if samples is not None:
            rewards[name], *compiled[name, SELF_CRITICAL] = _self_critical(
                name, batch_size // samples, samples, words, **sizes
            )
    seconds = {name: [] for name in compiled} | {(name, REWARD): [] for name in rewards}
    for round_number in tqdm(range(steps + 2), desc="steps of each", unit="step"):
        for (name, variant), (step, batch) in compiled.items():
            rewarded = rewards[name].seconds if variant == SELF_CRITICAL else 0.0
            began = time.perf_counter()
            float(step(batch)["loss"])
            if round_number < 2:  # the first traces, the second warms up
                continue
            seconds[name, variant].append(time.perf_counter() - began)
            if variant == SELF_CRITICAL:
                seconds[name, REWARD].append(rewards[name].seconds - rewarded)
    return seconds


def _self_critical(
    name: str, images: int, samples: int, words: int, **sizes
) -> tuple[TimedReward, Callable, tuple]:
    """The reward of a self-critical step, the step, and its batch."""
    paper, captioner = CAPTIONERS[name], _made(name, words, **sizes)
    length = words * paper.tokens_a_word
    base = RADIX_BASE if paper.tokens_a_word > 1 else None
    reward = TimedReward(max(images, _REWARDED), VOCABULARY - _FIRST_WORD, length, base)
    loop = SCSTLoop(captioner, keras.optimizers.Adam(1e-3), reward=reward, samples=samples, max_length=length)
    inputs, _ = random_batch(paper, images, words)
    return reward, loop.train_step, (inputs, tf.range(images)[:, None])


def measure_decoding(
    captioners: Iterable[str], *, steps: int = 5, batch_size: int = 50, words: int = 16, **sizes
) -> dict[str, list[float]]:
    """Seconds of each of `steps` batches of images, captioned by a search with three beams.

    No caption ends before it has all its words.

    Args:
        captioners, steps, words, sizes: as `measure`.
        batch_size: images of a batch.
    """
    decoders = {}
    for name in captioners:
        captioner = _made(name, words, **sizes)
        bias = np.array(keras.ops.convert_to_numpy(captioner.output_layer.bias))
        bias[captioner.end_id] = -100.0
        captioner.output_layer.bias.assign(bias)
        (inputs, _) = random_batch(CAPTIONERS[name], batch_size, words)
        length = words * CAPTIONERS[name].tokens_a_word
        decoders[name] = Decoder(captioner, BEAM, length), inputs
    seconds = {name: [] for name in decoders}
    for round_number in tqdm(range(steps + 1), desc="batches of each", unit="batch"):
        for name, (decode, inputs) in decoders.items():
            began = time.perf_counter()
            decode(inputs)[0].numpy()
            if round_number >= 1:
                seconds[name].append(time.perf_counter() - began)
    return seconds


def _made(name: str, words: int, **sizes) -> Captioner:
    keras.utils.set_random_seed(0)
    return CAPTIONERS[name].make(words * CAPTIONERS[name].tokens_a_word, **sizes)


def random_batch(paper: PaperCaptioner, batch_size: int, words: int) -> tuple[dict, tf.Tensor]:
    """Inputs with teacher-forced tokens, and targets; boxes lie in the image."""
    random = np.random.default_rng(0)
    inputs = {}
    for name, shape in paper.inputs.items():
        values = random.random((batch_size, *shape), dtype="float32")
        if name == "boxes":
            values = np.sort(values.reshape(batch_size, -1, 2, 2), axis=2).reshape(values.shape)
        inputs[name] = tf.constant(values)
    length = words * paper.tokens_a_word
    tokens = random.integers(_FIRST_WORD, paper.vocabulary_size, (batch_size, length + 1)).astype("int32")
    return {**inputs, "tokens": tf.constant(tokens[:, :-1])}, tf.constant(tokens[:, 1:])


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    command = parser(
        "python -m benchmarks.training_steps",
        "Times training steps of captioners at the papers' sizes, dense and with gates, side by side: the\n"
        "median of each, and the median ratio to the dense step of the same round. With --scst: a step of\n"
        "self-critical training beside them, and the share of it that rewards take. With --decode: images a\n"
        "second of a search with three beams.",
        [
            ("python -m benchmarks.training_steps", "Soft-Attention, 30 steps of each, some minutes"),
            (
                "python -m benchmarks.training_steps --captioner ort acort --variants dense --steps 5",
                "do ACORT's shared layers make a step shorter?",
            ),
            (
                "python -m benchmarks.training_steps --scst --captioner up_down ort acort --steps 5",
                "a self-critical step of 20 images with 5 captions beside one on 100 people's captions",
            ),
            ("python -m benchmarks.training_steps --decode --captioner up_down ort acort", "captions"),
        ],
    )
    command.add_argument(
        "--captioner",
        nargs="+",
        choices=sorted(CAPTIONERS),
        default=["soft_attention_of_map"],
        metavar="NAME",
        help=f"which ones: {', '.join(sorted(CAPTIONERS))} (default: soft_attention_of_map)",
    )
    command.add_argument(
        "--variants",
        nargs="+",
        choices=list(VARIANTS),
        metavar="NAME",
        help=f"of the training step: {'; '.join(VARIANTS)} (default: all; with --scst: dense)",
    )
    command.add_argument(
        "--scst",
        nargs="?",
        type=int,
        const=5,
        metavar="SAMPLES",
        help="time a self-critical step, too: as many captions, SAMPLES (default 5) drawn of each image",
    )
    command.add_argument("--decode", action="store_true", help="time the search for captions instead")
    command.add_argument("--steps", type=int, help="measured of each (default 30; batches of --decode: 5)")
    command.add_argument(
        "--batch-size",
        type=int,
        help="captions (default 32; with --scst those of 20 images; images of --decode: 50)",
    )
    command.add_argument("--words", type=int, default=16, help="of a caption (default 16)")
    command.add_argument("--json", action="store_true", help="print the medians and ratios as JSON")
    return command.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> None:
    """Measures as the command line says and prints a table."""
    options = _arguments(argv)
    _check(options)
    with only_json_on_stdout(options.json):
        title, columns, rows = _decoding(options) if options.decode else _training(options)
    if options.json:
        print(json.dumps(rows))
        return
    table = Table(title=title, title_justify="left")
    table.add_column("", no_wrap=True)
    for name in columns:
        table.add_column(name, justify="right")
    for name, row in rows.items():
        table.add_row(name, *(shown(row) for shown in columns.values()))
    Console().print(table)


# Heading of a column, and what a row has in it.
_Columns = dict[str, Callable[[dict], str]]


def _check(options: argparse.Namespace) -> None:
    for name in ("steps", "batch_size", "words"):
        value = getattr(options, name)
        if value is not None and value < 1:
            raise InputError(f"--{name.replace('_', '-')} is {value}: give at least 1")
    if options.scst is not None and options.scst < 2:
        raise InputError(f"--scst is {options.scst}: draw 2 captions of an image or more")
    if options.scst is not None and options.decode:
        raise InputError("--scst times training steps and --decode the search: give one of them")


def _decoding(options: argparse.Namespace) -> tuple[str, _Columns, dict[str, dict]]:
    size = options.batch_size or 50
    seconds = measure_decoding(
        options.captioner, steps=options.steps or 5, batch_size=size, words=options.words
    )
    rows = {name: {"images_a_second": size / statistics.median(times)} for name, times in seconds.items()}
    columns = {"images a second": lambda row: f"{row['images_a_second']:.1f}"}
    return f"Captions of {options.words} words, beam {BEAM}, {size} images at once", columns, rows


def _training(options: argparse.Namespace) -> tuple[str, _Columns, dict[str, dict]]:
    samples = options.scst
    size = options.batch_size or (20 * samples if samples else 32)
    seconds = measure(
        options.captioner,
        variants=options.variants or ([DENSE] if samples else list(VARIANTS)),
        steps=options.steps or 30,
        batch_size=size,
        words=options.words,
        samples=samples,
    )
    rows = {f"{name}, {variant}": row for (name, variant), row in _ratios(seconds).items()}
    columns = {
        "median ms": lambda row: f"{row['milliseconds']:.0f}",
        "ratio to dense": lambda row: f"{row['ratio']:.2f}" if row["ratio"] else "",
        "ratio to the first": lambda row: f"{row['to_first']:.2f}",
    }
    title = f"A training step, {size} captions of {options.words} words"
    if samples:
        title += f"; self-critical: {samples} drawn of each of {size // samples} images"
        columns["of it rewards"] = lambda row: f"{row['reward_share']:.1%}" if "reward_share" in row else ""
    return title, columns, rows


def _ratios(seconds: dict[tuple[str, str], list[float]]) -> dict[tuple[str, str], dict]:
    """Medians; ratios are taken pair by pair, because both steps of a pair saw the same machine."""

    def ratio(times: list[float], others: list[float]) -> float:
        return statistics.median(time / other for time, other in zip(times, others, strict=True))

    first = next(iter(seconds.values()))
    rows = {
        (name, variant): {
            "milliseconds": 1000 * statistics.median(times),
            "ratio": ratio(times, seconds[name, DENSE]) if (name, DENSE) in seconds else None,
            "to_first": ratio(times, first),
        }
        for (name, variant), times in seconds.items()
        if variant != REWARD
    }
    for (name, variant), row in rows.items():
        if variant == SELF_CRITICAL:
            row["reward_share"] = ratio(seconds[name, REWARD], seconds[name, variant])
    return rows


if __name__ == "__main__":
    run(main)
