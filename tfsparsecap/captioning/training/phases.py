"""The phases of a run, with their loops and optimizers: training, fine-tuning, training on rewards."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import keras
import tensorflow as tf

from tfsparsecap.captioning.data.pipeline import (
    check_captions_fill_batch,
    check_fills_batch,
    examples_per_epoch,
)
from tfsparsecap.captioning.data.records import CaptionData
from tfsparsecap.captioning.models.captioner_base import Captioner
from tfsparsecap.captioning.models.transformer_captioner import TransformerCaptioner
from tfsparsecap.captioning.rewards.caption_reward import CaptionReward
from tfsparsecap.captioning.settings.build import RunData, caches_features
from tfsparsecap.captioning.settings.schema import Config
from tfsparsecap.captioning.settings.sections import Training
from tfsparsecap.captioning.training.hidden_states import HiddenStateLoop
from tfsparsecap.captioning.training.loop import Loop
from tfsparsecap.captioning.training.scst import SCSTLoop
from tfsparsecap.core.keras_internals import DecayInUpdate, variable_index
from tfsparsecap.slimming.iterative import first_epochs


@dataclass(frozen=True)
class Phase:
    """Epochs with one optimizer.

    Attributes:
        kind: `train` (the decoder or everything), `fine_tune` (with the encoder) or `scst` (on rewards).
        epochs, learning_rate, schedule: of the phase.
        batch_size: captions per step; for `scst`, images.
        from_images: reads images, not cached features.
        iteration: of `training.slim`, from 1; channels are removed before it. 0 for none.
    """

    kind: str
    epochs: int
    batch_size: int
    learning_rate: float
    schedule: str
    from_images: bool
    iteration: int = 0

    @property
    def name(self) -> str:
        """A name that no other phase of the run has."""
        return f"{self.kind}_{self.iteration}" if self.iteration else self.kind


def phases(config: Config) -> list[Phase]:
    """The phases of a run, in order."""
    training, tuning, scst = config.training, config.training.fine_tune, config.training.scst
    listed = []
    if training.epochs:
        rate, from_images = training.learning_rate, not caches_features(config)
        options = training.batch_size, rate, training.schedule, from_images
        slim = training.slim
        borders = [*first_epochs(training.epochs, slim.iterations if slim else 1), training.epochs]
        for number, (first, last) in enumerate(pairwise(borders), 1):
            listed.append(Phase("train", last - first, *options, number if slim else 0))
    if tuning.epochs:
        size = tuning.batch_size or training.batch_size
        assert config.model.encoder is not None  # `check_settings` has checked it
        from_images = config.model.encoder.frozen_until is None or not caches_features(config)
        listed.append(
            Phase("fine_tune", tuning.epochs, size, tuning.learning_rate, tuning.schedule, from_images)
        )
    if scst is not None:
        from_images = config.data.cache_folder is None or bool(config.data.augmentation)
        size, rate = scst.batch_size, scst.learning_rate
        listed.append(Phase("scst", scst.epochs, size, rate, scst.schedule, from_images))
    return listed


def check_batches(phases: Sequence[Phase], config: Config, data: CaptionData) -> None:
    """Checks that the training images and captions of a run fill a batch of each of its phases.

    Raises:
        InputError: they do not.
    """
    captions = _captions(config, data)
    for phase in phases:
        setting = "training." + {"train": "", "fine_tune": "fine_tune.", "scst": "scst."}[phase.kind]
        if phase.kind == "fine_tune" and not config.training.fine_tune.batch_size:
            setting = "training."
        setting += "batch_size"
        if phase.kind == "scst":
            check_fills_batch(_with_captions(data), "images", phase.batch_size, setting)
        else:
            check_captions_fill_batch(captions, config.training.captions_per_image, phase.batch_size, setting)


def _captions(config: Config, data: CaptionData) -> list[int]:
    """Number of captions of each training image, its own or its teachers'."""
    written = config.training.teacher_captions * len(config.training.teacher)
    return [written or len(record.captions) for record in data.split("train")]


def _with_captions(data: CaptionData) -> int:
    return sum(bool(record.captions) for record in data.split("train"))


def optimizer_steps(kind: str, config: Config, data: CaptionData) -> int:
    """Steps of all phases of a kind, if all training images can be read."""
    per_image = config.training.captions_per_image
    examples = (
        _with_captions(data) if kind == "scst" else examples_per_epoch(_captions(config, data), per_image)
    )
    return sum(
        phase.epochs * (examples // phase.batch_size) for phase in phases(config) if phase.kind == kind
    )


def make_loop(
    captioner: Captioner,
    kind: str,
    config: Config,
    data: RunData,
    teachers: Sequence[Captioner],
    strategy: tf.distribute.Strategy,
) -> Loop:
    """The loop of a phase, which minimises what the settings say.

    Args:
        captioner: compiled with an optimizer.
        kind: `Phase.kind`.
        config: settings of the run.
        data: its data; SCST takes references and tokenizer from it.
        teachers: the captioners of `training.teacher`.
        strategy: distribution strategy.
    """
    settings = config.training
    regularise_encoder(captioner, settings.encoder_l2)
    if kind != "scst" or settings.scst is None:
        captioner.label_smoothing = settings.label_smoothing
        captioner.teacher_weight = settings.teacher_weight
        captioner.object_weight = settings.object_weight
        options: Any = {"strategy": strategy, "jit_compile": settings.jit_compile}
        if settings.teacher_loss == "words":
            return Loop(captioner, teachers=teachers, **options)
        captions = settings.teacher_loss == "proposed"
        weight = settings.hidden_weight
        return HiddenStateLoop(captioner, teachers[0], captions=captions, weight=weight, **options)
    weights = settings.scst.model_dump(include={"cider_d", "bleu_4", "count_end"})
    return SCSTLoop(
        captioner,
        reward=CaptionReward(data.data.split("train"), data.tokenizer, **weights),
        max_length=config.data.max_length,
        settings=settings.scst,
        seed=config.seed,
        strategy=strategy,
    )


def regularise_encoder(captioner: Captioner, weight: float) -> None:
    """Adds `weight` times the sum of the squares of all matrices of a transformer's encoder to the losses.

    It replaces an earlier weight; 0 adds nothing. Captioners of other kinds stay as they are.

    Reference:
        RTIC, equation 4.
    """
    if not isinstance(captioner, TransformerCaptioner):
        return
    for layer in captioner.encoder_layers:
        for variable in layer.trainable_variables:
            if variable.path.endswith("/kernel"):
                variable.regularizer = keras.regularizers.L2(weight) if weight else None


# Of the schedule `step`: Rennie et al., https://arxiv.org/abs/1612.00563.
_STEP_EPOCHS, _STEP_RATE = 3, 0.8


def make_optimizer(
    settings: Training,
    steps: int,
    phase: Phase | None = None,
    *,
    encoder_variables: Sequence[keras.Variable] = (),
    unlearned: Sequence[keras.Variable] = (),
) -> keras.optimizers.Optimizer:
    """Adam with the settings' schedule, decoupled weight decay (except for biases), clipping and averaging.

    Args:
        settings: a run's `training` section.
        steps: number of steps in which `cosine` decays to `final_learning_rate`.
        phase: its learning rate and schedule replace those of the settings. The schedule `step` multiplies
            the learning rate by 0.8 after every three of its epochs.
        encoder_variables: those with the learning rate `encoder_learning_rate`, if it is set.
        unlearned: those that the loss does not change; they do not decay either.
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
        optimizer.exclude_from_weight_decay(var_list=list(unlearned), var_names=["bias"])
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
