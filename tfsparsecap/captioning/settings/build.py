"""Builds what settings describe: data set, vocabulary, captioner and encoder, and batches of the data."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tfsparsecap.captioning import data as sources
from tfsparsecap.captioning import models
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
from tfsparsecap.captioning.data.radix import RadixTokenizer
from tfsparsecap.captioning.data.records import CaptionData, Record, Skipped
from tfsparsecap.captioning.data.region_features import RegionFeatures
from tfsparsecap.captioning.data.sentencepiece import SentencePieceTokenizer
from tfsparsecap.captioning.data.tokenizers import Tokenizer, WordTokenizer
from tfsparsecap.captioning.encoder_catalogue import KERAS_HUB, LITE
from tfsparsecap.captioning.models.regions import UNKNOWN_OBJECT
from tfsparsecap.captioning.settings.contradictions import data_options
from tfsparsecap.captioning.settings.precision import keras_policy
from tfsparsecap.captioning.settings.schema import Config, EncoderSettings, TransformerModel
from tfsparsecap.core.saved_models import load_model
from tfsparsecap.errors import InputError, error_prefix


def load_data(config: Config) -> CaptionData:
    """The data set of a run; scenes are generated if their folder does not exist yet.

    Raises:
        InputError: the folder is missing or has another layout, or a photograph is in two splits, see
            `tfsparsecap.captioning.data`.
    """
    data = config.data
    options = data_options(config)
    if data.kind != "scenes":
        options["on_bad_record"] = data.on_bad_record
    if data.kind in ("coco", "table") and config.model.encoder is None:
        options["images"] = "ignore"
    folder = None if data.folder is None else Path(data.folder).expanduser()
    loaded = sources.load(data.kind, folder, **options)
    return replace(loaded, reads_images=config.model.encoder is not None)


def make_tokenizer(config: Config, data: CaptionData) -> Tokenizer:
    """The vocabulary of a run: words of the training captions, or a given SentencePiece model.

    Raises:
        InputError: the vocabulary is empty, or the SentencePiece model cannot be read.
    """
    settings = config.data
    tokenizer: SentencePieceTokenizer | WordTokenizer
    if settings.sentencepiece is not None:
        tokenizer = SentencePieceTokenizer.load(Path(settings.sentencepiece).expanduser())
    else:
        records = data.split("train")
        if not records:
            bad = data.skipped
            first = f"; the first of {len(bad)} skipped records: {bad[0]}" if bad else ""
            raise InputError(
                f"{data.name} has no image in the split train: assign images to it, or give no splits{first}"
            )
        captions = [caption for record in records for caption in record.captions]
        tokenizer = WordTokenizer.from_captions(captions, settings.minimum_count, settings.vocabulary_size)
    if settings.radix_base is None:
        return tokenizer
    radix = RadixTokenizer(tokenizer, settings.radix_base)
    if settings.max_length <= radix.digits:
        raise InputError(
            f"data.max_length is {settings.max_length}, but one word takes {radix.digits} digits of base"
            f" {settings.radix_base}: allow for the digits of all words of a caption and its end token"
        )
    return radix


def objects_of(config: Config, data: CaptionData) -> tuple[str, ...]:
    """Names of the objects that a run's captioner predicts: all labels of the training split, in order."""
    if not config.training.object_weight:
        return ()
    return tuple(sorted({name for record in data.split("train") for name in record.labels or ()}))


def make_captioner(
    config: Config,
    vocabulary: Tokenizer | int,
    *,
    objects: Sequence[str] = (),
    precision: str | None = None,
    weights: bool = True,
) -> models.Captioner:
    """The captioner with its encoder.

    Args:
        vocabulary: the tokenizer; or the number of tokens, special ones included, with the special ids of a
            word vocabulary.
        objects: names of the objects that it predicts, see `objects_of`.
        precision: Keras dtype policy; None takes `training.precision`.
        weights: load the encoder's published weights; False for a model whose weights are set afterwards.

    Raises:
        InputError: the sizes do not fit together.
    """
    model, policy = config.model, precision or keras_policy(config.training.precision)
    sizes = model.model_dump(exclude={"kind", "encoder"})
    if isinstance(vocabulary, Tokenizer):
        sizes |= {name: getattr(vocabulary, name) for name in ("start_id", "end_id", "pad_id")}
    if isinstance(model, TransformerModel):
        sizes["max_length"] = config.data.max_length
    encoder = None
    if model.encoder is not None:
        sizes["feature_size"] = None  # the encoder defines it
        encoder = make_encoder(model.encoder, policy, weights)
    size = vocabulary if isinstance(vocabulary, int) else len(vocabulary)
    captioner = getattr(models, model.captioner)
    with error_prefix(f"model.kind={model.kind}"):
        return captioner(size, **sizes, encoder=encoder, objects=objects, dtype=policy, name="captioner")


def make_encoder(settings: EncoderSettings, policy: str, weights: bool = True) -> keras.layers.Layer:
    """The encoder of a captioner.

    Args:
        policy: Keras dtype policy.
        weights: load published weights, if the settings name some.

    Raises:
        InputError: there is no such layer or width, or the weights cannot be loaded.
    """
    if settings.weights is not None and Path(settings.weights).expanduser().is_dir():
        return _encoder_of_run(settings, policy)
    if settings.slimmed is None:
        return _whole_encoder(settings, policy, weights)
    path = Path(settings.slimmed).expanduser()
    encoder = _whole_encoder(settings, policy, weights=False)
    with error_prefix("model.encoder.slimmed"):
        if not path.is_file():
            raise InputError(f"there is no file {path}: give the encoder.keras of a slimmed run, or null")
        backbone = load_model(path, "copy it again, or slim the run again")
        encoder.replace(backbone)
    return encoder


def _encoder_of_run(settings: EncoderSettings, policy: str) -> Any:
    """The encoder of a finished run, which `weights` names, with its weights."""
    assert settings.weights is not None
    with error_prefix("model.encoder.weights"):
        path = Path(settings.weights).expanduser() / "model.keras"
        if not path.is_file():
            raise InputError(f"there is no {path}: finish that run, or give another one")
        captioner = load_model(path, "copy it again, or train that run again")
        trained: Any = getattr(captioner, "encoder", None)
        made = _whole_encoder(settings.model_copy(update={"weights": None}), policy, weights=False)
        own = {name: getattr(settings, name) for name in ("trainable", "frozen_until", "batch_norm_momentum")}
        same = ("layer", "image_size", "features_shape")
        if type(trained) is not type(made) or any(
            getattr(trained, name) != getattr(made, name) for name in same
        ):
            raise InputError(f"{path} has another encoder: set the same network, layer and image size")
        config = {**trained.get_config(), **own, "dtype": made.dtype_policy, "name": "encoder"}
        encoder = type(trained).from_config(config)
        encoder.set_weights(trained.get_weights())
        return encoder


def _whole_encoder(settings: EncoderSettings, policy: str, weights: bool) -> Any:
    arguments: dict[str, Any] = settings.model_dump(exclude={"network", "width", "slimmed"})
    arguments |= {"weights": settings.weights if weights else None, "dtype": policy, "name": "encoder"}
    with error_prefix("model.encoder"):
        network = settings.network
        if network == "mobilenet_v1":
            return models.MobileNetV1Encoder(settings.width, **arguments)
        if network == "inception_v1":
            return models.InceptionV1Encoder(**arguments)
        if network == "tiny_vit_5m":
            # Also without weights, because it decides which weights there are.
            batch_norm = not str(settings.weights).endswith(".onnx")
            return models.TinyViTEncoder(**arguments, batch_norm=batch_norm)
        if network.startswith(LITE):
            return models.EfficientNetLiteEncoder(int(network.removeprefix(LITE)), **arguments)
        if network.startswith(KERAS_HUB):
            return models.KerasHubEncoder(network.removeprefix(KERAS_HUB), **arguments)
        return models.ApplicationsEncoder(network, **arguments)


def region_features(config: Config, records: Sequence[Record], *, progress: bool = True) -> RegionFeatures:
    """Index of the records' files in `data.features`.

    Raises:
        InputError: the folder is missing or has another layout.
    """
    settings = config.data
    if settings.features is None:
        raise InputError(
            "the captioner has no encoder, and the folder of its region features is not known: set"
            " data.features=FOLDER (in the run's config.yaml, or with --features)"
        )
    folder = Path(settings.features).expanduser()
    return RegionFeatures(
        folder,
        [record.image_id for record in records],
        feature_size=config.model.feature_size,
        buckets=settings.region_buckets,
        max_regions=settings.max_regions,
        on_bad_record=settings.on_bad_record,
        need_boxes=config.model.kind == "object_relation_transformer",
        # Without this folder, the feature of the whole image is the mean of its region features.
        need_pooled=config.model.kind == "up_down" and (folder / "cocobu_fc").is_dir(),
        progress=progress,
    )


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
            name = "features" if self._cached_part is self.encoder else "frozen_features"
            source = FeatureCacheSource(records, *features, name=name)
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
        cached = (self.frozen and data.cache_folder is not None) or caches_features(self.config)
        if encoder is None or not cached:
            return []
        assert self.encoder is not None and data.cache_folder is not None
        if self._cached_part is None:
            if self.frozen or encoder.frozen_until is None:
                self._cached_part = self.encoder
            else:
                self._cached_part = self.encoder.frozen_part()
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
