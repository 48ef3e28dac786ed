"""The baselines of relevance-based pruning: all weights shrink alike, whatever the loss feels of them."""

import tensorflow as tf

from tfsparsecap.pruning.registry import register
from tfsparsecap.pruning.relevance import Relevance


@register("l2")
class L2Pruning(Relevance):
    """`Relevance` with all weights equally irrelevant, `I = 1`: weight decay, apart from the learning rate.

    Each step takes `w <- w - eta * dL/dw - lambda * w`; everything else is as in `Relevance`.

    Args:
        sparsity, total_steps, block_shape, lower_bound, metric, mode, pruning_percentage, weight_decay,
            decay, patience, finetune_validations: as of `Relevance`; `weight_decay` is 1e-4 by default, the
            share of itself that a weight loses at each step.

    Raises:
        InputError: as `Relevance` does.

    Reference:
        The L2 of Bonetta, Ribero and Cancelliere, https://arxiv.org/abs/2204.04977: equation 7 with `I = 1`;
        decoupled from the learning rate as in Loshchilov and Hutter, "Decoupled Weight Decay
        Regularization", https://arxiv.org/abs/1711.05101, equation 1.

    Example:
        >>> L2Pruning(lower_bound=0.9, metric="val_accuracy").weight_decay
        0.0001
    """

    def shrunk(self, weight, gradient, strength):
        return weight - strength * weight


@register("l1")
class L1Pruning(Relevance):
    """`Relevance` with weights that all lose as much at each step, and stop at 0.

    Each step takes `w <- sign(w) * max(|w| - lambda, 0)` and then `w <- w - eta * dL/dw`, the proximal step
    of the lasso (soft thresholding); everything else is as in `Relevance`.

    Args:
        sparsity, total_steps, block_shape, lower_bound, metric, mode, pruning_percentage, weight_decay,
            decay, patience, finetune_validations: as of `Relevance`; `weight_decay` is 1e-5 by default, what
            is taken off a weight at each step.

    Raises:
        InputError: as `Relevance` does.

    Reference:
        The L1 of Bonetta, Ribero and Cancelliere, https://arxiv.org/abs/2204.04977: `sign(w)` in place of
        `I * w` in equation 7; soft thresholding as in Parikh and Boyd, "Proximal Algorithms", section 6.5.2.

    Example:
        >>> L1Pruning(lower_bound=0.9, metric="val_accuracy").weight_decay
        1e-05
    """

    default_weight_decay = 1e-5

    def shrunk(self, weight, gradient, strength):
        return tf.sign(weight) * tf.maximum(tf.abs(weight) - strength, 0.0)
