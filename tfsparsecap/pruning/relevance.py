"""Relevance-based pruning: irrelevant weights shrink, and are removed while a score is high enough.

`L1Pruning` and `L2Pruning` (`l1_l2.py`) differ from `Relevance` only in how weights shrink.
"""

import math
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tfsparsecap.errors import InputError, check_number, check_whole, unknown_name
from tfsparsecap.gates import weights_except_gates
from tfsparsecap.pruning.feedback import ValidationDriven
from tfsparsecap.pruning.fixed_mask import FixedMask
from tfsparsecap.pruning.optimizer import run_if
from tfsparsecap.pruning.registry import register

MODES = ("auto", "max", "min")
# A metric with one of these words in its name is better if lower.
_ERRORS = {
    "loss", "error", "mse", "mae", "rmse", "mape", "msle", "crossentropy", "perplexity", "nll", "ctc",
    "divergence", "kld", "hinge", "poisson", "logcosh", "cosh", "huber",
}  # fmt: skip
_PRUNING, _FINE_TUNING, _FINISHED = 0, 1, 2


@register("relevance")
class Relevance(ValidationDriven, FixedMask):
    """Shrinks weights with small loss gradients, and removes the smallest as long as a metric is good enough.

    A weight is irrelevant if the loss hardly changes with it: `I = exp(-|gradient_scale * dL/dw|)`, from 0 to
    1 (equation 4, which has no scale). The loss gets the term `weight_decay * sum(I * w^2)`, with the paper's
    lambda as `weight_decay` (equation 5). As in equation 7, its gradient is `2 * weight_decay * I * w`,
    without second derivatives. It passes through the optimizer together with that of the loss, so that
    plain gradient descent with the learning rate `eta` computes

        w <- w - eta * dL/dw - 2 * eta * weight_decay * I * w

    With `decoupled=True` the weights shrink beside the optimizer instead, as in AdamW, by `weight_decay * I *
    w` at each step, whatever the learning rate. Only gated weights shrink. If gradients are small compared to
    1, which is usual for a mean loss and many weights, `I` is close to 1 everywhere and the method is
    `L2Pruning`: give a `gradient_scale`, such as the number of examples or words that the loss is a mean of.

    After each validation in which the metric meets `lower_bound`, the smallest `pruning_percentage` of the
    remaining weights (at least one block), over all layers together, are removed in the first step of the
    next epoch, so that training ends with a validated model. If the metric misses the bound, nothing is
    removed. Each time weights are removed, the weight decay is reset to `weight_decay` (the paper does not
    say when it begins again). From there it decays exponentially, by the factor `decay` over as many steps as
    there were between the last two validations; before the first validation it is constant.

    After `patience` consecutive misses, or once the bound is met at `sparsity`, weights and masks are
    restored to the sparsest state that met it, weights stop shrinking, and the rest of the training is
    fine-tuning. `strip_pruning` restores its best state, the last one of equal ones. Before the bound is met
    for the first time, a miss counts only if the metric did not improve, so that a model may start from
    random weights. If the bound is never met, the training ends with a warning and a dense model.

    `fit` of a pruned model passes the scores to the method; a custom loop calls `on_validation_end`, which
    returns True when training should stop. The best state is kept in variables, which take as much memory as
    the model's weights.

    Args:
        sparsity: the largest share of the gated weights to remove; the result may be less.
        total_steps: not used.
        block_shape: (inputs, outputs) of a block; blocks are ranked by the mean magnitude of their weights,
            but each weight shrinks separately.
        lower_bound: the worst value of the metric that is good enough; with `mode="min"` an upper bound.
        metric: name of the metric in an epoch's logs: `"val_accuracy"` in `fit`, `"validation_CIDEr"` in this
            package's training command.
        mode: `"max"` if higher is better, `"min"` if lower is better; `"auto"` decides by the name: lower is
            better for losses and errors.
        pruning_percentage: share of the remaining weights to remove at a time, such as 0.1.
        weight_decay: its value after each reset, 0 to below 1; None is the class's default.
        decoupled: the weights shrink beside the optimizer, not by a term of the loss. At each step a weight
            loses `weight_decay` (`L1Pruning`) or this share of itself (the others).
        gradient_scale: factor of the gradient in `I`, above 0; `L1Pruning` and `L2Pruning` do not use it.
        decay: factor of the weight decay over the steps between two validations, above 0 and at most 1.
        patience: consecutive validations that may miss the bound.
        finetune_validations: number of validations during fine-tuning, after which training stops; None
            fine-tunes to the end of the training.

    Raises:
        InputError: an argument out of range; in `prune`, blocks too coarse to remove even one.

    Reference:
        Bonetta, Ribero and Cancelliere, "Regularization-based Pruning of Irrelevant Weights in Deep Neural
        Architectures", sections 3 and 4, https://arxiv.org/abs/2204.04977. The paper uses a
        `pruning_percentage` of 0.01, 0.04 or 0.1 and validates every 25 to 6000 steps (Table 1, sections 6.2
        and 6.3); it gives no values for `decay`, `patience` and `finetune_validations`.

    Examples:
        >>> import tfsparsecap as sc
        >>> layers = [keras.Input((8,)), keras.layers.Dense(64, "relu"), keras.layers.Dense(2)]
        >>> model = sc.prune(keras.Sequential(layers), Relevance(lower_bound=0.5, metric="val_loss"))
        >>> model.compile("adam", "mse")
        >>> x, y = tf.random.normal([64, 8]), tf.zeros([64, 2])
        >>> history = model.fit(x, y, validation_data=(x, y), epochs=3, verbose=0)
    """

    #: Default of `weight_decay`.
    default_weight_decay = 1e-4

    def __init__(
        self,
        sparsity: float = 0.99,
        total_steps: int | None = None,
        *,
        block_shape: Sequence[int] = (1, 1),
        lower_bound: float,
        metric: str,
        mode: str = "auto",
        pruning_percentage: float = 0.1,
        weight_decay: float | None = None,
        decoupled: bool = False,
        gradient_scale: float = 1.0,
        decay: float = 0.5,
        patience: int = 5,
        finetune_validations: int | None = 10,
    ) -> None:
        super().__init__(sparsity, total_steps, block_shape=block_shape)
        if mode not in MODES:
            raise unknown_name("mode", mode, MODES)
        self.metric, self.mode = metric, mode
        self.lower_bound = check_number("lower_bound", lower_bound)
        self.pruning_percentage = check_number("pruning_percentage", pruning_percentage, above=0, below=1)
        weight_decay = self.default_weight_decay if weight_decay is None else weight_decay
        self.weight_decay = check_number("weight_decay", weight_decay, at_least=0, below=1)
        if not isinstance(decoupled, bool):
            raise InputError(f"decoupled is {decoupled!r}: give True or False")
        self.decoupled = decoupled
        self.gradient_scale = check_number("gradient_scale", gradient_scale, above=0)
        self.decay = check_number("decay", decay, above=0, at_most=1)
        self.patience = check_whole("patience", patience, at_least=1)
        if finetune_validations is not None:
            check_whole("finetune_validations", finetune_validations, at_least=1)
        self.finetune_validations = finetune_validations
        if not isinstance(metric, str):
            raise InputError(
                f"metric is {metric!r}: give the name of a validation metric, such as 'val_loss'"
            )
        words = set(metric.lower().replace("-", "_").split("_"))
        #: 1 if higher values of the metric are better, else -1.
        self.sign = -1.0 if mode == "min" or (mode == "auto" and words & _ERRORS) else 1.0

    def attach(self, model: keras.Model) -> None:
        super().attach(model)
        self._all_weights = weights_except_gates(model)
        self._best_values = [
            self.add_state("best", tuple(weight.shape), weight.dtype) for weight in self._all_weights
        ]
        self._best_masks = [
            self.add_state("best_mask", tuple(gate.logits.shape), "bool") for gate in self.gates
        ]
        self._phase = self.add_state("phase", (), "int32", _PRUNING)
        self._misses = self.add_state("misses", (), "int32")
        self._tuned = self.add_state("fine_tuned", (), "int32")
        #: Number of weights that are closed after the next step; 0 closes nothing.
        self._due = self.add_state("due", (), "int64")
        self._pruned_at = self.add_state("pruned_at", (), "int64")
        self._validated_at = self.add_state("validated_at", (), "int64")
        self._interval = self.add_state("interval", (), "int64")
        #: Sparsity of the best state (-1 if none met the bound), and its metric times `sign`.
        self._best_sparsity = self.add_state("best_sparsity", (), value=-1.0)
        self._best_score = self.add_state("best_score", (), value=-math.inf)

    def _check_reachable(self) -> None:
        """The sparsity is only a limit, but at least one block must be removable."""
        if self.gates and self.sparsity and not self._next_closed(0):
            raise InputError(
                f"the {self.gated_size} weights are pruned in blocks of up to"
                f" {max(gate.block_size for gate in self.gates)}, and not even one can be removed at a"
                f" sparsity of at most {self.sparsity}: give a smaller block_shape, or a higher sparsity"
            )

    def irrelevance(self, gradient: tf.Tensor) -> tf.Tensor:
        """Equation 4: from 0 (relevant) to 1, of the shape and dtype of the gradient of the loss."""
        return tf.exp(-tf.abs(self.gradient_scale * gradient))

    def loss_gradient(self, weight: tf.Tensor, gradient: tf.Tensor, strength: tf.Tensor) -> tf.Tensor:
        """Returns the gradient of the term of the loss.

        Args:
            weight: any float dtype.
            gradient: of the loss without this term, of the shape and dtype of `weight`.
            strength: the weight decay, a scalar of their dtype.
        """
        return 2.0 * strength * self.irrelevance(gradient) * weight

    def shrink(self, weight: tf.Tensor, gradient: tf.Tensor, strength: tf.Tensor) -> tf.Tensor:
        """Returns a weight after one step of decoupled shrinking; arguments as of `loss_gradient`."""
        return weight - strength * self.irrelevance(gradient) * weight

    def current_weight_decay(self) -> tf.Tensor:
        """The weight decay of the current step: float32 scalar."""
        steps = tf.cast(tf.convert_to_tensor(self.steps_done) - self._pruned_at, tf.float32)
        interval = tf.cast(tf.convert_to_tensor(self._interval), tf.float32)
        strength = self.weight_decay * tf.pow(self.decay, tf.math.divide_no_nan(steps, interval))
        return tf.where(tf.equal(tf.convert_to_tensor(self._phase), _PRUNING), strength, 0.0)

    def before_optimizer_step(self, gradients: Sequence[tf.Tensor | None]) -> list[tf.Tensor | None]:
        strength = self.current_weight_decay()
        terms: list[tf.Tensor | None] = [None] * len(self.weights)
        for number, (weight, gradient) in enumerate(zip(self.weights, gradients, strict=True)):
            if gradient is not None:
                value = tf.convert_to_tensor(weight)
                gradient, rate = (tf.cast(tensor, value.dtype) for tensor in (gradient, strength))
                if self.decoupled:
                    weight.assign(self.shrink(value, gradient, rate))
                else:
                    terms[number] = self.loss_gradient(value, gradient, rate)
        return terms

    def step(self, gate_gradients: list[tf.Tensor | None]) -> None:
        super().step(gate_gradients)
        run_if(tf.convert_to_tensor(self._due) > 0, self._prune)

    def _prune(self) -> None:
        self.close_lowest(self.below_open(self.magnitudes()), tf.convert_to_tensor(self._due))
        self._due.assign(0)
        self._pruned_at.assign(self.steps_done)

    @property
    def target(self) -> float | None:
        """The sparsity of the best state; None while no state has met the bound."""
        return _value(self._best_sparsity) if self._was_met() else None

    @property
    def finished(self) -> bool:
        """Whether fine-tuning is over, or the bound was never met."""
        return bool(_value(self._phase) == _FINISHED)

    def on_validation_end(self, logs: Mapping[str, float]) -> bool:
        self.changed_weights = False
        if self.finished or self.metric not in logs:
            return False
        score = self.sign * float(logs[self.metric])
        met = score >= self.sign * self.lower_bound
        score = float(np.float32(score))  # as the best one is kept
        if _value(self._phase) == _FINE_TUNING:
            return self._on_fine_tuning_validation(score, met)
        self._measure_interval()
        if met:
            self._misses.assign(0)
            self._record_best(score)
            self._due.assign(self._next_closed(self.moving_size - self._opened()))
            if not _value(self._due):
                self._phase.assign(_FINE_TUNING)
            return False
        if not self._was_met() and score > _value(self._best_score):
            self._best_score.assign(score)
            self._misses.assign(0)
            return False
        self._misses.assign_add(1)
        if _value(self._misses) < self.patience:
            return False
        if not self._was_met():
            self._phase.assign(_FINISHED)
            warnings.warn(self._never_met(), stacklevel=2)
            return True
        self._restore_best()
        self._phase.assign(_FINE_TUNING)
        if not _value(self._best_sparsity):
            warnings.warn(
                f"{self.metric} missed {self.lower_bound:g} as soon as weights were removed, so the model is"
                " dense: set another lower_bound, a smaller pruning_percentage or weight_decay, or a larger"
                " patience",
                stacklevel=2,
            )
        return False

    def _on_fine_tuning_validation(self, score: float, met: bool) -> bool:
        best = met and score >= _value(self._best_score)
        self._misses.assign(0 if best else 1)
        if best:
            self._record_best(score)
        self._tuned.assign_add(1)
        if self.finetune_validations is None or _value(self._tuned) < self.finetune_validations:
            return False
        if not best:
            self._restore_best()
        self._phase.assign(_FINISHED)
        return True

    def _measure_interval(self) -> None:
        steps = _value(self.steps_done)
        if steps > _value(self._validated_at):
            self._interval.assign(steps - _value(self._validated_at))
            self._validated_at.assign(steps)

    def _opened(self) -> int:
        return sum(int(gate.open_count()) for gate in self.moving_gates)

    def _next_closed(self, closed: int) -> int:
        """Number of closed weights after the next pruning, `closed` before; 0 if none can be removed."""
        size = self.moving_size
        cap = math.floor(self.sparsity * size + 1e-6)
        block = max((gate.block_size for gate in self.moving_gates), default=1)
        # Less than a block would remove nothing.
        more = max(block, round(self.pruning_percentage * (size - closed)))
        return min(closed + more, cap) if cap - closed >= block else 0

    def _was_met(self) -> bool:
        return bool(_value(self._best_sparsity) >= 0.0)

    def _record_best(self, score: float) -> None:
        for best, weight in zip(self._best_values, self._all_weights, strict=True):
            best.assign(weight)
        for best, gate in zip(self._best_masks, self.gates, strict=True):
            best.assign(gate.logits > 0.0)
        self._best_sparsity.assign(self.current_sparsity())
        self._best_score.assign(score)

    def _restore_best(self) -> None:
        self.changed_weights = True
        for best, weight in zip(self._best_values, self._all_weights, strict=True):
            weight.assign(best)
        self.close([tf.convert_to_tensor(mask) for mask in self._best_masks])
        self._misses.assign(0)
        self._due.assign(0)

    def finalize(self) -> str | None:
        phase, steps = _value(self._phase), _value(self.steps_done)
        sparsity, best = float(self.current_sparsity()), _value(self._best_sparsity)
        if steps and sparsity < best - 1e-6:
            self._restore_best()
            return (
                f"weights of an earlier epoch were restored (restore_best_weights), with a sparsity of"
                f" {sparsity:.1%}: the model has again the sparsest state in which {self.metric} met"
                f" {self.lower_bound:g}, with {best:.1%}"
            )
        if phase == _FINISHED or steps == 0:
            return None
        if not self._was_met():
            return self._never_met()
        unknown = phase == _PRUNING and steps > _value(self._validated_at)
        if not unknown and not _value(self._misses):
            return None
        self._restore_best()
        if phase == _FINE_TUNING:
            return None
        return (
            f"at the end of the training {self.metric} missed {self.lower_bound:g} or was not known: the"
            " model is restored to the last state that met it, with a sparsity of"
            f" {_value(self._best_sparsity):.1%}"
        )

    def _never_met(self) -> str:
        best = self.sign * _value(self._best_score)
        if not math.isfinite(best):
            return (
                f"nothing was pruned, because no validation reported {self.metric}: give fit validation data,"
                " or call model.pruning.on_validation_end(logs) after each validation"
            )
        return (
            f"{self.metric} never met {self.lower_bound:g} (the best was {best:.4g}), so nothing was pruned:"
            " set another lower_bound, a smaller weight_decay, or train the model before pruning it"
        )


def _value(variable: keras.Variable) -> Any:
    """Returns the value of a scalar variable, which may have a copy on each device."""
    return tf.convert_to_tensor(variable).numpy().item()
