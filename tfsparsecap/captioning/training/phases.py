"""The phases of a run: training, fine-tuning of the encoder, and training on rewards."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from tfsparsecap.captioning.data.pipeline import check_captions, check_count
from tfsparsecap.captioning.data.records import CaptionData
from tfsparsecap.captioning.runs.run_data import caches_features
from tfsparsecap.captioning.settings.schema import Config
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
    found = []
    if training.epochs:
        rate, from_images = training.learning_rate, not caches_features(config)
        options = training.batch_size, rate, training.schedule, from_images
        slim = training.slim
        borders = [*first_epochs(training.epochs, slim.iterations if slim else 1), training.epochs]
        for number, (first, last) in enumerate(pairwise(borders), 1):
            found.append(Phase("train", last - first, *options, number if slim else 0))
    if tuning.epochs:
        size = tuning.batch_size or training.batch_size
        assert config.model.encoder is not None  # `check_settings` has checked it
        from_images = config.model.encoder.frozen_until is None or not caches_features(config)
        found.append(
            Phase("fine_tune", tuning.epochs, size, tuning.learning_rate, tuning.schedule, from_images)
        )
    if scst is not None:
        from_images = config.data.cache_folder is None or bool(config.data.augmentation)
        size, rate = scst.batch_size, scst.learning_rate
        found.append(Phase("scst", scst.epochs, size, rate, scst.schedule, from_images))
    return found


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
