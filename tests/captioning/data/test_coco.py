"""MS-COCO's caption files in all formats in which they are distributed."""

import json

import pytest

from tfsparsecap.captioning import data as sources
from tfsparsecap.captioning.data import coco
from tfsparsecap.captioning.data.coco import image_labels, instance_files
from tfsparsecap.errors import InputError


def write(path, content):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")


def photograph(folder, *names):
    for name in names:
        write(folder / name, "")


def karpathy(number, split="train", sentences=("A dog. ",), **changes):
    entry = {
        "filepath": "val2014",
        "sentids": [7],
        "filename": f"COCO_val2014_{number:012d}.jpg",
        "imgid": 3,
        "split": split,
        "sentences": [{"tokens": ["wrong"], "raw": raw, "imgid": 3, "sentid": 7} for raw in sentences],
        "cocoid": number,
    }
    return {key: value for key, value in (entry | changes).items() if value is not None}


def official(numbers, captions, year="train2014"):
    return {
        "info": {},
        "images": [{"id": n, "file_name": f"COCO_{year}_{n:012d}.jpg", "license": 5} for n in numbers],
        "annotations": [{"image_id": n, "id": 1, "caption": text} for n, text in captions],
    }


def captions_and_splits(data):
    return {record.image_id: (record.captions, record.split) for record in data.records}


@pytest.fixture
def fixture(fixtures, tmp_path):
    """Karpathy's file of five images, with empty files for their photographs."""
    content = json.loads((fixtures / "coco_bottom_up" / "dataset_coco.json").read_text())
    write(tmp_path / "dataset_coco.json", content)
    photograph(tmp_path, *(f"images/{image['filepath']}/{image['filename']}" for image in content["images"]))
    return tmp_path


def test_karpathys_file_with_its_images(fixture):
    data = sources.load("coco", fixture)
    entries = json.loads((fixture / "dataset_coco.json").read_text())["images"]
    splits = {"train": "train", "restval": "train", "val": "validation", "test": "test"}
    assert [(r.image_id, r.captions, r.split) for r in data.records] == [
        (
            str(entry["cocoid"]),
            tuple(sentence["raw"].strip() for sentence in entry["sentences"]),
            splits[entry["split"]],
        )
        for entry in entries
    ]
    for record, entry in zip(data.records, entries, strict=True):
        assert record.image == fixture / "images" / entry["filepath"] / entry["filename"]
        assert record.image.is_file()
    assert data.skipped == [] and data.notes == []


def test_restval_can_be_skipped(fixture):
    data = coco.load(fixture, restval="skip")
    assert "522418" not in captions_and_splits(data) and len(data.records) == 4
    assert data.skipped == [] and data.notes == [
        "1 images of the split restval are not used because of data.restval=skip"
    ]


def test_images_of_flickr_in_karpathys_format_are_identified_by_file_names(tmp_path):
    # Screenshots of macOS have a narrow space in their names.
    names = [f"{number}_a\u202fb.jpg" for number in range(3)]
    photograph(tmp_path, *(f"Flicker8k_Dataset/{name}" for name in names))
    entries = [
        karpathy(0, split, filename=name, cocoid=None, filepath=None)
        for name, split in zip(names, ("train", "val", "test"), strict=True)
    ]
    write(tmp_path / "dataset_flickr8k.json", {"images": entries, "dataset": "flickr8k"})
    data = coco.load(tmp_path)
    assert captions_and_splits(data) == {
        name: (("A dog.",), split) for name, split in zip(names, ("train", "validation", "test"), strict=True)
    }
    assert data.records[0].image == tmp_path / "Flicker8k_Dataset" / names[0]


def test_ms_cocos_own_files_are_train_and_validation(tmp_path):
    photograph(
        tmp_path, "train2014/COCO_train2014_000000000001.jpg", "images/val2014/COCO_val2014_000000000002.jpg"
    )
    folder = tmp_path / "annotations"
    write(folder / "captions_train2014.json", official([1], [(1, "one\n"), (1, "again")]))
    write(folder / "captions_val2014.json", official([2], [("2", "two")], "val2014"))
    write(folder / "instances_val2014.json", {"images": [], "annotations": []})
    data = coco.load(tmp_path)
    assert captions_and_splits(data) == {"1": (("one", "again"), "train"), "2": (("two",), "validation")}
    assert [record.image for record in data.records] == [
        tmp_path / "train2014" / "COCO_train2014_000000000001.jpg",
        tmp_path / "images" / "val2014" / "COCO_val2014_000000000002.jpg",
    ]
    assert data.notes == ["there are no test images in captions_train2014.json, captions_val2014.json"]


def test_caption_files_are_searched_in_the_documented_order(tmp_path):
    def caption_texts():
        return next(iter(captions_and_splits(coco.load(tmp_path, images="ignore")).values()))[0]

    write(tmp_path / "captions_val2017.json", official([1], [(1, "loose")]))
    assert caption_texts() == ("loose",)
    write(tmp_path / "annotations" / "captions_val2014.json", official([1], [(1, "annotations")]))
    assert caption_texts() == ("annotations",)
    write(tmp_path / "dataset_mine.json", {"images": [karpathy(1, sentences=["mine"])]})
    assert caption_texts() == ("mine",)
    write(tmp_path / "dataset_coco.json", {"images": [karpathy(1, sentences=["coco"])]})
    assert caption_texts() == ("coco",)


def test_given_files_get_the_split_of_their_name_or_a_random_one(tmp_path):
    write(tmp_path / "a" / "my_test.json", official([1], [(1, "one")]))
    write(tmp_path / "all.json", official(range(2, 22), [(n, "x") for n in range(2, 22)]))
    data = coco.load(tmp_path, captions="a/my_test.json", images="ignore")
    assert captions_and_splits(data) == {"1": (("one",), "test")}
    assert data.notes == ["there are no train or validation images in my_test.json"]

    files = ["a/my_test.json", tmp_path / "all.json"]
    data = coco.load(tmp_path, captions=files, images="ignore", seed=4, fractions=(0.5, 0.25, 0.25))
    assert [len(data.split(name)) for name in ("train", "validation", "test")] == [10, 5, 6]
    assert captions_and_splits(data)["1"][1] == "test"
    assert data.notes == ["all.json has no splits: 20 images were split 50/25/25 at random with seed 4"]
    assert data == coco.load(tmp_path, captions=files, images="ignore", seed=4, fractions=(0.5, 0.25, 0.25))


@pytest.mark.parametrize(
    "place",
    [
        "val2014/COCO_val2014_000000000001.jpg",
        "images/val2014/COCO_val2014_000000000001.jpg",
        "COCO_val2014_000000000001.jpg",
        "images/COCO_val2014_000000000001.jpg",
        "train2014/COCO_val2014_000000000001.jpg",
        "train2017/000000000001.jpg",
        "images/val2017/000000000001.jpg",
    ],
)
def test_images_are_found_in_all_usual_folders(tmp_path, place):
    photograph(tmp_path, place)
    write(tmp_path / "dataset_coco.json", {"images": [karpathy(1)]})
    assert coco.load(tmp_path).records[0].image == tmp_path / place


def test_missing_images_are_bad_records_unless_ignored(tmp_path):
    photograph(tmp_path, "val2014/COCO_val2014_000000000001.jpg")
    write(tmp_path / "dataset_coco.json", {"images": [karpathy(1), karpathy(2, sentences=["a", "b"])]})
    data = coco.load(tmp_path)
    assert list(captions_and_splits(data)) == ["1"]
    absent = "2: dataset_coco.json has 2 captions of it but val2014/COCO_val2014_000000000002.jpg is missing"
    assert [str(entry) for entry in data.skipped] == [absent]
    with pytest.raises(InputError, match=absent):
        coco.load(tmp_path, on_bad_record="fail")

    data = coco.load(tmp_path, images="ignore")
    assert data.skipped == []
    assert data.records[1].image == tmp_path / "val2014" / "COCO_val2014_000000000002.jpg"

    (tmp_path / "val2014" / "COCO_val2014_000000000001.jpg").unlink()
    with pytest.raises(InputError, match=r"none of the 2 images of .* data.images=ignore"):
        coco.load(tmp_path)


def test_bad_entries_of_karpathys_format_are_listed(tmp_path):
    entries = [
        karpathy(1),
        karpathy(1, sentences=["twice"]),
        "no object",
        karpathy(2, filename=None),
        karpathy(2, filename="half \ud83d.jpg"),
        karpathy(2, filepath="../elsewhere"),
        karpathy(2, filepath="/etc"),
        karpathy(2, filepath=5),
        karpathy(2, cocoid=[2]),
        karpathy(2, split="holiday"),
        karpathy(2, split=["train"]),
        karpathy(2, split=None),
        karpathy(2, sentences=[]) | {"sentences": "a dog"},
        karpathy(2, sentences=[]),
        karpathy(3, sentences=["", "good", " \n", 4, None]),
        karpathy(4) | {"sentences": [{"tokens": ["from", "tokens"]}, {"sentid": 3}]},
    ]
    write(tmp_path / "dataset_coco.json", {"images": entries})
    data = coco.load(tmp_path, images="ignore")
    assert captions_and_splits(data) == {
        "1": (("A dog.",), "train"),
        "3": (("good",), "train"),
        "4": (("from tokens",), "train"),
    }
    file = f"{tmp_path}/dataset_coco.json "
    assert [str(entry).removeprefix(file) for entry in data.skipped] == [
        "images[1]: the image 1 is a duplicate of images[0]",
        "images[2]: it has no image name 'filename'",
        "images[3]: it has no image name 'filename'",
        "images[4]: it has no image name 'filename'",
        "images[5]: '../elsewhere/COCO_val2014_000000000002.jpg' is outside the data folder",
        "images[6]: '/etc/COCO_val2014_000000000002.jpg' is outside the data folder",
        "images[7]: its 'filepath' is not a path",
        "images[8]: it has no image number 'cocoid'",
        "images[9]: the split 'holiday' is not train, restval, val or test",
        "images[10]: the split ['train'] is not train, restval, val or test",
        "images[11]: it has no split while other images have one",
        "images[12]: it has no list of sentences",
        "2: it has no caption in dataset_coco.json",
        "images[14] sentences[0]: the caption has no word",
        "images[14] sentences[2]: the caption has no word",
        "images[14] sentences[3]: it has no text",
        "images[14] sentences[4]: it has no text",
        "images[15] sentences[1]: it has no text",
    ]
    with pytest.raises(InputError, match=r"images\[1\]: the image 1 is a duplicate.*on_bad_record=skip"):
        coco.load(tmp_path, images="ignore", on_bad_record="fail")


def test_paths_of_windows_are_found_in_the_data_folder_only(tmp_path):
    content = official([1, 2, 3], [(1, "one"), (1, " - "), (2, "two"), (3, "three")])
    for entry, name in zip(content["images"], ("sub\\a.jpg", "..\\a.jpg", "\\etc\\hosts"), strict=True):
        entry["file_name"] = name
    write(tmp_path / "captions_train2014.json", content)
    photograph(tmp_path, "sub/a.jpg")
    data = coco.load(tmp_path)
    assert [(record.image, record.captions) for record in data.records] == [
        (tmp_path / "sub" / "a.jpg", ("one",))
    ]
    assert sum("is outside the data folder" in entry.why for entry in data.skipped) == 2
    assert any(entry.why == "the caption has no word" for entry in data.skipped)


def test_bad_entries_of_ms_cocos_own_format_are_listed(tmp_path):
    content = official(
        [1, 2, 1], [(1, "one"), (9, "x"), (1, ""), (9, "y"), (1, None), (5, "of a nameless image")]
    )
    content["images"] += [{"file_name": "a.jpg"}, {"id": True, "file_name": "a.jpg"}, {"id": 5}, None]
    content["annotations"] += [{"caption": "z"}, 3]
    write(tmp_path / "captions_train2014.json", content)
    write(tmp_path / "captions_val2014.json", official([1, 3], [(1, "again"), (3, "three")]))
    data = coco.load(tmp_path, images="ignore")
    assert captions_and_splits(data) == {"1": (("one",), "train"), "3": (("three",), "validation")}
    assert sorted(str(entry).removeprefix(f"{tmp_path}/") for entry in data.skipped) == [
        "2: it has no caption in captions_train2014.json",
        "9: captions_train2014.json has 2 captions of it but no entry for the image",
        "captions_train2014.json annotations[2]: the caption has no word",
        "captions_train2014.json annotations[4]: it has no text",
        "captions_train2014.json annotations[6]: it has no image number 'image_id'",
        "captions_train2014.json annotations[7]: it has no image number 'image_id'",
        "captions_train2014.json images[2]: the image 1 appears twice",
        "captions_train2014.json images[3]: it has no image number 'id'",
        "captions_train2014.json images[4]: it has no image number 'id'",
        "captions_train2014.json images[5]: it has no image name 'file_name'",
        "captions_train2014.json images[6]: it has no image number 'id'",
        "captions_val2014.json images[0]: the image 1 is a duplicate of images[0] of captions_train2014.json",
    ]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"images": [', "is not JSON .*: download it again"),
        ("", "is not JSON"),
        ("[" * 100_000, "is not JSON"),
        ('{"images": [{"cocoid": 1' + "0" * 5000 + "}]}", "is not JSON"),
        ([karpathy(1)], "has another format: it must contain images with sentences"),
        ({"images": {}}, "has another format"),
        ({"images": [], "annotations": 3}, "has another format"),
        ({"annotations": []}, "has another format"),
        ("3", "has another format"),
        ({"images": []}, "has no image with captions that can be used: correct it$"),
        (
            {"images": [5]},
            r"that can be used: correct it; the first: .*images\[0\]: it has no image name 'filename'",
        ),
    ],
)
def test_other_files_are_rejected(tmp_path, content, message):
    write(tmp_path / "dataset_coco.json", content)
    with pytest.raises(InputError, match=message):
        coco.load(tmp_path)


def test_ambiguous_or_missing_files_are_rejected(tmp_path):
    with pytest.raises(InputError, match="no data folder"):
        coco.load(tmp_path / "nowhere")
    photograph(tmp_path, "train2014/a.jpg")
    with pytest.raises(InputError, match=r"there are no captions in .*dataset_coco\.json"):
        coco.load(tmp_path)
    with pytest.raises(InputError, match=r"no caption file captions\.json"):
        coco.load(tmp_path, captions="captions.json")
    with pytest.raises(InputError, match="captions is empty"):
        coco.load(tmp_path, captions=[])
    for year in ("train2014", "val2017"):
        write(tmp_path / "annotations" / f"captions_{year}.json", official([1], [(1, "x")]))
    with pytest.raises(
        InputError, match=r"several data sets .*captions=annotations/captions_train2014\.json"
    ):
        coco.load(tmp_path)
    for name in ("flickr8k", "flickr30k"):
        write(tmp_path / f"dataset_{name}.json", {"images": [karpathy(1)]})
    with pytest.raises(
        InputError, match=r"several data sets \(dataset_flickr30k\.json, dataset_flickr8k\.json\)"
    ):
        coco.load(tmp_path)


CATEGORIES = [{"id": 1, "name": "person", "supercategory": "person"}, {"id": 18, "name": "dog"}]


def instances(path, image_ids, objects, **changes):
    content = {
        "images": [{"id": image, "file_name": f"{image}.jpg"} for image in image_ids],
        "annotations": [
            {
                "id": 7,
                "image_id": image,
                "category_id": kind,
                "segmentation": [[1.5, 2.5]],
                "bbox": [1, 2, 3, 4],
            }
            for image, kind in objects
        ],
        "categories": CATEGORIES,
    }
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(content | changes))
    return path


def test_labels_are_the_names_of_an_images_categories(tmp_path):
    training_file = instances(
        tmp_path / "instances_train2014.json", [1, 2, 3], [(1, 1), (1, 18), (1, 1), (3, 18)]
    )
    validation_file = instances(tmp_path / "instances_val2014.json", [4], [(4, 1)])
    labels = image_labels([training_file, validation_file])
    assert labels == {"1": ("dog", "person"), "2": (), "3": ("dog",), "4": ("person",)}


def test_files_of_the_year_of_the_captions_are_read(tmp_path):
    names = [f"instances_{split}{year}.json" for year in (2014, 2017) for split in ("train", "val")]
    for name in names:
        instances(tmp_path / "annotations" / name, [], [])
    instances(tmp_path / "annotations" / "instances_default.json", [], [])

    def file_names(caption_file):
        return [file.name for file in instance_files(tmp_path, [tmp_path / caption_file])]

    assert file_names("captions_val2017.json") == names[2:]
    assert file_names("dataset_coco.json") == names[:2]
    assert file_names("captions_val2015.json") == []
    for name in names:
        (tmp_path / "annotations" / name).unlink()
    assert file_names("captions_val2017.json") == file_names("captions.json") == ["instances_default.json"]


@pytest.mark.parametrize(
    "changes",
    [
        {"annotations": None},
        {"annotations": [{"image_id": 1}]},
        {"annotations": [{"image_id": 1, "category_id": 9}]},
        {"images": [3]},
        {"categories": [{"id": []}]},
    ],
)
def test_other_files_are_refused(tmp_path, changes):
    file = instances(tmp_path / "instances_val2014.json", [1], [], **changes)
    with pytest.raises(InputError, match=r"val2014\.json has another format, .*, or move it elsewhere"):
        image_labels([file])
    file.write_text("[]")
    with pytest.raises(InputError, match="has another format"):
        image_labels([file])


def test_records_of_ms_coco_have_labels(tmp_path):
    entries = [
        {"cocoid": number, "filename": f"{number}.jpg", "split": "train", "sentences": [{"raw": "a dog"}]}
        for number in (1, 2, 5)
    ]
    (tmp_path / "dataset_coco.json").write_text(json.dumps({"images": entries}))
    instances(tmp_path / "annotations" / "instances_train2014.json", [1, 2], [(1, 18)])
    labels = {record.image_id: record.labels for record in coco.load(tmp_path, images="ignore").records}
    assert labels == {"1": ("dog",), "2": (), "5": None}
