"""Synthetic data sets in the layout of MS-COCO."""

import os

from benchmarks import coco_like
from tfsparsecap.captioning.data import coco
from tfsparsecap.captioning.data.images import read_image


def test_a_data_set_is_loaded_without_skipped_records_and_written_once(tmp_path, monkeypatch):
    monkeypatch.setattr(coco_like, "_LINKS_PER_FILE", 40)
    coco_like.make_data_set(tmp_path / "a", 100)
    data = coco.load(tmp_path / "a")
    assert len(data.records) == 100 and not data.skipped
    assert {len(record.captions) for record in data.records} == {5}
    assert all(8 <= len(caption.split()) <= 13 for record in data.records for caption in record.captions)
    assert len(data.split("train")) > 80 and data.split("validation") and data.split("test")
    images = list((tmp_path / "a/val2014").iterdir())
    assert len({os.stat(path).st_ino for path in images}) == 3  # the others are links
    assert read_image(data.records[99].image, 64).std() > 10
    assert coco_like.disk_bytes(tmp_path / "a") < 1_000_000
    times = [path.stat().st_mtime_ns for path in (tmp_path / "a").iterdir()]
    coco_like.make_data_set(tmp_path / "a", 100)
    assert times == [path.stat().st_mtime_ns for path in (tmp_path / "a").iterdir()]
