"""Selects the gates to close to remove exactly a given number of weights."""

from collections.abc import Callable

import numpy as np
import tensorflow as tf

# Gates are counted in rows of this length: the number of gates in a row fits into a byte, which TensorFlow
# sums several times as fast as longer integers.
_ROW = 128


def keep_masks(scores: list[tf.Tensor], block_sizes: list[int], closed_weights: tf.Tensor) -> list[tf.Tensor]:
    """Returns which gates stay open when those with the lowest scores, over all tensors together, are closed.

    The bits of non-negative floats, read as integers, have the same order. Bisection finds the exact
    threshold in at most 31 passes that compare and count. There is no sorting, no scatter and no dynamic
    shape, so that XLA compiles it to something fast. Of equal scores at the threshold, the first ones are
    closed.

    Args:
        scores: float32 tensors of any static shapes, values at least 0, one score per gate.
        block_sizes: weights per gate, one number per tensor.
        closed_weights: int64 scalar, number of weights to close.

    Returns:
        Bool tensors of the scores' shapes, True where open. The closed gates hold `closed_weights` weights,
        or fewer by less than the largest block.

    Examples:
        >>> keep, = keep_masks([tf.constant([0.5, 0.1, 0.3, 0.1])], [1], tf.constant(2, tf.int64))
        >>> keep.numpy().tolist()
        [True, False, True, False]
    """
    rows = [_in_rows(tf.bitcast(score, tf.int32)) for score in scores]
    counts = [part.shape[0] for part in rows]
    bits, size = tf.concat(rows, axis=0), tf.constant(np.repeat(block_sizes, counts), tf.int64)
    count = sum(counts)
    numbers = tf.range(count)

    def weights(mask: tf.Tensor) -> tf.Tensor:
        """Number of weights in each row behind the gates in the mask."""
        return tf.cast(tf.reduce_sum(tf.cast(mask, tf.uint8), axis=1), tf.int64) * size

    limit, remainder = _largest(lambda value: weights(bits < value), 31, closed_weights)
    tied = bits == limit
    of_row = weights(tied)
    row, remainder = _largest(lambda row: tf.where(numbers < row, of_row, 0), count.bit_length(), remainder)
    # Of the tied gates, those in earlier rows are closed, and in this row those that fit. If all are closed,
    # there may be no such row.
    existing = tf.minimum(row, count - 1)
    fits = tf.cumsum(tf.cast(tied[existing], tf.int64)) * size[existing] <= remainder
    first = (numbers < row)[:, None] | ((numbers == row)[:, None] & fits)
    keep = tf.split((bits >= limit) & ~(tied & first), counts)
    return [
        tf.reshape(tf.reshape(part, [-1])[: score.shape.num_elements()], score.shape)
        for part, score in zip(keep, scores, strict=True)
    ]


def with_floor(scores: tf.Tensor, block_size: int, kept_weights: int) -> tf.Tensor:
    """The scores of one tensor, the largest number for the best gates, which hold so many weights.

    Args:
        scores: float32, values at least 0.
        block_size: weights per gate.
        kept_weights: how many are kept at least.
    """
    closed = scores.shape.num_elements() * block_size - kept_weights
    (mask,) = keep_masks([scores], [block_size], tf.constant(closed, tf.int64))
    return tf.where(mask, scores.dtype.max, scores)


def _largest(
    weights_below: Callable[[tf.Tensor], tf.Tensor], digits: int, closed_weights: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """The largest number below which there are at most `closed_weights` weights, by bisection.

    Args:
        weights_below: number, int32 scalar -> weights below it, int64 tensor whose sum is meant.
        digits: binary digits of the number.
        closed_weights: int64 scalar.

    Returns:
        The number, or a smaller one if there are exactly `closed_weights` weights below it, and the
        difference to `closed_weights`.
    """

    def halve(
        step: tf.Tensor, number: tf.Tensor, remainder: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        higher = number + step
        remainder_of_higher = closed_weights - tf.reduce_sum(weights_below(higher))
        fits = remainder_of_higher >= 0
        return step // 2, tf.where(fits, higher, number), tf.where(fits, remainder_of_higher, remainder)

    start = tf.constant(1 << (digits - 1)), tf.constant(0), closed_weights
    _, number, remainder = tf.while_loop(
        lambda step, number, remainder: (step > 0) & (remainder > 0), halve, start
    )
    return number, remainder


def _in_rows(bits: tf.Tensor) -> tf.Tensor:
    """The values in rows of equal length, filled with one that is above those of all scores."""
    flat = tf.reshape(bits, [-1])
    return tf.reshape(tf.pad(flat, [[0, -flat.shape[0] % _ROW]], constant_values=tf.int32.max), [-1, _ROW])
