"""Radix encoding: words as numbers of a few digits, so that a captioner needs only hundreds of tokens."""

import os
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from tfsparsecap.captioning.data.tokenizers import Tokenizer
from tfsparsecap.errors import InputError

_SPECIAL = 4
_LARGEST_BASE = 1 << 24


class RadixTokenizer(Tokenizer):
    """Radix encoding (Tan et al., COMIC, 2019, and ACORT, 2022), with the ids of their published models.

    Token 0 is padding, 1 to `base` are the digits 0 to `base - 1`, followed by start and end: `base + 3`
    tokens. The `W` words after the four special tokens have the numbers 0 to `W - 1`, all other words the
    number `W`. All words have the same number of digits, most significant first, as many as `W + 1` has in
    this base. (This follows the original implementation; if `W + 1` is a power of the base, one digit fewer
    would be enough.)

    Args:
        words: the tokenizer whose words are encoded; its special tokens must be its first four.
        base: number of different digits, from 2.

    Attributes:
        digits: digits per word.

    Raises:
        InputError: the base is out of range, or the special tokens of `words` are not its first four.

    Examples:
        >>> from tfsparsecap.captioning.data.tokenizers import WordTokenizer
        >>> tokenizer = RadixTokenizer(WordTokenizer.from_captions(["a b c d e f g"]), base=3)
        >>> tokenizer.encode(tf.constant(["a e zebra"])).to_list()
        [[4, 1, 1, 2, 2, 3, 2, 5]]
        >>> tokenizer.decode([1, 1, 2, 2, 5])
        'a e'
    """

    unknown_id = None

    def __init__(self, words: Tokenizer, base: int):
        if not 2 <= base <= _LARGEST_BASE:
            raise InputError(f"the radix base is {base}: set one from 2 to {_LARGEST_BASE}, such as 768")
        if {words.pad_id, words.start_id, words.end_id, words.unknown_id} != set(range(_SPECIAL)):
            raise InputError(
                f"padding, start, end and unknown words have the ids {words.pad_id}, {words.start_id}, "
                f"{words.end_id} and {words.unknown_id}, but radix encoding requires that they are the first "
                "four: use another vocabulary, or set data.radix_base=null"
            )
        self._words, self.base = words, base
        self.vocabulary, self.join = words.vocabulary, words.join
        self.pad_id, self.start_id, self.end_id = 0, base + 1, base + 2
        # The number of words is also the number of the unknown word.
        self._unknown = len(words) - _SPECIAL
        self.digits = 1
        while base**self.digits <= self._unknown + 1:
            self.digits += 1
        # Place values of the digits.
        self._places = base ** np.arange(self.digits - 1, -1, -1)
        numbers = np.arange(self._unknown + 1)[:, None]
        self._tokens_of = tf.constant(numbers // self._places % base + 1, tf.int32)

    def __len__(self) -> int:
        return self.base + 3

    @property
    def words(self) -> Tokenizer:
        return self._words

    def save_to(self, folder: str | os.PathLike) -> None:
        self._words.save_to(folder)

    def encode(self, texts: tf.Tensor) -> tf.RaggedTensor:
        ones = tf.ones([tf.shape(texts)[0], 1], tf.int32)
        return tf.concat([ones * self.start_id, self._encoded(texts), ones * self.end_id], axis=1)

    def _encoded(self, texts: tf.Tensor) -> tf.RaggedTensor:
        """The digits of captions, without start and end."""
        words = self._words.encode(texts)[:, 1:-1]
        ids = words.flat_values
        numbers = tf.where(ids == self._words.unknown_id, self._unknown, ids - _SPECIAL)
        tokens = tf.reshape(tf.gather(self._tokens_of, numbers), [-1])
        return tf.RaggedTensor.from_row_splits(tokens, words.row_splits * self.digits, validate=False)

    def encode_padded(self, texts: tf.Tensor, max_length: int) -> tuple[tf.Tensor, tf.Tensor]:
        """Input tokens for teacher forcing and their targets.

        A caption of more than `max_length - 1` digits is truncated after the last word that fits completely,
        and has no `end_id` among its targets.

        Args:
            texts: string [B].
            max_length: `T`, number of digits to predict, including `end_id`.

        Returns:
            `(tokens, targets)`, int32 [B, T] each: `start d1 ... ` and `d1 ... end`, padded with `pad_id`.
        """
        encoded = self._encoded(texts)
        length = max_length // self.digits * self.digits
        targets = encoded.to_tensor(default_value=self.pad_id, shape=[None, length])
        targets = tf.pad(targets, [[0, 0], [0, max_length - length]], constant_values=self.pad_id)
        # Truncated captions have at least `max_length` digits.
        end = tf.cast(encoded.row_lengths(), tf.int32)[:, None] == tf.range(max_length)
        targets = tf.where(end, self.end_id, targets)
        starts = tf.fill([tf.shape(targets)[0], 1], self.start_id)
        # The last digit is an input only if it has a target.
        inputs = tf.where(targets[:, 1:] == self.pad_id, self.pad_id, targets[:, :-1])
        return tf.concat([starts, inputs], axis=1), targets

    def decode(self, ids: Sequence[int] | np.ndarray | tf.Tensor) -> str:
        return self._words.decode(self.to_words(tf.reshape(tf.constant(ids, tf.int32), [-1])))

    def to_words(self, token_ids: tf.Tensor) -> tf.Tensor:
        """Ids of `words` of predicted digits.

        Converts the digits before the first `end_id`; without one, all complete words. Tokens that are not
        digits count as 0 (start: as a digit above the largest), as do missing digits before the end; numbers
        that represent no word become the unknown word. Uses only operations that TensorFlow Lite supports.

        Args:
            token_ids: int32 [..., T], `T` static.

        Returns:
            int32 [..., ceil(T / digits)].

        Examples:
            >>> from tfsparsecap.captioning.data.tokenizers import WordTokenizer
            >>> tokenizer = RadixTokenizer(WordTokenizer.from_captions(["a b c d e f g"]), base=3)
            >>> tokenizer.to_words(tf.constant([[1, 1, 2, 2, 5, 0, 0]])).numpy().tolist()
            [[4, 8, 2, 0]]
        """
        token_ids = tf.convert_to_tensor(token_ids)
        length = token_ids.shape[-1]
        groups = -(-length // self.digits)
        end = tf.reduce_min(
            tf.where(token_ids == self.end_id, tf.range(length), length), axis=-1, keepdims=True
        )
        ended = end < length
        # A caption without end may be truncated inside a word, whose first digits would be another word.
        end = tf.where(ended, end, length // self.digits * self.digits)
        digits = tf.where(tf.range(length) < end, tf.maximum(token_ids - 1, 0), 0)
        missing = [[0, 0]] * (token_ids.shape.rank - 1) + [[0, groups * self.digits - length]]
        digits = tf.pad(digits, missing)
        digits = tf.reshape(digits, [*_leading(token_ids), groups, self.digits])
        # Digits are limited to one more than those of any word, so that no sum overflows.
        digits = tf.minimum(digits, tf.constant(self._unknown // self._places + 1, tf.int32))
        numbers = tf.reduce_sum(digits * tf.constant(self._places, tf.int32), axis=-1)
        words = tf.where(numbers < self._unknown, numbers + _SPECIAL, self._words.unknown_id)
        first = tf.range(groups) * self.digits
        after = tf.where(ended & (first - self.digits < end), self._words.end_id, self._words.pad_id)
        return tf.where(first < end, words, after)


def _leading(tensor: tf.Tensor) -> list[int | tf.Tensor]:
    """The shape without the last axis; static where possible."""
    shape = tf.shape(tensor)
    return [shape[axis] if size is None else size for axis, size in enumerate(tensor.shape[:-1])]
