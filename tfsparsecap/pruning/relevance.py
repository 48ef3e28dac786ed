"""Relevance-based pruning: weights that the loss does not feel shrink, and go while a score is good enough.

`L1Pruning` and `L2Pruning` (`l1_l2.py`) differ from it in how weights shrink, and in nothing else.
"""

import difflib
import math
import warnings
from collections.abc import Iterable

import keras
import tensorflow as tf

from tfsparsecap.errors import InputError
from tfsparsecap.gates import gates
from tfsparsecap.pruning.fixed_mask import FixedMask
from tfsparsecap.pruning.registry import register
from tfsparsecap.pruning.selection import keep_masks

MODES = ("auto", "max", "min")
# A metric with one of these words in its name is better where it is lower.
_ERRORS = {"loss", "error", "mse", "mae", "rmse", "mape", "crossentropy", "perplexity"}
_PRUNING, _FINE_TUNING, _FINISHED = 0, 1, 2


@register("relevance")
class Relevance(FixedMask):
    """Shrinks irrelevant weights while it trains, and prunes the smallest as long as a metric allows it.

    A weight is irrelevant where the loss hardly changes with it: `I = exp(-|dL/dw|)`, from 0 to 1. In place
    of weight decay each step takes, with the learning rate `eta` (equation 7),

        w <- w - eta * dL/dw - lambda * I * w

    for any optimizer in place of `eta * dL/dw`; `lambda` is a rate of its own, not multiplied by `eta`. Only
    weights with gates shrink. Where gradients are small against 1, as those of a mean loss over many weights
    are, `I` is close to 1 and the method close to `L2Pruning`.

    After each validation in which the metric meets `lower_bound`, the smallest `pruning_percentage` of the
    weights that are left, at least a block of them, go, all layers taken together, with the first step of the
    epoch that follows, so that a training ends with a model that was validated as it is. Where the bound is
    missed nothing goes and the training goes on. `lambda` starts anew at `weight_decay` each time weights go,
    and falls exponentially from there, to `decay` of it over as many steps as there were between the last two
    validations; until the first validation it stays as it is.

    After `patience` validations in a row that miss the bound, or once it is met at `sparsity`, weights and
    mask become those of the sparsest state that met it, nothing shrinks any more, and the rest of the
    training is fine-tuning, which is undone where it ends with a miss. Misses before the bound is met for the
    first time count only where the metric is no better than it ever was, so that a model may learn from
    random weights first. A bound that is out of reach ends the training with a warning, and a dense model.

    `fit` of a pruned model reports the scores to the method; a custom loop calls `on_validation_end`, which
    returns True once, when to stop. The best state is kept in variables, which take as much memory again as
    the model's weights.

    Args:
        sparsity: the most that may go, as a share of the gated weights; what is reached may be less.
        total_steps: not used.
        block_shape: (inputs, outputs) of a block; blocks go by the mean size of their weights, and single
            weights shrink.
        lower_bound: the metric's value that is still good enough; with `mode="min"` it is an upper bound.
        metric: its name among the logs of an epoch: `"val_accuracy"` in `fit`, `"validation_CIDEr"` in this
            package's trainings.
        mode: `"max"` where higher is better, `"min"` where lower is; `"auto"` goes by the name: losses and
            errors are better when low.
        pruning_percentage: of the weights that are left, what goes at a time, as a share: 10 % is 0.1.
        weight_decay: `lambda` when it starts anew, 0 to below 1; None is the class's own. For `L1Pruning` it
            is what a weight loses at each step, for the others the share of itself.
        decay: what is left of `lambda` after as many steps as lie between two validations, above 0, to 1.
        patience: validations in a row that may miss the bound.
        finetune_validations: how many the fine-tuning has, after which the training stops; None goes on as
            long as the training does.

    Raises:
        InputError: an argument out of range; on pruning, blocks of which not one may go.

    Reference:
        Bonetta, Ribero and Cancelliere, "Regularization-based Pruning of Irrelevant Weights in Deep Neural
        Architectures", equation 7, https://arxiv.org/abs/2204.04977.

    Example:
        >>> import tfsparsecap as sc
        >>> layers = [keras.Input((8,)), keras.layers.Dense(64, "relu"), keras.layers.Dense(2)]
        >>> model = sc.prune(keras.Sequential(layers), Relevance(lower_bound=0.5, metric="val_loss"))
        >>> model.compile("adam", "mse")
        >>> x, y = tf.random.normal([64, 8]), tf.zeros([64, 2])
        >>> history = model.fit(x, y, validation_data=(x, y), epochs=3, verbose=0)
    """

    #: `weight_decay` where none is given.
    default_weight_decay = 1e-4

    def __init__(
        self,
        sparsity: float = 0.99,
        total_steps: int | None = None,
        *,
        block_shape=(1, 1),
        lower_bound: float,
        metric: str,
        mode: str = "auto",
        pruning_percentage: float = 0.1,
        weight_decay: float | None = None,
        decay: float = 0.5,
        patience: int = 5,
        finetune_validations: int | None = 10,
    ):
        super().__init__(sparsity, block_shape=block_shape)
        if mode not in MODES:
            raise InputError(f"mode is {mode!r}: choose one of {', '.join(MODES)}")
        if not math.isfinite(lower_bound):
            raise InputError(f"lower_bound must be a number that the metric can reach: got {lower_bound!r}")
        if not 0.0 < pruning_percentage < 1.0:
            raise InputError(
                f"pruning_percentage is a share between 0 and 1, 0.1 for 10 %: got {pruning_percentage!r}"
            )
        weight_decay = self.default_weight_decay if weight_decay is None else weight_decay
        if not 0.0 <= weight_decay < 1.0:
            raise InputError(f"weight_decay must be at least 0 and below 1: got {weight_decay!r}")
        if not 0.0 < decay <= 1.0:
            raise InputError(f"decay must be above 0 and at most 1, which keeps lambda: got {decay!r}")
        for name, count in (("patience", patience), ("finetune_validations", finetune_validations)):
            if count is not None and count < 1:
                raise InputError(f"{name} must be at least 1 validation: got {count!r}")
        self.total_steps, self.lower_bound, self.metric, self.mode = total_steps, lower_bound, metric, mode
        self.pruning_percentage, self.weight_decay, self.decay = pruning_percentage, weight_decay, decay
        self.patience, self.finetune_validations = patience, finetune_validations
        words = set(metric.lower().replace("-", "_").split("_"))
        #: 1 where higher values of the metric are better, else -1.
        self.sign = -1.0 if mode == "min" or (mode == "auto" and words & _ERRORS) else 1.0

    def attach(self, model: keras.Model) -> None:
        super().attach(model)
        logits = {id(gate.logits) for gate in gates(model)}
        self._moving = [weight for weight in model.weights if id(weight) not in logits]
        self._best_values = [
            self.add_state("best", tuple(weight.shape), weight.dtype) for weight in self._moving
        ]
        self._best_masks = [
            self.add_state("best_mask", tuple(gate.logits.shape), "bool") for gate in self.gates
        ]
        self._phase = self.add_state("phase", (), "int32", _PRUNING)
        self._misses = self.add_state("misses", (), "int32")
        self._tuned = self.add_state("fine_tuned", (), "int32")
        #: How many weights are to be closed with the next step; 0 where none are due.
        self._due = self.add_state("due", (), "int64")
        self._pruned_at = self.add_state("pruned_at", (), "int64")
        self._validated_at = self.add_state("validated_at", (), "int64")
        self._interval = self.add_state("interval", (), "int64")
        #: Of the best state: its sparsity, -1 where none met the bound, and the metric times `sign`.
        self._best_sparsity = self.add_state("best_sparsity", (), value=-1.0)
        self._best_score = self.add_state("best_score", (), value=-math.inf)

    def _check_reachable(self) -> None:
        """The sparsity is a limit, and what is reached may be less; but something must be able to go."""
        if self.gates and self.sparsity and not self._next_closed(0):
            raise InputError(
                f"the {self.gated_size} weights are switched in blocks of up to"
                f" {max(gate.block_size for gate in self.gates)}, and with a sparsity of {self.sparsity} at"
                " most not one of them may go: give a smaller block_shape, or a higher sparsity"
            )

    def shrunk(self, weight: tf.Tensor, gradient: tf.Tensor, strength: tf.Tensor) -> tf.Tensor:
        """A weight after one step of shrinking.

        Args:
            weight, gradient: of equal shape, any float dtype.
            strength: `lambda`, a scalar of their dtype.
        """
        return weight - strength * tf.exp(-tf.abs(gradient)) * weight

    def current_weight_decay(self) -> tf.Tensor:
        """`lambda` of the step that is being taken: float32 scalar."""
        steps = tf.cast(tf.convert_to_tensor(self.steps_done) - self._pruned_at, tf.float32)
        interval = tf.cast(tf.convert_to_tensor(self._interval), tf.float32)
        strength = self.weight_decay * tf.pow(self.decay, tf.math.divide_no_nan(steps, interval))
        return tf.where(tf.equal(tf.convert_to_tensor(self._phase), _PRUNING), strength, 0.0)

    def before_weights(self, gradients):
        strength = self.current_weight_decay()
        for weight, gradient in zip(self.weights, gradients, strict=True):
            if gradient is not None:
                value = tf.convert_to_tensor(weight)
                gradient, rate = (tf.cast(tensor, value.dtype) for tensor in (gradient, strength))
                weight.assign(self.shrunk(value, gradient, rate))

    def step(self, gate_gradients):
        super().step(gate_gradients)
        tf.cond(tf.convert_to_tensor(self._due) > 0, self._prune, lambda: tf.no_op())

    def _prune(self) -> tf.Operation:
        # A gate that is closed stays closed, whatever size its weights have and the others have shrunk to.
        scores = [
            tf.where(gate.logits > 0.0, tf.maximum(size, 1e-30), 0.0)
            for gate, size in zip(self.gates, self.magnitudes(), strict=True)
        ]
        sizes = [gate.block_size for gate in self.gates]
        self.close(keep_masks(scores, sizes, tf.convert_to_tensor(self._due)))
        self._due.assign(0)
        self._pruned_at.assign(self.steps_done)
        return tf.no_op()

    @property
    def target(self) -> float | None:
        """The sparsity of the best state; None as long as none met the bound."""
        return float(_value(self._best_sparsity)) if self._met_once() else None

    @property
    def finished(self) -> bool:
        """Whether the fine-tuning is over, or the bound out of reach: there is nothing left to train for."""
        return int(_value(self._phase)) == _FINISHED

    def on_validation_end(self, logs):
        if self.finished or self.metric not in logs:
            return False
        score = self.sign * float(logs[self.metric])
        met = score >= self.sign * self.lower_bound
        if int(_value(self._phase)) == _FINE_TUNING:
            return self._validated_fine_tuning(score, met)
        self._measure_interval()
        if met:
            self._misses.assign(0)
            self._remember(score)
            self._due.assign(self._next_closed(self.gated_size - self._opened()))
            if not int(_value(self._due)):
                self._phase.assign(_FINE_TUNING)
            return False
        better = score > float(_value(self._best_score))
        if not self._met_once() and better:
            self._best_score.assign(score)
            self._misses.assign(0)
            return False
        self._misses.assign_add(1)
        if int(_value(self._misses)) < self.patience:
            return False
        if not self._met_once():
            self._phase.assign(_FINISHED)
            warnings.warn(self._never_met(), stacklevel=2)
            return True
        self._go_back()
        self._phase.assign(_FINE_TUNING)
        if not float(_value(self._best_sparsity)):
            warnings.warn(
                f"{self.metric} missed {self.lower_bound:g} as soon as weights had gone, so the model is"
                " dense: set another lower_bound, a smaller pruning_percentage or weight_decay, or more"
                " patience",
                stacklevel=2,
            )
        return False

    def _validated_fine_tuning(self, score: float, met: bool) -> bool:
        self._misses.assign(0 if met else 1)
        if met and score > float(_value(self._best_score)):
            self._remember(score)
        self._tuned.assign_add(1)
        if self.finetune_validations is None or int(_value(self._tuned)) < self.finetune_validations:
            return False
        if not met:
            self._go_back()
        self._phase.assign(_FINISHED)
        return True

    def _measure_interval(self) -> None:
        steps = int(_value(self.steps_done))
        if steps > int(_value(self._validated_at)):
            self._interval.assign(steps - int(_value(self._validated_at)))
            self._validated_at.assign(steps)

    def _opened(self) -> int:
        return sum(int(gate.open_count()) for gate in self.gates)

    def _next_closed(self, closed: int) -> int:
        """How many weights are to be closed next, where so many are; 0 where nothing more can go."""
        cap = math.floor(self.sparsity * self.gated_size + 1e-6)
        block = max(gate.block_size for gate in self.gates)
        # Less than a block would be nothing at all, and the model never sparser.
        more = max(block, round(self.pruning_percentage * (self.gated_size - closed)))
        return min(closed + more, cap) if cap - closed >= block else 0

    def _met_once(self) -> bool:
        return float(_value(self._best_sparsity)) >= 0.0

    def _remember(self, score: float) -> None:
        for best, weight in zip(self._best_values, self._moving, strict=True):
            best.assign(weight)
        for best, gate in zip(self._best_masks, self.gates, strict=True):
            best.assign(gate.logits > 0.0)
        self._best_sparsity.assign(self.current_sparsity())
        self._best_score.assign(score)

    def _go_back(self) -> None:
        for best, weight in zip(self._best_values, self._moving, strict=True):
            weight.assign(best)
        self.close([tf.convert_to_tensor(mask) for mask in self._best_masks])
        self._misses.assign(0)
        self._due.assign(0)

    def check_metric(self, names: Iterable[str]) -> None:
        names = sorted(set(names))
        if self.metric in names:
            return
        near = difflib.get_close_matches(self.metric, names, n=1)
        advice = f"did you mean {near[0]!r}?" if near else "name one of them as metric="
        if self.metric.startswith("val_") and not any(name.startswith("val_") for name in names):
            advice = "give fit validation_data= or validation_split="
        raise InputError(
            f"{type(self).__name__} prunes as long as {self.metric!r} is good enough, and this training will"
            f" not have it: there will be {', '.join(names) or 'no metric at all'}; {advice}"
        )

    def finalize(self) -> str | None:
        phase, steps = int(_value(self._phase)), int(_value(self.steps_done))
        if phase == _FINISHED or steps == 0:
            return None
        if not self._met_once():
            return self._never_met()
        unknown = phase == _PRUNING and steps > int(_value(self._validated_at))
        if not unknown and not int(_value(self._misses)):
            return None
        self._go_back()
        return (
            f"the training ended where {self.metric} missed {self.lower_bound:g} or was not known: the model"
            f" is the last one that met it, with a sparsity of {float(_value(self._best_sparsity)):.1%}"
        )

    def _never_met(self) -> str:
        best = self.sign * float(_value(self._best_score))
        if not math.isfinite(best):
            return (
                f"nothing was pruned, because no validation gave {self.metric}: give fit validation data, or"
                " call model.pruning.on_validation_end(logs) after each validation"
            )
        return (
            f"{self.metric} never met {self.lower_bound:g} ({best:.4g} was the best), so nothing was pruned:"
            " set another lower_bound, a smaller weight_decay, or train the model before pruning it"
        )

    def get_config(self) -> dict:
        return {
            **super().get_config(),
            "total_steps": self.total_steps,
            "lower_bound": self.lower_bound,
            "metric": self.metric,
            "mode": self.mode,
            "pruning_percentage": self.pruning_percentage,
            "weight_decay": self.weight_decay,
            "decay": self.decay,
            "patience": self.patience,
            "finetune_validations": self.finetune_validations,
        }


def _value(variable: keras.Variable) -> tf.Tensor:
    """What a scalar holds; a variable with a copy on each device is no number by itself."""
    return tf.convert_to_tensor(variable)
