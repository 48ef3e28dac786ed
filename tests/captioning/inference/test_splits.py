"""Captions of all images of a split: order, errors and timing."""

import threading
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import tensorflow as tf

from tfsparsecap.captioning.data.records import Record
from tfsparsecap.captioning.inference import Caption, Captions, splits
from tfsparsecap.captioning.inference.splits import caption_records, caption_with_file
from tfsparsecap.captioning.metrics.caption_statistics import CUT, UNKNOWN_WORD
from tfsparsecap.errors import InputError


class SlowToTrace:
    """A search that takes 10 ms on its own clock, and 500 ms more to trace a graph for a new batch size.

    It predicts whether the number of an image is even, and whether it is at least 3.
    """

    captioner = SimpleNamespace(objects=("even", "large"))

    def __init__(self):
        self.traced, self.calls, self.now = [], [], 0.0

    def perf_counter(self):
        return self.now

    @property
    def traces(self):
        return len(self.traced)

    def __call__(self, batch):
        return self.with_objects(batch)[:2]

    def with_objects(self, batch):
        count = len(batch["index"])
        self.calls.append(count)
        if count not in self.traced:
            self.traced.append(count)
            self.now += 0.5
        self.now += 0.01
        number = batch["index"]
        objects = tf.stack([1 - number % 2, tf.cast(number >= 3, tf.int64)], 1)
        return tf.reshape(number, [-1, 1, 1]), tf.zeros([count, 1]), tf.cast(objects, tf.float32)


def caption_batches(sizes, monkeypatch):
    """Captions, milliseconds and searched batches for batches of these sizes."""
    ends = np.cumsum(sizes)
    batches = [
        {"index": tf.range(end - size, end, dtype=tf.int64)} for size, end in zip(sizes, ends, strict=True)
    ]
    records = [Record(str(n), Path(), (f"{n}",), "test", (f"label {n}",)) for n in range(sum(sizes))]
    decoder = SlowToTrace()
    monkeypatch.setattr(splits, "time", decoder)
    words = SimpleNamespace(decode=lambda ids: str(ids[0]), to_words=lambda ids: ids, end_id=0, unknown_id=1)
    words.words = words
    return *caption_records(decoder, records, batches, words), decoder.calls


def test_the_time_per_image_excludes_tracing(monkeypatch):
    captions, milliseconds, calls = caption_batches([2, 2, 2, 1], monkeypatch)
    assert captions[3].labels == ("label 3",)
    assert [caption.objects for caption in captions[2:5]] == [("even",), ("large",), ("even", "large")]
    assert [caption.caption for caption in captions] == list("0123456") and calls == [2, 2, 2, 1]
    # The caption of image 0 is the end token, that of image 1 the unknown word without an end.
    assert [caption.token_faults for caption in captions[:3]] == [(), (CUT, UNKNOWN_WORD), (CUT,)]
    assert milliseconds == pytest.approx(5)
    # If every batch was traced, the last one is repeated.
    captions, milliseconds, calls = caption_batches([2, 1], monkeypatch)
    assert len(captions) == 3 and calls == [2, 1, 1]
    assert milliseconds == pytest.approx(10)
    assert caption_batches([], monkeypatch) == ([], 0.0, [])


class Slow:
    """A slow exported file that only one thread may use at a time."""

    image_size, input_names, objects = 8, ("image",), ("dog", "cat")

    def __init__(self, together=None):
        self.busy, self.together = threading.Lock(), together

    def caption(self, image):
        assert self.busy.acquire(blocking=False)
        if self.together is not None and threading.current_thread() is not threading.main_thread():
            self.together.wait(10)
        time.sleep(0.02)
        self.busy.release()
        return Captions([Caption(str(image[0, 0, 0]), -1.0, (CUT,))], objects=(("cat", 0.75),))


def test_a_file_captions_on_several_threads_in_order(monkeypatch):
    def read_image(path, size):
        if path.name == "3":
            raise InputError("it is damaged")
        return np.full((size, size, 3), int(path.name), "uint8")

    monkeypatch.setattr(splits, "read_image", read_image)
    records = [Record(f"i{number}", Path(str(number)), ("x",), "test", ("dog",)) for number in range(13)]
    for count in (1, 3):
        # No thread continues before all have started.
        together = threading.Barrier(count)
        files = [Slow(together) for _ in range(count)]
        captions, milliseconds, speed = caption_with_file(files, records)
        assert [caption.caption for caption in captions] == [str(n) for n in range(13) if n != 3]
        assert {caption.token_faults for caption in captions} == {(CUT,)}
        assert {caption.labels for caption in captions} == {("dog",)}
        assert {caption.objects for caption in captions} == {("cat",)}
        assert [caption.image_id for caption in captions][2:4] == ["i2", "i4"]
        assert milliseconds >= 20 and 0 < speed < count / 0.02


def test_an_error_in_one_thread_stops_the_others(monkeypatch):
    monkeypatch.setattr(splits, "read_image", lambda path, size: np.zeros((size, size, 3), "uint8"))
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


@pytest.mark.parametrize(("calibration", "confidence"), [(None, None), (object(), 0.0)])
def test_an_image_without_a_caption_counts_as_an_empty_one(monkeypatch, calibration, confidence):
    monkeypatch.setattr(splits, "read_image", lambda path, size: np.zeros((size, size, 3), "uint8"))
    about = {"image_size": 4, "input_names": ("image",), "objects": (), "calibration": calibration}
    file = SimpleNamespace(**about, caption=lambda image: Captions())
    (caption,), *_ = caption_with_file([file], [Record("a", Path("a"), ("x",), "test")])
    assert (caption.caption, caption.confidence, caption.objects) == ("", confidence, None)
    assert np.isfinite(caption.score)
