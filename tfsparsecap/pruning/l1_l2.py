"""Baselines of relevance-based pruning: weights shrink independently of the gradient of the loss."""

import tensorflow as tf

from tfsparsecap.pruning.registry import register
from tfsparsecap.pruning.relevance import Relevance


@register("l2")
class L2Pruning(Relevance):
    """`Relevance` with all weights equally irrelevant, `I = 1`.

    The loss gets the term `weight_decay * sum(w^2)`. Everything else is as in `Relevance`, which describes
    the arguments and errors; `weight_decay` is 1e-4 by default.

    Reference:
        The L2 baseline of Bonetta, Ribero and Cancelliere, https://arxiv.org/abs/2204.04977, equation 1; with
        `decoupled=True`, Loshchilov and Hutter, "Decoupled Weight Decay Regularization", equation 1,
        https://arxiv.org/abs/1711.05101.

    Examples:
        >>> L2Pruning(lower_bound=0.9, metric="val_accuracy").weight_decay
        0.0001
    """

    def irrelevance(self, gradient: tf.Tensor) -> tf.Tensor:
        return tf.ones_like(gradient)


@register("l1")
class L1Pruning(Relevance):
    """`Relevance` with every weight shrunk by the same amount.

    The loss gets the term `weight_decay * sum(|w|)`. With `decoupled=True` each step computes `w <- sign(w) *
    max(|w| - weight_decay, 0)` beside the optimizer's, the proximal step of the lasso (soft thresholding).
    Everything else is as in `Relevance`, which describes the arguments and errors; `weight_decay` is 1e-5 by
    default.

    Reference:
        The L1 baseline of Bonetta, Ribero and Cancelliere, https://arxiv.org/abs/2204.04977, who give no
        formula for it: `|w|` instead of `I * w^2` in equation 5; soft thresholding as in Parikh and Boyd,
        "Proximal Algorithms", section 6.5.2.

    Examples:
        >>> L1Pruning(lower_bound=0.9, metric="val_accuracy").weight_decay
        1e-05
    """

    default_weight_decay = 1e-5

    def loss_gradient(self, weight: tf.Tensor, gradient: tf.Tensor, strength: tf.Tensor) -> tf.Tensor:
        return strength * tf.sign(weight)

    def shrink(self, weight: tf.Tensor, gradient: tf.Tensor, strength: tf.Tensor) -> tf.Tensor:
        return tf.sign(weight) * tf.maximum(tf.abs(weight) - strength, 0.0)
