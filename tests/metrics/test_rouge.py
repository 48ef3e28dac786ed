"""ROUGE-1 against values worked out by hand."""

import pytest

from tfsparsecap.metrics.rouge import rouge_1


@pytest.mark.parametrize(
    ("references", "caption", "expected"),
    [
        (["a dog runs"], "a dog runs", 1),
        (["a dog runs"], "runs dog a", 1),  # order does not count
        (["a dog runs"], "two cats", 0),
        (["a dog runs"], "", 0),
        # precision 2 of 4, recall 2 of 3: 2 * 1/2 * 2/3 / (1/2 + 2/3)
        (["a dog runs"], "a dog and cat", 4 / 7),
        # "the" counts as often as both have it: 2 of 4 and 2 of 3
        (["the cat the"], "the the the the", 4 / 7),
        # 2 * 2 / (3 + 5) and 2 * 3 / (3 + 4): the best reference, not precision and recall of two
        (["a dog runs very fast", "a big dog runs"], "a dog barks", 4 / 7),
        (["a dog runs very fast", "a big dog runs"], "a dog runs", 6 / 7),
    ],
)
def test_of_one_image(references, caption, expected):
    assert rouge_1({1: references}, {1: caption}) == pytest.approx(expected)


def test_of_images_is_the_mean():
    references = {1: ["a dog"], 2: ["a cat"], 3: ["a cow"]}
    assert rouge_1(references, {2: "a cat", 1: "two", 3: "a"}) == pytest.approx((1 + 0 + 2 / 3) / 3)
