"""Splitting captions into words and encoding them, eagerly and in graphs."""

import os
import subprocess
import sys
import unicodedata

import numpy as np
import pytest
import tensorflow as tf

from tfsparsecap.captioning.data.tokenizers import SPECIAL_TOKENS, WordTokenizer, join_words, split_words
from tfsparsecap.core.text import normalised
from tfsparsecap.errors import InputError


def words(text: str) -> list[str]:
    return [word.decode() for word in split_words(tf.constant([text])).to_list()[0]]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("A dog runs .", "a dog runs"),
        ('a man , a "ball" ; and (two) dogs!?', "a man a ball and two dogs"),
        ("the dog's don't", "the dog's don't"),
        ("the dog\u2019s ball", "the dog's ball"),
        ("'quoted' dogs'", "quoted dogs"),
        ("T-shirt 20-year-old well--known -a-", "t-shirt 20-year-old well known a"),
        ("3.5 meters at 10:30, 1,000 of 2nd", "3.5 meters at 10:30 1,000 of 2nd"),
        ("a.b. end.Next", "a b end next"),
        ("CAFÉ Straße ﬁne", "café straße fine"),
        ("ΣΤΟΥΣ δρόμους", "στους δρόμους"),
        ("cafe\u0301", "café"),
        ("日本語 の 犬", "日本語 の 犬"),
        ("हिन्दी में", "हिन्दी में"),
        ("dog😀cat 👍🏽 ❤️", "dog 😀 cat 👍🏽 ❤"),
        ("snake_case #tag @user", "snake case tag user"),
        ("tabs\tand\nlines\u00a0and\u3000spaces", "tabs and lines and spaces"),
        ("<start> <pad>", "start pad"),
        ("", ""),
        (" .,'-!\u2026 ", ""),
    ],
)
def test_split_words(text, expected):
    assert words(text) == expected.split()


def test_normalisation_equals_pythons():
    texts = ["\uff21\uff22\uff23 \u00bd \ufdfa", "İstanbul", "ΣΊΣΥΦΟΣ", "Ǆ ǲ", "Donau\u00addampf", "ẞ 한국"]
    for text in texts:
        letters = "".join(
            c if c.isalnum() or unicodedata.category(c)[0] == "M" else " " for c in normalised(text)
        )
        assert words(text) == letters.split()


@pytest.mark.slow
def test_words_do_not_depend_on_the_language_of_the_machine():
    code = """
import tensorflow as tf
from tfsparsecap.captioning.data.tokenizers import split_words
print(ascii(b" ".join(split_words(tf.constant(["I İ Ì JUMP"])).flat_values.numpy().tolist()).decode()))
"""
    environment = {**os.environ, "LC_ALL": "tr_TR.UTF-8"}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=True)
    assert done.stdout.strip() == ascii("i i\u0307 ì jump")


def test_broken_utf_8_is_replaced():
    assert split_words(tf.constant([b"a \xff\xfe dog"])).to_list()[0][-1] == b"dog"


def test_join_words():
    texts = tf.constant([" A  dog's,ball ", "", "...", "b"])
    assert join_words(texts).numpy().tolist() == [b"a dog's ball", b"", b"", b"b"]
    assert tf.function(join_words)(texts).numpy().tolist() == join_words(texts).numpy().tolist()


def test_encoding_marks_start_end_and_unknown_words():
    tokenizer = WordTokenizer([*SPECIAL_TOKENS, "a", "dog"])
    ids = tokenizer.encode(tf.constant(["A dog!", "a zebra dog", "", "😀"]))
    assert ids.dtype == tf.int32
    assert ids.to_list() == [[1, 4, 5, 2], [1, 4, 3, 5, 2], [1, 2], [1, 3, 2]]


def test_padding_shifts_targets_by_one():
    tokenizer = WordTokenizer([*SPECIAL_TOKENS, "a", "dog"])
    tokens, targets = tokenizer.encode_padded(tf.constant(["a dog", ""]), 5)
    assert tokens.numpy().tolist() == [[1, 4, 5, 0, 0], [1, 0, 0, 0, 0]]
    assert targets.numpy().tolist() == [[4, 5, 2, 0, 0], [2, 0, 0, 0, 0]]


def test_long_captions_are_cut_without_an_end_token():
    tokenizer = WordTokenizer([*SPECIAL_TOKENS, "a", "dog"])
    tokens, targets = tokenizer.encode_padded(tf.constant(["a dog a", "a dog a dog", "a dog " * 100]), 4)
    assert tokens.numpy().tolist() == [[1, 4, 5, 4]] * 3
    assert targets.numpy().tolist() == [[4, 5, 4, 2], [4, 5, 4, 5], [4, 5, 4, 5]]


def test_decoding_stops_at_the_end_and_drops_special_tokens():
    tokenizer = WordTokenizer([*SPECIAL_TOKENS, "a", "dog"])
    assert tokenizer.decode([1, 4, 3, 5, 2, 4, 4]) == "a dog"
    assert tokenizer.decode(np.array([4, 5, 0, 0])) == "a dog"
    assert tokenizer.decode(tf.constant([2, 4], tf.int32)) == ""
    assert tokenizer.decode([]) == ""


def test_decoded_captions_are_normalised_ones():
    captions = ["A dog's “ball”", "20-year-old , café", "dog 😀"]
    tokenizer = WordTokenizer.from_captions(captions)
    decoded = [tokenizer.decode(ids) for ids in tokenizer.encode(tf.constant(captions)).to_list()]
    assert decoded == [tokenizer.normalise_all([caption])[0] for caption in captions]
    assert decoded == tokenizer.normalise_all(captions)
    assert tokenizer.normalise_all([]) == []


def test_vocabulary_is_ordered_by_count_and_cut():
    captions = ["b b b a a", "c c", "d A"]
    assert WordTokenizer.from_captions(captions).vocabulary[4:] == ["a", "b", "c", "d"]
    assert WordTokenizer.from_captions(captions, minimum_count=2).vocabulary[4:] == ["a", "b", "c"]
    assert WordTokenizer.from_captions(captions, maximum_size=6).vocabulary[4:] == ["a", "b"]
    assert len(WordTokenizer.from_captions(captions)) == 8


@pytest.mark.parametrize("arguments", [([],), (["..."],), (["a b"], 2), (["a b"], 1, 4)])
def test_a_vocabulary_of_zero_words_is_rejected(arguments):
    with pytest.raises(InputError, match="zero words"):
        WordTokenizer.from_captions(*arguments)


def test_vocabulary_files_have_one_token_per_line(tmp_path):
    tokenizer = WordTokenizer.from_captions(["a dog's café 😀"])
    tokenizer.save(tmp_path / "vocabulary.txt")
    lines = (tmp_path / "vocabulary.txt").read_bytes().decode().split("\n")
    assert lines == [*tokenizer.vocabulary, ""]
    assert WordTokenizer.load(tmp_path / "vocabulary.txt").vocabulary == tokenizer.vocabulary
    (tmp_path / "dos.txt").write_bytes("\r\n".join(lines).encode())
    assert WordTokenizer.load(tmp_path / "dos.txt").vocabulary == tokenizer.vocabulary


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "begins with"),
        (b"a\ndog\n", "begins with a dog"),
        (b"a" * 5000, "begins with a{100}: use"),
        (b"<pad>\n<start>\n<end>\n<unk>\n", "zero words"),
        (b"<pad>\n<start>\n<end>\n<unk>\na\na\n", "'a' more than once"),
        (b"<pad>\n<start>\n<end>\n<unk>\na\n\nb\n", "line 6"),
        (b"\xff\xfe\x00", "UTF-8"),
    ],
)
def test_other_files_are_rejected(tmp_path, content, message):
    path = tmp_path / "vocabulary.txt"
    path.write_bytes(content)
    with pytest.raises(InputError, match=message) as caught:
        WordTokenizer.load(path)
    assert str(path) in str(caught.value)
    with pytest.raises(InputError, match="nowhere"):
        WordTokenizer.load(tmp_path / "nowhere.txt")


def test_a_folder_that_cannot_be_written_to_is_reported(tmp_path):
    with pytest.raises(InputError, match=r"cannot write .*nowhere.vocabulary.txt"):
        WordTokenizer.from_captions(["a"]).save_to(tmp_path / "nowhere")


@pytest.mark.slow
def test_vocabulary_size_of_flickr8k(shared):
    from tfsparsecap.captioning.data import flickr

    data = flickr.load(shared("data/flickr8k"))
    captions = [caption for record in data.split("train") for caption in record.captions]
    tokenizer = WordTokenizer.from_captions(captions, minimum_count=5)
    # Karpathy's splits, the usual ones, give about 2 500 words at this count.
    assert 2400 < len(tokenizer) < 2700
    assert tokenizer.vocabulary[4:8] == ["a", "in", "the", "on"]
