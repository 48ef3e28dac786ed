"""Supermask Pruning (SMP): gates that learn what they are worth, driven to a sparsity that is named."""

import math
import warnings

import keras
import tensorflow as tf

from tfsparsecap.errors import InputError
from tfsparsecap.gates import INITIAL_LOGIT
from tfsparsecap.pruning.method import PruningMethod
from tfsparsecap.pruning.registry import register
from tfsparsecap.pruning.selection import keep_masks


@register("supermask")
class Supermask(PruningMethod):
    """SMP that ends exactly at the sparsity asked for, in runs of any length.

    What a gate is worth is learned from its straight-through gradient, as in the papers; when it closes
    follows a schedule. With `z` the state of a gate (`W' = W * z`), closing an open gate changes the loss by
    `E[(dL/dz)^2] / 2` to second order (Fisher's estimate of the curvature), so each gate keeps a moving
    average of its squared gradient. From `begin` to `end` the sparsity rises as
    `sparsity * (1 - (1 - progress)^3)`; every `interval` steps the gates are ranked over the whole model, by
    worth for each weight that they switch, and as many as the schedule says are closed.

    Weights behind closed gates go on learning, by the straight-through gradient: a gate that was closed too
    early becomes worth more than others and opens again. After `end` the gates are frozen and the remaining
    weights are fine-tuned.

    The papers' own way, a sparsity loss on gates that are drawn at random, is `SupermaskLoss`: it needs
    hundreds of thousands of steps.

    Args:
        sparsity: share of the gated weights to remove, over the whole model.
        total_steps: optimizer steps of the training.
        block_shape: (inputs, outputs) weights to a gate: (1, 1) prunes single weights, (16, 1) the blocks
            that TFLite's int8 kernel runs fast.
        begin, end: where the sparsity starts and stops rising, as shares of `total_steps`.
        interval: steps between two rankings; None is a hundredth of the rise, at least 1.
        memory: share of a moving average that stays at each step.
        closed_decay: share by which weights behind closed gates shrink at each step. They learn without
            ever being used, so nothing else keeps them small, and a gate that opened on large ones would
            be a shock.

    Raises:
        InputError: an argument out of range.

    Reference:
        Tan et al., "End-to-End Supermask Pruning: Learning to Prune Image Captioning Models"; the
        criterion is that of Theis et al., "Faster gaze prediction with dense networks and Fisher pruning",
        equation 8.

    Example:
        >>> Supermask(sparsity=0.9, total_steps=1000, block_shape=(16, 1)).interval
        6
    """

    def __init__(
        self,
        sparsity: float,
        total_steps: int,
        *,
        block_shape=(1, 1),
        begin: float = 0.1,
        end: float = 0.7,
        interval: int | None = None,
        memory: float = 0.99,
        closed_decay: float = 0.05,
    ):
        super().__init__(sparsity, block_shape=block_shape)
        if total_steps < 1:
            raise InputError(
                f"total_steps must be at least 1, the optimizer steps of the training: got {total_steps!r}"
            )
        if not 0.0 <= begin < end <= 1.0:
            raise InputError(
                "begin and end are shares of total_steps with 0 <= begin < end <= 1: "
                f"got {begin!r} and {end!r}"
            )
        if interval is not None and interval < 1:
            raise InputError(f"interval must be at least 1 step: got {interval!r}")
        if not 0.0 <= memory < 1.0:
            raise InputError(f"memory must be at least 0 and below 1: got {memory!r}")
        if not 0.0 <= closed_decay <= 1.0:
            raise InputError(f"closed_decay must be from 0 to 1: got {closed_decay!r}")
        self.total_steps, self.begin, self.end, self.memory = int(total_steps), begin, end, memory
        self.closed_decay = closed_decay
        self.interval = interval or max(1, round((end - begin) * total_steps / 100))
        # The last ranking of the schedule is made at `end` or, in very short runs, at the last step that
        # there is.
        self.first_step = math.floor(begin * self.total_steps)
        self.last_step = max(self.first_step + 1, math.floor(end * self.total_steps) - 1)
        if self.last_step >= self.total_steps:
            self.first_step, self.last_step = self.total_steps - 2, self.total_steps - 1

    def attach(self, model: keras.Model) -> None:
        super().attach(model)
        coarsest = max(gate.block_size for gate in self.gates)
        if coarsest > max(1, 0.001 * self.gated_size):
            warnings.warn(
                f"the model's {self.gated_size} weights are switched in blocks of up to {coarsest}: a "
                f"sparsity of {self.sparsity} is reached only to within {coarsest / self.gated_size:.1%}; a "
                "smaller block_shape is finer",
                stacklevel=3,
            )
        self._worth = [self.add_state("worth", tuple(gate.logits.shape)) for gate in self.gates]
        self._reached = self.add_state("sparsity_reached", ())
        for gate in self.gates:
            gate.samples = False
            gate.closed_weights_learn = True

    def step(self, gate_gradients):
        step = tf.convert_to_tensor(self.steps_done)
        frozen = step > self.last_step
        tf.cond(frozen, lambda: tf.no_op(), lambda: self._learn(gate_gradients))
        # Nothing is closed before the first ranking, and nothing opens again after the last.
        shrinking = (step > self.first_step) & ~frozen
        tf.cond(shrinking, self._shrink_closed_weights, lambda: tf.no_op())
        due = (step >= self.first_step) & ((step - self.last_step) % self.interval == 0) & ~frozen
        tf.cond(due, lambda: self._rank(step), lambda: tf.no_op())
        self.steps_done.assign_add(1)

    def _learn(self, gate_gradients) -> tf.Operation:
        # At logits of +-5 the slope of the sigmoid is one and the same: dL/dz is dL/dG divided by it.
        slope = math.exp(-INITIAL_LOGIT) / (1.0 + math.exp(-INITIAL_LOGIT)) ** 2
        for worth, gradient in zip(self._worth, gate_gradients, strict=True):
            if gradient is not None:
                squared = tf.square(tf.convert_to_tensor(gradient) / slope)
                # A batch whose loss overflows says nothing of the gates, and NaN could not be ranked.
                squared = tf.where(tf.math.is_finite(squared), squared, 0.0)
                worth.assign(self.memory * worth + (1.0 - self.memory) * squared)
        return tf.no_op()

    def _shrink_closed_weights(self) -> tf.Operation:
        for gate, weight in zip(self.gates, self.weights, strict=True):
            if not weight.trainable:
                continue  # it does not learn, so nothing makes it large, and it must not change
            closed = tf.cast(gate.logits < 0.0, tf.float32)
            weight.assign(weight * gate.expand(1.0 - self.closed_decay * closed))
        return tf.no_op()

    def _rank(self, step) -> tf.Operation:
        progress = tf.cast(step - self.first_step, tf.float32) / (self.last_step - self.first_step)
        share = self.sparsity * (1.0 - (1.0 - tf.clip_by_value(progress, 0.0, 1.0)) ** 3)
        closed = tf.cast(tf.round(tf.cast(share, tf.float64) * self.gated_size), tf.int64)
        self.close(keep_masks(self._scores(), [gate.block_size for gate in self.gates], closed))
        self._reached.assign(self.current_sparsity())
        return tf.no_op()

    def _scores(self) -> list[tf.Tensor]:
        scores = []
        for gate, weight, worth in zip(self.gates, self.weights, self._worth, strict=True):
            # Weights that no gradient ever reached (rare words) are all worth nothing: the larger ones go
            # last.
            size = gate.block_sum(tf.square(tf.cast(weight, tf.float32)))
            worth = tf.convert_to_tensor(worth)
            tie_break = size * (1e-6 * tf.reduce_mean(worth) / (tf.reduce_mean(size) + 1e-30))
            scores.append((worth + tie_break) / gate.block_size)
        return scores

    def logs(self):
        return {"sparsity": tf.convert_to_tensor(self._reached)}

    def get_config(self) -> dict:
        return {
            **super().get_config(),
            "total_steps": self.total_steps,
            "begin": self.begin,
            "end": self.end,
            "interval": self.interval,
            "memory": self.memory,
            "closed_decay": self.closed_decay,
        }
