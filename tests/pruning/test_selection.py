"""The exact selection of gates, against sorting."""

import numpy as np
import pytest
import tensorflow as tf

from tfsparsecap.pruning.selection import keep_masks


def closed_by_sorting(scores, sizes, weights):
    """Closes gates in the order of their scores until the next would exceed the number of weights."""
    flat = np.concatenate([score.ravel() for score in scores])
    size = np.concatenate([np.full(score.size, n) for score, n in zip(scores, sizes, strict=True)])
    order = np.argsort(flat, kind="stable")
    return set(order[: np.searchsorted(np.cumsum(size[order]), weights, side="right")])


@pytest.mark.parametrize("share", [0.0, 0.3, 0.999, 1.0])
@pytest.mark.parametrize("size", [7, 50_000])
def test_selection_equals_sorting(size, share):
    scores = np.abs(np.random.default_rng(size).normal(size=size)).astype("float32") * 10.0 ** np.linspace(
        -30, 20, size, dtype="float32"
    )
    closed = int(share * size)
    (keep,) = keep_masks([tf.constant(scores)], [1], tf.constant(closed, tf.int64))
    assert set(np.flatnonzero(~keep.numpy())) == closed_by_sorting([scores], [1], closed)


def test_blocks_of_different_sizes_count_by_their_weights():
    random = np.random.default_rng(0)
    scores = [random.random((30, 40), dtype="float32"), random.random(500, dtype="float32")]
    sizes, closed = [16, 1], 9000
    keep = keep_masks([tf.constant(score) for score in scores], sizes, tf.constant(closed, tf.int64))
    flat = np.concatenate([k.numpy().ravel() for k in keep])
    expected = closed_by_sorting(scores, sizes, closed)
    # Sorting stops at the first block that is too large; both close the same gates up to that one block.
    assert len(expected ^ set(np.flatnonzero(~flat))) <= 1
    gone = sum(size * (~k.numpy()).sum() for size, k in zip(sizes, keep, strict=True))
    assert closed - 16 < gone <= closed


def test_of_equal_scores_the_first_are_closed():
    keep, second = keep_masks([tf.zeros([4]), tf.zeros([3])], [1, 1], tf.constant(5, tf.int64))
    assert keep.numpy().tolist() == [False] * 4
    assert second.numpy().tolist() == [False, True, True]


def test_ties_end_in_any_row():
    scores = np.repeat(np.float32([2.0, 1.0, 3.0]), 400)
    for closed in (0, 1, 127, 128, 129, 300, 399, 400, 401, 799, 800, 900, 1200):
        (keep,) = keep_masks([tf.constant(scores)], [1], tf.constant(closed, tf.int64))
        assert set(np.flatnonzero(~keep.numpy())) == closed_by_sorting([scores], [1], closed)


def test_of_tied_blocks_as_many_are_closed_as_fit():
    blocks, single = keep_masks([tf.zeros([300]), tf.ones([5])], [16, 1], tf.constant(16 * 130 + 7, tf.int64))
    assert blocks.numpy().tolist() == [False] * 130 + [True] * 170 and single.numpy().all()


@pytest.mark.slow
def test_compiles_with_xla():
    scores, closed = tf.random.stateless_uniform([50, 40], (1, 2)), tf.constant(700, tf.int64)
    masks = tf.function(lambda n: keep_masks([scores, tf.ones([300])], [1, 4], n), jit_compile=True)(closed)
    for mask, expected in zip(masks, keep_masks([scores, tf.ones([300])], [1, 4], closed), strict=True):
        np.testing.assert_array_equal(mask, expected)
