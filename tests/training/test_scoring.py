"""Captions of whole splits, and files of captions from elsewhere."""

import pytest

from tfsparsecap.errors import InputError
from tfsparsecap.training.scoring import (
    ImageCaption,
    as_rows,
    caption_texts,
    coco_results,
    every_score_of,
    scores_of,
)

REFERENCES = {
    "images": [{"id": 1}, {"id": 2}],
    "annotations": [
        {"id": 9, "image_id": 1, "caption": "A dog runs on the grass."},
        {"id": 10, "image_id": 1, "caption": "The brown dog is running."},
        {"id": 11, "image_id": 2, "caption": "Two men sit on a bench."},
    ],
}


def test_coco_files_are_brought_together():
    found, more = coco_results(
        [{"image_id": 2, "caption": "two men"}, {"image_id": "1", "caption": "a dog"}], REFERENCES
    )
    assert more == 0
    assert [caption.image_id for caption in found] == ["2", "1"]
    assert found[1].references == ("A dog runs on the grass.", "The brown dog is running.")


def test_perfect_captions_score_as_they_should():
    results = [
        {"image_id": 1, "caption": "a dog runs on the grass"},
        {"image_id": 2, "caption": "two men sit on a bench"},
    ]
    scores = scores_of(coco_results(results, REFERENCES)[0])
    assert scores["exact_match"] == 1 and scores["BLEU-4"] == pytest.approx(1)


def test_what_a_run_writes_can_be_scored_as_a_coco_file():
    captions = [ImageCaption("a.jpg", "a dog", -1.0, ("a dog", "dog")), ImageCaption("b", "x", 0.0, ("y",))]
    rows = as_rows(captions)
    references = [
        {"image_id": row["image_id"], "caption": text} for row in rows for text in row["references"]
    ]
    assert scores_of(coco_results(rows, references)[0]) == scores_of(captions)
    # The same file in place of references: people's captions count, not its own.
    assert coco_results(rows, rows)[0][0].references == ("a dog", "dog")


def test_results_of_some_of_the_images_are_scored_by_themselves():
    results = [{"image_id": 1, "caption": "a dog"}]
    found, more = coco_results(results, REFERENCES)
    assert [caption.image_id for caption in found] == ["1"] and more == 1


def test_empty_and_foreign_captions_are_captions():
    results = [{"image_id": 1, "caption": ""}, {"image_id": 2, "caption": "un café 日本\n\ud83d\0"}]
    found, _ = coco_results(results, REFERENCES)
    assert [caption.caption for caption in found] == ["", "un café 日本 ?"]
    scores = every_score_of(found, ["BLEU", "CIDEr"])
    assert scores["empty_captions"] == 1 and scores["CIDEr"] == 0


def test_every_score_has_its_companions(commands, tmp_path):
    captions = [
        ImageCaption("a", "A dog runs.", -1.0, ("a dog runs", "the dog")),
        ImageCaption("b", "", -1.0, ("a cat",)),
        ImageCaption("c", "a cow", -1.0, ("...", "")),
    ]
    found = every_score_of(captions, training_captions=["a dog runs", "two dogs"], spice_folder=tmp_path)
    assert found.items() >= {"exact_match": 0.5, "uniqueness": 0.5, "mean_length": 1.5}.items()
    assert found["tokenizer"] == "light" and found["empty_captions"] == 1
    assert found["without_references"] == ["c"]
    assert set(found["not_computed"]) == {"PTB tokenizer", "METEOR", "SPICE"}
    found = every_score_of(captions[:1], ["BLEU", "CIDEr"])
    assert "uniqueness" not in found and "CIDEr" not in found
    assert set(found["not_computed"]) == {"PTB tokenizer", "CIDEr", "uniqueness"}


def test_quick_scores_take_no_java_and_name_images_without_references(commands):
    commands("java", "raise SystemExit('it was started')")
    captions = [ImageCaption("a", "a dog", 0.0, ("a dog",)), ImageCaption("b", "x", 0.0, ("!",))]
    assert scores_of(captions)["without_references"] == ["b"]
    assert "without_references" not in scores_of(captions[:1])


def test_training_captions_are_read():
    assert caption_texts(REFERENCES)[2] == "Two men sit on a bench."
    with pytest.raises(InputError, match="image 1 of the training captions has no caption"):
        caption_texts([{"image_id": 1}])


@pytest.mark.parametrize(
    ("results", "references", "message"),
    [
        ({}, REFERENCES, "the results are no list"),
        ([{"image_id": 1}], REFERENCES, "image 1 of the results has no caption that is a text"),
        ([{"image_id": 1, "caption": None}], REFERENCES, "image 1 of the results has no caption"),
        ([{"caption": "x"}], REFERENCES, "entry 1 of the results has no image_id"),
        ([{"image_id": 1.5, "caption": "x"}], REFERENCES, "entry 1 of the results has no image_id"),
        ([{"image_id": True, "caption": "x"}], REFERENCES, "entry 1 of the results has no image_id"),
        (
            [{"image_id": 1, "caption": "x"}, {"image_id": 3, "caption": "x"}],
            REFERENCES,
            r"1 image \(3\) of the results is not among the references",
        ),
        (
            [{"image_id": image, "caption": "x"} for image in (7, 8)],
            REFERENCES,
            r"of another data set: none of the 2 images of the results \(such as 7\) .*their 2 \(such as 1\)",
        ),
        ([{"image_id": 7, "caption": "x"}], [], "of another data set"),
        ([{"image_id": 1, "caption": "x"}] * 2, REFERENCES, r"caption 1 image \(1\) more than once"),
        ([], [{"image_id": 1, "references": ["a", 2]}], "image 1 of the references has no caption"),
        ([], [{"image_id": 1, "references": "a dog"}], "image 1 of the references has no caption"),
        ([], {"images": []}, "the references are no list"),
        ([], ["x"], "entry 1 of the references"),
    ],
)
def test_files_of_another_form_are_named(results, references, message):
    with pytest.raises(InputError, match=message):
        coco_results(results, references)


def test_no_caption_at_all_is_named():
    with pytest.raises(InputError, match="there is no image to score"):
        scores_of([])
