"""Published bottom-up features as TSV files and zip archives, in the layout of the project."""

import base64
import csv
import io
import resource
import shutil
import zipfile

import numpy as np
import pytest

from tfsparsecap.captioning.data.bottom_up import COLUMNS, convert_features
from tfsparsecap.captioning.data.region_features import RegionFeatures
from tfsparsecap.errors import InputError

#: Width, height, corners in pixels and features of images of four numbers a region.
IMAGES = {
    "42": (640, 480, [[0, 0, 320, 240], [64, 48, 640, 480]], [[1, 2, 3, 4], [5, 6, 7, 8]]),
    "7": (100, 200, [[10, 20, 50, 100]], [[-1, 0, 0.5, 1e-3]]),
}


def lines(images, **changes) -> str:
    """As `generate_tsv.py` of the original repository writes them."""
    text = io.StringIO()
    writer = csv.DictWriter(text, delimiter="\t", fieldnames=COLUMNS)
    for image, (width, height, boxes, features) in images.items():
        row = {
            "image_id": image,
            "image_w": width,
            "image_h": height,
            "num_boxes": len(boxes),
            "boxes": base64.b64encode(np.array(boxes, np.float32)).decode(),
            "features": base64.b64encode(np.array(features, np.float32)).decode(),
        }
        writer.writerow(row | {name: change for name, change in changes.items() if image == "7"})
    return text.getvalue()


def refused(folder, files, message, image_ids=()):
    before = sorted(folder.rglob("*"))
    with pytest.raises(InputError, match=message) as error:
        convert_features(files, folder / "out", image_ids)
    assert "\n" not in str(error.value) and len(str(error.value)) < 600
    assert sorted(folder.rglob("*")) == before, "nothing is written"


def archive_of(path, files, compression=zipfile.ZIP_DEFLATED):
    """A zip archive of arrays and texts by name."""
    with zipfile.ZipFile(path, "w", compression) as archive:
        for name, content in files.items():
            if not isinstance(content, str | bytes):
                stream = io.BytesIO()
                np.savez(stream, feat=content) if name.endswith(".npz") else np.save(stream, content)
                content = stream.getvalue()
            archive.writestr(name, content)
    return path


@pytest.mark.parametrize("packed", ["", "zip", "ZIP"])
def test_a_tsv_becomes_features_and_relative_boxes(tmp_path, packed):
    first, second = tmp_path / "train.tsv.0", tmp_path / "train.tsv.1"
    first.write_text(lines({"42": IMAGES["42"]}))
    second.write_text(lines({"7": IMAGES["7"]}))
    files = [first, second]
    if packed:
        texts = {f"trainval/{file.name}": file.read_text() for file in files}
        files = [archive_of(tmp_path / f"trainval.{packed}", {**texts, "trainval/readme.txt": "x"})]
    made = convert_features(files, tmp_path / "out", IMAGES)
    assert made == {
        "images": 2,
        "feature_size": 4,
        "fewest_regions": 1,
        "most_regions": 2,
        "folders": ["cocobu_att", "cocobu_box_relative"],
        "left_out": int(bool(packed)),
    }
    features = RegionFeatures(tmp_path / "out", list(IMAGES), need_boxes=True, need_pooled=False)
    # By hand: corners divided by 640 x 480 and 100 x 200 pixels.
    relative = {"42": [[0, 0, 0.5, 0.5], [0.1, 0.1, 1, 1]], "7": [[0.1, 0.1, 0.5, 0.5]]}
    for index, (image, (*_, values)) in enumerate(IMAGES.items()):
        regions = features.one(index)
        np.testing.assert_array_equal(regions["features"], np.array(values, np.float32))
        np.testing.assert_allclose(regions["boxes"], relative[image], atol=1e-7)
        assert np.load(tmp_path / "out" / "cocobu_att" / f"{image}.npy").dtype == np.float32


@pytest.mark.parametrize("kind", ["tsv", "zip"])
def test_published_features_come_back(fixtures, tmp_path, kind):
    folder, size = fixtures / "coco_bottom_up", np.array([640, 480] * 2)
    images = [path.stem for path in sorted((folder / "cocobu_att").iterdir())]
    assert len(images) == 5
    if kind == "tsv":
        rows = {}
        for image in images:
            boxes = np.load(folder / "cocobu_box_relative" / f"{image}.npy") * size
            rows[image] = (640, 480, boxes, np.load(folder / "cocobu_att" / f"{image}.npy"))
        file = tmp_path / "all.tsv"
        file.write_text(lines(rows))
    else:
        file = shutil.make_archive(str(tmp_path / "all"), "zip", folder)
    made = convert_features([file], tmp_path / "out", images)
    assert (made["images"], made["feature_size"]) == (5, 2048)
    assert (made["fewest_regions"], made["most_regions"]) == (18, 47)
    assert ("cocobu_fc" in made["folders"]) == (kind == "zip")
    for name in made["folders"]:
        for image in images:
            expected = np.load(folder / name / f"{image}.npy")
            converted_array = np.load(tmp_path / "out" / name / f"{image}.npy")
            np.testing.assert_allclose(converted_array, expected, rtol=0, atol=1e-7 if "box" in name else 0)


def test_an_archive_of_one_file_for_each_image(tmp_path):
    values = {image: np.array(features, np.float16) for image, (*_, features) in IMAGES.items()}
    files = {f"cocobu_att/{image}.npz": array for image, array in values.items()}
    pixels = {f"cocobu_box/{image}.npy": np.ones((1, 4), np.float32) for image in IMAGES}
    archive = archive_of(tmp_path / "a.zip", {**files, **pixels, "__MACOSX/cocobu_att/._7.npz": b"x"})
    made = convert_features([archive], tmp_path / "out", ["42.jpg"])
    assert (made["folders"], made["left_out"]) == (["cocobu_att"], 3)
    for image, array in values.items():
        features = np.load(tmp_path / "out" / "cocobu_att" / f"{image}.npy")
        assert features.dtype == np.float32 and np.array_equal(features, array.astype(np.float32))


def floats(*shape) -> str:
    return base64.b64encode(np.ones(shape, np.float32)).decode()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"features": floats(3)}, r"line 2 has features of 3 numbers, but .*line 1 of 4: use files of one"),
        ({"features": floats(4)[:-3]}, r"line 2 has features that are not base64"),
        ({"features": floats(4)[:-4]}, r"line 2 has features of 15 bytes"),
        ({"features": ""}, r"line 2 has features of 0 bytes"),
        ({"features": "caf\u00e9"}, r"line 2 has features that are not base64"),
        ({"features": base64.b64encode(np.float32([1, np.nan, 0, 0])).decode()}, "line 2 has .* not finite"),
        ({"boxes": floats(3)}, r"line 2 has boxes of 3 numbers instead of 4"),
        ({"boxes": floats(8)}, r"line 2 has boxes of 8 numbers instead of 4"),
        ({"image_w": 40}, r"line 2 row 0 is \[0.25, 0.1, 1.25, 0.5\], not a box"),
        ({"image_w": 0}, r"line 2 has image_w '0', not a whole number from 1"),
        ({"image_h": "tall"}, r"line 2 has image_h 'tall', not a whole number from 1"),
        ({"num_boxes": 10**9}, r"line 2 has num_boxes '1000000000', not a whole number"),
        (
            {"num_boxes": 3},
            r"line 2 has boxes of 16 bytes, which are not as many float32 numbers for each of 3",
        ),
        ({"image_id": "42"}, r"line 2 is the second one of the image 42"),
        ({"image_id": "../7"}, r"line 2 names an image '../7', which is no file name"),
        ({"image_id": ""}, r"line 2 names an image '', which is no file name"),
        ({"image_id": "7" * 300}, r"line 2 names an image with 300 characters"),
    ],
)
def test_wrong_lines_are_refused(tmp_path, changes, message):
    file = tmp_path / "a.tsv"
    file.write_text(lines(IMAGES, **changes), encoding="utf-8")
    refused(tmp_path, [file], message)


def test_a_tsv_that_ends_in_the_middle_is_refused_at_every_byte(tmp_path):
    file, content = tmp_path / "a.tsv", lines(IMAGES).encode()
    first = content.index(b"\n") + 1
    for length in range(first + 1, len(content)):
        file.write_bytes(content[:length])
        refused(tmp_path, [file], "a.tsv line 2 ends in the middle: download or extract the file again")
    # A missing line is found by the images of the data.
    file.write_bytes(content[:first])
    refused(tmp_path, [file], "lacks features of 1 images of the data: 7; give all files", IMAGES)


REGIONS = np.ones((2, 4), np.float32)


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({}, "a.zip has features of no image"),
        (
            {"att/7.npy": np.ones(4, np.float32)},
            r"a.zip att/7.npy has the shape \[4\], expected \[regions, D\]",
        ),
        ({"att/7.npy": np.float32(1)}, r"att/7.npy has the shape \[\], expected \[regions, D\]"),
        ({"att/7.npy": np.ones((0, 4), np.float32)}, r"att/7.npy has the shape \[0, 4\], expected"),
        ({"att/7.npy": np.ones((2, 4), int)}, "att/7.npy has the type int64, not floating-point"),
        ({"att/7.npy": np.full((2, 4), 1e300)}, "att/7.npy has numbers that are not finite in float32"),
        ({"att/7.npz": b"PK"}, "att/7.npz is damaged"),
        ({"att/7.npy": b""}, "att/7.npy is damaged"),
        ({"att/7.npy": REGIONS, "a_fc/7.npy": REGIONS}, r"a_fc/7.npy has the shape \[2, 4\], expected \[D\]"),
        ({"att/7.npy": REGIONS, "a_fc/8.npy": REGIONS[0]}, "not both of 2 images: 7, 8; give all files"),
        ({"att/7.npy": REGIONS, "a_fc/7.npy": np.ones(3)}, "a_fc/7.npy has features of 3 numbers"),
        (
            {"att/7.npy": REGIONS, "a_box_relative/7.npy": np.array([[0.0, 0.0, 1.0, 1.0]])},
            "has 1 boxes of the image 7 but features of 2 regions",
        ),
        ({"att/7.npy": REGIONS, "a_box_relative/7.npy": REGIONS[:, :3]}, "rows of 3 numbers: a box has 4"),
        ({"a/7.npy": REGIONS, "b/7.npy": REGIONS}, "b/7.npy is the second one of the image 7"),
    ],
)
def test_wrong_archives_are_refused(tmp_path, files, message):
    refused(tmp_path, [archive_of(tmp_path / "a.zip", files)], message)


def test_a_file_that_cannot_be_written_in_full_is_reported(tmp_path):
    archive = archive_of(tmp_path / "a.zip", {"att/7.npy": np.ones((1000, 4), np.float32)})
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, hard))  # unlike a full disk, for any user
    try:
        refused(tmp_path, [archive], r"cannot write .*/out: File too large; choose a folder")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_other_files_and_folders_are_refused(tmp_path):
    refused(tmp_path, [tmp_path / "absent.tsv"], "there is no .*absent.tsv: check the path")
    archive = archive_of(tmp_path / "a.zip", {"att/7.npy": REGIONS})
    archive.write_bytes(archive.read_bytes()[:-30])
    refused(tmp_path, [archive], "a.zip is damaged")
    whole = archive_of(tmp_path / "a.zip", {f"att/{n}.npz": REGIONS for n in range(5)}, zipfile.ZIP_STORED)
    content = whole.read_bytes()
    for size in range(10, len(content), 50):  # the arrays are archives themselves
        whole.write_bytes(content[:size])
        refused(tmp_path, [whole], "a.zip is damaged")
    (tmp_path / "folder.tsv").mkdir()
    refused(tmp_path, [tmp_path / "folder.tsv"], "folder.tsv is damaged")
    (tmp_path / "a.tsv").write_text("a sentence\n")
    refused(tmp_path, [tmp_path / "a.tsv"], "line 1 has 1 fields instead of image_id, image_w")
    with pytest.raises(InputError, match=r"the folder .*no does not exist; create it first"):
        convert_features([archive], tmp_path / "no" / "out")
    with pytest.raises(InputError, match="exists: give --output a new folder"):
        convert_features([archive], tmp_path)
