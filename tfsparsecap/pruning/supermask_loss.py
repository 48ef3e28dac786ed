"""Supermask Pruning as in the papers: a loss drives randomly sampled gates to a sparsity."""

import itertools
import math
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tfsparsecap.core import keras_internals
from tfsparsecap.errors import InputError, check_number, unknown_name
from tfsparsecap.gates import INITIAL_LOGIT
from tfsparsecap.pruning.method import PruningMethod
from tfsparsecap.pruning.optimizer import run_if
from tfsparsecap.pruning.registry import register
from tfsparsecap.pruning.schedule import Schedule, step_at

#: The papers' settings by captioner, for arguments that are not passed. The learning rate of the gates is in
#: section 5.1 of the SMP paper. The clipping, and the weight with a pruned encoder (Figure 5, Table 4), which
#: the paper does not mention, are in its authors' code.
PAPER_SETTINGS: dict[str, dict[str, float | None]] = {
    "soft_attention": {"gate_learning_rate": 100.0, "clip_value": None},
    "soft_attention_with_encoder": {"gate_learning_rate": 100.0, "clip_value": None},
    "up_down": {"gate_learning_rate": 100.0, "clip_value": 0.1},
    "object_relation_transformer": {"gate_learning_rate": 100.0, "clip_value": 0.1},
}
# Weights of the sparsity loss by sparsity: caption of the SMP paper's Figure 4. It says "from 80 %", but the
# figure begins at 95 %, and so do the authors' scripts.
_FIGURE_4 = {
    "up_down": {0.95: 80.0, 0.975: 80.0, 0.9875: 80.0, 0.991: 120.0},
    "object_relation_transformer": {0.95: 120.0, 0.975: 120.0, 0.9875: 80.0, 0.991: 120.0},
}


def paper_sparsity_weight(paper: str | None, sparsity: float) -> float:
    """The papers' weight of the sparsity loss, `lambda_s`.

    Args:
        paper: one of `PAPER_SETTINGS`; None is the rule for Soft-Attention.
        sparsity: target; Up-Down and Object Relation Transformer use the nearest of the published ones.

    Examples:
        >>> paper_sparsity_weight("up_down", 0.991), paper_sparsity_weight("soft_attention", 0.8)
        (120.0, 5.0)
    """
    if paper in _FIGURE_4:
        published = _FIGURE_4[paper]
        return published[min(published, key=lambda other: abs(other - sparsity))]
    # SMP paper, Figure 3; RNN-SMP, section 4.1.
    return max(5.0, (1.5 if paper == "soft_attention_with_encoder" else 0.5) / (1.0 - sparsity))


@register("supermask_loss")
class SupermaskLoss(PruningMethod):
    """SMP with the papers' sparsity loss.

    The method adds this loss to the model's, where `s` is the sparsity of the rounded gates at step `n` (SMP
    paper, equations 5 to 7 and 9):

        sparsity_weight * alpha(n) * |sparsity - s|,    alpha(n) = 1 - (1 + cos(pi n / total_steps)) / 2

    A separate Adam optimizer trains the gates, with a constant learning rate and an epsilon of 1e-2 (with
    Keras's 1e-7 it diverges). The final sparsity is a balance of the two losses: with too small a
    `sparsity_weight` it stays below the target (RNN-SMP, Table 2). A schedule with `end` makes it exact;
    `Supermask` reaches it in any number of steps.

    With `sparsity_weight=0`, gates learn from the model's loss alone, and `sparsity` is used only at `end`,
    if `exact`. With frozen layers and `prune(…, prune_frozen=True)` that is the supermask of Zhou et al., in
    which only gates learn.

    Args:
        sparsity: target share of the gated weights to remove.
        total_steps: optimizer steps of the training, `n_max`. In further steps (fine-tuning) the gates are
            still sampled, but do not change.
        block_shape: (inputs, outputs) weights per gate.
        schedule: only `end` is used: there the gates are frozen, and afterwards only the weights are trained.
            By default the gates learn to the end of the training, as in the papers. 0 never trains them.
        exact: whether exactly `sparsity` of the weights are removed at `end`, by closing the gates with the
            smallest logits; False freezes the rounded gates at their current sparsity.
        gate_learning_rate: above 0; "auto" is seven times the smallest rate that takes a gate from its
            initial logit (or from 1, if that is farther away) to 0 within `total_steps`: the ratio of the
            papers' 100 up to 90 % zeros (at 95 and 97.5 % it is 14 and 28, because their `sparsity_weight` is
            larger). None uses the paper's value if `paper` is given, else "auto".
        sparsity_weight: `lambda_s`; "auto" is `max(5, 0.5 / (1 - sparsity))`, the papers' value for soft
            attention; 0 disables the sparsity loss. None uses the value of `paper` for this sparsity, else
            "auto".
        initial_logit: initial value of all gates.
        clip_value: largest absolute gradient of a gate; None or 0 does not clip, "auto" uses the paper's
            value, and does not clip without `paper`.
        epsilon: epsilon of the gates' Adam, above 0.
        paper: a captioner of the papers (`"soft_attention"`, `"soft_attention_with_encoder"` if its encoder
            is pruned too, `"up_down"`, `"object_relation_transformer"`), whose published settings are used
            for arguments that are not passed.

    Raises:
        InputError: an argument out of range; in `prune`, a learning rate that cannot close a gate within
            `total_steps`.

    Reference:
        Tan et al., "End-to-End Supermask Pruning: Learning to Prune Image Captioning Models", sections 4 and
        5.1, https://arxiv.org/abs/2110.03298; before it "Image Captioning with Sparse Recurrent Neural
        Network", section 4.1, https://arxiv.org/abs/1908.10797, whose equation 11 has the share of open gates
        in the place of the sparsity `s`. Without the sparsity loss: Zhou et al.,
        "Deconstructing Lottery Tickets", section 5, https://arxiv.org/abs/1905.01067.

    Examples:
        >>> SupermaskLoss(sparsity=0.95, total_steps=530_000, paper="soft_attention").gate_learning_rate
        100.0
    """

    advice = (
        "give a larger sparsity_weight, or schedule=Schedule(end=0.75), which makes it exact; or use"
        " Supermask, which reaches it in any number of steps"
    )
    supports_encoder_schemes = True
    schedule_options = ("end",)
    total_steps: int

    def __init__(
        self,
        sparsity: float,
        total_steps: int,
        *,
        block_shape: Sequence[int] = (1, 1),
        schedule: Schedule | None = None,
        exact: bool = True,
        gate_learning_rate: float | str | None = None,
        sparsity_weight: float | str | None = None,
        clip_value: float | str | None = "auto",
        epsilon: float = 1e-2,
        initial_logit: float = INITIAL_LOGIT,
        paper: str | None = None,
    ) -> None:
        super().__init__(sparsity, total_steps, block_shape=block_shape, schedule=schedule)
        if paper is not None and paper not in PAPER_SETTINGS:
            raise unknown_name("paper", paper, PAPER_SETTINGS)
        self.exact, self.paper = exact, paper
        end = self.schedule.end
        if exact and end == 0.0:
            raise InputError("end is 0, before the gates have learned: give a larger end, or exact=False")
        #: The last step that trains the gates; -1 never trains them, None trains them for all `total_steps`.
        self.last_step = None if end is None else step_at(end, self.total_steps) - 1
        if exact and self.last_step is not None:
            self.last_step = max(self.last_step, 0)
        self.epsilon = check_number("epsilon", epsilon, above=0)
        # Beyond 50, no gate would ever move.
        self.initial_logit = check_number("initial_logit", initial_logit, at_least=-50, at_most=50)
        settings = PAPER_SETTINGS[paper] if paper is not None else {}
        if gate_learning_rate is None:
            gate_learning_rate = settings.get("gate_learning_rate", "auto")
        if gate_learning_rate != "auto":
            gate_learning_rate = check_number("gate_learning_rate", gate_learning_rate, above=0)
        self.gate_learning_rate = gate_learning_rate
        if clip_value == "auto":
            clip_value = settings.get("clip_value")
        self.clip_value = check_number("clip_value", clip_value or 0, at_least=0) or None
        if sparsity_weight is None or sparsity_weight == "auto":
            rule = paper if sparsity_weight is None else None
            sparsity_weight = paper_sparsity_weight(rule, self.sparsity)
        self.sparsity_weight = check_number("sparsity_weight", sparsity_weight, at_least=0)

    @property
    def _cuts(self) -> bool:
        return self.exact and self.last_step is not None

    @property
    def target(self) -> float | None:
        driven = self.sparsity_weight > 0.0 and self.last_step is None
        return self.sparsity if driven or self._cuts else None

    @property
    def complete_after(self) -> int | None:
        return self.last_step + 1 if self._cuts and self.last_step is not None else None

    def least_learning_rate(self, size: int, distance: float | None = None) -> float:
        """The smallest gate learning rate with which the sparsity loss alone takes gates to 0.

        Integrates `dG/dn = -rate / epsilon * sparsity_weight * alpha(n) * sigmoid'(G) / size` from the start
        `m`, with alpha = 1/2 on average: `2 (2 m + e^m - e^-m) * epsilon * size / (sparsity_weight *
        total_steps)`.

        Args:
            size: number of gates in the model, if all blocks have the same size.
            distance: `m`, the initial distance from 0; None is the absolute value of `initial_logit`.
        """
        distance = abs(self.initial_logit) if distance is None else distance
        integral = 2.0 * distance + math.exp(distance) - math.exp(-distance)
        # Without a sparsity loss the gates learn as fast as with the papers' smallest weight.
        return 2.0 * integral * self.epsilon * size / ((self.sparsity_weight or 5.0) * self.total_steps)

    def attach(self, model: keras.Model) -> None:
        super().attach(model)
        # The sparsity loss weights each gate by its block size, so the number of gates matters, not of
        # weights.
        count = sum(int(np.prod(gate.logits.shape)) for gate in self.gates)
        least = self.least_learning_rate(count)
        rate: Any = self.gate_learning_rate
        if rate == "auto":
            # Gates that start near 0 must be able to move too.
            rate = 7.0 * max(least, self.least_learning_rate(count, distance=1.0))
        driven = self.sparsity_weight > 0.0 and self.initial_logit > 0.0
        if self.sparsity > 0 and driven and not self._cuts and rate < least:
            raise InputError(
                f"a gate_learning_rate of {rate:g} cannot close a gate of this model within"
                f" {self.total_steps} steps, so a sparsity of {self.sparsity} cannot be reached: give at"
                f' least {least:.3g}, or "auto", or prune with Supermask'
            )
        for gate in self.gates:
            gate.logits.assign(tf.fill(gate.logits.shape, self.initial_logit))
        self._optimizer = keras.optimizers.Adam(
            rate, epsilon=self.epsilon, clipvalue=self.clip_value, name="adam_of_gates"
        )
        self._optimizer.build([gate.logits for gate in self.gates])
        keras_internals.take_complete_gradients(self._optimizer)
        self.variables.extend(self._optimizer.variables)
        if self.last_step == -1:
            self._freeze()

    def annealing(self, step: tf.Tensor) -> tf.Tensor:
        """`alpha(n)`: 0 at the start, 1 from `total_steps` on. float32."""
        share = tf.minimum(tf.cast(step, tf.float32) / self.total_steps, 1.0)
        return 1.0 - (1.0 + tf.cos(math.pi * share)) / 2.0

    def sparsity_loss(self, sparsity: tf.Tensor | None = None) -> tf.Tensor:
        """The loss that SMP adds to the model's at the current step: float32 scalar.

        Args:
            sparsity: the result of `moving_sparsity`, if already computed: counting takes time.
        """
        missing = tf.abs(self.sparsity - (self.moving_sparsity() if sparsity is None else sparsity))
        return self.sparsity_weight * self.annealing(tf.convert_to_tensor(self.steps_done)) * missing

    def step(self, gate_gradients: list[tf.Tensor | None]) -> None:
        step = tf.convert_to_tensor(self.steps_done)
        # Not inside a tf.cond, because optimizers wait for other replicas.
        if self.last_step != -1:
            self._learn(step, gate_gradients)
        if self.last_step is None:
            run_if(tf.equal(step, self.total_steps - 1), self._stop)
        else:
            run_if(tf.equal(step, self.last_step), self._freeze)
        self.steps_done.assign_add(1)

    def _learn(self, step: tf.Tensor, gate_gradients: list[tf.Tensor | None]) -> None:
        # The gradient of the sparsity loss is computed by hand, so that SMP works in any training loop.
        missing = tf.sign(self.sparsity - self.moving_sparsity())
        pull = self.sparsity_weight * self.annealing(step) * missing
        learns = step < self.total_steps if self.last_step is None else step <= self.last_step
        gradients, moves, size = [], self.moves, self.moving_size
        for gate, gradient in itertools.compress(zip(self.gates, gate_gradients, strict=True), moves):
            probability = tf.sigmoid(tf.convert_to_tensor(gate.logits))
            total = pull * (gate.block_size / size) * probability * (1.0 - probability)
            total = total if gradient is None else total + gradient
            gradients.append(tf.where(learns, total, 0.0))
        if gradients:
            self._optimizer.apply(gradients, [gate.logits for gate in self.moving_gates])

    def _freeze(self) -> None:
        """Sets logits to values that always give the same sample and have no gradient."""
        if self.exact:
            scores = [
                tf.exp(tf.clip_by_value(tf.convert_to_tensor(gate.logits), -60.0, 60.0))
                for gate in self.gates
            ]
            self.close_lowest(scores, round(self.sparsity * self.moving_size))
        for gate in self.gates:
            gate.logits.assign(tf.where(gate.logits > 0.0, 100.0, -100.0))
        self._stop()

    def _stop(self) -> None:
        """Clears the optimizer's moments, which would otherwise keep moving the gates."""
        for variable in self._optimizer.variables:
            if len(variable.shape) == 2:
                variable.assign(tf.zeros(variable.shape))

    def logs(self) -> dict[str, tf.Tensor]:
        """The values of the SMP paper's Figure 7: the mean gating variable, and the sparsity loss without its
        weight and annealing, and with them.
        """
        sparsity = self.current_sparsity()
        moving = sparsity if all(self.moves) else self.moving_sparsity()
        # In double precision: float32 sums of millions of gates are inexact.
        sums = [gate.block_size * tf.reduce_sum(tf.cast(gate.logits, tf.float64)) for gate in self.gates]
        return {
            "sparsity": sparsity,
            "sparsity_loss": tf.abs(self.sparsity - moving),
            "weighted_sparsity_loss": self.sparsity_loss(moving),
            "gating_average": tf.cast(tf.add_n(sums) / self.gated_size, tf.float32),
        }
