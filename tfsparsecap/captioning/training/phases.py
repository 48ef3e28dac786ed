"""The phases of a run, with their loops: training, fine-tuning of the encoder, and training on rewards."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import tensorflow as tf

from tfsparsecap.captioning.data.pipeline import check_captions, check_count
from tfsparsecap.captioning.data.records import CaptionData
from tfsparsecap.captioning.models.captioner_base import Captioner
from tfsparsecap.captioning.rewards.caption_reward import CaptionReward
from tfsparsecap.captioning.runs.run_data import RunData, caches_features
from tfsparsecap.captioning.settings.schema import Config
from tfsparsecap.captioning.training.hidden_states import HiddenStateLoop, regularise_encoder
from tfsparsecap.captioning.training.loop import Loop
from tfsparsecap.captioning.training.scst import SCSTLoop
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
    counts = [len(record.captions) for record in data.split("train")]
    written = config.training.teacher_captions * len(config.training.teacher)
    captions = [written or count for count in counts]
    for phase in phases:
        setting = "training." + {"train": "", "fine_tune": "fine_tune.", "scst": "scst."}[phase.kind]
        if phase.kind == "fine_tune" and not config.training.fine_tune.batch_size:
            setting = "training."
        setting += "batch_size"
        if phase.kind == "scst":
            check_count(sum(map(bool, counts)), "images", phase.batch_size, setting)
        else:
            check_captions(captions, config.training.captions_per_image, phase.batch_size, setting)


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
