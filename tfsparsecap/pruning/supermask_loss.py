"""Supermask Pruning as in the papers: gates drawn at random, pushed towards a sparsity by a loss."""

import math

import keras
import numpy as np
import tensorflow as tf

from tfsparsecap.errors import InputError
from tfsparsecap.gates import INITIAL_LOGIT
from tfsparsecap.pruning.arguments import as_number
from tfsparsecap.pruning.method import PruningMethod
from tfsparsecap.pruning.registry import register
from tfsparsecap.pruning.selection import keep_masks

#: The papers' own settings by the captioner they were used on: what they give for arguments that are not
#: passed.
PAPER_SETTINGS = {
    "soft_attention": {"gate_learning_rate": 100.0, "clip_value": None},
    "up_down": {"gate_learning_rate": 100.0, "sparsity_weight": 80.0, "clip_value": 0.1},
    "object_relation_transformer": {"gate_learning_rate": 100.0, "sparsity_weight": 120.0, "clip_value": 0.1},
}


@register("supermask_loss")
class SupermaskLoss(PruningMethod):
    """SMP with the papers' sparsity loss.

    Added to the model's loss, for `s` the sparsity of the rounded gates at step `n` (SMP paper, equations
    5 to 7):

        sparsity_weight * alpha(n) * |sparsity - s|,    alpha(n) = 1 - (1 + cos(pi n / total_steps)) / 2

    The gates have an Adam of their own, with a constant learning rate and an epsilon of 1e-2 (with Keras's
    1e-7 it diverges). The sparsity that a run ends at is a balance of the two losses: half a million steps
    reach the target, a thousand do not. `land_at` makes it exact; `Supermask` gets there gradually.

    With `sparsity_weight=0` it is Supermask as Zhou et al. have it: gates learned for the model's loss alone,
    at whatever sparsity they end; `sparsity` is then only what `land_at` cuts at, and without it, or with
    `freeze_at`, there is no `target`.

    Args:
        sparsity: the target, share of the gated weights.
        total_steps: optimizer steps of the training, `n_max`.
        block_shape: (inputs, outputs) weights to a gate.
        gate_learning_rate: of the gates, above 0; "auto" is seven times the least rate that takes a gate from
            its start (or from 1, if that is farther away) to 0 within `total_steps`, the ratio of the papers'
            runs. None is the paper's, else "auto".
        sparsity_weight: `lambda_s`; "auto" is `max(5, 0.5 / (1 - sparsity))`, the papers' for soft attention;
            0 leaves the sparsity loss out. None is the paper's, else "auto".
        initial_logit: of all gates.
        clip_value: largest size of a gate's gradient; None or 0 does not clip, "auto" does as the paper does,
            and without a paper not.
        epsilon: of the gates' Adam, above 0.
        land_at: share of `total_steps` after which the gates are ranked, cut at exactly the sparsity and
            frozen, and the weights are fine-tuned; None never does.
        freeze_at: share of `total_steps` after which the gates, rounded, stay as they are, at whatever
            sparsity there is, and the weights are fine-tuned; None has them learn to the end.
        paper: name of a captioner of the papers (`"soft_attention"`, `"up_down"`,
            `"object_relation_transformer"`): its published settings for the arguments that are not passed.

    Raises:
        InputError: an argument out of range; on pruning, a learning rate that cannot close a gate within
            `total_steps`.

    Reference:
        Tan et al., "End-to-End Supermask Pruning: Learning to Prune Image Captioning Models", section 4;
        without its loss Zhou et al., "Deconstructing Lottery Tickets", https://arxiv.org/abs/1905.01067,
        section 5.

    Example:
        >>> SupermaskLoss(sparsity=0.95, total_steps=530_000, paper="soft_attention").gate_learning_rate
        100.0
    """

    advice = (
        "give land_at=0.75, which makes it exact, a larger sparsity_weight, or more steps; Supermask gets"
        " there in any number of them"
    )

    def __init__(
        self,
        sparsity: float,
        total_steps: int,
        *,
        block_shape=(1, 1),
        gate_learning_rate: float | str | None = None,
        sparsity_weight: float | str | None = None,
        clip_value: float | str | None = "auto",
        epsilon: float = 1e-2,
        initial_logit: float = INITIAL_LOGIT,
        land_at: float | None = None,
        freeze_at: float | None = None,
        paper: str | None = None,
    ):
        super().__init__(sparsity, block_shape=block_shape)
        if total_steps < 1:
            raise InputError(
                f"total_steps must be at least 1, the optimizer steps of the training: got {total_steps!r}"
            )
        if land_at is not None and not 0.0 < land_at < 1.0:
            raise InputError(f"land_at is a share of total_steps between 0 and 1: got {land_at!r}")
        if freeze_at is not None and not 0.0 <= freeze_at < 1.0:
            raise InputError(f"freeze_at is a share of total_steps, 0 to below 1: got {freeze_at!r}")
        if freeze_at is not None and land_at is not None:
            raise InputError("land_at freezes the gates, too: give land_at or freeze_at, not both")
        if paper is not None and paper not in PAPER_SETTINGS:
            raise InputError(f"paper must be one of {sorted(PAPER_SETTINGS)}: got {paper!r}")
        settings = PAPER_SETTINGS.get(paper, {})
        self.total_steps, self.land_at, self.freeze_at = int(total_steps), land_at, freeze_at
        self.epsilon = as_number("epsilon", epsilon)
        if self.epsilon <= 0.0:
            raise InputError(f"epsilon must be above 0: got {epsilon!r}")
        self.initial_logit = as_number("initial_logit", initial_logit)
        if abs(self.initial_logit) > 50.0:
            raise InputError(
                f"initial_logit is {initial_logit!r}, from where no gate would ever move: give one from -50"
                " to 50"
            )
        if gate_learning_rate is None:
            gate_learning_rate = settings.get("gate_learning_rate", "auto")
        self.gate_learning_rate = _number_or_auto("gate_learning_rate", gate_learning_rate)
        if self.gate_learning_rate != "auto" and self.gate_learning_rate <= 0.0:
            raise InputError(
                'gate_learning_rate must be above 0, or "auto" (freeze_at=0 keeps gates still): got'
                f" {gate_learning_rate!r}"
            )
        clip = _number_or_auto("clip_value", 0.0 if clip_value is None else clip_value)
        clip = settings.get("clip_value") or 0.0 if clip == "auto" else clip
        if clip < 0.0:
            raise InputError(f"clip_value must be above 0, or 0, which does not clip: got {clip_value!r}")
        self.clip_value = clip or None
        if sparsity_weight is None:
            sparsity_weight = settings.get("sparsity_weight", "auto")
        weight = _number_or_auto("sparsity_weight", sparsity_weight)
        self.sparsity_weight = max(5.0, 0.5 / (1.0 - self.sparsity)) if weight == "auto" else weight
        if self.sparsity_weight < 0.0:
            raise InputError(f"sparsity_weight must be 0 or more: got {sparsity_weight!r}")

    @property
    def target(self) -> float | None:
        driven = self.sparsity_weight > 0.0 and self.freeze_at is None
        return self.sparsity if driven or self.land_at is not None else None

    def least_learning_rate(self, size: int, way: float | None = None) -> float:
        """The least gate learning rate that takes gates from their start to 0 under the sparsity loss alone.

        Integrates `dG/dn = -rate / epsilon * sparsity_weight * alpha(n) * sigmoid'(G) / size` from the
        start m to 0, alpha being 1/2
        on average: `2 (2 m + e^m - e^-m) * epsilon * size / (sparsity_weight * total_steps)`.

        Args:
            size: how many gates the model has, blocks of equal size assumed.
            way: `m`, how far from 0 they start; None is the size of `initial_logit`.
        """
        way = abs(self.initial_logit) if way is None else way
        integral = 2.0 * way + math.exp(way) - math.exp(-way)
        # Without a sparsity loss the gates are to be as quick as with the papers' smallest.
        return 2.0 * integral * self.epsilon * size / ((self.sparsity_weight or 5.0) * self.total_steps)

    def attach(self, model: keras.Model) -> None:
        super().attach(model)
        # A gate's pull weighs its block: what counts is how many gates there are, not how many weights.
        count = sum(int(np.prod(gate.logits.shape)) for gate in self.gates)
        least = self.least_learning_rate(count)
        rate = self.gate_learning_rate
        if rate == "auto":
            # Gates that start beside 0 have no way to go, and are to move all the same.
            rate = 7.0 * max(least, self.least_learning_rate(count, way=1.0))
        driven = self.sparsity_weight > 0.0 and self.initial_logit > 0.0
        if self.sparsity > 0 and driven and self.land_at is None and rate < least:
            raise InputError(
                f"a gate_learning_rate of {rate:g} cannot close a gate of this model within "
                f"{self.total_steps} steps, so a sparsity of {self.sparsity} is out of reach: at least "
                f'{least:.3g} is needed; pass "auto", or prune with Supermask'
            )
        for gate in self.gates:
            gate.logits.assign(tf.fill(gate.logits.shape, self.initial_logit))
        self._optimizer = keras.optimizers.Adam(
            rate, epsilon=self.epsilon, clipvalue=self.clip_value, name="adam_of_gates"
        )
        self._optimizer.build([gate.logits for gate in self.gates])
        self.variables.extend(self._optimizer.variables)

    def annealing(self, step: tf.Tensor) -> tf.Tensor:
        """`alpha(n)`: 0 at first, 1 from `total_steps` on. float32."""
        share = tf.minimum(tf.cast(step, tf.float32) / self.total_steps, 1.0)
        return 1.0 - (1.0 + tf.cos(math.pi * share)) / 2.0

    def sparsity_loss(self, sparsity: tf.Tensor | None = None) -> tf.Tensor:
        """The term that SMP adds to the model's loss at the current step: float32 scalar.

        Args:
            sparsity: what `current_sparsity` gave, where it is at hand: counting all gates takes its time.
        """
        missing = tf.abs(self.sparsity - (self.current_sparsity() if sparsity is None else sparsity))
        return self.sparsity_weight * self.annealing(tf.convert_to_tensor(self.steps_done)) * missing

    def step(self, gate_gradients):
        step = tf.convert_to_tensor(self.steps_done)
        if self.freeze_at is None:
            self._learn(step, gate_gradients)
        else:
            begin = math.floor(self.freeze_at * self.total_steps)
            tf.cond(step < begin, lambda: self._learn(step, gate_gradients), lambda: tf.no_op())
            tf.cond(tf.equal(step, begin), self._freeze, lambda: tf.no_op())
        if self.land_at is not None:
            landing = step >= math.floor(self.land_at * self.total_steps)
            tf.cond(landing, self._land, lambda: tf.no_op())
        self.steps_done.assign_add(1)

    def _learn(self, step: tf.Tensor, gate_gradients: list[tf.Tensor | None]) -> tf.Operation:
        # The term's gradient is written out rather than traced, so that SMP works in any training loop,
        # compute_loss or not. Optimizers sum gradients over replicas: each adds its part.
        replicas = tf.distribute.get_strategy().num_replicas_in_sync
        pull = (
            self.sparsity_weight
            * self.annealing(step)
            * tf.sign(self.sparsity - self.current_sparsity())
            / replicas
        )
        gradients = []
        for gate, gradient in zip(self.gates, gate_gradients, strict=True):
            probability = tf.sigmoid(tf.convert_to_tensor(gate.logits))
            total = pull * (gate.block_size / self.gated_size) * probability * (1.0 - probability)
            gradients.append(total if gradient is None else total + gradient)
        self._optimizer.apply(gradients, [gate.logits for gate in self.gates])
        return tf.no_op()

    def _freeze(self) -> tf.Operation:
        return self._fix([tf.convert_to_tensor(gate.logits) > 0.0 for gate in self.gates])

    def _land(self) -> tf.Operation:
        """Cuts at exactly the sparsity and freezes."""
        scores = [
            tf.exp(tf.clip_by_value(tf.convert_to_tensor(gate.logits), -60.0, 60.0)) for gate in self.gates
        ]
        closed = tf.constant(round(self.sparsity * self.gated_size), tf.int64)
        return self._fix(keep_masks(scores, [gate.block_size for gate in self.gates], closed))

    def _fix(self, keep: list[tf.Tensor]) -> tf.Operation:
        """Sets logits that always draw the same and have no gradient."""
        for gate, kept in zip(self.gates, keep, strict=True):
            gate.logits.assign(tf.where(kept, 100.0, -100.0))
        return tf.no_op()

    def logs(self):
        sparsity = self.current_sparsity()
        # Summed up in double precision: single precision loses count at millions of gates.
        opened = [
            gate.block_size * tf.reduce_sum(tf.cast(tf.sigmoid(gate.logits), tf.float64))
            for gate in self.gates
        ]
        mean = tf.cast(tf.add_n(opened) / self.gated_size, tf.float32)
        return {"sparsity": sparsity, "sparsity_loss": self.sparsity_loss(sparsity), "mean_gate": mean}

    def get_config(self) -> dict:
        return {
            **super().get_config(),
            "total_steps": self.total_steps,
            "gate_learning_rate": self.gate_learning_rate,
            "sparsity_weight": self.sparsity_weight,
            "clip_value": self.clip_value,
            "epsilon": self.epsilon,
            "initial_logit": self.initial_logit,
            "land_at": self.land_at,
            "freeze_at": self.freeze_at,
        }


def _number_or_auto(name: str, value: float | str) -> float | str:
    if value == "auto":
        return value
    try:
        return as_number(name, value)
    except InputError:
        raise InputError(f'{name} must be a number or "auto": got {value!r}') from None
