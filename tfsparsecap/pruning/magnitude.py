"""One-shot magnitude pruning: removes the smallest weights at once and retrains the others."""

from collections.abc import Sequence

import keras
import tensorflow as tf

from tfsparsecap.errors import InputError
from tfsparsecap.pruning.fixed_mask import FixedMask
from tfsparsecap.pruning.optimizer import run_if
from tfsparsecap.pruning.registry import register
from tfsparsecap.pruning.schedule import Schedule, step_at


@register("magnitude")
class Magnitude(FixedMask):
    """Hard, one-shot pruning by magnitude (See et al.). A class of weights is a layer's kernel or table.

    - `"blind"` (class-blind) removes the smallest of all weights together: `|w| < t`.
    - `"uniform"` (class-uniform) removes the same share of each class: `|w| < t_c`, one `t_c` per class.
    - `"distribution"` (class-distribution) compares weights in units of their class's standard deviation:
      `|w| < l * sigma_c`.

    `t`, `t_c` and `l` follow from the sparsity.

    By default the weights are removed when `prune` is called: give it a trained model and fit it again
    (`training.start_from` in a configuration). With `begin`, training is dense until then.

    Args:
        sparsity: share of the gated weights to remove.
        total_steps: optimizer steps of the training; only needed with `begin`.
        block_shape: (inputs, outputs) of a block; blocks are ranked by the mean magnitude of their weights.
        allocation: which weights are compared with each other.
        schedule: only `begin` is used (default 0), at which the weights are removed.

    Raises:
        InputError: an argument out of range.

    Reference:
        See et al., "Compression of Neural Machine Translation Models via Pruning", section 3.2 (which has no
        numbered equations), https://arxiv.org/abs/1606.09274; "hard" in the SMP paper,
        https://arxiv.org/abs/2110.03298.

    Examples:
        >>> import tfsparsecap as sc
        >>> model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(64)])
        >>> float(sc.prune(model, Magnitude(0.75, allocation="uniform")).pruning.current_sparsity())
        0.75
    """

    supports_encoder_schemes = True
    schedule_options = ("begin",)

    def __init__(
        self,
        sparsity: float,
        total_steps: int | None = None,
        *,
        block_shape: Sequence[int] = (1, 1),
        allocation: str = "blind",
        schedule: Schedule | None = None,
    ) -> None:
        super().__init__(
            sparsity, total_steps, block_shape=block_shape, allocation=allocation, schedule=schedule
        )
        begin = self.schedule.begin or 0.0
        if begin and not self.total_steps:
            raise InputError(
                f"begin is {begin!r}, which needs total_steps, the optimizer steps of the training"
            )
        if begin == 1.0:
            raise InputError("begin is 1.0, which leaves no step in which to prune: give a smaller begin")
        #: The step at which the weights are removed; None removes them in `attach`.
        self.pruning_step = step_at(begin, self.total_steps) if begin and self.total_steps else None

    def attach(self, model: keras.Model) -> None:
        super().attach(model)
        if self.pruning_step is None:
            self.close_smallest(self.sparsity)

    @property
    def complete_after(self) -> int | None:
        return 0 if self.pruning_step is None else self.pruning_step + 1

    def step(self, gate_gradients: list[tf.Tensor | None]) -> None:
        if self.pruning_step is not None:
            due = tf.convert_to_tensor(self.steps_done) == self.pruning_step
            run_if(due, lambda: self.close_smallest(self.sparsity))
        super().step(gate_gradients)
