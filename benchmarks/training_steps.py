"""python -m benchmarks.training_steps: the cost of gates in a training step, and captions per second.

Measures training steps of captioners at the papers' sizes, dense and pruned: the median time of each, and
the median ratio to the dense step before it. --xla adds each step compiled by XLA. --scst adds a step of SCST
and the share of its rewards. --decode measures beam search instead, --reports the cost of waiting for the
device in every step. Steps of all variants alternate in one process, so that other load affects all alike.

examples:
  python -m benchmarks.training_steps
      Soft-Attention with all pruning methods, some minutes
  python -m benchmarks.training_steps --captioner ort acort --variants dense --steps 5
      dense steps of two captioners
  python -m benchmarks.training_steps --scst --captioner up_down ort acort --steps 5
      self-critical steps of 20 images with 5 captions each
  python -m benchmarks.training_steps --decode --captioner up_down ort acort
      beam search
  python -m benchmarks.training_steps --reports --steps 5
      25 steps whose logs are fetched in each step, and 25 whose logs are fetched at the end
"""

import argparse
import itertools
import json
import operator
import statistics
import time
from collections.abc import Iterable, Sequence

import keras
import numpy as np
import tensorflow as tf
from rich.console import Console
from rich.table import Table
from tqdm import tqdm

from benchmarks.paper_sizes import PAPER_CAPTIONERS, RADIX_BASE, VOCABULARY, PaperCaptioner
from benchmarks.rewards import TimedReward
from tfsparsecap.captioning.models.captioner_base import Captioner
from tfsparsecap.captioning.search.beam_search import Decoder
from tfsparsecap.captioning.settings.sections import SCST
from tfsparsecap.captioning.training.loop import STEPS_PER_REPORT, Loop, StepLogs
from tfsparsecap.captioning.training.scst import SCSTLoop
from tfsparsecap.command import only_json_on_stdout, parser, run
from tfsparsecap.errors import InputError, check_number
from tfsparsecap.pruning import prune

DENSE, SELF_CRITICAL, REWARD = "dense", "self-critical", "reward"
EACH_STEP, AT_END = "logs of each step", f"logs of {STEPS_PER_REPORT} steps"
_TOTAL_STEPS = 1000
_SCHEDULED = {"total_steps": _TOTAL_STEPS}
_BY_SCORE = {**_SCHEDULED, "lower_bound": 0.0, "metric": "validation_CIDEr"}
#: Variant of a training step -> options of the pruning method that its name begins with.
VARIANTS = {
    DENSE: None,
    "supermask": _SCHEDULED,
    "supermask (16, 1)": {**_SCHEDULED, "block_shape": (16, 1)},
    "supermask_loss": _SCHEDULED,
    "supermask_loss (16, 1)": {**_SCHEDULED, "block_shape": (16, 1)},
    "gradual": _SCHEDULED,
    "magnitude": {},
    "snip": {},
    "lottery": _SCHEDULED,
    "relevance": _BY_SCORE,
    "l2": _BY_SCORE,
    "l1": _BY_SCORE,
}
#: Captioners without an encoder, whose time would dominate.
CAPTIONERS = {name: paper for name, paper in PAPER_CAPTIONERS.items() if "features" in paper.inputs}
BEAM = 3
_FIRST_WORD = 4
# Number of images whose references the reward knows, as in Flickr8k's training split.
_REWARDED = 6000


def measure(
    captioners: Iterable[str] = ("soft_attention_of_map",),
    *,
    variants: Iterable[str] = tuple(VARIANTS),
    steps: int = 30,
    batch_size: int = 32,
    words: int = 16,
    samples: int | None = None,
    xla: bool = False,
    **sizes,
) -> dict[tuple[str, str], list[float]]:
    """Seconds of each training step, by captioner and variant.

    Steps of a pruning method are taken after a third of its schedule, when all its parts are at work.

    Args:
        captioners: names of `CAPTIONERS`.
        variants: names of `VARIANTS`.
        steps: number of measured steps, after two that compile and warm up.
        batch_size: captions per step.
        words: words per caption; ACORT has two tokens per word.
        samples: captions per image of an additional variant `"self-critical"` with as many captions per step,
            rewarded by CIDEr-D; the time of its rewards is the variant `"reward"`. None leaves it out.
        xla: whether to add each variant compiled by XLA, as `"VARIANT, XLA"`.
        sizes: other arguments of the captioners; the papers' sizes by default.

    Raises:
        InputError: `batch_size` is not a multiple of `samples`.
    """
    if samples and batch_size % samples:
        raise InputError(f"{batch_size} captions per step is not a multiple of {samples} captions per image")
    rewards, loops = {}, {}
    for name in captioners:
        batch = random_batch(CAPTIONERS[name], batch_size, words)
        for variant, compiled in itertools.product(variants, (False, True) if xla else (False,)):
            captioner = _make(name, words, **sizes)
            if VARIANTS[variant] is not None:
                prune(captioner, variant.split()[0], sparsity=0.95, **VARIANTS[variant])
                captioner.pruning.steps_done.assign(_TOTAL_STEPS // 3)
            captioner.compile(keras.optimizers.Adam(1e-3))
            loops[name, variant + ", XLA" * compiled] = Loop(captioner, jit_compile=compiled), batch
        if samples:
            loops[name, SELF_CRITICAL] = _self_critical(name, batch_size // samples, samples, words, **sizes)
            rewards[name] = loops[name, SELF_CRITICAL][0].reward
    seconds = {key: [] for key in loops} | {(name, REWARD): [] for name in rewards}
    for number in tqdm(range(steps + 2), desc="steps of each", unit="step"):
        for (name, variant), (loop, batch) in loops.items():
            rewarded = rewards[name].seconds if variant == SELF_CRITICAL else 0.0
            began = time.perf_counter()
            float(loop.train_step(batch)["loss"])
            if number < 2:
                continue
            seconds[name, variant].append(time.perf_counter() - began)
            if variant == SELF_CRITICAL:
                seconds[name, REWARD].append(rewards[name].seconds - rewarded)
    return seconds


def _self_critical(name: str, images: int, samples: int, words: int, **sizes) -> tuple[SCSTLoop, tuple]:
    """A loop of self-critical training and its batch."""
    paper, captioner = CAPTIONERS[name], _make(name, words, **sizes)
    length = words * paper.tokens_a_word
    base = RADIX_BASE if paper.tokens_a_word > 1 else None
    reward = TimedReward(max(images, _REWARDED), VOCABULARY - _FIRST_WORD, length, base)
    captioner.compile(keras.optimizers.Adam(1e-3))
    loop = SCSTLoop(captioner, reward=reward, settings=SCST(samples=samples), max_length=length)
    inputs, _ = random_batch(paper, images, words)
    return loop, (inputs, tf.range(images)[:, None])


def measure_decoding(
    captioners: Iterable[str], *, steps: int = 5, batch_size: int = 50, words: int = 16, **sizes
) -> dict[str, list[float]]:
    """Seconds of captioning each of `steps` batches of images by beam search, with captions of full length.

    Args:
        captioners, steps, words, sizes: as of `measure`.
        batch_size: images per batch.
    """
    decoders = {}
    for name in captioners:
        captioner = _make(name, words, **sizes)
        bias = np.array(keras.ops.convert_to_numpy(captioner.output_layer.bias))
        bias[captioner.end_id] = -100.0
        captioner.output_layer.bias.assign(bias)
        inputs, _ = random_batch(CAPTIONERS[name], batch_size, words)
        decoders[name] = Decoder(captioner, BEAM, words * CAPTIONERS[name].tokens_a_word), inputs
    seconds = {name: [] for name in decoders}
    for number in tqdm(range(steps + 1), desc="batches of each", unit="batch"):
        for name, (decode, inputs) in decoders.items():
            began = time.perf_counter()
            decode(inputs)[0].numpy()
            if number >= 1:
                seconds[name].append(time.perf_counter() - began)
    return seconds


def measure_reports(
    captioners: Iterable[str], *, steps: int = 5, batch_size: int = 32, words: int = 16, **sizes
) -> dict[tuple[str, str], list[float]]:
    """Seconds of a dense step if the host waits for its logs, and if it waits after `STEPS_PER_REPORT` steps.

    Args:
        captioners, batch_size, words, sizes: as of `measure`.
        steps: number of measured rounds, each with `STEPS_PER_REPORT` steps of both kinds.
    """
    loops = {}
    for name in captioners:
        captioner = _make(name, words, **sizes)
        captioner.compile(keras.optimizers.Adam(1e-3))
        loops[name] = Loop(captioner), random_batch(CAPTIONERS[name], batch_size, words)
        loops[name][0].train_step(loops[name][1])
    seconds = {(name, kind): [] for name in loops for kind in (EACH_STEP, AT_END)}
    for _ in tqdm(range(steps), desc="rounds", unit="round"):
        for name, kind in seconds:
            (loop, batch), logs, began = loops[name], StepLogs(epoch=0), time.perf_counter()
            for _ in range(STEPS_PER_REPORT):
                logs.add(loop.train_step(batch))
                if kind == EACH_STEP:
                    logs.fetch()
            logs.fetch()
            seconds[name, kind].append((time.perf_counter() - began) / STEPS_PER_REPORT)
    return seconds


def _make(name: str, words: int, **sizes) -> Captioner:
    keras.utils.set_random_seed(0)
    return CAPTIONERS[name].make(words * CAPTIONERS[name].tokens_a_word, **sizes)


def random_batch(paper: PaperCaptioner, batch_size: int, words: int) -> tuple[dict, tf.Tensor]:
    """Random inputs with tokens, and targets."""
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
    command = parser(__doc__)
    command.add_argument(
        "--captioner",
        nargs="+",
        choices=sorted(CAPTIONERS),
        default=["soft_attention_of_map"],
        metavar="NAME",
        help=f"{', '.join(sorted(CAPTIONERS))} (default: soft_attention_of_map)",
    )
    command.add_argument(
        "--variants",
        nargs="+",
        choices=list(VARIANTS),
        metavar="NAME",
        help=f"{'; '.join(VARIANTS)} (default: all; with --scst: dense)",
    )
    command.add_argument(
        "--scst",
        nargs="?",
        type=int,
        const=5,
        metavar="SAMPLES",
        help="measure self-critical training, too, with SAMPLES captions per image (default: 5)",
    )
    command.add_argument("--xla", action="store_true", help="measure each variant with XLA, too")
    command.add_argument("--decode", action="store_true", help="measure beam search instead")
    command.add_argument(
        "--reports", action="store_true", help="measure the cost of fetching the logs of each step instead"
    )
    command.add_argument(
        "--steps", type=int, help="measured steps (default: 30; with --decode, --reports: 5 batches, rounds)"
    )
    command.add_argument(
        "--batch-size",
        type=int,
        help="captions per step (default: 32; with --scst those of 20 images; with --decode: 50 images)",
    )
    command.add_argument("--words", type=int, default=16, help="words per caption (default: 16)")
    command.add_argument("--json", action="store_true", help="print the results as JSON")
    options = command.parse_args(argv)
    for name in ("steps", "batch_size", "words"):
        if getattr(options, name) is not None:
            check_number(f"--{name.replace('_', '-')}", getattr(options, name), at_least=1)
    if options.scst is not None:
        check_number("--scst", options.scst, at_least=2)
    if (options.scst is not None) + options.decode + options.reports > 1:
        raise InputError("--scst, --decode and --reports measure different things: give one of them")
    return options


def main(argv: Sequence[str] | None = None) -> None:
    """Measures and prints a table."""
    options = _arguments(argv)
    with only_json_on_stdout(options.json):
        rows = (_decoding if options.decode else _reports if options.reports else _training)(options)
    if options.json:
        print(json.dumps(rows))
        return
    columns = list(dict.fromkeys(column for row in rows.values() for column in row))
    table = Table()
    table.add_column("", no_wrap=True)
    for column in columns:
        table.add_column(column.replace("_", " "), justify="right")
    for name, row in rows.items():
        table.add_row(name, *(f"{row[column]:,.2f}" if column in row else "" for column in columns))
    Console().print(table)


def _decoding(options: argparse.Namespace) -> dict[str, dict[str, float]]:
    size = options.batch_size or 50
    seconds = measure_decoding(
        options.captioner, steps=options.steps or 5, batch_size=size, words=options.words
    )
    return {name: {"images_per_second": size / statistics.median(times)} for name, times in seconds.items()}


def _reports(options: argparse.Namespace) -> dict[str, dict[str, float]]:
    seconds = measure_reports(
        options.captioner, steps=options.steps or 5, batch_size=options.batch_size or 32, words=options.words
    )
    return {
        f"{name}, {kind}": {
            "milliseconds": 1000 * statistics.median(times),
            "ratio_to_each_step": _ratio(times, seconds[name, EACH_STEP]),
        }
        for (name, kind), times in seconds.items()
    }


def _training(options: argparse.Namespace) -> dict[str, dict[str, float]]:
    seconds = measure(
        options.captioner,
        variants=options.variants or ([DENSE] if options.scst else list(VARIANTS)),
        steps=options.steps or 30,
        batch_size=options.batch_size or (20 * options.scst if options.scst else 32),
        words=options.words,
        samples=options.scst,
        xla=options.xla,
    )
    rows, first = {}, next(iter(seconds.values()))
    for (name, variant), times in seconds.items():
        if variant == REWARD:
            continue
        row = rows[f"{name}, {variant}"] = {"milliseconds": 1000 * statistics.median(times)}
        if (name, DENSE) in seconds:
            row["ratio_to_dense"] = _ratio(times, seconds[name, DENSE])
        row["ratio_to_first"] = _ratio(times, first)
        if variant == SELF_CRITICAL:
            row["share_of_rewards"] = _ratio(seconds[name, REWARD], times)
    return rows


def _ratio(times: list[float], others: list[float]) -> float:
    """Median ratio of steps that were taken in the same round, when the machine was equally busy."""
    return statistics.median(map(operator.truediv, times, others))


if __name__ == "__main__":
    run(main)
