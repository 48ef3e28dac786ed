"""Batches of a run's data set, for training and for decoding."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf

from tfsparsecap.captioning.data.augmentation import Augmentation
from tfsparsecap.captioning.data.feature_cache import FeatureCache, cached_features
from tfsparsecap.captioning.data.image_sources import (
    FeatureCacheSource,
    ImageFileSource,
    ImageSource,
    RegionFeatureSource,
    TeachingSource,
)
from tfsparsecap.captioning.data.pipeline import (
    TrainingBatches,
    image_batches,
    reward_batches,
    training_batches,
)
from tfsparsecap.captioning.data.records import CaptionData, Record, Skipped
from tfsparsecap.captioning.data.tokenizers import Tokenizer
from tfsparsecap.captioning.models.regions import UNKNOWN_OBJECT
from tfsparsecap.captioning.settings.build import region_features
from tfsparsecap.captioning.settings.schema import Config


@dataclass
class RunData:
    """Batches of a run's data: images, cached features of a frozen encoder, or files of region features.

    Attributes:
        config: settings of the run.
        data: the data set.
        tokenizer: its vocabulary.
        encoder: of the captioner, if it has one.
        progress: show progress bars.
        teachers: the inputs of the run's teachers, for training.
        taught: captions to train on instead of an image's references, by image.
        objects: names of the objects that the captioner predicts, see `RegionCaptioner`.
        frozen: the encoder does not change any more.
    """

    config: Config
    data: CaptionData
    tokenizer: Tokenizer
    encoder: keras.Layer | None
    progress: bool = True
    teachers: Sequence["RunData"] = ()
    taught: Mapping[str, Sequence[str]] = field(default_factory=dict)
    objects: Sequence[str] = ()
    frozen: bool = False
    _skipped: list[list[Skipped]] = field(default_factory=list)
    _cached_part: keras.Layer | None = None
    _caches: list[FeatureCache] = field(default_factory=list)

    def freeze_encoder(self) -> None:
        """Caches the features of the whole encoder from now on, even if it was trained before."""
        self.frozen, self._cached_part = True, None
        self._caches.clear()

    def training_batches(
        self, *, from_images: bool, batch_size: int, rewards: bool = False
    ) -> TrainingBatches:
        """Batches of the training split.

        Args:
            from_images: read images even if the encoder's features are cached.
            batch_size: captions (with `rewards`, images) per step, over all devices together.
            rewards: images with their indices for SCST, instead of captions and the inputs of teachers.
        """
        data, seed, encoder = self.config.data, self.config.seed, self.config.model.encoder
        augment = None
        if data.augmentation:
            assert encoder is not None  # `check_settings` has checked it
            augment = Augmentation(data.augmentation, encoder.image_size)
        records = self.data.split("train")
        views = 1 if from_images else data.cached_views
        images = self.images(records, from_images=from_images, views=views)
        if rewards:
            return reward_batches(images, records, batch_size=batch_size, augment=augment, seed=seed)
        if self.teachers or self.objects:
            theirs = [teacher.images(records, from_images=False, views=views) for teacher in self.teachers]
            objects = object_targets(records, self.objects) if self.objects else None
            images = TeachingSource(images, theirs, objects)
        return training_batches(
            images,
            [
                replace(record, captions=tuple(self.taught.get(record.image_id, record.captions)))
                for record in records
            ],
            self.tokenizer,
            batch_size=batch_size,
            max_length=data.max_length,
            augment=augment,
            seed=seed,
            lengths=data.batch_lengths,
            captions_per_image=self.config.training.captions_per_image,
        )

    def image_batches(
        self, records: Sequence[Record], *, from_images: bool, batch_size: int = 64
    ) -> tf.data.Dataset:
        """Images without captions, see `data.pipeline.image_batches`."""
        return image_batches(self.images(records, from_images=from_images), batch_size=batch_size)

    def images(self, records: Sequence[Record], *, from_images: bool, views: int = 1) -> ImageSource:
        """The images of records, or their features; `skipped` then lists those that cannot be read.

        Args:
            from_images: read images even if the encoder's features are cached.
            views: number of views of each image, if the features are cached.
        """
        settings, encoder = self.config.data, self.config.model.encoder
        features = [] if from_images else self.features(records, views)
        source: ImageSource
        if encoder is None:
            features_of = region_features(self.config, records, progress=self.progress)
            source = RegionFeatureSource(features_of, settings.on_bad_record)
        elif features:
            whole = self._cached_part is self.encoder
            source = FeatureCacheSource(records, *features, name="features" if whole else "frozen_features")
        else:
            source = ImageFileSource(records, encoder.image_size, settings.on_bad_record, self.progress)
        self._skipped.append(source.skipped)  # grows when files are read again
        return source

    @property
    def skipped(self) -> list[Skipped]:
        """Records whose image could not be read, among those read so far."""
        return list(dict.fromkeys(entry for skipped in self._skipped for entry in skipped))

    def features(self, records: Sequence[Record], views: int = 1) -> list[FeatureCache]:
        """Features of each view: of the images of all splits, then of these records.

        They are the encoder's or, with `frozen_until` and until `freeze_encoder`, its frozen part's. Empty if
        they change or nothing is cached.
        """
        data, encoder = self.config.data, self.config.model.encoder
        if not (self.frozen and data.cache_folder is not None) and not caches_features(self.config):
            return []
        assert encoder is not None and self.encoder is not None and data.cache_folder is not None
        if self._cached_part is None:
            whole = self.frozen or encoder.frozen_until is None
            self._cached_part = self.encoder if whole else self.encoder.frozen_part()
        for view in range(len(self._caches), views):
            cache = cached_features(
                records if view else self.data.records,
                self._cached_part,
                encoder.image_size,
                Path(data.cache_folder).expanduser(),
                view=view,
                on_bad_record=data.on_bad_record,
                progress=self.progress,
            )
            self._caches.append(cache)
        return self._caches[:views]


def object_targets(records: Sequence[Record], objects: Sequence[str]) -> np.ndarray:
    """Which objects are in the images of records: float32 [records, K], see `object_memory` of captioners."""
    targets = np.full((len(records), len(objects)), UNKNOWN_OBJECT, np.float32)
    for row, record in zip(targets, records, strict=True):
        if record.labels is not None:
            row[:] = [name in record.labels for name in objects]
    return targets


def caches_features(config: Config) -> bool:
    """Whether features are computed once and cached: until fine-tuning, the encoder does not change; with
    `frozen_until`, its frozen part never does."""
    encoder, pruning = config.model.encoder, config.pruning
    # With scheme A the encoder's weights are frozen, but its gates are not.
    if encoder is None or config.data.cache_folder is None or (pruning and pruning.encoder == "A"):
        return False
    return encoder.frozen_until is not None or not encoder.trainable
