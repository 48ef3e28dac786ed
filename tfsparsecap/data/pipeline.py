"""Batches for training and decoding: row numbers are shuffled and batched, then each batch is one gather."""

import os
import warnings
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Literal, Protocol

import numpy as np
import tensorflow as tf
from tqdm import tqdm

from tfsparsecap.data.augmentation import Augmentation
from tfsparsecap.data.feature_cache import FeatureCache
from tfsparsecap.data.images import read_image
from tfsparsecap.data.records import BadRecords, OnBadRecord, Record, Skipped, shown
from tfsparsecap.data.tokenizers import WordTokenizer
from tfsparsecap.errors import InputError
from tfsparsecap.models.captioner import PAD

#: Bytes that decoded images may take in memory; above it they are read from their files in every epoch.
MEMORY_LIMIT = 1 << 30


class Pictures(Protocol):
    """What the pipeline asks of a source of pictures, whether it holds pixels or features.

    `key` is the name of the model's input, `shape` and `dtype` what `fetch` gives for one picture,
    `usable[i]` whether record i can be fetched, `skipped` names the ones that cannot.
    """

    key: Literal["image", "features"]
    shape: tuple[int, ...]
    dtype: np.dtype
    usable: np.ndarray
    skipped: list[Skipped]

    def fetch(self, indices: np.ndarray) -> np.ndarray:
        """Pictures of records: int64 [B] -> [B, *shape]."""
        ...


class ImagePictures:
    """Pixels of the records' images, kept in memory where they fit and read from their files otherwise.

    Every image is decoded once here, so that a broken one is named before training and not amid it.

    Args:
        records: whose images.
        image_size: `S`.
        on_bad_record: see `BadRecords`.
    """

    key: Literal["image"] = "image"
    dtype = np.dtype(np.uint8)

    def __init__(
        self,
        records: Sequence[Record],
        image_size: int,
        on_bad_record: OnBadRecord = "skip",
    ):
        self.shape = (image_size, image_size, 3)
        self._paths = [record.image for record in records]
        self.usable = np.zeros(len(records), bool)
        bad = BadRecords(on_bad_record)
        fits = len(records) * int(np.prod(self.shape)) <= MEMORY_LIMIT
        self._kept = np.zeros((len(records), *self.shape), np.uint8) if fits else None
        with ThreadPoolExecutor(os.cpu_count()) as threads:
            results = threads.map(self._try, range(len(records)))
            # Said only where it takes longer than a person waits for nothing.
            results = tqdm(results, total=len(records), desc="reading", unit="image", delay=3, leave=False)
            for index, (record, error) in enumerate(zip(records, results, strict=True)):
                self.usable[index] = error is None
                if error is not None:
                    bad.add(record.image_id, error)
        self.skipped = bad.skipped

    def _try(self, index: int) -> str | None:
        try:
            image = read_image(self._paths[index], self.shape[0])
        except InputError as error:
            return str(error)
        if self._kept is not None:
            self._kept[index] = image
        return None

    def fetch(self, indices: np.ndarray) -> np.ndarray:
        if self._kept is not None:
            return self._kept[indices]
        return np.stack([read_image(self._paths[index], self.shape[0]) for index in indices])


class FeaturePictures:
    """Rows of a feature cache; records whose image it could not read are not usable."""

    key: Literal["features"] = "features"

    def __init__(self, records: Sequence[Record], cache: FeatureCache):
        self.shape, self.dtype = cache.features.shape[1:], cache.features.dtype
        unreadable = {entry.where: entry for entry in cache.skipped}
        self.usable = np.array([record.image_id not in unreadable for record in records], bool)
        self.skipped = [unreadable[record.image_id] for record in records if record.image_id in unreadable]
        self._features = cache.features
        self._rows = np.zeros(len(records), np.int64)
        self._rows[self.usable] = cache.rows(
            [record.image_id for record in records if record.image_id not in unreadable]
        )

    def fetch(self, indices: np.ndarray) -> np.ndarray:
        return self._features[self._rows[indices]]


def pictures(
    records: Sequence[Record],
    image_size: int,
    features: FeatureCache | None = None,
    on_bad_record: OnBadRecord = "skip",
) -> ImagePictures | FeaturePictures:
    """The pictures of records: rows of `features` where given, pixels otherwise."""
    if features is not None:
        return FeaturePictures(records, features)
    return ImagePictures(records, image_size, on_bad_record)


@dataclass(frozen=True)
class TrainingBatches:
    """Every caption of a split once an epoch, in an order that depends on nothing but the seed and the epoch.

    Made by `training_batches`.

    Attributes:
        source: where the pictures come from.
        tokens, targets: int32 [examples, T], see `WordTokenizer.encode_padded`.
        record_of: int64 [examples], which record each caption belongs to.
        batch_size: examples a batch, over all devices together.
        lengths: lengths of token rows that batches may have, the largest `T`.
        skipped: records left out because their image cannot be read, or because they have no caption.
    """

    source: Pictures
    tokens: np.ndarray
    targets: np.ndarray
    record_of: np.ndarray
    batch_size: int
    lengths: tuple[int, ...]
    seed: int
    augment: Augmentation | None = None
    skipped: list[Skipped] = field(default_factory=list)

    @property
    def examples(self) -> int:
        """Number of (image, caption) pairs."""
        return len(self.tokens)

    @property
    def steps_per_epoch(self) -> int:
        """Batches an epoch; the examples that do not fill a last one are others in every epoch."""
        return self.examples // self.batch_size

    def epoch(
        self, number: int, skip_steps: int = 0, context: tf.distribute.InputContext | None = None
    ) -> tf.data.Dataset:
        """The batches of one epoch, the same ones whenever it is asked for.

        Args:
            number: of the epoch, from 0.
            skip_steps: steps to leave out at the beginning, for a run that goes on in the middle of an epoch.
            context: what `strategy.distribute_datasets_from_function` passes: this process then gets its part
                of every batch, so that the batches of all processes together are those of a single one.

        Returns:
            Dataset of `(inputs, targets)`: inputs `{"image": uint8 [B, S, S, 3] | "features": float32
            [B, N, D], "tokens": int32 [B, T]}`, targets int32 [B, T].
        """
        rows, lengths = self._order(number)
        here, part = 1, 0
        if context is not None:
            share = context.get_per_replica_batch_size(self.batch_size)
            here, part = (
                context.num_replicas_in_sync // context.num_input_pipelines,
                context.input_pipeline_id,
            )
            rows = rows.reshape(len(rows), -1, share)[:, part * here : (part + 1) * here].reshape(-1, share)
            lengths = lengths.repeat(here)
        # Augmentation draws one batch after the other, so its batches can only be skipped when they are made.
        late = skip_steps * here if self.augment is not None else 0
        early = skip_steps * here - late
        dataset = tf.data.Dataset.from_tensor_slices((rows[early:], lengths[early:]))
        dataset = dataset.map(self._gather, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True)
        if self.augment is not None:
            dataset = self.augment.apply(dataset, [self.seed, number, part]).skip(late)
        return dataset.prefetch(4)

    def _order(self, number: int) -> tuple[np.ndarray, np.ndarray]:
        """Examples of every batch, int64 [steps, B], and the length of its token rows, int64 [steps]."""
        random = np.random.default_rng([self.seed, number])
        shuffled = random.permutation(self.examples)
        used = (self.targets != PAD).sum(axis=1)
        group = np.searchsorted(self.lengths, used)[shuffled]
        batches, lengths, rest = [], [], shuffled[:0]
        for index, length in enumerate(self.lengths):
            # What does not fill a batch of short captions goes among the longer ones.
            pool = np.concatenate([rest, shuffled[group == index]])
            full = len(pool) // self.batch_size * self.batch_size
            batches.append(pool[:full].reshape(-1, self.batch_size))
            lengths.append(np.full(len(batches[-1]), length, np.int64))
            rest = pool[full:]
        mixed = random.permutation(self.steps_per_epoch)
        return np.concatenate(batches)[mixed], np.concatenate(lengths)[mixed]

    def _gather(self, rows: tf.Tensor, length: tf.Tensor) -> tuple[dict[str, tf.Tensor], tf.Tensor]:
        def gather(rows: np.ndarray, length: np.int64) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
            pictures = np.asarray(self.source.fetch(self.record_of[rows]))
            return pictures, self.tokens[rows, :length], self.targets[rows, :length]

        dtypes = (self.source.dtype, tf.int32, tf.int32)
        pictures, tokens, targets = tf.numpy_function(gather, [rows, length], dtypes, stateful=False)
        pictures.set_shape([rows.shape[0], *self.source.shape])
        width = self.lengths[0] if len(self.lengths) == 1 else None
        for tensor in (tokens, targets):
            tensor.set_shape([rows.shape[0], width])
        if self.source.key == "features":
            pictures = tf.cast(pictures, tf.float32)
        return {self.source.key: pictures, "tokens": tokens}, targets


def training_batches(
    records: Sequence[Record],
    tokenizer: WordTokenizer,
    *,
    batch_size: int,
    max_length: int,
    image_size: int,
    features: FeatureCache | None = None,
    augment: Augmentation | None = None,
    seed: int = 0,
    lengths: Sequence[int] = (),
    on_bad_record: OnBadRecord = "skip",
) -> TrainingBatches:
    """Batches of (image, caption) pairs of a split; captions are tokenised here, once, in the graph.

    Args:
        records: of the training split; every caption of every record is an example.
        tokenizer: words to ids.
        batch_size: `B`, over all devices together.
        max_length: `T`, words a caption may have, `END` included; longer ones are cut.
        image_size: `S`, side of the square that images are squashed to; of no matter with `features`.
        features: what a frozen encoder says of the images, in place of the images.
        augment: changes image batches; features cannot be augmented.
        seed: of the order and of the augmentation.
        lengths: batch captions of similar length together and cut each batch to the shortest of these lengths
            that holds it, `max_length` always being one of them; saves recurrent steps at the price of one
            trace of the training step for each. Empty: every batch has `T = max_length`.
        on_bad_record: `"skip"` leaves out records whose image cannot be read and names them in `skipped`.

    Raises:
        InputError: there are fewer examples than `batch_size`, or augmentation is asked of features.

    Example:
        >>> batches = training_batches(  # doctest: +SKIP
        ...     data.split("train"), tokenizer, batch_size=128, max_length=20, image_size=224, features=cache
        ... )
        >>> for inputs, targets in batches.epoch(0):  # doctest: +SKIP
        ...     logits = model(inputs, training=True)
    """
    if features is not None and augment is not None:
        raise InputError(
            "cached features cannot be augmented: train from images (features off) or turn augmentation off"
        )
    source = pictures(records, image_size, features, on_bad_record)
    counts = [
        len(record.captions) if usable else 0 for record, usable in zip(records, source.usable, strict=True)
    ]
    captions = [
        caption for record, count in zip(records, counts, strict=True) for caption in record.captions[:count]
    ]
    if len(captions) < batch_size:
        raise InputError(
            f"there are {len(captions)} captions to train on, fewer than one batch of {batch_size}: "
            "give more data or set a smaller batch_size"
        )
    tokens, targets = tokenizer.encode_padded(tf.constant(captions), max_length)
    return TrainingBatches(
        source=source,
        tokens=tokens.numpy(),
        targets=targets.numpy(),
        record_of=np.repeat(np.arange(len(records)), counts),
        batch_size=batch_size,
        lengths=tuple(sorted({*(length for length in lengths if length < max_length), max_length})),
        seed=seed,
        augment=augment,
        skipped=source.skipped,
    )


def image_batches(
    records: Sequence[Record],
    *,
    batch_size: int,
    image_size: int,
    features: FeatureCache | None = None,
    source: Pictures | None = None,
) -> tf.data.Dataset:
    """Pictures without captions, in the order of `records`, for decoding; the last batch may be smaller.

    Args:
        records: whose pictures.
        batch_size: `B`.
        image_size: `S`; not looked at where `features` are given.
        features: what a frozen encoder says of the images, in place of the images.
        source: what `pictures(records, ...)` gave, to keep decoded images for another time or to see what it
            skipped; a warning names the images that cannot be read where it is not given.

    Returns:
        Dataset of `{"image": uint8 [B, S, S, 3] | "features": float32 [B, N, D], "index": int64 [B]}`, where
        `index` is the place in `records`; records whose image cannot be read are missing.
    """
    if source is None:
        source = pictures(records, image_size, features)
        if source.skipped:
            warnings.warn(
                f"{len(source.skipped)} images cannot be read and are left out: "
                f"{shown(entry.where for entry in source.skipped)}",
                stacklevel=2,
            )

    def gather(indices: tf.Tensor) -> dict[str, tf.Tensor]:
        batch = tf.numpy_function(
            lambda rows: np.asarray(source.fetch(rows)), [indices], source.dtype, stateful=False
        )
        batch.set_shape([None, *source.shape])
        if source.key == "features":
            batch = tf.cast(batch, tf.float32)
        return {source.key: batch, "index": indices}

    dataset = tf.data.Dataset.from_tensor_slices(np.flatnonzero(source.usable)).batch(batch_size)
    return dataset.map(gather, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True).prefetch(2)
