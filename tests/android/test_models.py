"""The captioners packaged in the app: metadata, size, and captions on TFLite's arm64 library for Android."""

from pathlib import Path

import pytest

from tfsparsecap.captioning.data import flickr
from tfsparsecap.captioning.data.images import read_image
from tfsparsecap.captioning.data.records import CaptionData
from tfsparsecap.captioning.inference.bundle import TFLiteCaptioner
from tfsparsecap.captioning.inference.scoring import scores_of
from tfsparsecap.captioning.inference.splits import evaluate_file

from ..runtimes import tflite_2_16
from .conftest import REPOSITORY, app_models

NAMES = ("sparse", "small", "dense")
#: Tolerance for caption scores of the two runtimes, in nats; see tests/export/test_runtimes.py.
TOLERANCE = 0.1


@pytest.fixture(scope="module")
def models(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    for name, content in app_models().items():
        (folder / name).write_bytes(content)
    return folder


@pytest.mark.parametrize("name", NAMES)
def test_metadata_contains_training_data_and_scores(name, models):
    metadata = TFLiteCaptioner(models / f"{name}.tflite").metadata
    assert metadata["trained_on"]
    assert metadata["scores"]["CIDEr"] > 0


def test_sparse_models_are_sparse_and_smaller(models):
    sparse, small, dense = (models / f"{name}.tflite" for name in NAMES)
    for file in (sparse, small):
        assert TFLiteCaptioner(file).metadata["sparsity"] > 0.5
    assert small.stat().st_size < sparse.stat().st_size < dense.stat().st_size
    assert TFLiteCaptioner(dense).image_size == TFLiteCaptioner(sparse).image_size


@pytest.mark.slow
@pytest.mark.parametrize(("name", "cider"), [("sparse", 0.60), ("small", 0.52)])
def test_captions_are_as_good_as_the_readme_says(name, cider, models, shared):
    """On every fifth test photograph; the README's scores on all 1000 are 0.648 and 0.565."""
    data = flickr.load(shared("data/flickr8k"))
    part = CaptionData("part", data.split("test")[::5])
    captioner = TFLiteCaptioner(models / f"{name}.tflite")
    scores, captions = evaluate_file(captioner, part, scorer=scores_of)
    assert len(captions) == 200 and scores["CIDEr"] > cider
    faulty = [caption.caption for caption in captions if caption.faults()]
    assert len(faulty) <= 2, faulty


@pytest.mark.slow
def test_captions_on_arm64_equal_litert(models):
    tflite_2_16.require("arm64")
    captioner = TFLiteCaptioner(models / "sparse.tflite")
    photographs = REPOSITORY / "docs" / "images" / "photographs"
    images = [read_image(photographs / name, captioner.image_size) for name in ("cat.jpg", "coffee.jpg")]
    (caption, score, *_), other = (captioner.caption(image)[0] for image in images)
    assert caption != other[0], "one caption for all images proves nothing"
    # Only the first, because a caption takes ten seconds under qemu.
    outputs = tflite_2_16.run(captioner.path, {"image": images[0][None]}, "arm64")
    assert captioner.text(outputs["token_ids"][0]) == caption
    assert outputs["scores"][0] == pytest.approx(score, abs=TOLERANCE)
