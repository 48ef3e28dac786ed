"""Cached views and teachers; region features: values, buckets, and files found bad during an epoch."""

import warnings

import numpy as np
import pytest
import tensorflow as tf

from tfsparsecap.captioning.data.feature_cache import FeatureCache
from tfsparsecap.captioning.data.image_sources import FeatureCacheSource, RegionFeatureSource, TeachingSource
from tfsparsecap.captioning.data.pipeline import image_batches, training_batches, unwrap_input_errors
from tfsparsecap.captioning.data.records import Record
from tfsparsecap.captioning.data.region_features import RegionFeatures
from tfsparsecap.captioning.data.tokenizers import WordTokenizer
from tfsparsecap.errors import InputError

ATT, FC, BOX = "cocobu_att", "cocobu_fc", "cocobu_box_relative"
#: Regions of the images, and the bucket of each: 4, 6, or at most 9 of them.
COUNTS = [3, 9, 5, 4, 12, 6, 1, 8, 2, 7]
BUCKETS = [4, 9, 6, 4, 9, 6, 4, 9, 4, 9]
SIZE, BAD = 8, 5


@pytest.fixture
def folder(tmp_path):
    """Files of images "0", "1", ... whose features, boxes and pooled feature are all different."""
    random = np.random.default_rng(1)
    for kind in (ATT, FC, BOX):
        (tmp_path / kind).mkdir()
    for number, count in enumerate(COUNTS):
        corners = np.sort(random.random([count, 2, 2]), axis=1)
        np.save(tmp_path / ATT / f"{number}.npy", random.random([count, SIZE], np.float32))
        np.save(tmp_path / FC / f"{number}.npy", random.random(SIZE, np.float32))
        np.save(tmp_path / BOX / f"{number}.npy", corners.reshape(count, 4).astype(np.float32))
    return tmp_path


def damage(folder, number, kind, value):
    """Puts a number into an image's file and returns the file."""
    path = folder / kind / f"{number}.npy"
    array = np.load(path)
    array[(0,) * array.ndim] = value
    np.save(path, array)
    return path


def opened(folder, on_bad_record="skip", boxes=True, pooled=True):
    ids = [str(number) for number in range(len(COUNTS))]
    features = RegionFeatures(
        folder,
        ids,
        buckets=(4, 6),
        max_regions=9,
        on_bad_record=on_bad_record,
        need_boxes=boxes,
        need_pooled=pooled,
    )
    return RegionFeatureSource(features, on_bad_record)


def batches_of(source, batch_size=4):
    """Image n has n % 3 + 1 captions; the first word of each is word n."""
    captions = [tuple(f"word{n} " + "and " * more + "end" for more in range(n % 3 + 1)) for n in range(10)]
    records = [Record(str(n), "absent.jpg", captions[n], "train") for n in range(10)]
    words = WordTokenizer(["<pad>", "<start>", "<end>", "<unk>", *(f"word{n}" for n in range(10)), "and"])
    return training_batches(source, records, words, batch_size=batch_size, max_length=6)


def skip_warnings(warned):
    """Messages about skipped images, without the warnings of other libraries."""
    return [str(entry.message) for entry in warned if str(entry.message).startswith("skipped: ")]


def collected(dataset):
    return [tf.nest.map_structure(lambda tensor: tensor.numpy(), batch) for batch in dataset]


def whose(inputs):
    """The image of every caption of a training batch, by the first word of the caption."""
    return (inputs["tokens"][:, 1] - 4).tolist()


def assert_holds(folder, batch, place, number):
    """Row `place` of a batch equals the files of image `number` as read by NumPy, padded with zeros."""
    count = min(COUNTS[number], 9)
    for name, kind in (("features", ATT), ("boxes", BOX)):
        array = np.load(folder / kind / f"{number}.npy")[:count]
        np.testing.assert_array_equal(batch[name][place, :count], array, strict=True)
        assert not batch[name][place, count:].any()
    np.testing.assert_array_equal(batch["pooled"][place], np.load(folder / FC / f"{number}.npy"))
    assert batch["mask"][place].tolist() == [True] * count + [False] * (len(batch["mask"][place]) - count)


def test_batches_are_padded_to_the_bucket_of_their_largest_image(folder):
    batches = batches_of(opened(folder), batch_size=4)
    epoch = collected(batches.epoch(0))
    for inputs, _ in epoch:
        images = whose(inputs)
        assert inputs["features"].shape == (4, max(BUCKETS[n] for n in images), SIZE)
        for place, number in enumerate(images):
            assert_holds(folder, inputs, place, number)
    # The images of the three buckets have 6, 6 and 7 captions: 2 of the first bucket move to the second.
    assert sorted(inputs["mask"].shape[1] for inputs, _ in epoch) == [4, 6, 6, 9]
    assert any({BUCKETS[n] for n in whose(inputs)} == {4, 6} for inputs, _ in epoch)
    decoded = collected(image_batches(opened(folder), batch_size=3))
    assert [batch["features"].shape[1] for batch in decoded] == [9, 9, 9, 9]
    assert [batch["index"].tolist() for batch in decoded] == [[0, 1, 2], [3, 4, 5], [6, 7, 8], [9]]
    for batch in decoded:
        for place, number in enumerate(batch["index"]):
            assert_holds(folder, batch, place, number)


DAMAGES = [
    (ATT, np.nan, "row 0 that is not finite"),
    (FC, np.inf, "row 0 that"),
    (BOX, 1.5, r"row 0 is \[1.5"),
]


@pytest.mark.parametrize(("kind", "value", "why"), DAMAGES)
def test_an_image_found_bad_during_training_is_masked_and_listed_once(folder, kind, value, why):
    path = damage(folder, BAD, kind, value)
    source = opened(folder)
    assert source.usable.all() and source.skipped == [], "headers alone do not show it"
    batches = batches_of(source)
    with pytest.warns(UserWarning, match=f"skipped: {path} .*{why}") as warned:
        epochs = [batch for number in range(3) for batch in collected(batches.epoch(number))]
    assert len(skip_warnings(warned)) == 1
    assert [entry.where for entry in source.skipped] == [str(BAD)]
    assert source.skipped[0].why.startswith(str(path))
    assert np.flatnonzero(~source.usable).tolist() == [BAD]
    seen = 0
    for inputs, targets in epochs:
        for place, number in enumerate(whose(inputs)):
            if number == BAD:
                seen += 1
                assert (targets[place] == 0).all()
                assert not any(inputs[name][place].any() for name in source.specs)
            else:
                assert targets[place, 0] == 4 + number
                assert_holds(folder, inputs, place, number)
    assert seen > 3


def test_images_found_bad_during_decoding_are_skipped(folder):
    damage(folder, BAD, ATT, np.nan)
    damage(folder, 9, BOX, -1)
    source = opened(folder)
    dataset = image_batches(source, batch_size=3)
    with pytest.warns(UserWarning, match="skipped: ") as warned:
        first = collected(dataset)
    assert len(skip_warnings(warned)) == 2 and sorted(entry.where for entry in source.skipped) == [
        str(BAD),
        "9",
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        again = collected(dataset)
    for batches in (first, again):
        # The last image is unreadable and alone in its batch, which is empty.
        assert [batch["index"].tolist() for batch in batches] == [[0, 1, 2], [3, 4], [6, 7, 8], []]
        for batch in batches:
            assert {len(batch[name]) for name in source.specs} == {len(batch["index"])}
            for place, number in enumerate(batch["index"]):
                assert_holds(folder, batch, place, number)
    later = collected(image_batches(source, batch_size=3))
    assert [batch["index"].tolist() for batch in later] == [[0, 1, 2], [3, 4, 6], [7, 8]]


@pytest.mark.parametrize(("kind", "value", "why"), DAMAGES)
def test_on_bad_record_fail_raises_the_original_error(folder, kind, value, why):
    path = damage(folder, BAD, kind, value)
    source = opened(folder, on_bad_record="fail")
    for dataset in (batches_of(source).epoch(0), image_batches(source, batch_size=4)):
        with pytest.raises(InputError, match=f"^{path} .*{why}.*leave the image out$"), unwrap_input_errors():
            collected(dataset)
    assert source.usable.all() and source.skipped == []


def test_files_that_disappear_or_change_are_skipped(folder):
    source = opened(folder)
    (folder / ATT / f"{BAD}.npy").unlink()
    np.save(folder / ATT / "1.npy", np.ones([3, SIZE], np.float32))
    with pytest.warns(UserWarning, match="skipped: ") as warned:
        batch = source.fetch(np.array([0, BAD, 1, 2]))
    assert len(skip_warnings(warned)) == 2
    assert [(entry.where, entry.why.partition(":")[0]) for entry in source.skipped] == [
        (str(BAD), f"there is no {folder / ATT / '5.npy'}"),
        ("1", f"{folder / ATT / '1.npy'} was changed since it was indexed"),
    ]
    assert_holds(folder, batch, 0, 0)
    assert_holds(folder, batch, 3, 2)
    assert not any(batch[name][1:3].any() for name in source.specs)


def test_boxes_in_pixels_are_rejected_before_training(folder):
    for file in (folder / BOX).glob("*.npy"):
        np.save(file, np.load(file) * 600)
    with pytest.raises(InputError, match="divide pixels by its width and height"):
        opened(folder)


def cache_of(values, names):
    """A feature cache in which all features of an image have one value."""
    features = np.broadcast_to(np.asarray(values, np.float16)[:, None, None], (len(values), 3, 2))
    return FeatureCache(None, features, {name: row for row, name in enumerate(names)})


def test_each_image_has_the_features_of_its_own_view_and_of_its_teachers():
    records = [Record(name, None, ("a dog",), "train") for name in "abc"]
    views = [cache_of([1, 2, 3], "abc"), cache_of([30, 20, 10], "cba")]
    teachers = [cache_of([7, 8, 9], "abc"), cache_of([70, 80, 90], "abc")]
    source = TeachingSource(FeatureCacheSource(records, *views), [FeatureCacheSource(records, *teachers)])
    batch = source.fetch(np.array([2, 0, 1, 1]), np.array([0, 1, 1, 0]))
    assert batch["features"].shape == (4, 3, 2) and batch.keys() == source.specs.keys()
    assert batch["features"][:, 2, 1].tolist() == [3, 10, 20, 2]
    assert batch["teacher0_features"][:, 0, 0].tolist() == [9, 70, 80, 8]
    assert source.fetch(np.array([1]))["features"][0, 0, 0] == 2


def test_an_epoch_takes_all_views_and_the_same_ones_again_for_the_same_number():
    names = [f"{number:02d}" for number in range(32)]
    records = [Record(name, None, ("a dog",), "train") for name in names]
    source = FeatureCacheSource(records, cache_of(np.zeros(32), names), cache_of(np.ones(32), names))
    tokenizer = WordTokenizer.from_captions(["a dog"])
    batches = training_batches(source, records, tokenizer, batch_size=8, max_length=4)
    first, again, second = (
        np.concatenate([inputs["features"][:, 0, 0] for inputs, _ in batches.epoch(number)])
        for number in (0, 0, 1)
    )
    assert 8 < first.sum() < 24
    assert (first == again).all() and (first != second).any()
