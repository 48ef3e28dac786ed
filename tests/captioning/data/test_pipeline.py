"""Batches: every caption once per epoch, in a reproducible order, with the right image."""

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from tfsparsecap.captioning.data import image_sources
from tfsparsecap.captioning.data.augmentation import Augmentation
from tfsparsecap.captioning.data.feature_cache import FeatureCache
from tfsparsecap.captioning.data.image_sources import FeatureCacheSource, ImageFileSource
from tfsparsecap.captioning.data.pipeline import image_batches, training_batches
from tfsparsecap.captioning.data.records import Record, Skipped
from tfsparsecap.captioning.data.tokenizers import WordTokenizer
from tfsparsecap.errors import InputError

IMAGES, SIZE = 10, 8


@pytest.fixture
def records(tmp_path):
    """Image n has a single colour, n, and n % 3 + 1 captions that begin with word n."""
    records = []
    for n in range(IMAGES):
        path = tmp_path / f"image {n}.png"
        Image.new("RGB", (12, 9), (n, n, n)).save(path)
        captions = tuple(f"word{n} " + "and " * extra + "end" for extra in range(n % 3 + 1))
        records.append(Record(path.name, path, captions, "train"))
    return records


@pytest.fixture
def tokenizer(records):
    return WordTokenizer.from_captions(caption for record in records for caption in record.captions)


@pytest.fixture
def cache(records, tmp_path):
    """Features of image n are all n; the rows have another order than the records."""
    order = np.random.default_rng(0).permutation(IMAGES)
    features = np.repeat(order.astype(np.float16), 6).reshape(IMAGES, 2, 3)
    return FeatureCache(tmp_path / "x.npy", features, {f"image {n}.png": row for row, n in enumerate(order)})


def make(records, tokenizer, features=None, on_bad_record="skip", **options):
    source = (
        FeatureCacheSource(records, features) if features else ImageFileSource(records, SIZE, on_bad_record)
    )
    return training_batches(source, records, tokenizer, **{"batch_size": 4, "max_length": 6, **options})


def collected(dataset):
    return [tf.nest.map_structure(lambda tensor: tensor.numpy(), batch) for batch in dataset]


def equal(first, second):
    first, second = tf.nest.flatten(first), tf.nest.flatten(second)
    return len(first) == len(second) and all(np.array_equal(a, b) for a, b in zip(first, second, strict=True))


def numbers(batches, tokenizer):
    """The number in the first word of every example."""
    return [
        int(tokenizer.vocabulary[row[0]].removeprefix("word")) for _, targets in batches for row in targets
    ]


@pytest.mark.parametrize("kind", ["image", "features"])
def test_each_caption_comes_with_its_image(records, tokenizer, cache, kind):
    batches = make(records, tokenizer, features=cache if kind == "features" else None)
    assert batches.examples == sum(len(record.captions) for record in records) == 19
    assert batches.steps_per_epoch == 4
    epoch = collected(batches.epoch(0))
    assert len(epoch) == 4
    for inputs, targets in epoch:
        assert sorted(inputs) == sorted([kind, "tokens"])
        assert inputs["tokens"].dtype == targets.dtype == np.int32
        assert inputs["tokens"].shape == targets.shape == (4, 6)
        values = inputs[kind]
        assert values.shape == ((4, SIZE, SIZE, 3) if kind == "image" else (4, 2, 3))
        assert values.dtype == (np.uint8 if kind == "image" else np.float32)
        values = values.reshape(4, -1)
        assert (values == values[:, :1]).all()
        assert values[:, 0].astype(int).tolist() == numbers([(inputs, targets)], tokenizer)
        assert (inputs["tokens"][:, 0] == 1).all()
        assert (inputs["tokens"][:, 1:][targets[:, 1:] != 0] == targets[:, :-1][targets[:, 1:] != 0]).all()


def test_every_caption_is_used_once_per_epoch(records, tokenizer, cache):
    batches = make(records, tokenizer, features=cache, batch_size=1)
    seen = sorted(numbers(collected(batches.epoch(3)), tokenizer))
    assert seen == sorted(n for n in range(IMAGES) for _ in range(n % 3 + 1))


def test_epochs_are_reproducible(records, tokenizer, cache):
    first = make(records, tokenizer, features=cache, seed=7)
    collected(first.epoch(0))
    second = make(records, tokenizer, features=cache, seed=7)
    assert equal(collected(first.epoch(1)), collected(second.epoch(1)))
    assert not equal(collected(first.epoch(1)), collected(first.epoch(0)))
    other = make(records, tokenizer, features=cache, seed=8)
    assert not equal(collected(first.epoch(1)), collected(other.epoch(1)))


def test_augmented_epochs_are_reproducible(tmp_path, tokenizer):
    random = np.random.default_rng(0)
    records = []
    for n in range(8):
        path = tmp_path / f"{n}.png"
        Image.fromarray(random.integers(0, 255, (SIZE, SIZE, 3), dtype=np.uint8)).save(path)
        records.append(Record(path.name, path, ("word1 end",), "train"))
    augment = Augmentation(["RandomFlip", "RandomBrightness"], SIZE)
    plain = collected(make(records, tokenizer, batch_size=2).epoch(1))
    batches = make(records, tokenizer, batch_size=2, augment=augment)
    epoch = collected(batches.epoch(1))
    again = collected(make(records, tokenizer, batch_size=2, augment=augment).epoch(1))
    assert equal(epoch, again)
    assert not equal(epoch, plain)
    assert equal([targets for _, targets in epoch], [targets for _, targets in plain])


def test_captions_of_an_image_follow_each_other_and_come_with_it_once(records, tokenizer, cache):
    # Of 1, 2 or 3 captions, one is repeated, both are used, or one is left out.
    batches = make(records, tokenizer, cache, captions_per_image=2, lengths=[3])
    epochs = [collected(batches.epoch(number)) for number in range(8)]
    used = {number: [] for number in range(IMAGES)}
    for inputs, targets in (batch for epoch in epochs for batch in epoch):
        assert len(targets) == len(inputs["tokens"]) == 4 and len(inputs["features"]) == 2
        for image, rows in zip(inputs["features"][:, 0, 0], np.split(targets, 2), strict=True):
            captions = [tokenizer.decode(row) for row in rows]
            assert all(caption.startswith(f"word{image:.0f} ") for caption in captions)
            used[int(image)].append(captions)
    assert all(len(epoch) == batches.steps_per_epoch == 5 for epoch in epochs)
    for number, groups in used.items():
        assert len(groups) == 8
        assert all(len(set(group)) == min(2, number % 3 + 1) for group in groups)
        assert {caption for group in groups for caption in group} == set(records[number].captions)
    assert equal(epochs[1], collected(batches.epoch(1))) and not equal(epochs[1], epochs[2])


@pytest.mark.parametrize(("replicas", "pipelines", "together"), [(2, 1, 1), (2, 2, 2), (4, 2, 1)])
def test_devices_together_get_the_batches_of_one_device(
    records, tokenizer, cache, replicas, pipelines, together
):
    batches = make(records, tokenizer, features=cache, lengths=[4], captions_per_image=together)
    parts = []
    for pipeline_id in range(pipelines):
        context = tf.distribute.InputContext(pipelines, pipeline_id, replicas)
        parts.append(collected(batches.epoch(0, context=context)))
    here, single_device_batches = replicas // pipelines, collected(batches.epoch(0))
    for step, (_, targets) in enumerate(single_device_batches):
        shares = [part[step * here + device] for part in parts for device in range(here)]
        np.testing.assert_array_equal(np.concatenate([share for _, share in shares]), targets)
        own = [inputs["features"][:, 0, 0].repeat(together) for inputs, _ in shares]
        assert [f"word{n:.0f}" for n in np.concatenate(own)] == [
            tokenizer.vocabulary[row[0]] for row in targets
        ]


def test_captions_of_similar_length_are_batched_together(records, tokenizer, cache):
    batches = make(records, tokenizer, features=cache, lengths=[3, 4], batch_size=3)
    assert batches.lengths == (3, 4, 6)
    epoch = collected(batches.epoch(0))
    assert len(epoch) == batches.steps_per_epoch == 6
    for inputs, targets in epoch:
        assert inputs["tokens"].shape == targets.shape
        assert (targets == 2).sum(axis=1).tolist() == [1, 1, 1], "no caption is truncated"
    assert sorted({targets.shape[1] for _, targets in epoch}) == [3, 4, 6]
    single_batches = make(records, tokenizer, features=cache, lengths=[3, 4], batch_size=1)
    assert len(numbers(collected(single_batches.epoch(0)), tokenizer)) == 19


def test_captions_that_are_too_long_are_counted(records, tokenizer, cache):
    assert make(records, tokenizer, cache).cut == 0
    assert make(records, tokenizer, cache, max_length=4).cut == 3


def test_broken_images_are_listed_and_their_captions_skipped(records, tokenizer):
    records[5].image.write_bytes(b"no image")
    records[6].image.unlink()
    batches = make(records, tokenizer, batch_size=1)
    assert [entry.where for entry in batches.source.skipped] == ["image 5.png", "image 6.png"]
    assert batches.examples == 19 - 3 - 1
    assert not {5, 6} & set(numbers(collected(batches.epoch(0)), tokenizer))
    with pytest.raises(InputError, match=r"image 5\.png"):
        make(records, tokenizer, on_bad_record="fail")


def test_images_without_features_are_listed_and_their_captions_skipped(records, tokenizer, cache):
    del cache.row_of["image 5.png"]
    cache.skipped.append(Skipped("image 5.png", "it is broken"))
    batches = make(records, tokenizer, features=cache, batch_size=1)
    assert [str(entry) for entry in batches.source.skipped] == ["image 5.png: it is broken"]
    assert 5 not in numbers(collected(batches.epoch(0)), tokenizer)
    del cache.row_of["image 6.png"]
    with pytest.raises(InputError, match=r"no features of the image image 6\.png"):
        make(records, tokenizer, features=cache)


def test_images_that_do_not_fit_into_memory_are_read_from_files(records, tokenizer, monkeypatch):
    memory_batches = collected(make(records, tokenizer).epoch(0))
    monkeypatch.setattr(image_sources, "MEMORY_LIMIT", 100)
    streamed = make(records, tokenizer)
    reads = []
    real = image_sources.read_image
    monkeypatch.setattr(
        image_sources, "read_image", lambda *arguments: reads.append(arguments) or real(*arguments)
    )
    assert equal(collected(streamed.epoch(0)), memory_batches)
    assert len(reads) == 16


def test_too_few_captions_and_augmented_features_are_rejected(records, tokenizer, cache):
    with pytest.raises(InputError, match="19 captions to train on, fewer than one batch of 20"):
        make(records, tokenizer, batch_size=20)
    # Of three captions, one is left out; a single one is repeated.
    assert make(records, tokenizer, captions_per_image=2, batch_size=20).steps_per_epoch == 1
    assert len(collected(make(records, tokenizer, captions_per_image=5, batch_size=50).epoch(0))) == 1
    few = r"20 captions \(with training\.captions_per_image=2\) to train on, fewer than one batch of 22: use"
    with pytest.raises(InputError, match=few):
        make(records, tokenizer, captions_per_image=2, batch_size=22)
    with pytest.raises(InputError, match="0 captions"):
        make([], tokenizer)
    with pytest.raises(InputError, match="cannot be augmented"):
        make(records, tokenizer, features=cache, augment=Augmentation([], SIZE))


@pytest.mark.parametrize("kind", ["image", "features"])
def test_images_for_decoding_come_in_order(records, cache, kind):
    source = FeatureCacheSource(records, cache) if kind == "features" else ImageFileSource(records, SIZE)
    batches = collected(image_batches(source, batch_size=4))
    assert [len(batch["index"]) for batch in batches] == [4, 4, 2]
    assert np.concatenate([batch["index"] for batch in batches]).tolist() == list(range(IMAGES))
    assert batches[0]["index"].dtype == np.int64
    numbers = np.concatenate([batch[kind].reshape(len(batch[kind]), -1)[:, 0] for batch in batches])
    assert numbers.tolist() == list(range(IMAGES))
