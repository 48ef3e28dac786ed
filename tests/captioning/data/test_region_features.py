"""Region features: values equal the files, bad files are found before training."""

import json

import numpy as np
import pytest

from tfsparsecap.captioning.data.region_features import RegionFeatures
from tfsparsecap.errors import InputError

KINDS = ("cocobu_att", "cocobu_fc", "cocobu_box_relative")


def boxes(count):
    corners = np.random.default_rng(count).random([count, 2, 2])
    return np.concatenate([corners.min(axis=1), corners.max(axis=1)], axis=1)


def put(folder, name, array, kind="cocobu_att"):
    (folder / kind).mkdir(exist_ok=True)
    np.save(folder / kind / f"{name}.npy", array)


def make(folder, counts, size=8, dtype=np.float32):
    """Files of images named 0, 1, ... with these numbers of regions."""
    random = np.random.default_rng(0)
    for number, count in enumerate(counts):
        put(folder, number, random.random([count, size]).astype(dtype))
        put(folder, number, random.random(size).astype(dtype), "cocobu_fc")
        put(folder, number, boxes(count).astype(dtype), "cocobu_box_relative")
    return [str(number) for number in range(len(counts))]


def opened(folder, image_ids, **options):
    return RegionFeatures(folder, image_ids, **{"need_boxes": True, "need_pooled": True} | options)


def fetch(features, indices, regions):
    """A batch of images."""
    images = [features.fetch(index, regions) for index in indices]
    return {name: np.stack([image[name] for image in images]) for name in images[0]}


@pytest.fixture
def fixture(fixtures):
    return fixtures / "coco_bottom_up"


def test_published_features_equal_the_files(fixture):
    ids = [
        str(entry["cocoid"]) for entry in json.loads((fixture / "dataset_coco.json").read_text())["images"]
    ]
    features = opened(fixture, ids)
    assert features.feature_size == 2048
    assert features.regions.tolist() == [37, 21, 47, 31, 18] and features.regions.dtype == np.int32
    assert features.usable.all() and features.skipped == []
    order = np.array([2, 4, 0, 2])
    batch = fetch(features, order, 50)
    assert {name: (array.dtype, array.shape) for name, array in batch.items()} == {
        "features": (np.float32, (4, 50, 2048)),
        "mask": (bool, (4, 50)),
        "boxes": (np.float32, (4, 50, 4)),
        "pooled": (np.float32, (4, 2048)),
    }
    for place, index in enumerate(order):
        att, pooled, box = (np.load(fixture / kind / f"{ids[index]}.npy") for kind in KINDS)
        count = len(att)
        np.testing.assert_array_equal(batch["features"][place, :count], att)
        np.testing.assert_array_equal(batch["boxes"][place, :count], box.astype(np.float32))
        np.testing.assert_array_equal(batch["pooled"][place], pooled)
        assert batch["mask"][place].tolist() == [True] * count + [False] * (50 - count)
        assert not batch["features"][place, count:].any() and not batch["boxes"][place, count:].any()


def test_unneeded_files_are_not_read(tmp_path):
    ids = make(tmp_path, [3, 2])
    for kind in ("cocobu_fc", "cocobu_box_relative"):
        for path in (tmp_path / kind).iterdir():
            path.write_bytes(b"broken")
    features = opened(tmp_path, ids, need_boxes=False, need_pooled=False)
    assert features.usable.all()
    assert sorted(fetch(features, np.array([0, 1]), 3)) == ["features", "mask"]


@pytest.mark.parametrize("dtype", ["<f2", ">f4", "<f8"])
def test_other_floating_point_types_become_float32(tmp_path, dtype):
    ids = make(tmp_path, [3], dtype=dtype)
    batch = fetch(opened(tmp_path, ids), np.array([0]), 3)
    for name, kind in (("features", KINDS[0]), ("pooled", KINDS[1]), ("boxes", KINDS[2])):
        expected = np.load(tmp_path / kind / "0.npy").astype(np.float32)
        np.testing.assert_array_equal(batch[name][0], expected, strict=True)


def test_npz_files_and_fortran_order_are_supported(tmp_path):
    ids = make(tmp_path, [3, 200])
    expected = []
    for name in ids:
        path = tmp_path / "cocobu_att" / f"{name}.npy"
        expected.append(np.load(path))
        np.savez_compressed(path.with_suffix(".npz"), feat=expected[-1])
        path.unlink()
        box = tmp_path / "cocobu_box_relative" / f"{name}.npy"
        np.save(box, np.asfortranarray(np.load(box)))
    batch = fetch(opened(tmp_path, ids), np.array([1, 0]), 100)
    np.testing.assert_array_equal(batch["features"][0], expected[1][:100])
    np.testing.assert_array_equal(batch["features"][1, :3], expected[0])
    np.testing.assert_array_equal(batch["boxes"][0], boxes(200)[:100].astype(np.float32))


def test_files_of_ids_that_are_file_names_are_found(tmp_path):
    for name, value in (("12_ab", 1.0), ("dog.PNG", 2.0), ("dog", 3.0), ("sub.folder", 4.0), ("1", 5.0)):
        put(tmp_path, name, np.full([1, 2], value, np.float32))
    (tmp_path / "cocobu_att" / "inner").mkdir()
    put(tmp_path, "inner/cat", np.full([1, 2], 6, np.float32))
    ids = ["12_ab.jpg", "dog.PNG", "dog.jpeg", "sub.folder", "inner/cat.jpg", "1.5", "../cocobu_att/1"]
    features = opened(tmp_path, ids, need_boxes=False, need_pooled=False)
    assert features.usable.tolist() == [True] * 5 + [False] * 2
    values = fetch(features, np.arange(5), 1)["features"][:, 0, 0]
    assert values.tolist() == [1, 2, 3, 4, 6]
    assert str(features.skipped[0]).startswith(f"1.5: there is no {tmp_path}/cocobu_att/1.5.npy (or .npz)")


def test_no_more_than_max_regions_are_used(tmp_path):
    ids = make(tmp_path, [3, 9])
    features = opened(tmp_path, ids, max_regions=5, buckets=(4, 8))
    assert features.buckets == (4, 5)
    assert features.regions.tolist() == [3, 5]
    batch = fetch(features, np.array([1]), 5)
    np.testing.assert_array_equal(batch["features"][0], np.load(tmp_path / "cocobu_att" / "1.npy")[:5])
    np.testing.assert_array_equal(batch["boxes"][0], boxes(9)[:5].astype(np.float32))
    assert batch["mask"].all()


def test_the_smallest_sufficient_bucket_is_used(tmp_path):
    features = opened(tmp_path, make(tmp_path, [1]))
    counts = [[0, 1, 36, 37], [50, 75, 76, 1000]]
    assert features.bucket(np.array(counts)).tolist() == [[36, 36, 36, 50], [50, 75, 100, 100]]


def test_bad_files_are_listed_and_the_rest_is_used(tmp_path):
    ids = make(tmp_path, [3] * 14)
    put(tmp_path, 1, np.zeros([3, 7], np.float32))
    put(tmp_path, 2, np.zeros([2, 3, 8], np.float32))
    put(tmp_path, 3, np.zeros([0, 8], np.float32))
    put(tmp_path, 4, np.zeros([3, 8], np.int64))
    put(tmp_path, 5, boxes(4), "cocobu_box_relative")
    put(tmp_path, 6, boxes(3)[:, :3], "cocobu_box_relative")
    put(tmp_path, 7, np.zeros([7], np.float32), "cocobu_fc")
    put(tmp_path, 8, np.zeros([1, 8], np.float32), "cocobu_fc")
    for number, kind in ((9, KINDS[0]), (10, KINDS[1]), (11, KINDS[2])):
        (tmp_path / kind / f"{number}.npy").unlink()
    path = tmp_path / KINDS[0] / "12.npy"
    path.write_bytes(path.read_bytes()[:-1])
    (tmp_path / KINDS[2] / "13.npy").write_bytes(b"damaged")

    features = opened(tmp_path, ids)
    assert features.usable.tolist() == [True] + [False] * 13
    assert features.regions.tolist() == [3] + [0] * 13
    att, fc, box = (str(tmp_path / kind) for kind in KINDS)
    expected = [
        f"1: {att}/1.npy has features of 7 numbers but {att}/0.npy has 8: ",
        f"2: {att}/2.npy has the shape [2, 3, 8], expected [regions, D]",
        f"3: {att}/3.npy has the shape [0, 8], which is empty: ",
        f"4: {att}/4.npy has the type int64, not floating-point: ",
        f"5: {box}/5.npy has 4 boxes but {att}/5.npy 3 regions: ",
        f"6: {box}/6.npy has rows of 3 numbers: ",
        f"7: {fc}/7.npy has 7 numbers but {att}/0.npy has 8: ",
        f"8: {fc}/8.npy has the shape [1, 8], expected [D]",
        f"9: there is no {att}/9.npy (or .npz): ",
        f"10: there is no {fc}/10.npy (or .npz): ",
        f"11: there is no {box}/11.npy (or .npz): ",
        f"12: {att}/12.npy is truncated, 223 of 224 bytes: ",
        f"13: {box}/13.npy is damaged (",
    ]
    for entry, beginning in zip(features.skipped, expected, strict=True):
        assert str(entry).startswith(beginning)

    with pytest.raises(InputError, match=r"^1: .*1\.npy has features of 7 numbers.*on_bad_record=skip"):
        opened(tmp_path, ids, on_bad_record="fail")
    with pytest.raises(InputError, match="the features of 3 cannot be used"):
        fetch(features, np.array([0, 3]), 3)
    with pytest.raises(
        InputError, match=r"none of the 14 images.*has features of 8 numbers but feature_size is 9"
    ):
        opened(tmp_path, ids, feature_size=9)


def test_missing_folders_and_other_data_are_rejected(tmp_path):
    ids = make(tmp_path, [2])
    with pytest.raises(InputError, match=r"no folder .*nowhere/cocobu_att with files ID\.npy"):
        opened(tmp_path / "nowhere", ids)
    (tmp_path / "cocobu_box_relative").rename(tmp_path / "boxes")
    with pytest.raises(
        InputError, match=r"no folder .*/cocobu_box_relative with files .* float \[regions, 4\]"
    ):
        opened(tmp_path, ids)
    (tmp_path / "boxes").rename(tmp_path / "cocobu_box_relative")
    with pytest.raises(
        InputError, match=r"none of the 1 images: .*the first: dog\.jpg: there is no .*/dog\.npy"
    ):
        opened(tmp_path, ["dog.jpg"])
    with pytest.raises(InputError, match="there are no images"):
        opened(tmp_path, [])


@pytest.mark.parametrize(
    ("kind", "row", "value", "message"),
    [
        (KINDS[0], (2, 5), np.nan, r"cocobu_att/0\.npy has a number in row 2 that is not finite"),
        (KINDS[0], (1, 0), np.inf, r"cocobu_att/0\.npy has a number in row 1 that is not finite"),
        (KINDS[0], (1, 0), 1e300, r"cocobu_att/0\.npy has a number in row 1 that is not finite in float32"),
        (KINDS[1], (3,), -np.inf, r"cocobu_fc/0\.npy has a number in row 3 that is not finite"),
        (KINDS[2], (1, 2), np.nan, r"cocobu_box_relative/0\.npy has a number in row 1 that is not finite"),
        (KINDS[2], (2, 3), 1.011, r"cocobu_box_relative/0\.npy row 2 is \[.*1\.011\].*divide pixels"),
        (KINDS[2], (2, 0), -0.011, r"cocobu_box_relative/0\.npy row 2 is \[-0\.011"),
        (KINDS[2], (0, 2), 0.0, r"cocobu_box_relative/0\.npy row 0 is"),
        (KINDS[2], (0, 3), 0.0, r"cocobu_box_relative/0\.npy row 0 is"),
    ],
)
def test_invalid_values_are_reported_with_file_and_row(tmp_path, kind, row, value, message):
    ids = make(tmp_path, [3], dtype=np.float64)
    array = np.load(tmp_path / kind / "0.npy")
    array[row] = value
    put(tmp_path, 0, array, kind)
    features = opened(tmp_path, ids)
    assert features.usable.all()
    with pytest.raises(InputError, match=message):
        fetch(features, np.array([0]), 3)


def test_boxes_may_exceed_the_image_by_rounding_and_be_empty(tmp_path):
    ids = make(tmp_path, [2])
    edge = np.array([[-0.009, 0, 1.009, 1], [0.5, 0.5, 0.5, 0.5]])
    put(tmp_path, 0, edge, "cocobu_box_relative")
    np.testing.assert_array_equal(fetch(opened(tmp_path, ids), [0], 2)["boxes"][0], edge.astype(np.float32))
