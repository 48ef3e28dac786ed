"""Batches of images and captions for training, and of images for decoding, as `tf.data` data sets."""

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import tensorflow as tf

from tfsparsecap.captioning.data.augmentation import Augmentation
from tfsparsecap.captioning.data.image_sources import ImageSource
from tfsparsecap.captioning.data.records import Record
from tfsparsecap.captioning.data.tokenizers import Tokenizer
from tfsparsecap.captioning.models.captioner_base import PAD
from tfsparsecap.errors import InputError

#: Number of captions that are tokenised at the same time: the words of 600 000 would take a gigabyte.
_CHUNK = 65536


@dataclass(frozen=True)
class TrainingBatches:
    """Batches with every caption of a split once per epoch, in an order given by seed and epoch number.

    Made by `training_batches`.

    Attributes:
        source: source of the images.
        tokens, targets: int32 [examples, T], see `Tokenizer.encode_padded`.
        record_of: int64 [examples], index of each caption's record.
        batch_size: examples per batch, over all devices.
        lengths: lengths to which batches are padded, the largest is `T`.
        captions_per_image: number of captions of the same image that follow each other; the image is in the
            inputs once.
        pad_id: id of padding.
        augment: augmentation of the images.
        cut: number of captions that are longer than `T`.
    """

    source: ImageSource
    tokens: np.ndarray
    targets: np.ndarray
    record_of: np.ndarray
    batch_size: int
    lengths: tuple[int, ...]
    seed: int
    captions_per_image: int = 1
    pad_id: int = PAD
    augment: Augmentation | None = None
    cut: int = 0

    def __post_init__(self) -> None:
        if self.augment is not None and "image" not in self.source.specs:
            raise InputError(
                "features cannot be augmented: set data.cache_folder=null to train from images, or"
                " data.augmentation=[]"
            )

    @property
    def examples(self) -> int:
        """Number of (image, caption) pairs."""
        return len(self.tokens)

    @property
    def steps_per_epoch(self) -> int:
        """Batches per epoch; examples that do not fill a batch are dropped, different ones in each epoch."""
        captions = np.bincount(self.record_of).tolist()
        return examples_per_epoch(captions, self.captions_per_image) // self.batch_size

    def epoch(self, number: int, context: tf.distribute.InputContext | None = None) -> tf.data.Dataset:
        """The batches of one epoch; every call returns the same ones.

        Args:
            number: number of the epoch, from 0.
            context: from `strategy.distribute_datasets_from_function`; this process gets its part of every
                batch.

        Returns:
            Dataset of `(inputs, targets)`: inputs `{"image": uint8 [B / k, S, S, 3] | "features": float32
            [B / k, N, D], "tokens": int32 [B, T]}`, targets int32 [B, T], with k captions per image.
        """
        rows, views, lengths = self._order(number)
        part = 0
        if context is not None:
            share = context.get_per_replica_batch_size(self.batch_size)
            if share % self.captions_per_image:
                raise InputError(
                    f"each device gets {share} captions per step, which is not a multiple of"
                    f" training.captions_per_image={self.captions_per_image}: change training.batch_size"
                )
            here = context.num_replicas_in_sync // context.num_input_pipelines
            part = context.input_pipeline_id
            rows, views = (
                values.reshape(len(values), -1, size)[:, part * here : (part + 1) * here].reshape(-1, size)
                for values, size in ((rows, share), (views, share // self.captions_per_image))
            )
            lengths = lengths.repeat(here)
        dataset = tf.data.Dataset.from_tensor_slices((rows, views, lengths))
        dataset = dataset.map(self._gather, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True)
        if self.augment is not None:
            dataset = self.augment.apply(dataset, [self.seed, number, part])
        return dataset.prefetch(4)

    def _order(self, number: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Examples of every batch, int64 [steps, B], views of its images, int64 [steps, B / k], and the
        length of its rows, int64 [steps]."""
        random = np.random.default_rng([self.seed, number])
        shuffled = self._shuffled(random)
        used = (self.targets != self.pad_id).sum(axis=1)[shuffled].max(axis=1)
        group = np.searchsorted(self.lengths, used)
        size = self.source.groups[self.record_of][shuffled[:, 0]]
        images = self.batch_size // self.captions_per_image
        batches, lengths, previous_leftovers = [], [], shuffled[:0]
        for same_size in np.unique(size):
            leftovers = shuffled[:0]
            for index, length in enumerate(self.lengths):
                # Captions that do not fill a batch go to the next length, and those of the largest length to
                # the next group of images.
                pool = np.concatenate([leftovers, shuffled[(group == index) & (size == same_size)]])
                if length == self.lengths[-1]:
                    pool = np.concatenate([previous_leftovers, pool])
                full = len(pool) // images * images
                batches.append(pool[:full].reshape(-1, self.batch_size))
                lengths.append(np.full(len(batches[-1]), length, np.int64))
                leftovers = pool[full:]
            previous_leftovers = leftovers
        mixed = random.permutation(self.steps_per_epoch)
        rows = np.concatenate(batches)[mixed]
        views = random.integers(self.source.views, size=(len(rows), images))
        return rows, views, np.concatenate(lengths)[mixed]

    def _shuffled(self, random: np.random.Generator) -> np.ndarray:
        """The examples in random order, each row with those of one image, int64 [groups, captions_per_image].

        Of more captions, some are left out, different ones in each epoch; fewer are repeated.
        """
        shuffled, count = random.permutation(self.examples), self.captions_per_image
        if count == 1:
            return shuffled[:, None]
        shuffled = shuffled[np.argsort(self.record_of[shuffled], kind="stable")]
        ends = np.flatnonzero(np.diff(self.record_of[shuffled])) + 1
        groups = [
            np.resize(captions, (max(1, len(captions) // count), count))
            for captions in np.split(shuffled, ends)
        ]
        return random.permutation(np.concatenate(groups))

    def _gather(
        self, rows: tf.Tensor, views: tf.Tensor, length: tf.Tensor
    ) -> tuple[dict[str, tf.Tensor], tf.Tensor]:
        def gather(rows: np.ndarray, views: np.ndarray, length: np.int64) -> list[np.ndarray]:
            records = self.record_of[rows]
            inputs = self.source.fetch(records[:: self.captions_per_image], views)
            targets = self.targets[rows, :length]
            # Captions of images that turn out to be unreadable are masked.
            targets = np.where(self.source.usable[records][:, None], targets, self.pad_id).astype(
                targets.dtype
            )
            return [*(inputs[name] for name in self.source.specs), self.tokens[rows, :length], targets]

        *tensors, tokens, targets = tf.numpy_function(
            gather,
            [rows, views, length],
            [*(spec.dtype for spec in self.source.specs.values()), tf.int32, tf.int32],
            stateful=False,
        )
        width = self.lengths[0] if len(self.lengths) == 1 else None
        for tensor in (tokens, targets):
            tensor.set_shape([rows.shape[0], width])
        images = rows.shape[0] // self.captions_per_image
        return {**_shaped(tensors, self.source, images), "tokens": tokens}, targets


def training_batches(
    source: ImageSource,
    records: Sequence[Record],
    tokenizer: Tokenizer,
    *,
    batch_size: int,
    max_length: int,
    augment: Augmentation | None = None,
    seed: int = 0,
    lengths: Sequence[int] = (),
    captions_per_image: int = 1,
) -> TrainingBatches:
    """Batches of (image, caption) pairs of a split; captions are tokenised here, once.

    Args:
        source: source of the records' images.
        records: records of the training split; every caption is an example.
        tokenizer: tokenizer of the captioner.
        batch_size: `B`, across all devices.
        max_length: `T`, tokens per caption including the end token; longer captions are truncated.
        augment: augmentation of the images; cached features cannot be augmented.
        seed: seed of the order and of the augmentation.
        lengths: batch captions of similar length together, padded to the shortest sufficient of these lengths
            and `max_length`. Saves computation; the training step is traced once per length. If empty, all
            batches have `T = max_length`.
        captions_per_image: `k`, captions of the same image that follow each other in a batch, which has the
            image once, so that it is encoded once; divides `batch_size`. Of more captions, some are left
            out, different ones in each epoch; fewer are repeated.

    Raises:
        InputError: an epoch has fewer examples than `batch_size`, see `examples_per_epoch`, or `augment` is
            given for features.

    Examples:
        >>> records = data.split("train")  # doctest: +SKIP
        >>> source = FeatureCacheSource(records, cache)  # doctest: +SKIP
        >>> batches = training_batches(  # doctest: +SKIP
        ...     source, records, tokenizer, batch_size=128, max_length=20
        ... )
        >>> for inputs, targets in batches.epoch(0):  # doctest: +SKIP
        ...     logits = model(inputs, training=True)
    """
    pairs = [
        (place, caption)
        for place, record in enumerate(records)
        if source.usable[place]
        for caption in record.captions
    ]
    captions = np.bincount([place for place, _ in pairs]).tolist() if pairs else []
    check_captions_fill_batch(captions, captions_per_image, batch_size, "training.batch_size")
    encoded = [
        tokenizer.encode_padded(tf.constant([caption for _, caption in chunk]), max_length)
        for chunk in (pairs[start : start + _CHUNK] for start in range(0, len(pairs), _CHUNK))
    ]
    tokens, targets = (
        np.concatenate([part.numpy() for part in parts]) for parts in zip(*encoded, strict=True)
    )
    return TrainingBatches(
        source=source,
        tokens=tokens,
        targets=targets,
        record_of=np.array([place for place, _ in pairs]),
        batch_size=batch_size,
        lengths=tuple(sorted({*(length for length in lengths if length < max_length), max_length})),
        seed=seed,
        captions_per_image=captions_per_image,
        pad_id=tokenizer.pad_id,
        augment=augment,
        cut=int((targets != tokenizer.end_id).all(axis=1).sum()),
    )


def reward_batches(
    source: ImageSource,
    records: Sequence[Record],
    *,
    batch_size: int,
    augment: Augmentation | None = None,
    seed: int = 0,
) -> TrainingBatches:
    """Batches with every captioned image of a split once per epoch, for training on rewards.

    Targets are the indices of the records, int32 [B, 1], and -1 for images that cannot be read.

    Args:
        source, records, batch_size, augment, seed: see `training_batches`; here each image is one example.
            Records without captions are ignored.

    Returns:
        Batches whose `tokens` are all zero and have no meaning.

    Raises:
        InputError: there are fewer captioned images than `batch_size`, or `augment` is given for features.

    Examples:
        >>> batches = reward_batches(source, records, batch_size=10)  # doctest: +SKIP
    """
    captioned = np.array([bool(record.captions) for record in records])
    places = np.flatnonzero(source.usable & captioned)
    check_fills_batch(len(places), "images", batch_size, "training.scst.batch_size")
    return TrainingBatches(
        source=source,
        tokens=np.zeros((len(places), 1), np.int32),
        targets=places.astype(np.int32)[:, None],
        record_of=places,
        batch_size=batch_size,
        lengths=(1,),
        seed=seed,
        pad_id=-1,
        augment=augment,
    )


def examples_per_epoch(captions: Iterable[int], captions_per_image: int) -> int:
    """Examples of an epoch before those are dropped that do not fill a batch.

    Args:
        captions: numbers of captions of the images.
        captions_per_image: `k`: the captions of an image are used in groups of `k`; fewer are repeated.

    Examples:
        >>> examples_per_epoch([9, 9, 1, 0], captions_per_image=5)
        15
    """
    groups = sum(max(count // captions_per_image, 1) for count in captions if count)
    return groups * captions_per_image


def check_captions_fill_batch(
    captions: Iterable[int], captions_per_image: int, batch_size: int, setting: str
) -> None:
    """Raises InputError if the examples of an epoch do not fill a batch, see `examples_per_epoch`."""
    grouped = f" (with training.captions_per_image={captions_per_image})" if captions_per_image > 1 else ""
    check_fills_batch(
        examples_per_epoch(captions, captions_per_image), f"captions{grouped}", batch_size, setting
    )


def check_fills_batch(examples: int, what: str, batch_size: int, setting: str) -> None:
    """Raises InputError if the examples do not fill a batch; `setting` names the batch size."""
    if examples < batch_size:
        raise InputError(
            f"there are {examples} {what} to train on, fewer than one batch of {batch_size}: use more data or"
            f" set a smaller {setting}"
        )


def image_batches(source: ImageSource, *, batch_size: int) -> tf.data.Dataset:
    """Batches of images in the order of their records, for decoding; the last one may be smaller.

    Args:
        source: source of the images; its `skipped` lists those that cannot be read.
        batch_size: `B`.

    Returns:
        Dataset of inputs such as `{"image": uint8 [B, S, S, 3], "index": int64 [B]}`, where `index` is the
        index of the record; images that cannot be read are left out.
    """

    def fetch(indices: np.ndarray) -> list[np.ndarray]:
        inputs = source.fetch(indices)
        good = source.usable[indices]
        return [*(inputs[name][good] for name in source.specs), indices[good]]

    def gather(indices: tf.Tensor) -> dict[str, tf.Tensor]:
        dtypes = [*(spec.dtype for spec in source.specs.values()), tf.int64]
        *tensors, index = tf.numpy_function(fetch, [indices], dtypes, stateful=False)
        index.set_shape([None])
        return {**_shaped(tensors, source, None), "index": index}

    dataset = tf.data.Dataset.from_tensor_slices(np.flatnonzero(source.usable)).batch(batch_size)
    return dataset.map(gather, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True).prefetch(2)


@contextmanager
def unwrap_input_errors() -> Iterator[None]:
    """Raises an InputError of a data set unchanged, not wrapped in an error of TensorFlow.

    Raises:
        InputError: `ImageSource.fetch` raised it while a data set was read in this context.
    """
    try:
        yield
    except tf.errors.OpError as error:
        match = re.search(r"InputError: (.+)", error.message)
        if match is None:
            raise
        raise InputError(match[1]) from error


def _shaped(tensors: Sequence[tf.Tensor], source: ImageSource, batch: int | None) -> dict[str, tf.Tensor]:
    """Tensors by name, with static shapes as far as known; features as float32."""
    named = {}
    for tensor, (name, spec) in zip(tensors, source.specs.items(), strict=True):
        tensor.set_shape([batch, *spec.shape])
        named[name] = tf.cast(tensor, tf.float32) if spec.dtype == tf.float16 else tensor
    return named
