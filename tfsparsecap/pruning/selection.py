"""Selects the gates to close to remove exactly a given number of weights."""

import tensorflow as tf


def keep_masks(scores: list[tf.Tensor], block_sizes: list[int], closed_weights: tf.Tensor) -> list[tf.Tensor]:
    """Returns which gates stay open when those with the lowest scores, over all tensors together, are closed.

    Works in a graph without sorting: the bits of non-negative floats, read as integers, have the same order,
    and two histograms, of the upper and of the lower bits, give the exact threshold. Of equal scores at the
    threshold, the first ones are closed.

    Args:
        scores: float32 tensors of any shapes, values at least 0, one score per gate.
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
    bits = [tf.reshape(tf.bitcast(score, tf.int32), [-1]) for score in scores]

    def lowest_beyond(digits: tf.Tensor, bins: int, already_closed: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """The digit at which the count exceeds `closed_weights`, and the number of weights below it."""
        counts = [tf.math.bincount(digit, minlength=bins, maxlength=bins, dtype=tf.int64) for digit in digits]
        weights = tf.add_n([count * size for count, size in zip(counts, block_sizes, strict=True)])
        below = already_closed + tf.cumsum(weights, exclusive=True)
        digit = tf.cast(tf.searchsorted(below, closed_weights[None], side="right")[0] - 1, tf.int32)
        return digit, below[digit]

    low_bits, low_bins = 15, 1 << 15
    high, below = lowest_beyond(
        [tf.bitwise.right_shift(bit, low_bits) for bit in bits], 1 << 16, tf.constant(0, tf.int64)
    )
    tied_high = [
        tf.boolean_mask(bit, tf.bitwise.right_shift(bit, low_bits) == high) % low_bins for bit in bits
    ]
    low, below = lowest_beyond(tied_high, low_bins, below)
    limit = high * low_bins + low
    remaining = closed_weights - below
    keep = []
    for score, bit, size in zip(scores, bits, block_sizes, strict=True):
        tied = tf.cast(bit == limit, tf.int64) * size
        closed = (bit < limit) | ((tied > 0) & (tf.cumsum(tied) <= remaining))
        remaining -= tf.reduce_sum(tf.where(closed, tied, 0))
        keep.append(tf.reshape(~closed, tf.shape(score)))
    return keep
