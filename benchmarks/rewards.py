"""python -m benchmarks.rewards: how many captions a second can be rewarded.

It makes up captions of its own, and scores them with pycocoevalcap, too.
"""

import argparse
import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from rich.console import Console
from rich.table import Table

from tfsparsecap.command import only_json_on_stdout, parser, run
from tfsparsecap.data.radix import RadixTokenizer
from tfsparsecap.data.records import Record
from tfsparsecap.data.tokenizers import SPECIAL_TOKENS, WordTokenizer
from tfsparsecap.errors import InputError
from tfsparsecap.settings.schema import Config
from tfsparsecap.training.scst_reward import make_reward

_REFERENCES = 5


def made_up(
    images: int, vocabulary: int = 10_000, seed: int = 0
) -> tuple[list[list[list[int]]], list[list[int]]]:
    """References and a caption to score for each image, as ids of words.

    Lengths are as in MS-COCO, 10.5 words and a few more or fewer, words as frequent as by Zipf's law. A
    caption begins as one reference and goes on as another, so that it shares n-grams with them.

    Args:
        images: how many.
        vocabulary: how many different words there are.
        seed: of what is drawn.

    Returns:
        `(references, captions)`: five references of each image, and one caption of each.
    """
    random = np.random.default_rng(seed)
    lengths = np.clip(np.round(random.normal(10.5, 2.4, images * _REFERENCES)), 5, 30).astype(int)
    chances = 1 / np.arange(1, vocabulary + 1)
    words = random.choice(vocabulary, lengths.sum(), p=chances / chances.sum())
    texts = [text.tolist() for text in np.split(words, np.cumsum(lengths)[:-1])]
    references = [texts[first : first + _REFERENCES] for first in range(0, len(texts), _REFERENCES)]
    captions = []
    for of_image, cut in zip(references, random.integers(1, 5, images), strict=True):
        captions.append(of_image[0][:cut] + of_image[1][cut:])
    return references, captions


def measure(images: int, batch_size: int, vocabulary: int = 10_000) -> list[dict[str, Any]]:
    """Scores a caption of each of `images` images with this package and with pycocoevalcap.

    Args:
        images: how many captions to score, each with five references.
        batch_size: captions that this package scores at once, as in a step of training.
        vocabulary: different words.

    Returns:
        A row for `"CIDEr-D"` and one for `"BLEU-4"`: `captions_per_second`, that of pycocoevalcap as `other`,
        `ratio` of both, `difference` of their scores at most, and `preparation`, seconds for the references
        before the first caption, which are not in `captions_per_second`. Seconds are those of the processor.
    """
    from pycocoevalcap.bleu.bleu import Bleu
    from pycocoevalcap.cider.cider import Cider

    from tfsparsecap.rewards.cider_d import CiderD
    from tfsparsecap.rewards.references import References
    from tfsparsecap.rewards.sentence_bleu import SentenceBleu

    references, captions = made_up(images, vocabulary)
    people = {number: [_text(words) for words in group] for number, group in enumerate(references)}
    said = {number: [_text(words)] for number, words in enumerate(captions)}
    prepared, preparation = _timed(lambda: References(references))
    ways = {
        "CIDEr-D": (
            _timed(lambda: CiderD(prepared)),
            lambda scores: scores,
            lambda: Cider().compute_score(people, said)[1],
        ),
        "BLEU-4": (
            _timed(lambda: SentenceBleu(prepared)),
            lambda scores: scores[:, 3],
            lambda: Bleu(4).compute_score(people, said, verbose=0)[1][3],
        ),
    }
    rows = []
    for name, ((scorer, more), column, others) in ways.items():

        def ours(scorer: Any = scorer) -> np.ndarray:
            batches = range(0, images, batch_size)
            return np.concatenate(
                [
                    scorer.score(
                        captions[first : first + batch_size], range(images)[first : first + batch_size]
                    )
                    for first in batches
                ]
            )

        scorer.score(captions[:batch_size], range(images)[:batch_size])
        scores, seconds = _timed(ours)
        theirs, their_seconds = _timed(others)
        rows.append(
            {
                "score": name,
                "captions_per_second": images / seconds,
                "other": images / their_seconds,
                "ratio": their_seconds / seconds,
                "difference": float(np.abs(column(scores) - theirs).max()),
                "preparation": preparation + more,
            }
        )
    return rows


class TimedReward:
    """A reward for the benchmark of training steps that notes how long it takes.

    It scores made-up captions in place of those that are drawn: a captioner that has learnt nothing says what
    no reference has, and that is scored sooner.

    Args:
        images: how many there are, with five references each.
        vocabulary: different words.
        length: tokens of a caption at most.
        radix_base: of the digits that words are written in; None where a token is a word.

    Attributes:
        seconds: of all calls until now.

    Example:
        >>> reward = TimedReward(50, 100, 16)
        >>> reward(np.zeros((4, 16), int), np.arange(4)).shape, reward.seconds > 0
        ((4,), True)
    """

    def __init__(self, images: int, vocabulary: int, length: int, radix_base: int | None = None):
        references, captions = made_up(images, vocabulary)
        tokenizer = WordTokenizer([*SPECIAL_TOKENS, *(f"w{number}" for number in range(vocabulary))])
        if radix_base is not None:
            tokenizer = RadixTokenizer(tokenizer, radix_base)
        records = [
            Record(str(number), Path(), tuple(map(_text, group)), "train")
            for number, group in enumerate(references)
        ]
        config = Config(training={"scst": {}}, data={"cache_folder": None})
        self._reward = make_reward(config, records, tokenizer)
        self._said = tokenizer.encode_padded(tf.constant(list(map(_text, captions))), length)[1].numpy()
        self.seconds = 0.0

    def __call__(self, captions: np.ndarray, images: np.ndarray) -> np.ndarray:
        """Rewards of as many captions as are given, by their images' numbers."""
        began = time.perf_counter()
        rewards = self._reward(self._said[images], images)
        self.seconds += time.perf_counter() - began
        return rewards


def _text(words: Sequence[int]) -> str:
    return " ".join(f"w{word}" for word in words)


def _timed(work: Callable[[], Any]) -> tuple[Any, float]:
    began = time.process_time()
    result = work()
    return result, max(time.process_time() - began, 1e-9)


def main(argv: Sequence[str] | None = None) -> None:
    """Measures as the command line says and prints a table.

    Raises:
        InputError: an argument is out of range.
    """
    command = parser(
        "python -m benchmarks.rewards",
        "Makes up captions of images with five references each, scores them with CIDEr-D and BLEU-4 as\n"
        "self-critical training does, and with pycocoevalcap, and says how many a second of one processor\n"
        "core each of them scores.",
        [("python -m benchmarks.rewards --captions 20000", "more captions, a minute")],
    )
    command.add_argument("--captions", type=int, default=5000, metavar="N", help="(default: 5000)")
    command.add_argument("--batch-size", type=int, default=250, metavar="B", help="(default: 250)")
    command.add_argument("--vocabulary", type=int, default=10_000, metavar="V", help="(default: 10000)")
    command.add_argument("--json", action="store_true", help="print the rows as JSON")
    given: argparse.Namespace = command.parse_args(argv)
    for name in ("captions", "batch_size", "vocabulary"):
        if getattr(given, name) < 1:
            raise InputError(f"--{name.replace('_', '-')} is {getattr(given, name)}: give at least 1")
    with only_json_on_stdout(given.json):
        rows = measure(given.captions, given.batch_size, given.vocabulary)
    if given.json:
        print(json.dumps(rows))
        return
    table = Table(
        title=f"{given.captions} captions with {_REFERENCES} references each, {given.batch_size} at once"
    )
    for name in ("", "captions/s", "by pycocoevalcap", "ratio", "difference", "preparation s"):
        table.add_column(name, justify="right" if name else "left")
    for row in rows:
        table.add_row(
            row["score"],
            f"{row['captions_per_second']:.0f}",
            f"{row['other']:.0f}",
            f"{row['ratio']:.1f}",
            f"{row['difference']:.0e}",
            f"{row['preparation']:.2f}",
        )
    Console().print(table)


if __name__ == "__main__":
    run(main)
