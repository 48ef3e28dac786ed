"""Supermask Pruning (SMP) on a schedule: it ends exactly at the requested sparsity."""

import math
from collections.abc import Sequence

import keras
import tensorflow as tf

from tfsparsecap.errors import check_number, warn_caller
from tfsparsecap.gates import INITIAL_LOGIT
from tfsparsecap.pruning.method import PruningMethod
from tfsparsecap.pruning.optimizer import run_if
from tfsparsecap.pruning.registry import register
from tfsparsecap.pruning.schedule import OPTIONS, Schedule


@register("supermask")
class Supermask(PruningMethod):
    """SMP that ends exactly at the requested sparsity, for any number of training steps.

    As in the papers, the importance of a gate is learned from its straight-through gradient; a schedule
    decides when gates close. With `z` the state of a gate (`W' = W * z`), closing an open gate changes the
    loss to second order by `E[(dL/dz)^2] / 2` (the Fisher estimate of the curvature), so each gate keeps an
    exponential moving average of its squared gradient. (It is the gradient of a batch's mean loss, not of
    single examples.) At each update of the schedule, the gates of the whole model are ranked by importance
    per weight, and the least important are closed to reach the scheduled sparsity.

    Weights behind closed gates keep learning from the straight-through gradient: a gate that was closed too
    early gains importance and opens again. After the last update the gates are frozen and the remaining
    weights are fine-tuned.

    `SupermaskLoss` is the papers' method, a sparsity loss on randomly sampled gates. It needs hundreds of
    thousands of steps.

    Args:
        sparsity: share of the gated weights to remove, over the whole model.
        total_steps: optimizer steps of the training.
        block_shape: (inputs, outputs) weights per gate: (1, 1) prunes single weights, (16, 1) the blocks that
            TFLite's int8 kernel computes fast.
        schedule: when gates close; `begin` defaults to 0.1, `end` to 0.7.
        ema_decay: decay of the moving average at each step, 0 to below 1.
        closed_decay: share by which weights behind closed gates shrink at each step. These weights do not
            affect the loss, so nothing else keeps them small, and reopening a gate on large weights would
            disturb training.
        minimum_density: share of its weights that each layer keeps at least, however unimportant they are;
            None for a tenth of the whole model's, `(1 - sparsity) / 10`. A layer without weights passes no
            gradient to those before it, and computes the same for all inputs.

    Raises:
        InputError: an argument out of range.

    Reference:
        Tan et al., "End-to-End Supermask Pruning: Learning to Prune Image Captioning Models",
        https://arxiv.org/abs/2110.03298; the criterion is equation 8 of Theis et al., "Faster gaze prediction
        with dense networks and Fisher pruning", https://arxiv.org/abs/1801.05787.

    Examples:
        >>> Supermask(sparsity=0.9, total_steps=1000, block_shape=(16, 1)).updates.frequency
        6
    """

    supports_encoder_schemes = True
    samples_gates = False
    schedule_options = OPTIONS

    def __init__(
        self,
        sparsity: float,
        total_steps: int,
        *,
        block_shape: Sequence[int] = (1, 1),
        schedule: Schedule | None = None,
        ema_decay: float = 0.99,
        closed_decay: float = 0.05,
        minimum_density: float | None = None,
    ) -> None:
        super().__init__(sparsity, total_steps, block_shape=block_shape, schedule=schedule)
        self.updates = self.schedule.updates(total_steps, begin=0.1, end=0.7)
        self.ema_decay = check_number("ema_decay", ema_decay, at_least=0, below=1)
        self.closed_decay = check_number("closed_decay", closed_decay, at_least=0, at_most=1)
        if minimum_density is None:
            minimum_density = (1 - self.sparsity) / 10
        self.minimum_density = check_number(
            "minimum_density", minimum_density, at_least=0, at_most=1 - self.sparsity + 1e-9
        )

    def attach(self, model: keras.Model) -> None:
        super().attach(model)
        coarsest = max(gate.block_size for gate in self.gates)
        if coarsest > max(1, 0.001 * self.gated_size):
            warn_caller(
                f"the model's {self.gated_size} weights are pruned in blocks of up to {coarsest}, so the"
                f" final sparsity may differ from {self.sparsity} by up to {coarsest / self.gated_size:.1%};"
                " a smaller block_shape is more precise"
            )
        self._importance = [self.add_state("importance", tuple(gate.logits.shape)) for gate in self.gates]
        self._reached = self.add_state("sparsity_reached", ())
        for gate in self.gates:
            gate.closed_weights_learn = True

    @property
    def complete_after(self) -> int | None:
        return self.updates.last + 1

    def step(self, gate_gradients: list[tf.Tensor | None]) -> None:
        step, updates = tf.convert_to_tensor(self.steps_done), self.updates
        learning = step <= updates.last
        run_if(learning, lambda: self._learn(gate_gradients))
        # No gate is closed before the first update, and none opens after the last one.
        decaying = (step > updates.first) & learning
        run_if(decaying, self._decay_closed_weights)
        run_if(updates.due(step), lambda: self._rank(step))
        self.steps_done.assign_add(1)

    def _learn(self, gate_gradients: list[tf.Tensor | None]) -> None:
        # All logits are +-INITIAL_LOGIT, where the sigmoid has the same slope: dL/dz is dL/dG divided by it.
        slope = math.exp(-INITIAL_LOGIT) / (1.0 + math.exp(-INITIAL_LOGIT)) ** 2
        for importance, gradient in zip(self._importance, gate_gradients, strict=True):
            if gradient is not None:
                squared = tf.square(tf.convert_to_tensor(gradient) / slope)
                # If the loss overflows, the gradients carry no information, and NaN cannot be ranked.
                squared = tf.where(tf.math.is_finite(squared), squared, 0.0)
                importance.assign(self.ema_decay * importance + (1.0 - self.ema_decay) * squared)

    def _decay_closed_weights(self) -> None:
        for gate, weight in zip(self.gates, self.weights, strict=True):
            if not weight.trainable:
                continue  # a frozen weight cannot grow and must not change
            closed = tf.cast(gate.logits < 0.0, tf.float32)
            weight.assign(weight * gate.expand(1.0 - self.closed_decay * closed))

    def _rank(self, step: tf.Tensor) -> None:
        share = self.sparsity * tf.cast(self.updates.share(step), tf.float64)
        self.close_lowest(self._scores(), tf.round(share * self.moving_size), self.minimum_density)
        self._reached.assign(self.current_sparsity())

    def _scores(self) -> list[tf.Tensor]:
        scores = []
        for gate, weight, importance in zip(self.gates, self.weights, self._importance, strict=True):
            # Weights that never had a gradient (rare words) all have importance 0: keep the larger ones
            # longer.
            size = gate.block_sum(tf.square(tf.cast(weight, tf.float32)))
            importance = tf.convert_to_tensor(importance)
            tie_break = size * (1e-6 * tf.reduce_mean(importance) / (tf.reduce_mean(size) + 1e-30))
            scores.append((importance + tie_break) / gate.block_size)
        return scores

    def logs(self) -> dict[str, tf.Tensor]:
        return {"sparsity": tf.convert_to_tensor(self._reached)}
