"""Exported files in a report: sizes, latencies, broken files."""

from types import SimpleNamespace

import keras
import numpy as np
import pytest
from PIL import Image
from tfsparsecap_export import CaptionOptions, export_model

import tfsparsecap as sc
from tfsparsecap.inference.finished_run import FinishedRun
from tfsparsecap.reports import exported_files as report_files
from tfsparsecap.reports.exported_files import ExportedFile, exported_files, files_table
from tfsparsecap.reports.runs import ReportRun
from tfsparsecap.runs.run_folder import RunFolder
from tfsparsecap.settings.schema import Config


def report_run(folder, dense=False):
    return ReportRun(folder.name, RunFolder(folder), Config(**({"pruning": None} if dense else {})))


def test_random_features_have_the_shapes_of_the_files_inputs():
    names = ("features", "boxes", "pooled", "mask")
    captioner = SimpleNamespace(features_shape=(5, 6), input_names=names)
    shapes = {name: value.shape for name, value in report_files._random_features(captioner).items()}
    assert shapes == {"features": (5, 6), "boxes": (5, 4), "pooled": (6,), "mask": (5,)}
    captioner.input_names = ("features",)
    assert list(report_files._random_features(captioner)) == ["features"]


@pytest.mark.slow
def test_latency_of_files_with_images_and_with_features(tiny_run, tmp_path, monkeypatch):
    options = {"captions": CaptionOptions(beam=1, max_length=4)}
    export_model(FinishedRun.load(tiny_run).captioner, tmp_path / "a.tflite", **options)
    keras.utils.set_random_seed(0)
    sizes = {"size": 8, "hidden_size": 16, "layers": 1, "heads": 2, "feature_size": 6, "max_length": 4}
    regions = sc.ObjectRelationTransformer(20, **sizes)
    export_model(regions, tmp_path / "b.tflite", inputs={"features": (5, 6), "boxes": (5, 4)}, **options)
    Image.new("RGB", (40, 30), "red").save(tmp_path / "red.png")

    given = []
    token_ids = report_files.TFLiteCaptioner.token_ids
    monkeypatch.setattr(
        report_files.TFLiteCaptioner,
        "token_ids",
        lambda self, **inputs: given.append((self.path.name, inputs)) or token_ids(self, **inputs),
    )
    found = exported_files([report_run(tmp_path)], tmp_path / "red.png", latency=True)
    assert [(one.path.name, one.error, one.max_length) for one in found] == [
        ("a.tflite", "", 4),
        ("b.tflite", "", 4),
    ]
    assert all(0 < one.milliseconds < 10_000 for one in found)
    image = next(inputs["image"] for name, inputs in given if name == "a.tflite")
    assert image.shape == (32, 32, 3) and np.all(image == [255, 0, 0])
    boxes = next(inputs["boxes"] for name, inputs in given if name == "b.tflite")
    assert np.all(boxes[:, :2] < boxes[:, 2:]) and len(given) == 2 * 11
    assert all(one.milliseconds is None for one in exported_files([report_run(tmp_path)], None, False))


def test_broken_files_are_named(tmp_path):
    (tmp_path / "cut.tflite").write_bytes(b"\x1c\0\0\0TFL3" + bytes(100))
    (found,) = exported_files([report_run(tmp_path, dense=True)], None, latency=True)
    assert "cut.tflite" in found.error and found.megabytes == 108 / 1e6 and found.dense
    (row,) = files_table([found], True).rows
    assert row[3] == "\u2013" and "cannot be used" in row[4]


def test_sizes_are_relative_to_the_smallest_file_of_a_dense_run(tmp_path):
    files = [
        ExportedFile("dense", tmp_path / "a.tflite", True, 8.0, "dense", 20, 4.0),
        ExportedFile("dense", tmp_path / "b.tflite", True, 4.0, "dense, int8", 20, 2.0),
        ExportedFile("smp", tmp_path / "c.tflite", False, 1.0, "auto", 20, None),
    ]
    rows = files_table(files, True).rows
    assert [row[3] for row in rows] == ["200.0%", "100.0%", "25.0%"]
    assert [row[6] for row in rows] == ["4.0", "2.0", "\u2013"]
    assert {row[3] for row in files_table(files[2:], False).rows} == {"\u2013"}
    assert len(files_table(files, False).columns) == 6
