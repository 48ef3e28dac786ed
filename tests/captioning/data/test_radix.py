"""Radix encoding, compared with a second implementation in plain Python."""

import numpy as np
import pytest
import tensorflow as tf

from tfsparsecap.captioning.data.radix import RadixTokenizer
from tfsparsecap.captioning.data.sentencepiece import SentencePieceTokenizer
from tfsparsecap.captioning.data.tokenizers import SPECIAL_TOKENS, WordTokenizer
from tfsparsecap.errors import InputError

WORDS = 10_000


@pytest.fixture(scope="module")
def words():
    return WordTokenizer([*SPECIAL_TOKENS, *(f"w{number}" for number in range(WORDS))])


def digits_of(number: int, base: int, count: int = 1) -> list[int]:
    """Digits of a number, most significant first, at least `count` of them."""
    digits = []
    while number or len(digits) < count:
        number, digit = divmod(number, base)
        digits.insert(0, digit)
    return digits


def expected_tokens(caption: list[int], base: int, words: int) -> list[int]:
    """Tokens of words with these numbers, as the original implementation writes them."""
    count = len(digits_of(words + 1, base))
    return [digit + 1 for number in caption for digit in digits_of(min(number, words), base, count)]


def expected_words(tokens: list[int], base: int, words: int) -> list[int]:
    """Numbers of the words that tokens represent, as the original implementation reads them.

    There is one exception: if a caption without end stops inside a word, the original takes the missing
    digits for 0.
    """
    count = len(digits_of(words + 1, base))
    end = len(tokens) // count * count
    tokens = tokens[: tokens.index(base + 2) if base + 2 in tokens else end]
    tokens = tokens + [1] * (-len(tokens) % count)
    digits = [max(token - 1, 0) for token in tokens]
    places = range(count)
    return [
        min(words, sum(digits[first + place] * base ** (count - 1 - place) for place in places))
        for first in range(0, len(digits), count)
    ]


def captions_of(random, count: int, words: int = WORDS) -> list[list[int]]:
    """Numbers of the words of captions; some are unknown, some captions are empty."""
    return [
        random.integers(0, words + words // 20 + 1, random.integers(0, 13)).tolist() for _ in range(count)
    ]


def texts_of(captions: list[list[int]]) -> tf.Tensor:
    return tf.constant([" ".join(f"w{number}" for number in caption) for caption in captions])


def test_base_768_has_the_published_vocabulary_of_771(words):
    tokenizer = RadixTokenizer(words, 768)
    assert (len(tokenizer), tokenizer.pad_id, tokenizer.start_id, tokenizer.end_id) == (771, 0, 769, 770)
    assert tokenizer.digits == 2
    assert tokenizer.encode(tf.constant(["w0 w767 w768 w9999 zebra"])).to_list() == [
        [769, 1, 1, 1, 768, 2, 1, 14, 16, 14, 17, 770]
    ]


@pytest.mark.parametrize(
    ("count", "base", "digits"),
    [(98, 10, 2), (99, 10, 3), (100, 10, 3), (6, 2, 3), (7, 2, 4), (1, 2, 2), (10_000, 768, 2), (5, 768, 1)],
)
def test_digits_per_word(count, base, digits):
    words = WordTokenizer([*SPECIAL_TOKENS, *(f"w{number}" for number in range(count))])
    assert RadixTokenizer(words, base).digits == digits


@pytest.mark.slow
@pytest.mark.parametrize("base", [2, 10, 256, 768, 10_001, 50_000])
def test_encoding_equals_the_original_and_decoding_inverts_it(words, base):
    tokenizer = RadixTokenizer(words, base)
    captions = captions_of(np.random.default_rng(base), 300)
    texts = texts_of(captions)
    encoded = tokenizer.encode(texts).to_list()
    assert encoded == [[base + 1, *expected_tokens(caption, base, WORDS), base + 2] for caption in captions]
    assert [tokenizer.decode(ids[1:]) for ids in encoded] == [
        " ".join(f"w{number}" for number in caption if number < WORDS) for caption in captions
    ]
    assert max(max(ids) for ids in encoded) < len(tokenizer)


@pytest.mark.parametrize("base", [2, 256, 768])
@pytest.mark.parametrize("max_length", [1, 2, 7, 14, 20, 200])
def test_padded_captions_are_cut_after_a_whole_word_and_end_only_if_complete(words, base, max_length):
    tokenizer = RadixTokenizer(words, base)
    captions = [[], [12_000], [12_000] * 5, *captions_of(np.random.default_rng(0), 200)]
    tokens, targets = tokenizer.encode_padded(texts_of(captions), max_length)
    assert tokens.dtype == targets.dtype == tf.int32
    assert tokens.shape == targets.shape == (len(captions), max_length)
    for caption, inputs, outputs in zip(captions, tokens.numpy(), targets.numpy(), strict=True):
        written = expected_tokens(caption, base, WORDS)
        expected = [*written, base + 2]
        if len(expected) > max_length:
            end = max_length // tokenizer.digits * tokenizer.digits
            expected = written[:end]
        padding = [0] * (max_length - len(expected))
        assert outputs.tolist() == expected + padding
        assert inputs.tolist() == [base + 1, *expected[:-1], *padding][:max_length]


def test_decoding_by_hand(words):
    tokenizer = RadixTokenizer(words, 768)
    assert tokenizer.decode([]) == tokenizer.decode([770, 1, 1]) == ""
    assert tokenizer.decode([1, 2, 770, 1, 1]) == "w1"
    assert tokenizer.decode(np.array([1, 2, 3, 770])) == "w1 w1536", "a missing digit is 0"
    assert tokenizer.decode(np.array([1, 2, 3])) == "w1", "incomplete words are dropped"
    assert tokenizer.decode(tf.constant([14, 17, 1, 3, 768, 768, 770])) == "w2", "unknown words are left out"
    assert tokenizer.decode([0, 2, 2, 0]) == "w1 w768", "padding is digit 0"


@pytest.mark.parametrize(("count", "base"), [(10_000, 2), (10_000, 768), (99, 10), (100_000, 99_999)])
@pytest.mark.parametrize("length", [1, 12, 29])
def test_to_words_equals_the_original_and_decode(count, base, length):
    words = WordTokenizer([*SPECIAL_TOKENS, *(f"w{number}" for number in range(count))])
    tokenizer = RadixTokenizer(words, base)
    random = np.random.default_rng(length)
    # Everything that a captioner could predict, with the end token anywhere or nowhere.
    ids = random.integers(0, base + 2, (8, 5, length), np.int32)
    ids[:4][random.random((4, 5, length)) < 2 / length] = base + 2
    ids[4, :, :] = base + 1
    # Small leading digits, because otherwise few of the numbers represent words.
    ids[6:, :, :: tokenizer.digits] = random.integers(0, 4, ids[6:, :, :: tokenizer.digits].shape)
    word_ids = tokenizer.to_words(tf.constant(ids))
    groups = -(-length // tokenizer.digits)
    assert word_ids.dtype == tf.int32 and word_ids.shape == (8, 5, groups)
    for row, got in zip(ids.reshape(-1, length).tolist(), word_ids.numpy().reshape(-1, groups), strict=True):
        numbers = expected_words(row, base, count)
        expected = [number + 4 if number < count else 3 for number in numbers]
        expected = [*expected, 2 if base + 2 in row else 0, *[0] * groups][:groups]
        assert got.tolist() == expected
        assert words.decode(got) == tokenizer.decode(row)


def test_sentencepiece_vocabularies_are_supported(fixtures):
    folder = fixtures / "updown_smp975"
    pieces = SentencePieceTokenizer.load(folder / "sentencepiece_word.model")
    tokenizer = RadixTokenizer(pieces, 768)
    assert len(tokenizer) == 771 and tokenizer.digits == 2 and tokenizer.join == "pieces"
    lines = (folder / "vocab.txt").read_text(encoding="utf-8").split("\n")
    texts = tf.constant(["A man riding a motorcycle.", "zebrafish on the street", ""])
    split = [["▁a", "▁man", "▁riding", "▁a", "▁motorcycle"], ["", "▁on", "▁the", "▁street"], []]
    # 3000 pieces: 4 special ones, 2996 words, and the unknown word is number 2996.
    numbers = [[lines.index(piece) - 4 if piece else 2996 for piece in caption] for caption in split]
    encoded = tokenizer.encode(texts).to_list()
    assert encoded == [[769, *expected_tokens(caption, 768, 2996), 770] for caption in numbers]
    assert [tokenizer.decode(ids[1:]) for ids in encoded] == [
        "a man riding a motorcycle",
        "on the street",
        "",
    ]
    assert tokenizer.to_words(tf.constant(encoded[1][1:])).numpy().tolist() == [
        1,
        5,
        7,
        lines.index("▁street"),
        3,
    ]


@pytest.mark.parametrize("base", [-768, 0, 1, 1 << 40])
def test_bases_out_of_range_are_rejected(words, base):
    with pytest.raises(InputError, match=f"radix base is {base}"):
        RadixTokenizer(words, base)


def test_special_tokens_that_are_not_the_first_four_are_rejected(words):
    with pytest.raises(InputError, match=r"ids 0, 769, 770 and None, .* first four"):
        RadixTokenizer(RadixTokenizer(words, 768), 10)
