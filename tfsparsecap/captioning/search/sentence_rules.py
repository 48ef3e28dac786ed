"""Rules for complete sentences: which tokens beam search and sampling avoid, and how captions are ranked.

As in `beam_search`, all shapes are static and all operations are TensorFlow Lite built-ins.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import tensorflow as tf

from tfsparsecap.captioning.metrics.named_objects import objects_of_words
from tfsparsecap.captioning.models.captioner_base import UNKNOWN, Captioner
from tfsparsecap.captioning.search.search_options import SearchOptions

if TYPE_CHECKING:
    from tfsparsecap.captioning.data.tokenizers import Tokenizer

#: Each broken rule lowers the rank of a caption by this, far more than any log-probability.
BROKEN_RULE = 1000.0
#: A token that is never generated counts as this many broken rules; captions with one are dropped.
NEVER = 1_000_000
#: Beam search chooses the next token among the `beam + SPARE_CANDIDATES` most probable ones. More would cost
#: time in exported files, and rules rarely exclude more than two or three.
SPARE_CANDIDATES = 12
# Probabilities of objects are not taken to be less than this.
_LEAST_PROBABILITY = 0.01
# Kinds of tokens: content words, function words, the end token, and tokens that are never generated.
_CONTENT, _FUNCTION, _END, _NEVER = range(4)


class SearchRules:
    """`SearchOptions` for the tokens of one vocabulary.

    Never generated are padding, the start token, the unknown token, and an empty caption. The other rules are
    broken only if every candidate breaks one: those of `SearchOptions`; the last token of the longest
    captions is the end token; and the two last tokens are no function words.

    The rules about words apply if each token is a word: to word vocabularies, and to SentencePiece
    vocabularies of whole words. For pieces of words and for digits (radix encoding), captions may repeat
    themselves, and the digits of the unknown word may be generated.

    If the captioner predicts objects, a word that names one counts as its own probability times that of the
    object (at least 1 %). This changes the ranks of captions, not their scores, and needs words, too. A word
    after one such as "hot", which may give it another meaning ("dog"), counts as it is.

    Scores are not renormalised: a caption's score is the log-probability that the captioner gives to it, with
    rules or without.

    Args:
        captioner: the captioner whose special tokens and vocabulary size apply.
        options: see `SearchOptions`.
        vocabulary: a tokenizer, or the words in the order of their ids; None if unknown.

    Examples:
        >>> from tfsparsecap.captioning.data.tokenizers import WordTokenizer
        >>> from tfsparsecap.captioning.models import SoftAttention
        >>> words = WordTokenizer.from_captions(["a dog on the grass"])
        >>> rules = SearchRules(SoftAttention(len(words), feature_size=8), SearchOptions(), words)
        >>> rules.description()
        {'no_repeat_ngram': 3, 'function_words': 3, 'length_penalty': 1.0}
    """

    def __init__(
        self,
        captioner: Captioner,
        options: SearchOptions,
        vocabulary: "Tokenizer | Sequence[str] | None" = None,
    ) -> None:
        tokenizer = None if isinstance(vocabulary, Sequence) else vocabulary
        unknown = tokenizer.unknown_id if tokenizer else UNKNOWN
        special = {captioner.pad_id, captioner.start_id, captioner.end_id, unknown}
        words = _words(vocabulary, special)
        self.length_penalty = options.length_penalty
        self.no_repeat_ngram = options.no_repeat_ngram if words is not None else 0
        self.limits_words = bool(words) and bool(options.function_words) and self.no_repeat_ngram > 0
        kinds = np.full(captioner.vocabulary_size, _CONTENT, np.int32)
        if words:
            function_words = set(options.function_words)
            kinds[[token for token, word in words.items() if word in function_words]] = _FUNCTION
        kinds[[token for token in special if token is not None and token < len(kinds)]] = _NEVER
        kinds[captioner.end_id] = _END
        self._kinds = kinds
        self.sees_objects = bool(words) and bool(captioner.objects)
        if words and captioner.objects:
            # Words that name no object have the index after the last one.
            self._objects = np.full(len(kinds), len(captioner.objects), np.int32)
            self._changes_next = np.zeros(len(kinds), bool)
            named, changes = objects_of_words(list(words.values()), captioner.objects)
            tokens = np.array(list(words))
            self._objects[tokens] = np.where(np.array(named) < 0, len(captioner.objects), named)
            self._changes_next[tokens] = changes

    def description(self) -> dict[str, float | int | bool]:
        """For `captioner.json`: which rules apply to this vocabulary."""
        return {
            "no_repeat_ngram": self.no_repeat_ngram,
            "function_words": int(np.sum(self._kinds == _FUNCTION)),
            "length_penalty": self.length_penalty,
        }

    def costs(self, max_length: int) -> np.ndarray:
        """Number of rules that a token breaks, besides repetitions, int32 [max_length, 8].

        Args:
            max_length: as of the search.

        Returns:
            By position, and by 4 if the token before is a function word (else 0) plus the kind of the token.
        """
        # Integers, because float tables look like weights to the exporter.
        costs = np.zeros((max_length, 2, 4), np.int32)
        costs[-2:, :, _FUNCTION] += 1
        costs[-1, :, [_CONTENT, _FUNCTION]] += 1
        costs[:, 1, _END] = 1
        costs[0, :, _END] = NEVER
        costs[:, :, _NEVER] = NEVER
        return costs.reshape(max_length, 8)

    def weight(self, length: tf.Tensor) -> tf.Tensor:
        """The factor by which the score of a caption of `length` tokens, int32, is multiplied."""
        return tf.pow(tf.cast(length, tf.float32), -self.length_penalty)

    def evidence(self, objects: tf.Tensor) -> tf.Tensor:
        """The logarithms of probabilities [B, K], and 0 for words that name no object: float32 [B, K + 1]."""
        return tf.pad(tf.math.log(tf.maximum(objects, _LEAST_PROBABILITY)), [[0, 0], [0, 1]])

    def word_evidence(self, tokens: tf.Tensor, last: tf.Tensor, evidence: tf.Tensor) -> tf.Tensor:
        """The logarithm of the probability of the object that each possible next token names.

        Args:
            tokens: candidates int32 [R, K].
            last: the token before, int32 [R].
            evidence: as from `evidence`, [R, …] or, for one image, [1, …].

        Returns:
            float32 [R, K], 0 for tokens that name no object.
        """
        objects = tf.gather(tf.constant(self._objects), tokens)
        changed = tf.expand_dims(tf.gather(tf.constant(self._changes_next), last), 1)
        objects = tf.where(changed, evidence.shape[1] - 1, objects)
        if evidence.shape[0] == 1:
            return tf.gather(evidence[0], objects)
        return tf.gather(evidence, objects, batch_dims=1)

    @property
    def state_names(self) -> tuple[str, ...]:
        """Names of the tensors of `initial_state`."""
        return ("spent",) if self.limits_words else ()

    def initial_state(self, rows: int | tf.Tensor, max_length: int) -> dict[str, tf.Tensor]:
        """What `broken_rules` needs to know about captions besides their tokens; a row for each caption."""
        return {name: tf.fill([rows, max_length], False) for name in self.state_names}

    def broken_rules(self, tokens: tf.Tensor, loop: dict[str, tf.Tensor]) -> tf.Tensor:
        """How many rules each possible next token breaks; `NEVER` or more for tokens never generated.

        Args:
            tokens: candidates int32 [R, K], or [1, K] for the same in all rows.
            loop: `position`, int32: number of tokens so far; `last` int32 [R]: the last one; `token_ids`
                int32 [R, T]: all of them, then padding; and the content of `initial_state`.

        Returns:
            int32 [R, K].
        """
        position, last, token_ids = loop["position"], loop["last"], loop["token_ids"]
        costs = tf.gather(tf.constant(self.costs(token_ids.shape[1])), position)
        after = tf.gather(tf.constant(np.where(self._kinds == _FUNCTION, 4, 0).astype(np.int32)), last)
        broken = tf.gather(costs, tf.gather(tf.constant(self._kinds), tokens) + tf.expand_dims(after, 1))
        if not self.no_repeat_ngram:
            return broken
        avoided = tf.where(self._not_again(loop), token_ids, -1)
        repeats = tf.reduce_any(tf.expand_dims(tokens, 2) == tf.expand_dims(avoided, 1), axis=2)
        return broken + tf.cast(repeats, tf.int32)

    def _not_again(self, loop: dict[str, tf.Tensor]) -> tf.Tensor:
        """The positions whose tokens must not come next, bool [R, T]; others than padding count."""
        position, token_ids = loop["position"], loop["token_ids"]
        length = token_ids.shape[1]
        not_again = tf.range(length) == position - 1
        if self.limits_words:
            not_again |= loop["spent"]
        # An n-gram would be repeated if the n - 1 tokens before a position equal the last n - 1 tokens.
        same = None
        for distance in range(1, self.no_repeat_ngram):
            previous = loop["last"]
            if distance > 1:
                previous = tf.gather(token_ids, tf.maximum(position - distance, 0), axis=1)
            before = tf.pad(token_ids, [[0, 0], [distance, 0]], constant_values=-1)[:, :length]
            equal = before == tf.expand_dims(previous, 1)
            same = equal if same is None else same & equal
        return tf.fill(tf.shape(token_ids), True) if same is None else not_again | same

    def next_state(self, loop: dict[str, tf.Tensor], last: tf.Tensor) -> dict[str, tf.Tensor]:
        """The content of `initial_state` after another token.

        Args:
            loop: `position` and `token_ids` before that token, and the content of `initial_state`.
            last: the token, int32 [R].
        """
        if not self.limits_words:
            return {}
        token_ids = loop["token_ids"]
        content = tf.gather(tf.constant(self._kinds == _CONTENT), last)
        again = tf.reduce_any(token_ids == tf.expand_dims(last, 1), axis=1) & content
        here = tf.range(token_ids.shape[1]) == loop["position"]
        return {"spent": tf.where(here, tf.expand_dims(again, 1), loop["spent"])}


def _words(vocabulary: "Tokenizer | Sequence[str] | None", special: set[int | None]) -> dict[int, str] | None:
    """The words of a vocabulary by their token ids; None if its tokens are no words, {} if it is unknown."""
    if vocabulary is None:
        return {}
    join = "words"
    if not isinstance(vocabulary, Sequence):
        if vocabulary.words is not vocabulary:
            return None
        join, vocabulary = vocabulary.join, vocabulary.vocabulary
    words = {token: word for token, word in enumerate(vocabulary) if token not in special}
    if join == "words":
        return words
    if not all(word.startswith("\u2581") for word in words.values()):
        return None
    return {token: word[1:] for token, word in words.items()}
