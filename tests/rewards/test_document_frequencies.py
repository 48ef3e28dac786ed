"""Document frequencies against counting in sets, and their file."""

import json
import zipfile

import numpy as np
import pytest

from tfsparsecap.errors import InputError
from tfsparsecap.rewards import document_frequencies
from tfsparsecap.rewards.caption_words import CaptionWords
from tfsparsecap.rewards.document_frequencies import DocumentFrequencies, cached_frequencies

TEXTS = [["a dog runs", "a dog a dog"], ["two cats", ""], ["a cat runs fast today", "a dog"]]


def by_hand(references):
    counts = {}
    for captions in references:
        held = {
            tuple(words[first : first + size])
            for words in captions
            for size in (1, 2, 3, 4)
            for first in range(len(words) - size + 1)
        }
        for ngram in held:
            counts[ngram] = counts.get(ngram, 0) + 1
    return counts


def test_counts_equal_those_by_hand():
    random = np.random.default_rng(1)
    references = [
        [random.choice([0, 1, 2, 70_000, 2**31 - 1], random.integers(0, 8)).tolist() for _ in range(3)]
        for _ in range(40)
    ]
    frequencies = DocumentFrequencies.from_references(references)
    expected = by_hand(references)
    assert frequencies.images == 40 and len(frequencies.counts) == len(expected)
    assert {ngram: frequencies.of(list(ngram)) for ngram in expected} == expected
    assert sorted(frequencies.counts.tolist()) == sorted(expected.values())
    assert frequencies.of([2, 2, 2, 3]) == 0


def test_texts_and_ids_give_the_same():
    ids = [[[{"a": 0, "dog": 1}.get(word, 9) for word in text.split()] for text in group] for group in TEXTS]
    texts, numbers = DocumentFrequencies.from_references(TEXTS), DocumentFrequencies.from_references(ids)
    assert texts.of("a dog") == numbers.of([0, 1]) == 2
    assert texts.of("a dog a dog") == numbers.of([0, 1, 0, 1]) == 1
    with pytest.raises(InputError, match="has 5 words"):
        texts.of("a cat runs fast today")
    with pytest.raises(InputError, match="has 0 words"):
        texts.of("")


def equal(one, other):
    return (
        one.images == other.images
        and one.digest == other.digest
        and np.array_equal(one.counts, other.counts)
        and len(one.table.pieces) == len(other.table.pieces)
        and all(
            np.array_equal(a, b)
            for piece, same in zip(one.table.pieces, other.table.pieces, strict=True)
            for a, b in zip(piece, same, strict=True)
        )
    )


@pytest.mark.parametrize("words", [None, CaptionWords(["a", "dog"], end_id=1), CaptionWords(unknown_id=7)])
def test_a_file_brings_back_all(tmp_path, words):
    frequencies = DocumentFrequencies.from_references(TEXTS, words)
    frequencies.save(tmp_path / "it.npz")
    loaded = DocumentFrequencies.load(tmp_path / "it.npz")
    assert equal(loaded, frequencies)
    for name in ("vocabulary", "further", "unknown_id", "end_id"):
        assert getattr(loaded.words, name) == getattr(frequencies.words, name)
    assert loaded.of("a dog") == 2 and loaded.of("cat runs fast today") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["it.npz"]


def test_references_without_words_have_a_file_too(tmp_path):
    DocumentFrequencies.from_references([[""], [[]]][:1]).save(tmp_path / "it.npz")
    assert DocumentFrequencies.load(tmp_path / "it.npz").of("a") == 0


def test_a_damaged_file_is_never_believed(tmp_path):
    path = tmp_path / "it.npz"
    frequencies = DocumentFrequencies.from_references(TEXTS)
    frequencies.save(path)
    whole = path.read_bytes()
    random = np.random.default_rng(0)
    refused = 0
    for trial in range(300):
        content = bytearray(whole)
        if trial % 3:
            content[random.integers(len(whole))] ^= 1 << random.integers(8)
        else:
            content = content[: random.integers(len(whole))]
        path.write_bytes(content)
        try:
            loaded = DocumentFrequencies.load(path)
        except InputError as error:
            assert "it.npz holds no whole document frequencies" in str(error)
            refused += 1
        else:
            # Some bytes of a zip file mean nothing, such as dates.
            assert equal(loaded, frequencies)
    assert refused > 200


def written(path, **changes):
    """A file as `save` writes it, but for changes; None leaves an array out."""
    frequencies = DocumentFrequencies.from_references(TEXTS)
    frequencies.save(path)
    with np.load(path) as content:
        arrays = {**content, **changes}
    np.savez(path, **{name: array for name, array in arrays.items() if array is not None})


def noted(path, **changes):
    written(path)
    with np.load(path) as content:
        notes = json.loads(content["notes"].tobytes())
    written(path, notes=np.frombuffer(json.dumps({**notes, **changes}).encode(), np.uint8))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"counts": None}, "counts"),
        ({"notes": None}, "notes"),
        ({"notes": np.frombuffer(b"[1]", np.uint8)}, "of another kind"),
        ({"notes": np.frombuffer(b"\xff", np.uint8)}, "no whole"),
        ({"notes": np.frombuffer(b"[" * 100_000, np.uint8)}, "no whole"),
        ({"counts": np.ones(3, np.int64)}, "counts 3 n-grams"),
        ({"counts": np.ones((2, 3))}, r"float64 \[2, 3\]"),
        ({"ngrams_2": np.array([object()])}, "no whole"),
        ({"ngrams_1": np.array([2**32, *range(7)], np.int64)}, "no whole"),
    ],
)
def test_files_of_another_kind_are_refused(tmp_path, changes, message):
    path = tmp_path / "it.npz"
    written(path, **changes)
    with pytest.raises(InputError, match=message):
        DocumentFrequencies.load(path)


@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_ngrams_that_cannot_be_are_refused(tmp_path, size):
    path, name = tmp_path / "it.npz", f"ngrams_{size}"
    written(path)
    with np.load(path) as content:
        pairs = content[name]
    for wrong in (
        pairs[::-1],  # not in order
        np.concatenate((pairs[:1], pairs[:-1])),  # one twice
        pairs + (1 << 40),  # beginning with what there is not
        np.concatenate((pairs[:-1], pairs[-1:] | (1 << 31))),  # a word that is none
        pairs - (1 << 33),
    ):
        written(path, **{name: wrong})
        with pytest.raises(InputError, match="its n-grams are none"):
            DocumentFrequencies.load(path)


@pytest.mark.parametrize(
    "changes",
    [
        {"format": 99},
        {"images": 1},  # fewer than an n-gram is in
        {"images": 0},
        {"images": "3"},
        {"images": 2**40},
        {"digest": None},
        {"vocabulary": 5},
        {"further": [["a"]]},
        {"end_id": -4},
        {"unknown_id": "a"},
    ],
)
def test_notes_that_cannot_be_are_refused(tmp_path, changes):
    noted(tmp_path / "it.npz", **changes)
    with pytest.raises(InputError, match="holds no whole document frequencies"):
        DocumentFrequencies.load(tmp_path / "it.npz")


def test_no_file_and_foreign_files_are_said(tmp_path):
    with pytest.raises(InputError, match=r"there is no .*it\.npz"):
        DocumentFrequencies.load(tmp_path / "it.npz")
    (tmp_path / "text.npz").write_text("a dog")
    np.save(tmp_path / "array.npy", np.arange(3))
    (tmp_path / "array.npy").rename(tmp_path / "array.npz")
    for name in ("text.npz", "array.npz", "."):
        with pytest.raises(InputError, match="holds no whole"):
            DocumentFrequencies.load(tmp_path / name)


def test_a_compressed_file_is_not_unpacked(tmp_path):
    with zipfile.ZipFile(tmp_path / "it.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("counts.npy", b"\0" * 1_000_000)
    with pytest.raises(InputError, match="compressed"):
        DocumentFrequencies.load(tmp_path / "it.npz")


def test_the_cache_is_used_while_the_references_are_the_same(tmp_path, monkeypatch):
    folder = tmp_path / "made" / "here"
    first = cached_frequencies(TEXTS, folder)
    (path,) = folder.iterdir()
    with monkeypatch.context() as patch:
        patch.setattr(document_frequencies.NgramTable, "number", None)
        assert equal(cached_frequencies([list(group) for group in TEXTS], folder), first)
    assert list(folder.iterdir()) == [path]


def test_the_cache_knows_what_it_is_of(tmp_path):
    ids = [[[4, 5, 6], [7]], [[8, 9]]]
    others = [
        (ids, None),
        ([[[4, 5, 6]], [[7], [8, 9]]], None),  # the same captions of other images
        ([[[4, 5], [6, 7]], [[8, 9]]], None),  # the same words in other captions
        (ids, CaptionWords(end_id=2)),
        (ids, CaptionWords(unknown_id=3)),
        (ids, CaptionWords(["a"] * 10)),
        ([["a b c", "d"], ["e f"]], None),
        ([["a b c", "d"], ["e g"]], None),  # the same ids of other words
        ([["a b c", "d"], ["e f"]], CaptionWords(["a", "b"])),
    ]
    digests = {cached_frequencies(*given[:1], tmp_path, given[1]).digest for given in others}
    assert len(digests) == len(others) == len(list(tmp_path.iterdir()))
    for given, words in others:
        assert equal(
            cached_frequencies(given, tmp_path, words), DocumentFrequencies.from_references(given, words)
        )


def test_a_cache_file_that_is_broken_or_another_is_made_again(tmp_path):
    first = cached_frequencies(TEXTS, tmp_path)
    (path,) = tmp_path.iterdir()
    whole = path.read_bytes()
    path.write_bytes(whole[:200])
    assert equal(cached_frequencies(TEXTS, tmp_path), first)
    assert equal(DocumentFrequencies.load(path), first)
    DocumentFrequencies.from_references(TEXTS[:2]).save(path)
    assert equal(cached_frequencies(TEXTS, tmp_path), first)


@pytest.mark.parametrize(
    ("references", "message"),
    [
        ([], "there are no references"),
        ([["a"], []], "image 1 has no reference"),
        (["a dog"], "the references of image 0 are one text"),
        ([["a"], [[4]]], "some captions are texts"),
        ([[4, 5]], "no text and no list"),
    ],
)
def test_references_that_cannot_be_counted(references, message, tmp_path):
    with pytest.raises(InputError, match=message):
        DocumentFrequencies.from_references(references)
    with pytest.raises(InputError, match=message):
        cached_frequencies(references, tmp_path)


def test_a_folder_that_cannot_be_made_is_said(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot make the folder"):
        cached_frequencies(TEXTS, tmp_path / "file" / "cache")
    with pytest.raises(InputError, match="cannot make the folder"):
        cached_frequencies(TEXTS, tmp_path / "file")
