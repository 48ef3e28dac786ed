"""Tokenizers: captions to token ids in the TensorFlow graph, and token ids to captions."""

import abc
import os
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Literal

import numpy as np
import tensorflow as tf
import tensorflow_text as text

from tfsparsecap.captioning.models.captioner_base import END, PAD, START, UNKNOWN
from tfsparsecap.core.files import atomic_write, read_text
from tfsparsecap.core.text import INVISIBLE
from tfsparsecap.errors import InputError, error_prefix

SPECIAL_TOKENS = ("<pad>", "<start>", "<end>", "<unk>")
#: Files of a run folder; the second one exists for SentencePiece vocabularies only.
VOCABULARY, SENTENCEPIECE = "vocabulary.txt", "sentencepiece.model"

_LETTER = r"[\p{L}\p{M}\p{N}]"
# A number with its separators; letters joined by apostrophes or hyphens; an emoji with its skin tone.
_WORD = rf"\p{{N}}+(?:[.,:]\p{{N}}+)+|{_LETTER}+(?:['-]{_LETTER}+)*|\p{{So}}\p{{Sk}}*"
_BETWEEN = r"[^\p{L}\p{M}\p{N}\p{So}]+"


def split_words(captions: tf.Tensor) -> tf.RaggedTensor:
    """Normalised words of captions; works eagerly and in a graph.

    NFKC, lower case, ASCII apostrophes and hyphens, no invisible characters. A word is a sequence of letters,
    marks and digits, with apostrophes and hyphens inside (`dog's`, `t-shirt`); a number keeps its separators
    (`3.5`); an emoji is a word; other punctuation is removed.

    Args:
        captions: string [B], UTF-8 (broken bytes are replaced).

    Returns:
        string [B, (words)]; rows may be empty.

    Examples:
        >>> split_words(tf.constant(["A dog\u2019s CAF\u00c9, 'twice'!"])).to_list()[0]
        [b'a', b"dog's", b'caf\\xc3\\xa9', b'twice']
    """
    captions = tf.strings.unicode_transcode(captions, "UTF-8", "UTF-8")
    captions = tf.strings.regex_replace(text.normalize_utf8(captions, "NFKD"), INVISIBLE, "")
    # ASCII first: for other letters, TensorFlow follows the machine's language, and Turkish has another i.
    captions = tf.strings.lower(tf.strings.lower(captions), encoding="utf-8")
    captions = text.normalize_utf8(captions, "NFKC")
    captions = tf.strings.regex_replace(captions, "[\u2018\u2019\u02bc]", "'")
    captions = tf.strings.regex_replace(captions, "[\u2010\u2011]", "-")
    return text.regex_split(captions, f"{_WORD}|{_BETWEEN}", _WORD)


def join_words(captions: tf.Tensor) -> tf.Tensor:
    """The words of captions by `split_words`, separated by spaces; works eagerly and in a graph.

    Args:
        captions: string [B], UTF-8 (broken bytes are replaced).

    Returns:
        string [B].

    Examples:
        >>> join_words(tf.constant(["A dog, running!"])).numpy().tolist()
        [b'a dog running']
    """
    return tf.strings.reduce_join(split_words(captions), axis=1, separator=" ")


class Tokenizer(abc.ABC):
    """Converts captions to the token ids that a captioner predicts, and back.

    Attributes:
        vocabulary: the words or pieces in the order of their ids, as in `vocabulary.txt`.
        join: how entries of `vocabulary` become a text: `"words"` are separated by spaces; `"pieces"` are
            concatenated, and `\u2581` in them is a space.
        pad_id, start_id, end_id: ids of special tokens.
        unknown_id: id of words outside the vocabulary; None if they have more than one id.
        digits: number of ids per entry of `vocabulary`.
    """

    vocabulary: list[str]
    join: Literal["words", "pieces"]
    pad_id: int
    start_id: int
    end_id: int
    unknown_id: int | None
    digits: int = 1

    @abc.abstractmethod
    def encode(self, texts: tf.Tensor) -> tf.RaggedTensor:
        """Token ids of captions; works eagerly and in a graph.

        Args:
            texts: string [B].

        Returns:
            int32 [B, (tokens)]: `start_id`, the caption, `end_id`.
        """

    @abc.abstractmethod
    def decode(self, ids: Sequence[int] | np.ndarray | tf.Tensor) -> str:
        """The caption of token ids: stops at the first `end_id`, ignores other special tokens.

        Args:
            ids: integers [T].
        """

    def __len__(self) -> int:
        """Number of different token ids."""
        return len(self.vocabulary)

    @property
    def words(self) -> "Tokenizer":
        """The tokenizer whose ids are indices into `vocabulary`; without radix encoding, itself."""
        return self

    def to_words(self, token_ids: tf.Tensor) -> tf.Tensor:
        """Converts predicted token ids to indices into `vocabulary`; works in exported graphs.

        Args:
            token_ids: int32 [..., T].

        Returns:
            int32 [..., T'], ids of `words`; its `end_id` follows a caption that has ended, then its `pad_id`.
            Without radix encoding these are `token_ids` themselves.
        """
        return token_ids

    def encode_padded(self, texts: tf.Tensor, max_length: int) -> tuple[tf.Tensor, tf.Tensor]:
        """Input tokens for teacher forcing and their targets.

        A caption of more than `max_length - 1` tokens is truncated and has no `end_id` among its targets;
        otherwise the model would learn to end captions in the middle of a sentence.

        Args:
            texts: string [B].
            max_length: `T`, number of tokens to predict, including `end_id`.

        Returns:
            `(tokens, targets)`, int32 [B, T] each: `start w1 ... ` and `w1 ... end`, padded with `pad_id`.

        Examples:
            >>> tokenizer = WordTokenizer.from_captions(["a dog"])
            >>> tokens, targets = tokenizer.encode_padded(tf.constant(["a dog"]), 4)
            >>> tokens.numpy().tolist(), targets.numpy().tolist()
            ([[1, 4, 5, 0]], [[4, 5, 2, 0]])
        """
        ids = self.encode(texts).to_tensor(default_value=self.pad_id, shape=[None, max_length + 1])
        tokens, targets = ids[:, :-1], ids[:, 1:]
        # The end is the target of the last word, never an input.
        return tf.where(tokens == self.end_id, self.pad_id, tokens), targets

    def save(self, path: str | os.PathLike) -> None:
        """Writes `vocabulary` to a file, one token per line, atomically."""
        atomic_write(path, "\n".join(self.vocabulary) + "\n")

    def save_to(self, folder: str | os.PathLike) -> None:
        """Writes the files that `RunFolder.load_tokenizer` reads, each one atomically."""
        self.save(Path(folder) / VOCABULARY)


class WordTokenizer(Tokenizer):
    """A word vocabulary.

    Args:
        vocabulary: the tokens in the order of their ids, starting with `<pad> <start> <end> <unk>`; words as
            returned by `split_words`. Other words of a caption become `<unk>`.

    Raises:
        InputError: the special tokens are not the first four, a token is empty, has a line break or appears
            twice, or there are no words.

    Examples:
        >>> tokenizer = WordTokenizer.from_captions(["a dog", "a red dog"])
        >>> tokenizer.encode(tf.constant(["A dog, running"])).to_list()
        [[1, 4, 5, 3, 2]]
        >>> tokenizer.decode([4, 6, 5, 2, 0])
        'a red dog'
    """

    join = "words"
    pad_id, start_id, end_id, unknown_id = PAD, START, END, UNKNOWN

    def __init__(self, vocabulary: Sequence[str]):
        vocabulary = list(vocabulary)
        if tuple(vocabulary[: len(SPECIAL_TOKENS)]) != SPECIAL_TOKENS:
            start = " ".join(vocabulary[:4])[:100] or "nothing"
            raise InputError(
                f"a vocabulary begins with {' '.join(SPECIAL_TOKENS)}, one token per line; this one begins "
                f"with {start}: use a vocabulary.txt written by this package"
            )
        if len(vocabulary) == len(SPECIAL_TOKENS):
            raise InputError(
                "the vocabulary has zero words: give captions with words, or a smaller minimum count"
            )
        repeated = [token for token, count in Counter(vocabulary).items() if count > 1]
        if repeated:
            raise InputError(
                f"the vocabulary contains {repeated[0]!r:.100} more than once: remove the repetition"
            )
        bad = [number for number, token in enumerate(vocabulary, 1) if not token.strip() or "\n" in token]
        if bad:
            raise InputError(f"line {bad[0]} of the vocabulary is not a word: correct or remove it")
        self.vocabulary = vocabulary
        self._table = tf.lookup.StaticHashTable(
            tf.lookup.KeyValueTensorInitializer(
                tf.constant(vocabulary[len(SPECIAL_TOKENS) :]),
                tf.range(len(SPECIAL_TOKENS), len(vocabulary), dtype=tf.int32),
                key_dtype=tf.string,
                value_dtype=tf.int32,
            ),
            default_value=UNKNOWN,
        )

    @classmethod
    def from_captions(
        cls, captions: Iterable[str], minimum_count: int = 1, maximum_size: int | None = None
    ) -> "WordTokenizer":
        """A vocabulary of the words in `captions`, the most frequent first (ties in code point order).

        Args:
            captions: raw texts.
            minimum_count: rarer words are left out.
            maximum_size: number of tokens to keep, including special ones; None for all.

        Raises:
            InputError: no word is left.
        """
        captions = list(captions)
        counts: Counter[bytes] = Counter()
        for start in range(0, len(captions), 65536):
            chunk = split_words(tf.constant(captions[start : start + 65536], tf.string))
            counts.update(chunk.flat_values.numpy().tolist())
        ranked = sorted(
            (item for item in counts.items() if item[1] >= minimum_count),
            key=lambda item: (-item[1], item[0]),
        )
        words = [word.decode("utf-8") for word, _ in ranked]
        if maximum_size is not None:
            words = words[: max(0, maximum_size - len(SPECIAL_TOKENS))]
        if not words:
            raise InputError(
                f"the vocabulary has zero words: {len(captions)} captions have {len(counts)} different words "
                f"and none is left with minimum_count={minimum_count} and maximum_size={maximum_size}; "
                "give captions, a smaller minimum_count or a larger maximum_size"
            )
        return cls([*SPECIAL_TOKENS, *words])

    @classmethod
    def load(cls, path: str | os.PathLike) -> "WordTokenizer":
        """Reads `vocabulary.txt`: one token per line, line number (from 0) = id.

        Raises:
            InputError: the file is missing, is not UTF-8, or is not a vocabulary.
        """
        lines = read_text(path).removesuffix("\n").split("\n")
        with error_prefix(path):
            return cls(lines)

    def encode(self, texts: tf.Tensor) -> tf.RaggedTensor:
        words = split_words(texts)
        ids = words.with_flat_values(self._table.lookup(words.flat_values))
        ends = tf.ones([tf.shape(texts)[0], 1], tf.int32)
        return tf.concat([ends * START, ids, ends * END], axis=1)

    def decode(self, ids: Sequence[int] | np.ndarray | tf.Tensor) -> str:
        words = []
        for token in np.asarray(ids).reshape(-1).tolist():
            if token == END:
                break
            if token not in (PAD, START, UNKNOWN):
                words.append(self.vocabulary[token])
        return " ".join(words)

    def normalise_all(self, captions: Sequence[str]) -> list[str]:
        """Normalises many captions at once, a thousand times faster than one by one."""
        if not captions:
            return []
        lines = join_words(tf.constant(list(captions), tf.string)).numpy()
        return [line.decode("utf-8") for line in lines]
