"""Labels of MS-COCO's images."""

import json

import pytest

from tfsparsecap.captioning.data import coco
from tfsparsecap.captioning.data.coco_labels import image_labels, instance_files
from tfsparsecap.errors import InputError

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
    one = instances(tmp_path / "instances_train2014.json", [1, 2, 3], [(1, 1), (1, 18), (1, 1), (3, 18)])
    two = instances(tmp_path / "instances_val2014.json", [4], [(4, 1)])
    assert image_labels([one, two]) == {"1": ("dog", "person"), "2": (), "3": ("dog",), "4": ("person",)}


def test_files_of_the_year_of_the_captions_are_read(tmp_path):
    names = [f"instances_{split}{year}.json" for year in (2014, 2017) for split in ("train", "val")]
    for name in names:
        instances(tmp_path / "annotations" / name, [], [])
    instances(tmp_path / "annotations" / "instances_default.json", [], [])

    def found(caption_file):
        return [file.name for file in instance_files(tmp_path, [tmp_path / caption_file])]

    assert found("captions_val2017.json") == names[2:]
    assert found("dataset_coco.json") == names[:2]
    assert found("captions_val2015.json") == []


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
