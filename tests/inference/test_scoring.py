"""Captions of whole splits, and files of captions from elsewhere."""

import threading
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import tensorflow as tf

from tfsparsecap.data.records import Record
from tfsparsecap.errors import InputError
from tfsparsecap.inference import scoring
from tfsparsecap.inference.scoring import (
    ImageCaption,
    as_rows,
    caption_records,
    caption_texts,
    caption_with_file,
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
    assert set(found["seconds"]) == {"tokenizer", "BLEU", "ROUGE-L", "ROUGE-1", "CIDEr"}
    found = every_score_of(captions[:1], ["BLEU", "CIDEr"])
    assert "uniqueness" not in found and "CIDEr" not in found
    assert set(found["not_computed"]) == {"PTB tokenizer", "CIDEr", "uniqueness"}


class SlowToStart:
    """A search that makes a graph for each new number of images, which takes long."""

    def __init__(self):
        self.known, self.calls = [], []

    @property
    def traces(self):
        return len(self.known)

    def __call__(self, batch):
        count = len(batch["index"])
        self.calls.append(count)
        if count not in self.known:
            self.known.append(count)
            time.sleep(1.0)
        time.sleep(0.01)
        return tf.reshape(batch["index"], [-1, 1, 1]), tf.zeros([count, 1])


def searched(sizes):
    """Captions and milliseconds of batches of these sizes, and which ones were searched."""
    ends = np.cumsum(sizes)
    batches = [
        {"index": tf.range(end - size, end, dtype=tf.int64)} for size, end in zip(sizes, ends, strict=True)
    ]
    records = [Record(str(number), Path(), (f"{number}",), "test") for number in range(sum(sizes))]
    decoder = SlowToStart()
    words = SimpleNamespace(decode=lambda ids: str(ids[0]))
    return *caption_records(decoder, records, batches, words), decoder.calls


def test_making_the_graph_is_not_in_the_time_of_an_image():
    captions, milliseconds, calls = searched([2, 2, 2, 1])
    assert [caption.caption for caption in captions] == list("0123456") and calls == [2, 2, 2, 1]
    assert 5 <= milliseconds < 150
    # Where no batch was searched without, one is once more.
    captions, milliseconds, calls = searched([2, 1])
    assert len(captions) == 3 and calls == [2, 1, 1]
    assert 10 <= milliseconds < 300
    assert searched([]) == ([], 0.0, [])


class Slow:
    """A file that takes a while and is used by one thread at a time."""

    image_size, input_names = 8, ("image",)

    def __init__(self, together=None):
        self.busy, self.together = threading.Lock(), together

    def caption(self, image):
        assert self.busy.acquire(blocking=False)
        if self.together is not None and threading.current_thread() is not threading.main_thread():
            self.together.wait(10)
        time.sleep(0.02)
        self.busy.release()
        return [(str(image[0, 0, 0]), -1.0)]


def test_a_file_captions_on_several_threads_in_order(monkeypatch):
    def read_image(path, size):
        if path.name == "3":
            raise InputError("it is damaged")
        return np.full((size, size, 3), int(path.name), "uint8")

    monkeypatch.setattr(scoring, "read_image", read_image)
    records = [Record(f"i{number}", Path(str(number)), ("x",), "test") for number in range(13)]
    for count in (1, 3):
        # None goes on before all of them are at it.
        together = threading.Barrier(count)
        files = [Slow(together) for _ in range(count)]
        captions, milliseconds, speed = caption_with_file(files, records)
        assert [one.caption for one in captions] == [str(n) for n in range(13) if n != 3]
        assert [one.image_id for one in captions][2:4] == ["i2", "i4"]
        assert milliseconds >= 20 and 0 < speed < count / 0.02


def test_a_file_that_fails_ends_at_once(monkeypatch):
    monkeypatch.setattr(scoring, "read_image", lambda path, size: np.zeros((size, size, 3), "uint8"))
    calls = []

    class Broken(Slow):
        def caption(self, image):
            calls.append(image)
            time.sleep(0.05)
            if len(calls) > 3:
                raise InputError("it gives a token that it does not know")
            return super().caption(image)

    records = [Record(str(number), Path(str(number)), ("x",), "test") for number in range(100)]
    with pytest.raises(InputError, match="gives a token"):
        caption_with_file([Broken(), Broken()], records)
    assert len(calls) < 50


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
        ([{"image_id": "\x1b" + "x" * 9999, "caption": "x"}], REFERENCES, r"such as \?x{199}…\) is among"),
        ([{"image_id": "", "caption": 3}], REFERENCES, 'image "" of the results has no caption'),
        ([{"image_id": [1], "caption": "x"}], REFERENCES, "entry 1 of the results has no image_id"),
        ([{"image_id": float("nan"), "caption": "x"}], REFERENCES, "entry 1 of the results has no image_id"),
        ([{"image_id": 1, "caption": float("nan")}], REFERENCES, "image 1 of the results has no caption"),
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


def test_ids_that_cannot_be_written_are_made_fit_for_it():
    long = "9" * 5000
    results = [{"image_id": image, "caption": "a dog"} for image in ("\ud83d", long, 10**4000)]
    found, _ = coco_results(results, results)
    assert [caption.image_id for caption in found] == ["?", long, str(10**4000)]
    # No program but Python reads numbers of such a length.
    assert [row["image_id"] for row in as_rows(found[1:])] == [long, str(10**4000)]
    for image_id, written in (("7", 7), ("07", "07"), ("٣", "٣")):
        assert as_rows([ImageCaption(image_id, "a", 0.0, ("a",))])[0]["image_id"] == written


def test_no_caption_at_all_is_named():
    with pytest.raises(InputError, match="there is no image to score"):
        scores_of([])
    with pytest.raises(InputError, match="none of the 1 images has a reference with a word in it"):
        scores_of([ImageCaption("a", "a dog", 0.0, ("...", ""))])
