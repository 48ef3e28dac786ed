"""CIDEr-D and BLEU of single captions: fixture of the original scorer, pycocoevalcap, formulas by hand."""

import json
import math

import numpy as np
import pytest
from pycocoevalcap.bleu.bleu import Bleu
from pycocoevalcap.cider.cider import Cider

from tfsparsecap.captioning.rewards.references import References
from tfsparsecap.captioning.rewards.similarity import cider_d, sentence_bleu


def random_texts(seed, images=80, words=12, longest=13):
    """One to five references per image and a caption of each: many short, repetitive or empty."""
    random = np.random.default_rng(seed)

    def words_of(length):
        return [f"w{number}" for number in random.integers(0, words, length)]

    references = [
        [words_of(random.integers(0, longest)) for _ in range(random.integers(1, 6))] for _ in range(images)
    ]
    captions = []
    for group in references:
        one, other = (group[random.integers(len(group))] for _ in range(2))
        cut = random.integers(0, 6)
        captions.append(one[:cut] + other[cut:] + words_of(random.integers(0, 3)))
    return [[" ".join(text) for text in group] for group in references], list(map(" ".join, captions))


def original_cider(references, captions):
    """pycocoevalcap's, whose CIDEr is CIDEr-D."""
    return Cider().compute_score(dict(enumerate(references)), {n: [text] for n, text in enumerate(captions)})[
        1
    ]


def original_bleu(references, captions):
    arguments = dict(enumerate(references)), {n: [text] for n, text in enumerate(captions)}
    return np.array(Bleu(4).compute_score(*arguments, verbose=0)[1]).T


def test_cider_d_equals_the_original_scorers(fixtures):
    expected = json.loads((fixtures / "cider_d" / "expected.json").read_text(encoding="utf-8"))
    images = list(expected["hypotheses"])
    references = References([expected["references"][image] for image in images])
    scores = cider_d(references, [expected["hypotheses"][image] for image in images], range(len(images)))
    assert scores.dtype == np.float64
    np.testing.assert_allclose(scores, expected["cider_d"], rtol=0, atol=1e-9)
    assert scores.mean() == pytest.approx(expected["cider_d_mean"], abs=1e-9)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("words", [4, 12])
def test_scores_equal_pycocoevalcaps(seed, words):
    texts, captions = random_texts(seed, words=words)
    captions[0] = " ".join([captions[1] or "w1"] * 12)  # long and repetitive
    references = References(texts)
    expected = original_cider(texts, captions)
    np.testing.assert_allclose(cider_d(references, captions, range(80)), expected, atol=1e-9)
    assert (expected > 0.5).sum() > 20 and (expected < 0.1).any()
    expected = original_bleu(texts, captions)
    scores = sentence_bleu(references, captions, range(80))
    assert scores.shape == (80, 4)
    np.testing.assert_allclose(scores, expected, rtol=1e-9, atol=1e-12)
    assert (expected[:, 3] > 0.3).sum() > 10 and (expected[:, 3] < 1e-3).sum() > 10


@pytest.mark.parametrize("score", [cider_d, sentence_bleu])
def test_order_batches_and_several_captions_of_an_image_do_not_matter(score):
    texts, captions = random_texts(6, images=50)
    references = References(texts)
    together = score(references, captions, range(50))
    order = np.random.default_rng(0).permutation(np.repeat(np.arange(50), 3))
    np.testing.assert_allclose(
        score(references, [captions[image] for image in order], order), together[order], atol=1e-12
    )
    single = [score(references, [caption], [image])[0] for image, caption in enumerate(captions)]
    np.testing.assert_allclose(single, together, atol=1e-12)
    assert score(references, [], []).shape == (0, *together.shape[1:])


def test_cider_d_of_tiny_corpora_by_hand():
    # "a" is in both images, all else in one: weights are 0 and log 2, which cancels where all are equal.
    references = References([["a b c"], ["a d"]])
    # Of the words b and c the caption has b, of the bigrams "a b" and "b c" the first: one bigram fewer.
    expected = 10 * math.exp(-1 / 72) * (1 / math.sqrt(2) + 1 / math.sqrt(2)) / 4
    assert cider_d(references, ["a b"], [0])[0] == pytest.approx(expected, rel=1e-12)
    # A repeated word counts once if the reference has it once, but twice in the caption's norm.
    expected = 10 * math.exp(-1 / 72) * (1 / (2 * math.sqrt(2))) / 4
    assert cider_d(references, ["b b"], [0])[0] == pytest.approx(expected, rel=1e-12)
    assert cider_d(references, ["a", "a a a"], [0, 1]).tolist() == [0.0, 0.0]

    # Three images; d is in two of them and weighs log 3 - log 2, e in one and weighs log 3.
    references = References([["d e", "e"], ["d"], ["f"]])
    d, e = math.log(3 / 2), math.log(3)
    similarity = e / math.hypot(d, e) * math.exp(-1 / 72), 1.0
    assert cider_d(references, ["e"], [0])[0] == pytest.approx(10 * sum(similarity) / 2 / 4, rel=1e-12)


def test_an_image_without_references_scores_0_and_is_not_a_document():
    with_empty, without = References([["a b"], [], ["c"]]), References([["a b"], ["c"]])
    np.testing.assert_array_equal(
        cider_d(with_empty, ["a b", "a", "c"], [0, 1, 2])[[0, 2]], cider_d(without, ["a b", "c"], [0, 1])
    )
    assert cider_d(with_empty, ["a", ""], [1, 1]).tolist() == [0, 0]
    assert sentence_bleu(with_empty, ["a", ""], [1, 1]).max() < 1e-3
