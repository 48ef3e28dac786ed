"""What a training step does once for all replicas of a distribution strategy, and not on each of them."""

from collections.abc import Callable

import tensorflow as tf


def once_for_all(decide: Callable[[], None]) -> None:
    """Runs a part of a step that assigns to variables, so that the copies on all devices become the same.

    For branches in which variables are set that every replica has a part in (Keras's counts of steps), or by
    code that waits for the other replicas: a replica cannot wait within a branch, so the branch must be
    around all of them. Without a strategy it is called as it is.

    Args:
        decide: reads and assigns variables, with `tf.cond` where it likes; takes no tensors of a replica.

    Example:
        >>> count = tf.Variable(0)
        >>> once_for_all(lambda: count.assign_add(1) and None)
        >>> int(count)
        1
    """
    replica = tf.distribute.get_replica_context()
    if replica is None:
        decide()
    else:
        replica.merge_call(lambda strategy: decide())
