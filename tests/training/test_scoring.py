"""Captions of whole splits, and files of captions from elsewhere."""

import pytest

from tfsparsecap.errors import InputError
from tfsparsecap.training.scoring import ImageCaption, as_rows, coco_results, scores_of

REFERENCES = {
    "images": [{"id": 1}, {"id": 2}],
    "annotations": [
        {"id": 9, "image_id": 1, "caption": "A dog runs on the grass."},
        {"id": 10, "image_id": 1, "caption": "The brown dog is running."},
        {"id": 11, "image_id": 2, "caption": "Two men sit on a bench."},
    ],
}


def test_coco_files_are_brought_together():
    found = coco_results(
        [{"image_id": 2, "caption": "two men"}, {"image_id": "1", "caption": "a dog"}], REFERENCES
    )
    assert [caption.image_id for caption in found] == ["2", "1"]
    assert found[1].references == ("A dog runs on the grass.", "The brown dog is running.")


def test_perfect_captions_score_as_they_should():
    results = [
        {"image_id": 1, "caption": "a dog runs on the grass"},
        {"image_id": 2, "caption": "two men sit on a bench"},
    ]
    scores = scores_of(coco_results(results, REFERENCES))
    assert scores["exact_match"] == 1 and scores["BLEU-4"] == pytest.approx(1)


def test_what_a_run_writes_can_be_scored_as_a_coco_file():
    captions = [ImageCaption("a.jpg", "a dog", -1.0, ("a dog", "dog")), ImageCaption("b", "x", 0.0, ("y",))]
    rows = as_rows(captions)
    references = [
        {"image_id": row["image_id"], "caption": text} for row in rows for text in row["references"]
    ]
    assert scores_of(coco_results(rows, references)) == scores_of(captions)


@pytest.mark.parametrize(
    ("results", "references", "message"),
    [
        ({}, REFERENCES, "the results are no list"),
        ([{"image_id": 1}], REFERENCES, "entry 1 of the results has no image_id and caption"),
        ([{"image_id": 3, "caption": "x"}], REFERENCES, "image 3 of the results is not among the references"),
        ([{"image_id": 1, "caption": "x"}] * 2, REFERENCES, "image 1 twice"),
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
