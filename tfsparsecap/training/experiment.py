"""From settings to the things they name: data, vocabulary, captioner, pruning, batches."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import keras

from tfsparsecap import data as sources
from tfsparsecap.data.augmentation import Augmentation
from tfsparsecap.data.feature_cache import FeatureCache, cached_features
from tfsparsecap.data.image_sources import (
    FeatureCacheSource,
    ImageFileSource,
    ImageSource,
    RegionFeatureSource,
)
from tfsparsecap.data.pipeline import TrainingBatches, image_batches, reward_batches, training_batches
from tfsparsecap.data.radix import RadixTokenizer
from tfsparsecap.data.records import CaptionData, Record, Skipped
from tfsparsecap.data.region_features import RegionFeatures
from tfsparsecap.data.sentencepiece import SentencePieceTokenizer
from tfsparsecap.data.tokenizers import Tokenizer, WordTokenizer
from tfsparsecap.errors import InputError
from tfsparsecap.models import (
    InceptionV1Encoder,
    MobileNetV1Encoder,
    ObjectRelationTransformer,
    SoftAttention,
    UpDown,
)
from tfsparsecap.models.captioner import Captioner
from tfsparsecap.settings.files import check_options
from tfsparsecap.settings.schema import Config, Encoder
from tfsparsecap.training.gating import check_pruning
from tfsparsecap.training.scst_reward import check_scst

#: Captioners by the `kind` that a configuration gives them.
CAPTIONERS = {
    "soft_attention": SoftAttention,
    "up_down": UpDown,
    "object_relation_transformer": ObjectRelationTransformer,
}


def check_sections(config: Config) -> None:
    """Checks what settings cannot check by themselves: free keys, which belong to the data source and to the
    pruning method, and settings that must go together.

    Raises:
        InputError: an unknown key, a wrong type, or settings that exclude each other.
    """
    data = config.data
    if data.features is not None and config.model.encoder is not None:
        raise InputError(
            "data.features and model.encoder are both set: set model.encoder=null to train from features, or"
            " data.features=null to train from images"
        )
    if data.features is None and config.model.encoder is None:
        raise InputError(
            "model.encoder is null and data.features is not set: say where the features lie,"
            " data.features=FOLDER (with cocobu_att/ in it), or give the captioner an encoder"
        )
    if config.model.encoder is None and (data.augmentation or config.training.fine_tune.epochs):
        raise InputError(
            "data.augmentation and training.fine_tune need images, and features are given: leave them out"
        )
    if config.model.encoder is not None:
        _check_encoder(config.model.encoder)
    _checked_options(config)
    if config.training.clip_norm and config.training.clip_value:
        raise InputError(
            "training.clip_norm and training.clip_value are both set (clip_norm by default): set one of them"
            " to null"
        )
    check_pruning(config)
    check_scst(config)


def _check_encoder(settings: Encoder) -> None:
    """Raises InputError where an encoder is given what only the other network has."""
    if settings.network == "mobilenet_v1":
        if settings.weights not in (None, "imagenet"):
            raise InputError(
                f"model.encoder.weights is {settings.weights!r}: give imagenet or null; a checkpoint is for"
                " model.encoder.network=inception_v1"
            )
        return
    if settings.weights == "imagenet":
        raise InputError(
            "model.encoder.weights is 'imagenet', which is for mobilenet_v1: give the path of TF-Slim's"
            " inception_v1.ckpt, or null"
        )
    if settings.width != Encoder.model_fields["width"].default:
        raise InputError(
            f"model.encoder.width is {settings.width}, and an Inception has one width only: leave it out, or"
            " set model.encoder.network=mobilenet_v1"
        )


def _checked_options(config: Config) -> dict[str, Any]:
    """The free keys of `data`, which belong to its source.

    Raises:
        InputError: an unknown key or a wrong type, or no folder.
    """
    data = config.data
    options = check_options("data", data.options, sources.SOURCES[data.kind], ("folder", "on_bad_record"))
    if data.folder is None and data.kind != "scenes":
        raise InputError(
            f"data.folder is not set: say where the {data.kind} data lies, data.folder=FOLDER (or --data"
            " FOLDER)"
        )
    return options


def load_data(config: Config) -> CaptionData:
    """The data set of a run; scenes are drawn where they do not lie there already.

    Raises:
        InputError: the folder is missing or of another form, see `tfsparsecap.data`.
    """
    data = config.data
    options = _checked_options(config)
    if data.kind != "scenes":
        options["on_bad_record"] = data.on_bad_record
    if data.kind == "coco" and config.model.encoder is None:
        options["images"] = "ignore"
    folder = None if data.folder is None else Path(data.folder).expanduser()
    return sources.load(data.kind, folder, **options)


def make_tokenizer(config: Config, data: CaptionData) -> Tokenizer:
    """The vocabulary of a run: words of the training captions, or a given one.

    Raises:
        InputError: it has no word, or the SentencePiece model cannot be read.
    """
    settings = config.data
    if settings.sentencepiece is not None:
        tokenizer = SentencePieceTokenizer.load(Path(settings.sentencepiece).expanduser())
    else:
        captions = [caption for record in data.split("train") for caption in record.captions]
        tokenizer = WordTokenizer.from_captions(captions, settings.minimum_count, settings.vocabulary_size)
    if settings.radix_base is None:
        return tokenizer
    radix = RadixTokenizer(tokenizer, settings.radix_base)
    if settings.max_length <= radix.digits:
        raise InputError(
            f"data.max_length is {settings.max_length} and a word takes {radix.digits} digits of base"
            f" {settings.radix_base}: give the digits of all words of a caption, and one for its end"
        )
    return radix


def make_captioner(
    config: Config, vocabulary: Tokenizer | int, *, precision: str | None = None, weights: bool = True
) -> Captioner:
    """The captioner with its encoder.

    Args:
        vocabulary: the tokens; or how many there are, special ones included, with the ids of a word
            vocabulary.
        precision: Keras dtype policy; None takes `training.precision`.
        weights: False leaves out the encoder's published weights, for a model that gets its own.

    Raises:
        InputError: the sizes do not go together.
    """
    model, policy = config.model, precision or config.training.precision
    sizes = model.model_dump(exclude={"kind", "encoder"})
    if isinstance(vocabulary, Tokenizer):
        sizes |= {name: getattr(vocabulary, name) for name in ("start_id", "end_id", "pad_id")}
    if model.kind == "object_relation_transformer":
        sizes["max_length"] = config.data.max_length
    encoder = None
    if model.encoder is not None:
        sizes["feature_size"] = None  # the encoder says it
        encoder = make_encoder(model.encoder, policy, weights)
    size = vocabulary if isinstance(vocabulary, int) else len(vocabulary)
    try:
        return CAPTIONERS[model.kind](size, **sizes, encoder=encoder, dtype=policy, name="captioner")
    except InputError as error:
        raise InputError(f"model.kind={model.kind}: {error}") from error


def make_encoder(settings: Encoder, policy: str, weights: bool = True) -> keras.layers.Layer:
    """The encoder of a captioner.

    Args:
        policy: Keras dtype policy.
        weights: False leaves out published weights.

    Raises:
        InputError: there is no such layer or width, or the weights cannot be had.
    """
    arguments = {
        "layer": settings.layer,
        "image_size": settings.image_size,
        "weights": settings.weights if weights else None,
        "trainable": settings.trainable,
        "batch_norm_momentum": settings.batch_norm_momentum,
        "dtype": policy,
        "name": "encoder",
    }
    try:
        if settings.network == "inception_v1":
            return InceptionV1Encoder(**arguments)
        return MobileNetV1Encoder(settings.width, **arguments)
    except InputError as error:
        raise InputError(f"model.encoder: {error}") from error


def features_stay(config: Config) -> bool:
    """Whether what the encoder says of an image stays the same, and may be cached, until fine-tuning."""
    encoder, pruning = config.model.encoder, config.pruning
    # In scheme A the encoder's weights stay, and its gates do not.
    changing = encoder is None or encoder.trainable or (pruning is not None and pruning.encoder == "A")
    return not changing and config.data.cache_folder is not None


@dataclass
class Supply:
    """Batches of a run's data: from images, from the cached features of a frozen encoder, or from files of
    region features.

    Attributes:
        encoder: of the captioner, if it has one.
        progress: show progress bars.
    """

    config: Config
    data: CaptionData
    tokenizer: Tokenizer
    encoder: keras.Layer | None
    progress: bool = True
    _sources: list[ImageSource] = field(default_factory=list)
    _cache: FeatureCache | None = None

    def training(self, *, from_images: bool, batch_size: int) -> TrainingBatches:
        """Batches of the training split, see `data.pipeline.training_batches`."""
        data = self.config.data
        augment = None
        if data.augmentation:
            augment = Augmentation(data.augmentation, self.config.model.encoder.image_size)
        records = self.data.split("train")
        pictures = self.pictures(records, from_images=from_images)
        if self.config.training.scst is not None:
            return reward_batches(
                pictures, records, batch_size=batch_size, augment=augment, seed=self.config.seed
            )
        return training_batches(
            pictures,
            records,
            self.tokenizer,
            batch_size=batch_size,
            max_length=data.max_length,
            augment=augment,
            seed=self.config.seed,
            lengths=data.batch_lengths,
        )

    def images(self, records: Sequence[Record], *, from_images: bool, batch_size: int = 64):
        """Images without captions, see `data.pipeline.image_batches`."""
        return image_batches(self.pictures(records, from_images=from_images), batch_size=batch_size)

    def pictures(self, records: Sequence[Record], *, from_images: bool) -> ImageSource:
        """The pictures of records; `skipped` then knows those that cannot be read.

        Args:
            from_images: read images although an encoder's features may be cached.
        """
        settings = self.config.data
        if self.config.model.encoder is None:
            source = RegionFeatureSource(region_features(self.config, records), settings.on_bad_record)
        else:
            features = None if from_images else self.features()
            if features is not None:
                source = FeatureCacheSource(records, features)
            else:
                size = self.config.model.encoder.image_size
                source = ImageFileSource(records, size, settings.on_bad_record)
        self._sources.append(source)
        return source

    @property
    def skipped(self) -> list[Skipped]:
        """Records whose picture could not be read, as far as it was tried until now."""
        return list(dict.fromkeys(entry for source in self._sources for entry in source.skipped))

    def features(self) -> FeatureCache | None:
        """What the encoder says of every image, or None where it is trained or nothing is to be cached."""
        data = self.config.data
        if not features_stay(self.config):
            return None
        if self._cache is None:
            self._cache = cached_features(
                self.data.records,
                self.encoder,
                self.config.model.encoder.image_size,
                Path(data.cache_folder).expanduser(),
                on_bad_record=data.on_bad_record,
                progress=self.progress,
            )
        return self._cache


def region_features(config: Config, records: Sequence[Record]) -> RegionFeatures:
    """Index of the records' files in `data.features`.

    Raises:
        InputError: the folder is missing or of another form.
    """
    settings = config.data
    if settings.features is None:
        raise InputError(
            "the captioner has no encoder, and it is not known where its features lie: set"
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
        # The feature of the whole image is the mean of its regions', and read only where it lies there.
        need_pooled=config.model.kind == "up_down" and (folder / "cocobu_fc").is_dir(),
    )
