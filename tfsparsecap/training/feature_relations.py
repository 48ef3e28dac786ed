"""Distillation of an encoder's features: their similarities become those of a teacher's features."""

import math
from collections.abc import Sequence

import tensorflow as tf


def relation_loss(features: tf.Tensor, teachers: Sequence[tf.Tensor]) -> tf.Tensor:
    """Mean squared difference of cosine similarities, averaged over the teachers.

    Similarities are those of all positions of an image with each other, after subtracting the image's mean,
    and those of all images of the batch (on all devices) with each other, by their mean features, after
    subtracting the batch's mean. Both differences are added. Sizes of features may differ, and no weights are
    needed to compare them. A teacher's map is averaged to the grid of `features` first.

    Args:
        features: float [B, N, D], of a square grid of N positions, row by row.
        teachers: float [B, n, d] each; a class token before the n - 1 positions of a grid is left out.

    Returns:
        float32 scalar. With several devices, the sum over all of them is the loss.

    Reference:
        Tung and Mori, "Similarity-Preserving Knowledge Distillation", https://arxiv.org/abs/1907.09682,
        equations 2 to 4, with centred features.

    Examples:
        >>> maps = tf.random.normal((2, 4, 8))
        >>> float(relation_loss(maps, [3 * maps]))
        0.0
    """
    replica = tf.distribute.get_replica_context()
    replicas = 1 if replica is None else replica.num_replicas_in_sync

    def similarities(maps: tf.Tensor) -> list[tf.Tensor]:
        maps = tf.cast(maps, tf.float32)
        of_images = tf.reduce_mean(maps, axis=1)
        if replicas > 1:
            # Each device adds its rows to zeros. `all_gather` would also exchange the shapes.
            own = tf.one_hot(replica.replica_id_in_sync_group, replicas)
            rows = tf.reshape(own[:, None, None] * of_images, (-1, of_images.shape[-1]))
            of_images = replica.all_reduce(tf.distribute.ReduceOp.SUM, rows)
        return [_cosines(maps), _cosines(of_images)]

    own, size = similarities(features), math.isqrt(features.shape[1])
    total = tf.zeros(())
    for maps in teachers:
        for mine, theirs in zip(own, similarities(tf.stop_gradient(_to_grid(maps, size))), strict=True):
            total += tf.reduce_mean(tf.square(mine - theirs))
    return total / (len(teachers) * replicas)


def is_grid(positions: int) -> bool:
    """Whether so many positions are a square, with or without a class token."""
    return math.isqrt(positions) ** 2 == positions or math.isqrt(positions - 1) ** 2 == positions - 1


def _cosines(vectors: tf.Tensor) -> tf.Tensor:
    """Cosine similarities [..., N, N] of vectors [..., N, D] after subtracting their mean."""
    centred = vectors - tf.reduce_mean(vectors, axis=-2, keepdims=True)
    unit = tf.math.l2_normalize(centred, axis=-1, epsilon=1e-6)
    return tf.matmul(unit, unit, transpose_b=True)


def _to_grid(maps: tf.Tensor, size: int) -> tf.Tensor:
    """Features [B, size * size, d] of a map of another size, averaged or interpolated."""
    positions, width = maps.shape[1], maps.shape[2]
    own = math.isqrt(positions)
    if own**2 < positions:
        maps = maps[:, positions - own**2 :]
    if own == size:
        return maps
    image = tf.reshape(maps, (-1, own, own, width))
    resized = tf.image.resize(image, (size, size), antialias=True)
    return tf.reshape(resized, (-1, size * size, width))
