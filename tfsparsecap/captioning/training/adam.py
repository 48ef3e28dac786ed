"""The optimizer of a run: Adam with its learning rates."""

from collections.abc import Collection, Sequence
from typing import Any

import keras
import tensorflow as tf

from tfsparsecap.captioning.settings.training_section import Training
from tfsparsecap.captioning.training.phases import Phase
from tfsparsecap.core.keras_internals import DecayInUpdate, variable_index

# Of the schedule `step`: Rennie et al., https://arxiv.org/abs/1612.00563.
_STEP_EPOCHS, _STEP_RATE = 3, 0.8


def make_optimizer(
    settings: Training,
    steps: int,
    phase: Phase | None = None,
    *,
    encoder_variables: Sequence[keras.Variable] = (),
) -> keras.optimizers.Optimizer:
    """Adam with the settings' schedule, decoupled weight decay (except for biases), clipping and averaging.

    Args:
        settings: a run's `training` section.
        steps: number of steps in which `cosine` decays to `final_learning_rate`.
        phase: its learning rate and schedule replace those of the settings. The schedule `step` multiplies
            the learning rate by 0.8 after every three of its epochs.
        encoder_variables: those with the learning rate `encoder_learning_rate`, if it is set.
    """
    rate, schedule = (phase or settings).learning_rate, (phase or settings).schedule
    warmup = settings.warmup_steps
    if schedule == "cosine" and steps > 0:
        warmup = min(warmup, steps - 1)
        rate = keras.optimizers.schedules.CosineDecay(
            0.0 if warmup else rate,
            steps - warmup,
            alpha=min(1.0, settings.final_learning_rate / rate),
            warmup_target=rate if warmup else None,
            warmup_steps=warmup,
        )
    elif schedule == "noam":
        rate = Noam(rate, max(1, warmup))
    elif schedule == "step" and phase is not None:
        every = max(1, _STEP_EPOCHS * steps // phase.epochs)
        rate = keras.optimizers.schedules.ExponentialDecay(rate, every, _STEP_RATE, staircase=True)
    factor = (settings.encoder_learning_rate or settings.learning_rate) / settings.learning_rate
    optimizer = ScaledAdam(
        rate,
        scaled=encoder_variables,
        factor=factor,
        beta_2=settings.adam_beta_2,
        epsilon=settings.adam_epsilon,
        weight_decay=settings.weight_decay or None,
        global_clipnorm=settings.clip_norm,
        clipvalue=settings.clip_value,
        use_ema=settings.average_decay is not None,
        ema_momentum=settings.average_decay or 0.0,
    )
    if settings.weight_decay:
        optimizer.exclude_from_weight_decay(var_names=["bias"])
    return optimizer


@keras.saving.register_keras_serializable("tfsparsecap")
class ScaledAdam(DecayInUpdate):
    """Adam that multiplies the learning rate, and so the weight decay, of some variables by a factor.

    With `use_ema` and `ema_momentum=d`, the decay of the average is `min(d, (1 + n) / (10 + n))` at step n,
    so that it forgets the initial weights also in a short training.

    `from_config` makes an optimizer with one learning rate, because a configuration has no variables.

    Args:
        args: of `keras.optimizers.Adam`.
        scaled: the variables with another learning rate.
        factor: what theirs is, divided by `learning_rate`.
        kwargs: of `keras.optimizers.Adam`.

    Examples:
        >>> slow, fast = keras.Variable(1.0), keras.Variable(1.0)
        >>> ScaledAdam(0.1, scaled=[slow], factor=0.5).apply([tf.ones(()), tf.ones(())], [slow, fast])
        >>> round(float(slow), 3), round(float(fast), 3)
        (0.95, 0.9)
    """

    def __init__(
        self, *args: Any, scaled: Collection[keras.Variable] = (), factor: float = 1.0, **kwargs: Any
    ) -> None:
        super().__init__(*args, **kwargs)
        self._scaled, self._factor = {id(variable) for variable in scaled}, factor

    @property
    def ema_momentum(self) -> float | tf.Tensor:
        if not self.built:
            return self._ema_momentum
        step = tf.cast(tf.convert_to_tensor(self.iterations), tf.float32)
        return tf.minimum(self._ema_momentum, (1.0 + step) / (10.0 + step))

    @ema_momentum.setter
    def ema_momentum(self, value: float) -> None:
        self._ema_momentum = value

    def get_config(self) -> dict:
        return {**super().get_config(), "ema_momentum": self._ema_momentum}

    def build(self, variables: list[keras.Variable]) -> None:
        super().build(variables)
        self._factors = [self._factor if id(variable) in self._scaled else 1.0 for variable in variables]

    def update_step(
        self, gradient: tf.Tensor, variable: keras.Variable | tf.Variable, learning_rate: tf.Tensor
    ) -> None:
        rate = tf.cast(learning_rate * self._factors[variable_index(self, variable)], variable.dtype)
        if self.decays(variable):
            self.assign_sub(variable, variable * self.weight_decay * rate)
        super().update_step(gradient, variable, rate)


@keras.saving.register_keras_serializable("tfsparsecap")
class Noam(keras.optimizers.schedules.LearningRateSchedule):
    """Linear warm-up, then decay with the inverse square root: `peak * min(n / w, sqrt(w / n))` at step n.

    This is the schedule of "Attention Is All You Need" (https://arxiv.org/abs/1706.03762, equation 3), whose
    `peak` is `(size * w) ** -0.5`.

    Args:
        peak: largest learning rate, reached at step `warmup_steps`.
        warmup_steps: `w`.

    Examples:
        >>> [round(float(Noam(0.5, 100)(step)), 3) for step in (0, 49, 99, 399)]
        [0.005, 0.25, 0.5, 0.25]
    """

    def __init__(self, peak: float, warmup_steps: int):
        self.peak, self.warmup_steps = peak, warmup_steps

    def __call__(self, step):
        # The first step counts as step 1, because a rate of 0 would waste it.
        steps = keras.ops.cast(step, "float32") + 1.0
        return self.peak * keras.ops.minimum(
            steps / self.warmup_steps, keras.ops.sqrt(self.warmup_steps / steps)
        )

    def get_config(self) -> dict:
        return {"peak": self.peak, "warmup_steps": self.warmup_steps}
