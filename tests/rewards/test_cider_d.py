"""CIDEr-D against the original scorer's figures, pycocoevalcap (its CIDEr is CIDEr-D), formulas by hand."""

import json
import math
from collections import Counter

import numpy as np
import pytest
from pycocoevalcap.cider.cider import Cider
from pycocoevalcap.cider.cider_scorer import CiderScorer

from tfsparsecap.errors import InputError
from tfsparsecap.rewards.caption_words import CaptionWords
from tfsparsecap.rewards.cider_d import CiderD
from tfsparsecap.rewards.document_frequencies import DocumentFrequencies
from tfsparsecap.rewards.references import References


def drawn(seed, images, words=12, longest=13):
    """References of images, one to five each, and a caption of each: many short, repetitive or empty."""
    random = np.random.default_rng(seed)

    def caption(length):
        return random.integers(0, words, length).tolist()

    lengths = [0, 1, 2, 3, *range(4, longest)]
    references = [
        [caption(random.choice(lengths)) for _ in range(random.integers(1, 6))] for _ in range(images)
    ]
    captions = []
    for group in references:
        one, other = (group[random.integers(len(group))] for _ in range(2))
        cut = random.integers(0, 6)
        captions.append(one[:cut] + other[cut:] + caption(random.integers(0, 3)))
    return references, captions


def text(words):
    return " ".join(map(str, words))


def original(references, captions):
    """Of one caption for each image, frequencies in these references."""
    people = {image: [text(words) for words in group] for image, group in enumerate(references)}
    return Cider().compute_score(people, {image: [text(words)] for image, words in enumerate(captions)})[1]


def test_scores_equal_the_original_scorers(shared):
    with open(shared / "fixtures" / "cider_d" / "expected.json", encoding="utf-8") as file:
        expected = json.load(file)
    images = list(expected["hypotheses"])
    cider = CiderD(References([expected["references"][image] for image in images]))
    scores = cider.score([expected["hypotheses"][image] for image in images], range(len(images)))
    assert scores.dtype == np.float64
    np.testing.assert_allclose(scores, expected["cider_d"], rtol=0, atol=1e-9)
    assert scores.mean() == pytest.approx(expected["cider_d_mean"], abs=1e-9)


@pytest.mark.parametrize("seed", range(4))
def test_scores_equal_pycocoevalcaps_for_all_kinds_of_captions(seed):
    references, captions = drawn(seed, images=80)
    expected = original(references, captions)
    np.testing.assert_allclose(CiderD(References(references)).score(captions, range(80)), expected, atol=1e-9)
    assert (expected > 1).sum() > 20 and (expected == 0).any()
    texts = References([[text(words) for words in group] for group in references])
    np.testing.assert_allclose(
        CiderD(texts).score([text(words) for words in captions], range(80)), expected, atol=1e-9
    )


def test_frequencies_of_another_corpus_equal_pycocoevalcaps_formula(tmp_path):
    corpus, _ = drawn(10, images=150, words=9)
    references, captions = drawn(11, images=40, words=12)
    frequencies = DocumentFrequencies.from_references(corpus)
    frequencies.save(tmp_path / "corpus.npz")
    scorer = CiderScorer()
    for group, caption in zip(references, captions, strict=True):
        scorer += (text(caption), [text(words) for words in group])
    # It takes the logarithm of the number of its references for that of the corpus.
    scorer.crefs += [[]] * (len(corpus) - len(references))
    for group in corpus:
        held = {
            tuple(map(str, words[first : first + size]))
            for words in group
            for size in (1, 2, 3, 4)
            for first in range(len(words) - size + 1)
        }
        for ngram in held:
            scorer.document_frequency[ngram] += 1
    expected = scorer.compute_cider()
    assert len(expected) == 40 and max(expected) > 5
    for one in (frequencies, DocumentFrequencies.load(tmp_path / "corpus.npz")):
        scores = CiderD(References(references, one)).score(captions, range(40))
        np.testing.assert_allclose(scores, expected, atol=1e-9)
    assert not np.allclose(CiderD(References(references)).score(captions, range(40)), expected, atol=0.1)


def test_words_with_ids_of_any_size_score_the_same():
    references, captions = drawn(5, images=60)
    # Equal in their lowest 15 or 16 bits: sums, shifts and hashes that lose some would mix them up.
    large = [number << 15 for number in range(6)] + [2**31 - 1 - (number << 16) for number in range(6)]

    def renamed(words):
        return [large[word] for word in words]

    moved = References([[renamed(words) for words in group] for group in references])
    np.testing.assert_allclose(
        CiderD(moved).score([renamed(words) for words in captions], range(60)),
        CiderD(References(references)).score(captions, range(60)),
        atol=1e-12,
    )


def test_order_batches_and_several_captions_of_an_image_do_not_matter():
    references, captions = drawn(6, images=50)
    cider = CiderD(References(references))
    together = cider.score(captions, range(50))
    order = np.random.default_rng(0).permutation(np.repeat(np.arange(50), 3))
    np.testing.assert_allclose(
        cider.score([captions[image] for image in order], order), together[order], atol=1e-12
    )
    one_by_one = [cider.score([caption], [image])[0] for image, caption in enumerate(captions)]
    np.testing.assert_allclose(one_by_one, together, atol=1e-12)
    assert cider.score([], []).shape == (0,)


def test_two_tiny_corpora_by_hand():
    # "a" is in both images, all else in one: weights are 0 and log 2, which cancels where all are equal.
    cider = CiderD(References([["a b c"], ["a d"]]))
    # Of the words b and c the caption has b, of the bigrams "a b" and "b c" the first: one bigram fewer.
    expected = 10 * math.exp(-1 / 72) * (1 / math.sqrt(2) + 1 / math.sqrt(2)) / 4
    assert cider.score(["a b"], [0])[0] == pytest.approx(expected, rel=1e-12)
    # What is there twice counts once where the reference has it once, but twice in the caption's norm.
    expected = 10 * math.exp(-1 / 72) * (1 / (2 * math.sqrt(2))) / 4
    assert cider.score(["b b"], [0])[0] == pytest.approx(expected, rel=1e-12)
    assert cider.score(["a", "a a a"], [0, 1]).tolist() == [0.0, 0.0]

    # Three images, two references; d is in two images and weighs log 3 - log 2, e in one and weighs log 3.
    cider = CiderD(References([["d e", "e"], ["d"], ["f"]]))
    d, e = math.log(3 / 2), math.log(3)
    likeness = e / math.hypot(d, e) * math.exp(-1 / 72), 1.0
    assert cider.score(["e"], [0])[0] == pytest.approx(10 * sum(likeness) / 2 / 4, rel=1e-12)


def test_a_caption_that_is_its_only_reference():
    references = ["a b c d", "e", "f g", "h i j", "k k k k k"]
    cider = CiderD(References([[reference] for reference in references]))
    # A share of 10 for each size of n-gram that there is.
    np.testing.assert_allclose(cider.score(references, range(5)), [10, 2.5, 5, 7.5, 10], rtol=1e-12)
    # N-grams that all images have weigh nothing.
    same = CiderD(References([["a b c d"]] * 3))
    assert same.score(["a b c d"], [1]).tolist() == [0.0]
    # Nor is anything worth something where there is one image.
    assert CiderD(References([["a b c d"]])).score(["a b c d"], [0]).tolist() == [0.0]


def test_empty_and_unseen_captions_score_nothing():
    references, _ = drawn(7, images=10)
    references[3] = [[]]
    cider = CiderD(References(references))
    assert cider.score([[], [], [77], [77] * 9, [77, 78, 79, 80, 81]], [0, 3, 0, 1, 3]).tolist() == [0.0] * 5


def test_an_unseen_word_weighs_as_if_it_were_in_one_image():
    references, captions = ["a b c d", "a b c d", "e f"], ["a b x c d", "x y", "e x f"]
    scores = CiderD(References([[reference] for reference in references])).score(captions, range(3))
    groups = [[reference.split()] for reference in references]
    np.testing.assert_allclose(scores, original(groups, [text.split() for text in captions]), atol=1e-12)
    assert (scores > 0).tolist() == [True, False, True]


def test_an_unknown_word_equals_none():
    groups = [[[4, 3, 5], [4, 5]], [[3, 6]], [[7]]]
    known = CiderD(References(groups))
    unknown = CiderD(References(groups, words=CaptionWords(unknown_id=3)))
    captions, images = [[4, 3, 5], [3], [3, 6], [4, 5]], [0, 1, 1, 0]
    # As if the caption had a word there that stands nowhere else.
    np.testing.assert_array_equal(
        unknown.score(captions, images), known.score([[4, 99, 5], [99], [99, 6], [4, 5]], images)
    )
    assert (unknown.score(captions, images) < known.score(captions, images)).tolist() == [True] * 3 + [False]


def test_longer_and_shorter_captions_are_punished():
    references = [["a b c d e f g h"], ["x"]]
    far, near = CiderD(References(references)), CiderD(References(references), sigma=1.0)
    captions = ["a b c d e f g h", "a b c d e f g", "a b c d e f g h h h h"]
    ratio = near.score(captions, [0, 0, 0]) / far.score(captions, [0, 0, 0])
    apart = np.array([0, 1, 3])
    np.testing.assert_allclose(ratio, np.exp(-(apart**2) / 2 + apart**2 / 72), rtol=1e-12)


def test_a_caption_repeated_in_a_long_one_is_clipped():
    references, captions = drawn(8, images=30, words=3, longest=9)
    captions = [(caption or [0]) * 12 for caption in captions]
    scores = CiderD(References(references)).score(captions, range(30))
    np.testing.assert_allclose(scores, original(references, captions), atol=1e-9)
    assert max(Counter(captions[0]).values()) >= 12


def test_what_cannot_be_scored_is_said():
    cider = CiderD(References([[[4, 5]], [[6]]]))
    for captions, images, message in (
        (["a dog"], [0], "captions are texts"),
        ([[4, -5]], [0], "the id -5"),
        ([[4]], [2], "no image 2"),
        ([[4]], [0, 1], "for 1 captions"),
    ):
        with pytest.raises(InputError, match=message):
            cider.score(captions, images)
