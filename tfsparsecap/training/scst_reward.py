"""The reward of self-critical training as the settings have it."""

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import tensorflow as tf

from tfsparsecap.data.records import Record
from tfsparsecap.data.tokenizers import Tokenizer, WordTokenizer
from tfsparsecap.errors import InputError
from tfsparsecap.rewards.caption_words import CaptionWords
from tfsparsecap.rewards.document_frequencies import DocumentFrequencies, cached_frequencies
from tfsparsecap.rewards.references import References
from tfsparsecap.rewards.reward import CaptionReward
from tfsparsecap.settings.schema import Config

# Words outside a vocabulary of pieces, as references have them and as captioners say them: never the same.
_NOT_KNOWN, _SAID_UNKNOWN = "<not-known>", "<unknown>"


def make_reward(config: Config, records: Sequence[Record], tokenizer: Tokenizer) -> CaptionReward:
    """What scores the captions that are drawn of training images.

    Words are compared, whatever tokens they are written in; to say "unknown" is never right. Document
    frequencies are those of the records' captions, counted once and kept in `data.cache_folder`.

    Args:
        records: the images, in the order of their numbers; one without captions rewards nothing.
        tokenizer: of the captioner.

    Raises:
        InputError: no record has a caption, or the end of captions is to count, and tokens are pieces of
            words.
    """
    scst, words = config.training.scst, tokenizer.words
    captions = [caption for record in records for caption in record.captions]
    if isinstance(words, WordTokenizer):
        ends = words.end_id if scst.count_end else None
        reading = CaptionWords(words.vocabulary, unknown_id=words.unknown_id, end_id=ends)
        texts = iter(words.normalise_all(captions))
        to_words = None if tokenizer is words else _as_words(tokenizer)
    else:
        if scst.count_end:
            raise InputError(
                "training.scst.count_end is for vocabularies of words, and this one has pieces of words: set"
                " it to false"
            )
        reading = None
        rows = words.encode(tf.constant(captions, tf.string)).to_list()
        texts = iter([_text(words, row, _NOT_KNOWN) for row in rows])
        to_words = _as_texts(tokenizer)
    references = [[next(texts) for _ in record.captions] for record in records]
    counted, folder = [group for group in references if group], config.data.cache_folder
    if folder is None:
        frequencies = DocumentFrequencies.from_references(counted, reading)
    else:
        frequencies = cached_frequencies(counted, Path(folder).expanduser(), reading)
    return CaptionReward(
        References([group or [""] for group in references], frequencies),
        end_id=words.end_id,
        pad_id=words.pad_id,
        start_id=words.start_id,
        to_words=to_words,
        cider_d=scst.cider_d,
        bleu=(0.0, 0.0, 0.0, scst.bleu_4),
    )


def _as_words(tokenizer: Tokenizer) -> Callable[[np.ndarray], np.ndarray]:
    return lambda tokens: tokenizer.to_words(tf.constant(tokens)).numpy()


def _as_texts(tokenizer: Tokenizer) -> Callable[[np.ndarray], list[str]]:
    words, to_words = tokenizer.words, _as_words(tokenizer)
    return lambda tokens: [_text(words, row, _SAID_UNKNOWN) for row in to_words(tokens).tolist()]


def _text(words: Tokenizer, ids: list[int], unknown: str) -> str:
    """The caption behind ids of pieces, with a word for what has none: decoding leaves that out."""
    parts = [[]]
    for token in ids[: ids.index(words.end_id)] if words.end_id in ids else ids:
        if token == words.unknown_id:
            parts.append([])
        else:
            parts[-1].append(token)
    return f" {unknown} ".join(map(words.decode, parts))
