"""python -m benchmarks.rewards: captions scored per second, by this package and by pycocoevalcap.

Scores random captions with CIDEr-D and BLEU-4, as self-critical training does, and with pycocoevalcap,
and prints how many captions per second one CPU core scores.

examples:
  python -m benchmarks.rewards --captions 20000
      more captions; takes a minute
"""

import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from rich.console import Console
from rich.table import Table

from tfsparsecap.captioning.data.radix import RadixTokenizer
from tfsparsecap.captioning.data.records import Record
from tfsparsecap.captioning.data.tokenizers import SPECIAL_TOKENS, WordTokenizer
from tfsparsecap.captioning.rewards.caption_reward import CaptionReward
from tfsparsecap.command import only_json_on_stdout, parser, run
from tfsparsecap.errors import check_number

_REFERENCES = 5


def random_captions(
    images: int, vocabulary: int = 10_000, seed: int = 0
) -> tuple[list[list[str]], list[str]]:
    """Random references and a caption to score for each image.

    Lengths are as in MS-COCO (10.5 words on average), word frequencies follow Zipf's law. A caption starts as
    one reference and continues as another, so that it shares n-grams with them.

    Returns:
        Five references per image, and one caption per image.
    """
    random = np.random.default_rng(seed)
    lengths = np.clip(np.round(random.normal(10.5, 2.4, images * _REFERENCES)), 5, 30).astype(int)
    frequencies = 1 / np.arange(1, vocabulary + 1)
    words = random.choice(vocabulary, lengths.sum(), p=frequencies / frequencies.sum())
    texts = [[f"w{word}" for word in text] for text in np.split(words, np.cumsum(lengths)[:-1])]
    groups = [texts[first : first + _REFERENCES] for first in range(0, len(texts), _REFERENCES)]
    captions = [" ".join(group[0][:5] + group[1][5:]) for group in groups]
    return [[" ".join(text) for text in group] for group in groups], captions


def measure(images: int, batch_size: int, vocabulary: int) -> list[dict[str, Any]]:
    """Scores random captions with this package and with pycocoevalcap.

    Args:
        images: number of captions, each with five references.
        batch_size: captions that this package scores at once, as in a training step.
        vocabulary: number of different words.

    Returns:
        A row for `"CIDEr-D"` and one for `"BLEU-4"`: `captions_per_second` of CPU time, `pycocoevalcap` (the
        same for that package), `ratio`, `difference` (the largest one between the scores), and `preparation`
        (CPU seconds for indexing the references).
    """
    from pycocoevalcap.bleu.bleu import Bleu
    from pycocoevalcap.cider.cider import Cider

    from tfsparsecap.captioning.rewards.caption_reward import cider_d, sentence_bleu
    from tfsparsecap.captioning.rewards.references import References

    groups, captions = random_captions(images, vocabulary)
    people, results = dict(enumerate(groups)), {n: [caption] for n, caption in enumerate(captions)}
    references, preparation = _timed(lambda: References(groups))

    def in_batches(score: Callable[..., np.ndarray]) -> np.ndarray:
        starts = range(0, images, batch_size)
        batches = [np.arange(start, min(start + batch_size, images)) for start in starts]
        return np.concatenate([score(references, [captions[n] for n in batch], batch) for batch in batches])

    rows = []
    for name, score, original in (
        ("CIDEr-D", cider_d, lambda: Cider().compute_score(people, results)[1]),
        (
            "BLEU-4",
            lambda *arguments: sentence_bleu(*arguments)[:, 3],
            lambda: Bleu(4).compute_score(people, results, verbose=0)[1][3],
        ),
    ):
        score(references, captions[:batch_size], np.arange(len(captions[:batch_size])))  # warm-up
        scores, seconds = _timed(lambda score=score: in_batches(score))
        expected, original_seconds = _timed(original)
        rows.append(
            {
                "score": name,
                "captions_per_second": images / seconds,
                "pycocoevalcap": images / original_seconds,
                "ratio": original_seconds / seconds,
                "difference": float(np.abs(scores - expected).max()),
                "preparation": preparation,
            }
        )
    return rows


class TimedReward:
    """A reward for the benchmark of training steps that measures its own time.

    It ignores the sampled captions and scores random ones that share n-grams with the references, because an
    untrained captioner's captions share none and would be scored faster.

    Args:
        images: number of images, each with five references.
        vocabulary: number of different words.
        length: tokens per caption.
        radix_base: base of the radix encoding; None where a token is a word.

    Attributes:
        seconds: of all calls so far.

    Examples:
        >>> reward = TimedReward(50, 100, 16)
        >>> reward(np.zeros((4, 16), int), np.arange(4)).shape, reward.seconds > 0
        ((4,), True)
    """

    def __init__(self, images: int, vocabulary: int, length: int, radix_base: int | None = None):
        groups, captions = random_captions(images, vocabulary)
        tokenizer = WordTokenizer([*SPECIAL_TOKENS, *(f"w{number}" for number in range(vocabulary))])
        if radix_base is not None:
            tokenizer = RadixTokenizer(tokenizer, radix_base)
        records = [Record(str(n), Path(), tuple(group), "train") for n, group in enumerate(groups)]
        self._reward = CaptionReward(records, tokenizer)
        self._tokens = tokenizer.encode_padded(tf.constant(captions), length)[1].numpy()
        self.seconds = 0.0

    def __call__(self, captions: np.ndarray, images: np.ndarray) -> np.ndarray:
        """Rewards of one caption for each entry of `images`."""
        start = time.perf_counter()
        rewards = self._reward(self._tokens[images], images)
        self.seconds += time.perf_counter() - start
        return rewards


def _timed(work: Callable[[], Any]) -> tuple[Any, float]:
    start = time.process_time()
    result = work()
    return result, max(time.process_time() - start, 1e-9)


def main(argv: Sequence[str] | None = None) -> None:
    """Runs the benchmark and prints a table. Raises InputError for an argument out of range."""
    command = parser(__doc__)
    command.add_argument("--captions", type=int, default=5000, metavar="N", help="(default: 5000)")
    command.add_argument("--batch-size", type=int, default=250, metavar="B", help="(default: 250)")
    command.add_argument("--vocabulary", type=int, default=10_000, metavar="V", help="(default: 10000)")
    command.add_argument("--json", action="store_true", help="print the rows as JSON")
    options = command.parse_args(argv)
    for name in ("captions", "batch_size", "vocabulary"):
        check_number(f"--{name.replace('_', '-')}", getattr(options, name), at_least=1)
    with only_json_on_stdout(options.json):
        rows = measure(options.captions, options.batch_size, options.vocabulary)
    if options.json:
        print(json.dumps(rows))
        return
    table = Table(
        title=f"{options.captions} captions with {_REFERENCES} references each,"
        f" batches of {options.batch_size}"
    )
    for name in ("", "captions/s", "pycocoevalcap", "ratio", "difference", "preparation s"):
        table.add_column(name, justify="right" if name else "left")
    for row in rows:
        name, *numbers = row.values()
        table.add_row(name, *map("{:{}}".format, numbers, (".0f", ".0f", ".1f", ".0e", ".2f")))
    Console().print(table)


if __name__ == "__main__":
    run(main)
