"""Batches for training and decoding: row numbers are shuffled and batched, then each batch is one gather."""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np
import tensorflow as tf

from tfsparsecap.data.augmentation import Augmentation
from tfsparsecap.data.image_sources import ImageSource
from tfsparsecap.data.records import Record, Skipped
from tfsparsecap.data.tokenizers import Tokenizer
from tfsparsecap.errors import InputError
from tfsparsecap.models.captioner import PAD


@dataclass(frozen=True)
class TrainingBatches:
    """Every caption of a split once an epoch, in an order that depends on nothing but the seed and the epoch.

    Made by `training_batches`.

    Attributes:
        source: where the pictures come from.
        tokens, targets: int32 [examples, T], see `Tokenizer.encode_padded`.
        record_of: int64 [examples], which record each caption belongs to.
        batch_size: examples a batch, over all devices together.
        lengths: lengths of token rows that batches may have, the largest `T`.
        pad_id: what fills rows of tokens up.
        skipped: records left out because their image cannot be read, or because they have no caption.
    """

    source: ImageSource
    tokens: np.ndarray
    targets: np.ndarray
    record_of: np.ndarray
    batch_size: int
    lengths: tuple[int, ...]
    seed: int
    pad_id: int = PAD
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
        used = (self.targets != self.pad_id).sum(axis=1)
        group = np.searchsorted(self.lengths, used)[shuffled]
        size = self.source.groups[self.record_of][shuffled]
        batches, lengths, rest = [], [], shuffled[:0]
        for same_size in np.unique(size):
            left = shuffled[:0]
            for index, length in enumerate(self.lengths):
                # What does not fill a batch of short captions goes among the longer ones, and what fills none
                # of those among the captions of pictures of the next size.
                pool = np.concatenate([left, shuffled[(group == index) & (size == same_size)]])
                if length == self.lengths[-1]:
                    pool = np.concatenate([rest, pool])
                full = len(pool) // self.batch_size * self.batch_size
                batches.append(pool[:full].reshape(-1, self.batch_size))
                lengths.append(np.full(len(batches[-1]), length, np.int64))
                left = pool[full:]
            rest = left
        mixed = random.permutation(self.steps_per_epoch)
        return np.concatenate(batches)[mixed], np.concatenate(lengths)[mixed]

    def _gather(self, rows: tf.Tensor, length: tf.Tensor) -> tuple[dict[str, tf.Tensor], tf.Tensor]:
        def gather(rows: np.ndarray, length: np.int64) -> list[np.ndarray]:
            records = self.record_of[rows]
            given = self.source.fetch(records)
            targets = self.targets[rows, :length]
            # A picture that turned out to be unreadable counts nothing.
            targets = np.where(self.source.usable[records][:, None], targets, self.pad_id).astype(
                targets.dtype
            )
            return [*(given[name] for name in self.source.specs), self.tokens[rows, :length], targets]

        *given, tokens, targets = tf.numpy_function(
            gather,
            [rows, length],
            [*(spec.dtype for spec in self.source.specs.values()), tf.int32, tf.int32],
            stateful=False,
        )
        width = self.lengths[0] if len(self.lengths) == 1 else None
        for tensor in (tokens, targets):
            tensor.set_shape([rows.shape[0], width])
        return {**_shaped(given, self.source, rows.shape[0]), "tokens": tokens}, targets


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
) -> TrainingBatches:
    """Batches of (image, caption) pairs of a split; captions are tokenised here, once, in the graph.

    Args:
        source: the pictures of the records.
        records: of the training split; every caption of every record is an example.
        tokenizer: words to ids.
        batch_size: `B`, over all devices together.
        max_length: `T`, words a caption may have, `END` included; longer ones are cut.
        augment: changes image batches; features cannot be augmented.
        seed: of the order and of the augmentation.
        lengths: batch captions of similar length together and cut each batch to the shortest of these lengths
            that holds it, `max_length` always being one of them; saves recurrent steps at the price of one
            trace of the training step for each. Empty: every batch has `T = max_length`.

    Raises:
        InputError: there are fewer examples than `batch_size`, or augmentation is asked of features.

    Example:
        >>> records = data.split("train")  # doctest: +SKIP
        >>> source = FeatureCacheSource(records, cache)  # doctest: +SKIP
        >>> batches = training_batches(  # doctest: +SKIP
        ...     source, records, tokenizer, batch_size=128, max_length=20
        ... )
        >>> for inputs, targets in batches.epoch(0):  # doctest: +SKIP
        ...     logits = model(inputs, training=True)
    """
    if "image" not in source.specs and augment is not None:
        raise InputError(
            "cached features cannot be augmented: train from images (features off) or turn augmentation off"
        )
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
        pad_id=tokenizer.pad_id,
        augment=augment,
        skipped=source.skipped,
    )


def reward_batches(
    source: ImageSource,
    records: Sequence[Record],
    *,
    batch_size: int,
    augment: Augmentation | None = None,
    seed: int = 0,
) -> TrainingBatches:
    """Batches of the pictures of a split, each once an epoch and with its number in place of captions, for
    training on rewards.

    Args:
        source, records, batch_size, augment, seed: as of `training_batches`, a picture being an example.
            Records without captions are left out.

    Returns:
        Batches whose targets, int32 [B, 1], are the places among the records; -1 for a picture that turned
        out to be unreadable. Their tokens mean nothing.

    Raises:
        InputError: there are fewer pictures than `batch_size`.

    Example:
        >>> batches = reward_batches(source, records, batch_size=10)  # doctest: +SKIP
    """
    captioned = np.array([bool(record.captions) for record in records])
    places = np.flatnonzero(source.usable & captioned)
    if len(places) < batch_size:
        raise InputError(
            f"there are {len(places)} pictures to train on, fewer than one batch of {batch_size}: give more"
            " data or set a smaller batch_size"
        )
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
        skipped=source.skipped,
    )


def image_batches(source: ImageSource, *, batch_size: int) -> tf.data.Dataset:
    """Images without captions, in the order of their records, for decoding; the last batch may be smaller.

    Args:
        source: the pictures; its `skipped` says what cannot be read.
        batch_size: `B`.

    Returns:
        Dataset of what `source` gives, such as `{"image": uint8 [B, S, S, 3], "index": int64 [B]}`, where
        `index` is the place among the records; those whose picture cannot be read are missing.
    """

    def fetch(indices: np.ndarray) -> list[np.ndarray]:
        given = source.fetch(indices)
        good = source.usable[indices]
        return [*(given[name][good] for name in source.specs), indices[good]]

    def gather(indices: tf.Tensor) -> dict[str, tf.Tensor]:
        dtypes = [*(spec.dtype for spec in source.specs.values()), tf.int64]
        *given, index = tf.numpy_function(fetch, [indices], dtypes, stateful=False)
        index.set_shape([None])
        return {**_shaped(given, source, None), "index": index}

    dataset = tf.data.Dataset.from_tensor_slices(np.flatnonzero(source.usable)).batch(batch_size)
    return dataset.map(gather, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True).prefetch(2)


@contextmanager
def unwrap_input_errors() -> Iterator[None]:
    """What a source of pictures raised inside a data set, as it was raised and not as TensorFlow's error.

    Raises:
        InputError: the one that `ImageSource.fetch` raised while a data set was read in this context.
    """
    try:
        yield
    except tf.errors.OpError as error:
        said = re.search(r"InputError: (.+)", error.message)
        if said is None:
            raise
        raise InputError(said[1]) from error


def _shaped(given: Sequence[tf.Tensor], source: ImageSource, batch: int | None) -> dict[str, tf.Tensor]:
    """Tensors under their names, with what is known of their shapes; features as float32."""
    named = {}
    for tensor, (name, spec) in zip(given, source.specs.items(), strict=True):
        tensor.set_shape([batch, *spec.shape])
        named[name] = tf.cast(tensor, tf.float32) if spec.dtype == tf.float16 else tensor
    return named
