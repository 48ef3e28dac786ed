"""From settings to the things they name: data, vocabulary, captioner, pruning, batches."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import keras

from tfsparsecap import data as sources
from tfsparsecap.data.augmentation import Augmentation
from tfsparsecap.data.feature_cache import FeatureCache, cached_features
from tfsparsecap.data.pipeline import TrainingBatches, image_batches, pictures, training_batches
from tfsparsecap.data.records import CaptionData, Record, Skipped
from tfsparsecap.data.tokenizers import WordTokenizer
from tfsparsecap.errors import InputError
from tfsparsecap.models import MobileNetV1Encoder, SoftAttention
from tfsparsecap.models.captioner import Captioner
from tfsparsecap.pruning import prune, registry
from tfsparsecap.training.config import Config
from tfsparsecap.training.config_files import check_options


def check_sections(config: Config) -> None:
    """Checks the free keys of a configuration, which belong to the data source and to the pruning method.

    Raises:
        InputError: an unknown key or a wrong type.
    """
    data = config.data
    source = sources.SOURCES[data.kind]
    check_options("data", data.options, source, ("folder", "on_bad_record"))
    if data.folder is None and data.kind != "scenes":
        raise InputError(f"data.folder is not set: say where the {data.kind} data lies, data.folder=FOLDER")
    if config.pruning is not None:
        method = registry.METHODS[config.pruning.method]
        reserved = ("sparsity", "total_steps", "block_shape")
        check_options("pruning", config.pruning.options, method.__init__, reserved)


def load_data(config: Config) -> CaptionData:
    """The data set of a run; scenes are drawn where they do not lie there already.

    Raises:
        InputError: the folder is missing or of another form, see `tfsparsecap.data`.
    """
    data = config.data
    options = dict(data.options)
    if data.kind != "scenes":
        options["on_bad_record"] = data.on_bad_record
    folder = None if data.folder is None else Path(data.folder).expanduser()
    return sources.load(data.kind, folder, **options)


def make_tokenizer(config: Config, data: CaptionData) -> WordTokenizer:
    """The vocabulary of the training captions. Raises InputError where it has no word."""
    captions = [caption for record in data.split("train") for caption in record.captions]
    return WordTokenizer.from_captions(captions, config.data.minimum_count, config.data.vocabulary_size)


def make_captioner(
    config: Config, vocabulary_size: int, *, precision: str | None = None, weights: bool = True
) -> Captioner:
    """The captioner with its encoder.

    Args:
        vocabulary_size: special tokens included.
        precision: Keras dtype policy; None takes `training.precision`.
        weights: False leaves out the encoder's published weights, for a model that gets its own.
    """
    model, policy = config.model, precision or config.training.precision
    encoder = MobileNetV1Encoder(
        model.encoder.width,
        model.encoder.layer,
        model.encoder.image_size,
        model.encoder.weights if weights else None,
        trainable=model.encoder.trainable,
        batch_norm_momentum=model.encoder.batch_norm_momentum,
        dtype=policy,
        name="encoder",
    )
    return SoftAttention(
        vocabulary_size,
        cell=model.cell,
        embedding_size=model.embedding_size,
        rnn_size=model.rnn_size,
        attention_size=model.attention_size,
        encoder=encoder,
        dropout=model.dropout,
        dtype=policy,
        name="captioner",
    )


def prune_captioner(captioner: Captioner, config: Config, total_steps: int) -> None:
    """Puts gates on the captioner as `config.pruning` says; null leaves it dense.

    Raises:
        InputError: the method cannot do what is asked of it.
    """
    settings = config.pruning
    if settings is None:
        return
    trainable = captioner.encoder.trainable
    if not settings.encoder:
        captioner.encoder.trainable = False  # prune leaves what is frozen alone
    try:
        prune(
            captioner,
            settings.method,
            sparsity=settings.sparsity,
            total_steps=total_steps,
            block_shape=settings.block_shape,
            **settings.options,
        )
    except InputError as error:
        raise InputError(f"pruning.method={settings.method}: {error}") from error
    finally:
        captioner.encoder.trainable = trainable


@dataclass
class Supply:
    """Batches of a run's data, from images or from the cached features of a frozen encoder.

    Attributes:
        skipped: records whose image could not be read, as far as it was tried.
    """

    config: Config
    data: CaptionData
    tokenizer: WordTokenizer
    encoder: keras.Layer
    progress: bool = True
    skipped: list[Skipped] = field(default_factory=list)
    _cache: FeatureCache | None = None

    def training(self, *, from_images: bool, batch_size: int) -> TrainingBatches:
        """Batches of the training split, see `data.pipeline.training_batches`."""
        data = self.config.data
        augment = None
        if data.augmentation:
            augment = Augmentation(data.augmentation, self.config.model.encoder.image_size)
        batches = training_batches(
            self.data.split("train"),
            self.tokenizer,
            batch_size=batch_size,
            max_length=data.max_length,
            image_size=self.config.model.encoder.image_size,
            features=None if from_images else self.features(),
            augment=augment,
            seed=self.config.seed,
            lengths=data.batch_lengths,
            on_bad_record=data.on_bad_record,
        )
        self._note(batches.skipped)
        return batches

    def images(self, records: Sequence[Record], *, from_images: bool, batch_size: int = 64):
        """Pictures without captions, see `data.pipeline.image_batches`."""
        size = self.config.model.encoder.image_size
        features = None if from_images else self.features()
        source = pictures(records, size, features, self.config.data.on_bad_record)
        self._note(source.skipped)
        return image_batches(records, batch_size=batch_size, image_size=size, source=source)

    def features(self) -> FeatureCache | None:
        """What the encoder says of every image, or None where it is trained or nothing is to be cached."""
        data = self.config.data
        if self.config.model.encoder.trainable or data.cache_folder is None:
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

    def _note(self, skipped: Sequence[Skipped]) -> None:
        self.skipped.extend(entry for entry in skipped if entry not in self.skipped)
