"""Scores of captions, and files of captions in COCO's formats."""

import json
from dataclasses import replace

import pytest

from tfsparsecap.captioning.inference.scoring import (
    ImageCaption,
    all_scores_of,
    as_rows,
    caption_texts,
    coco_results,
    object_scores_of,
    scores_of,
    scores_table,
)
from tfsparsecap.captioning.search.search_options import SearchOptions
from tfsparsecap.errors import InputError

REFERENCES = {
    "images": [{"id": 1}, {"id": 2}],
    "annotations": [
        {"id": 9, "image_id": 1, "caption": "A dog runs on the grass."},
        {"id": 10, "image_id": 1, "caption": "The brown dog is running."},
        {"id": 11, "image_id": 2, "caption": "Two men sit on a bench."},
    ],
}


def test_coco_captions_and_references_are_joined():
    captions, more = coco_results(
        [{"image_id": 2, "caption": "two men"}, {"image_id": "1", "caption": "a dog"}], REFERENCES
    )
    assert more == 0
    assert [caption.image_id for caption in captions] == ["2", "1"]
    assert captions[1].references == ("A dog runs on the grass.", "The brown dog is running.")


def test_captions_equal_to_references_get_the_best_scores():
    results = [
        {"image_id": 1, "caption": "a dog runs on the grass"},
        {"image_id": 2, "caption": "two men sit on a bench"},
    ]
    scores = scores_of(coco_results(results, REFERENCES)[0])
    assert scores["exact_match"] == 1 and scores["BLEU-4"] == pytest.approx(1)


def test_the_captions_file_of_a_run_is_a_coco_file():
    captions = [
        ImageCaption("a.jpg", "a dog", -1.0, ("a dog", "dog")),
        ImageCaption("b", "x", 0.0, ("y",), ("unknown word",)),
    ]
    rows = as_rows(captions)
    references = [
        {"image_id": row["image_id"], "caption": text} for row in rows for text in row["references"]
    ]
    assert scores_of(coco_results(rows, references)[0]) == scores_of(captions)
    # As the file of references, its references count and not its captions.
    assert coco_results(rows, rows)[0][0].references == ("a dog", "dog")


def test_results_may_cover_only_some_images():
    results = [{"image_id": 1, "caption": "a dog"}]
    captions, more = coco_results(results, REFERENCES)
    assert [caption.image_id for caption in captions] == ["1"] and more == 1


def test_empty_and_non_ascii_captions_are_scored():
    results = [{"image_id": 1, "caption": ""}, {"image_id": 2, "caption": "un café 日本\n\ud83d\0"}]
    captions, _ = coco_results(results, REFERENCES)
    assert [caption.caption for caption in captions] == ["", "un café 日本 ?"]
    scores = all_scores_of(captions, ["BLEU", "CIDEr"])
    assert scores["empty_captions"] == 1 and scores["CIDEr"] == 0


def test_all_scores_come_with_statistics_and_reasons(commands, tmp_path):
    captions = [
        ImageCaption("a", "A dog runs.", -1.0, ("a dog runs", "the dog")),
        ImageCaption("b", "", -1.0, ("a cat",)),
        ImageCaption("c", "a cow", -1.0, ("...", "")),
    ]
    scores = all_scores_of(captions, training_captions=["a dog runs", "two dogs"], spice_folder=tmp_path)
    assert scores.items() >= {"exact_match": 0.5, "uniqueness": 0.5, "mean_length": 1.5}.items()
    assert scores["tokenizer"] == "light" and scores["empty_captions"] == 1
    assert scores["without_references"] == ["c"]
    assert set(scores["not_computed"]) == {"PTB tokenizer", "METEOR", "SPICE"}
    assert set(scores["seconds"]) == {"tokenizer", "BLEU", "ROUGE-L", "ROUGE-1", "CIDEr"}
    assert scores["incomplete"] == pytest.approx(1 / 3) and scores["faults"] == {"no word": 1}
    scores = all_scores_of([replace(captions[0], token_faults=("unknown word",))], ["BLEU", "CIDEr"])
    assert scores["incomplete"] == 1
    scores = all_scores_of(captions[:1], ["BLEU", "CIDEr"])
    assert "uniqueness" not in scores and "CIDEr" not in scores
    assert set(scores["not_computed"]) == {"PTB tokenizer", "CIDEr", "uniqueness"}


@pytest.mark.slow
def test_confidence_is_compared_with_the_captions():
    captions = [
        ImageCaption("a", "a dog runs", -1.0, ("the dog runs",), (), 0.75),
        ImageCaption("b", "a man sits", -9.0, ("a red ball",), (), 0.25),
    ]
    scores = all_scores_of(captions, ["BLEU"])
    assert scores["confidence"]["error"] == 0.25 and scores["confidence"]["good"] == 0.5
    about = {"split": "test", "images": 2, "beam": 3}
    table = dict(scores_table({**about, **scores}))
    assert table["confidence"].startswith(
        "calibration error 0.250 (0.345 by chance); 50.0% of the captions are good, 50.0% have"
    )
    assert table["confidence, share of good captions"] == "25% 0%, 75% 100%"
    assert "confidence" not in all_scores_of([replace(captions[0], confidence=None)], ["BLEU"])
    german = [ImageCaption("a", "ein Mann auf der Bank", -1.0, ("ein Hund auf der Wiese",), (), 0.75)]
    assert all_scores_of(german, ["BLEU"])["confidence"]["good"] == 1  # ein, auf and der
    rules = SearchOptions(function_words=["ein", "auf", "der"])
    assert all_scores_of(german, ["BLEU"], rules=rules)["confidence"]["good"] == 0


def test_objects_of_labelled_images_are_scored():
    captions = [
        ImageCaption("a", "a man and a cat", 0.0, ("two people",), labels=("person",)),
        ImageCaption("b", "a dog", 0.0, ("a puppy on a bench",), labels=("bench",)),
        ImageCaption("c", "a cow", 0.0, ("a cow",)),
    ]
    names = {"person", "cat", "dog", "bench", "cow"}
    scores = object_scores_of(captions, names)
    assert scores == {
        "object_images": 2,
        "object_recall": 1 / 2,
        "object_hallucination": 1,
        "object_hallucination_mentions": 2 / 3,
        "CHAIR_s": 1 / 2,
        "CHAIR_i": 1 / 3,
    }
    about = {"split": "test", "images": 3, "beam": 3, "CIDEr": 1.0, "exact_match": 0}
    rows = scores_table({**about, **scores})
    assert [name for name, _ in rows][1:5] == [
        "CIDEr",
        "object recall",
        "object hallucination",
        "object hallucination, with references",
    ]
    assert [text for _, text in rows][2:5] == [
        "50.0% of the captions name a labelled object (2 images with known labels)",
        "100.0% of the captions name an object that is not labelled, as are 66.7% of the objects named",
        "CHAIR_s 50.0%, CHAIR_i 33.3%",
    ]
    assert object_scores_of(captions[2:], names) == object_scores_of(captions, set()) == {}
    rows = as_rows(captions)
    assert [row["labels"] for row in rows] == [("person",), ("bench",), None]
    again, _ = coco_results(rows, json.loads(json.dumps(rows)))
    assert again == captions


def test_predicted_objects_are_compared_with_the_labels():
    captions = [
        ImageCaption("a", "x", 0.0, ("y",), labels=("person", "bird"), objects=("person", "cat")),
        ImageCaption("b", "x", 0.0, ("y",), labels=("dog", "cat"), objects=("dog", "unicorn")),
        ImageCaption("c", "x", 0.0, ("y",), labels=(), objects=("cat",)),
        ImageCaption("d", "x", 0.0, ("y",), objects=("cat",)),
    ]
    # Nobody labels unicorns, and the captioner does not know birds.
    scores = object_scores_of(captions, {"person", "cat", "dog", "bird"}, ("person", "cat", "dog", "unicorn"))
    assert (scores["objects_precision"], scores["objects_recall"]) == (2 / 4, 2 / 3)
    about = {"split": "test", "images": 4, "beam": 3, "CIDEr": 1.0, "exact_match": 0}
    rows = dict(scores_table({**about, **scores}))
    assert rows["objects with a probability of at least 50%"] == "precision 50.0%, recall 66.7%"
    none = object_scores_of([replace(caption, objects=()) for caption in captions], {"dog"}, ("dog",))
    assert none["objects_recall"] == 0 and "objects_precision" not in none
    assert "objects_recall" not in object_scores_of(captions, {"dog"})


def test_quick_scores_start_no_java_and_list_images_without_references(commands):
    commands("java", "raise SystemExit('it was started')")
    captions = [ImageCaption("a", "a dog", 0.0, ("a dog",)), ImageCaption("b", "x", 0.0, ("!",))]
    assert scores_of(captions)["without_references"] == ["b"]
    assert "without_references" not in scores_of(captions[:1])


def test_training_captions_are_read():
    assert caption_texts(REFERENCES)[2] == "Two men sit on a bench."
    with pytest.raises(InputError, match="image 1 of the training captions has no caption string"):
        caption_texts([{"image_id": 1}])


@pytest.mark.parametrize(
    ("results", "references", "message"),
    [
        ({}, REFERENCES, "the results are not a list"),
        ([{"image_id": 1}], REFERENCES, "image 1 of the results has no caption string"),
        ([{"caption": "x"}], REFERENCES, "entry 1 of the results has no image_id"),
        ([{"image_id": True, "caption": "x"}], REFERENCES, "entry 1 of the results has no image_id"),
        (
            [{"image_id": 1, "caption": "x"}, {"image_id": 3, "caption": "x"}],
            REFERENCES,
            r"the references lack 1 image \(3\) of the results",
        ),
        (
            [{"image_id": image, "caption": "x"} for image in (7, 8)],
            REFERENCES,
            r"of another data set: none of the 2 images of the results \(such as 7\) .*their 2 \(such as 1\)",
        ),
        ([{"image_id": 7, "caption": "x"}], [], "of another data set"),
        ([{"image_id": "\x1b" + "x" * 9999, "caption": "x"}], REFERENCES, r"such as \?x{199}…\) is among"),
        ([{"image_id": "", "caption": 3}], REFERENCES, 'image "" of the results has no caption'),
        ([{"image_id": 1, "caption": "x"}] * 2, REFERENCES, r"more than one caption of 1 image \(1\)"),
        ([], [{"image_id": 1, "references": ["a", 2]}], "image 1 of the references has no caption"),
        (
            [],
            [{"image_id": 1, "caption": "x", "labels": "dog"}],
            "labels of image 1 of the references are not",
        ),
        ([], [{"image_id": 1, "caption": "x", "labels": [1]}], "labels of image 1 of the references are not"),
        ([], [{"image_id": 1, "references": "a dog"}], "image 1 of the references has no caption"),
        ([], {"images": []}, "the references are not a list"),
        ([], ["x"], "entry 1 of the references"),
    ],
)
def test_files_of_another_form_are_refused(results, references, message):
    with pytest.raises(InputError, match=message):
        coco_results(results, references)


def test_captions_without_images_or_references_are_refused():
    with pytest.raises(InputError, match="there are no images to score"):
        scores_of([])
    with pytest.raises(InputError, match="none of the 1 images has a reference with a word in it"):
        scores_of([ImageCaption("a", "a dog", 0.0, ("...", ""))])


def test_the_table_lists_missing_scores_and_remarks():
    scores = {
        "split": "given",
        "images": 9,
        "beam": None,
        "CIDEr": 0.5,
        "exact_match": 0.25,
        "distinct": 1.0,
        "mean_length": 4.2,
        "vocabulary_used": 30,
        "empty_captions": 2,
        "references_without_caption": 7,
        "without_references": ["a", "b"],
        "not_computed": {"SPICE": "there is no Java"},
    }
    table = dict(scores_table(scores))
    assert table["captions"] == (
        "given, 9 images; 2 left out, no word in a reference (a, b); 2 captions without a word, which score"
        " 0; 7 images have references but no caption"
    )
    assert table["CIDEr"] == "0.500" and table["SPICE"] == "not computed: there is no Java"
    assert table["words"] == "4.2 per caption, 30 different ones" and "METEOR" not in table
    assert table["distinct captions"] == "100.0%"
    same = dict(scores_table({**scores, "distinct": 1 / 9}))["distinct captions"]
    assert same == "none: all images have the same caption"
    scores = {"split": "test", "images": 4, "beam": 1, "exact_match": 0}
    assert dict(scores_table(scores))["captions"] == "test, 4 images, beam 1"
