"""One-shot magnitude pruning: the smallest weights go at once, and the rest is trained on."""

import math

import keras
import tensorflow as tf

from tfsparsecap.errors import InputError
from tfsparsecap.pruning.fixed_mask import SCHEMES, FixedMask
from tfsparsecap.pruning.registry import register


@register("magnitude")
class Magnitude(FixedMask):
    """Hard, one-shot pruning by size (See et al.); a class of weights is a layer's kernel or table.

    - `"blind"`: the smallest of all weights together go (class-blind): those with `|w| < t`.
    - `"uniform"`: the same share of each class goes (class-uniform): `|w| < t_c`, a `t_c` for each class.
    - `"distribution"`: weights below a number of deviations of their own class go, the same number for all
      classes (class-distribution): `|w| < l * sigma_c`.

    `t`, `t_c` and `l` are what makes the sparsity the one asked for.

    With `at=0`, the default, they go when `prune` is called: give it a trained model, and fit it again
    (`training.start_from` in a configuration). Otherwise training is dense until `at`.

    Args:
        sparsity: share of the gated weights to remove.
        total_steps: optimizer steps of the training; needed with `at` only.
        block_shape: (inputs, outputs) of a block; blocks go by the mean size of their weights.
        scheme: which weights are compared with each other.
        at: share of `total_steps` after which they go, 0 to below 1.

    Raises:
        InputError: an argument out of range.

    Reference:
        See et al., "Compression of Neural Machine Translation Models via Pruning", section 3.2 (which numbers
        no equations), https://arxiv.org/abs/1606.09274; "hard" in the SMP paper,
        https://arxiv.org/abs/2110.03298.

    Example:
        >>> import tfsparsecap as sc
        >>> model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(64)])
        >>> float(sc.prune(model, Magnitude(0.75, scheme="uniform")).pruning.current_sparsity())
        0.75
    """

    def __init__(
        self,
        sparsity: float,
        total_steps: int | None = None,
        *,
        block_shape=(1, 1),
        scheme: str = "blind",
        at: float = 0.0,
    ):
        super().__init__(sparsity, block_shape=block_shape)
        if scheme not in SCHEMES:
            raise InputError(f"scheme is {scheme!r}: choose one of {', '.join(SCHEMES)}")
        if not 0.0 <= at < 1.0:
            raise InputError(f"at is a share of total_steps from 0 to below 1: got {at!r}")
        if at and not total_steps:
            raise InputError(
                f"at is {at!r} and total_steps is not given: say how many steps the training has"
            )
        self.total_steps, self.scheme, self.at = total_steps, scheme, at
        self.at_step = math.floor(at * total_steps) if at else 0

    def attach(self, model: keras.Model) -> None:
        super().attach(model)
        if self.at == 0:
            self._prune()

    def step(self, gate_gradients):
        if self.at:
            due = tf.convert_to_tensor(self.steps_done) == self.at_step
            tf.cond(due, self._prune, lambda: tf.no_op())
        super().step(gate_gradients)

    def _prune(self) -> tf.Operation:
        self.close(self.smallest_kept(self.sparsity, self.scheme))
        return tf.no_op()

    def get_config(self) -> dict:
        own = {"total_steps": self.total_steps, "scheme": self.scheme, "at": self.at}
        return {**super().get_config(), **own}
