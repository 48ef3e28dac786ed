"""The captioners that the app comes with: they say the same on TFLite's arm64 library for Android."""

import random
import tarfile
from pathlib import Path

import numpy as np
import pytest
from ai_edge_litert.interpreter import Interpreter, OpResolverType

from tfsparsecap.data import scenes
from tfsparsecap.data.images import read_image
from tfsparsecap.inference.bundle import SIGNATURE, TFLiteCaptioner

from ..runtimes import tflite_2_16

MODELS = Path(__file__).resolve().parents[2] / "android_demo" / "models" / "models.tar.xz"
LARGEST = 4 << 20
NAMES = ("sparse", "dense")
#: Nats by which the runtimes' scores of a caption may differ; tests/export/test_runtimes.py says what of.
DIFFERENCE = 0.1


@pytest.fixture(scope="module")
def models(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    with tarfile.open(MODELS) as archive:
        archive.extractall(folder, filter="data")
    return folder


def test_there_are_two_and_together_they_are_small(models):
    assert sorted(file.name for file in models.iterdir()) == ["dense.tflite", "sparse.tflite"]
    assert MODELS.stat().st_size <= LARGEST


@pytest.mark.parametrize("name", NAMES)
def test_a_model_says_what_it_was_trained_on_and_how_well_it_does(name, models):
    about = TFLiteCaptioner(models / f"{name}.tflite").metadata
    assert about["trained_on"]
    assert about["scores"]["CIDEr"] > 0


def test_only_one_of_them_is_sparse(models):
    sparse, dense = (TFLiteCaptioner(models / f"{name}.tflite").metadata for name in NAMES)
    assert sparse["sparsity"] > 0.79
    assert (models / "sparse.tflite").stat().st_size < (models / "dense.tflite").stat().st_size
    assert dense["image_size"] == sparse["image_size"]


def painted(size: int) -> list[np.ndarray]:
    """Scenes of coloured shapes, the same ones every time."""
    generator = np.random.default_rng(11)
    return [
        np.asarray(scenes.paint(scenes.random_scene(generator, split), size, generator), np.uint8)
        for split in ("train", "validation", "test")
    ]


def on_litert(path: Path, picture: np.ndarray) -> tuple[str, float]:
    """The best caption, and its score.

    The dense one without XNNPACK: LiteRT's rounds inputs of dense int8 layers to other steps than 2.16.1.
    """
    captioner = TFLiteCaptioner(path)
    if path.stem == "sparse":
        return captioner.caption(picture)[0]
    plain = Interpreter(
        str(path), experimental_op_resolver_type=OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES
    )
    outputs = plain.get_signature_runner(SIGNATURE)(image=picture[None])
    return captioner.text(outputs["token_ids"][0]), float(outputs["scores"][0])


def compare(path: Path, pictures: list[np.ndarray]) -> None:
    """Has each picture captioned here and on Android's arm64 library."""
    on_android = tflite_2_16.run_each(path, [{"image": picture[None]} for picture in pictures], "arm64")
    said = set()
    for picture, outputs in zip(pictures, on_android, strict=True):
        caption, score = on_litert(path, picture)
        assert TFLiteCaptioner(path).text(outputs["token_ids"][0]) == caption
        assert outputs["scores"][0] == pytest.approx(score, abs=DIFFERENCE)
        said.add(caption)
    assert len(said) > 1, "what says the same of every picture proves nothing"


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_scenes_get_the_same_captions_on_arm64(name, models):
    tflite_2_16.require("arm64")
    path = models / f"{name}.tflite"
    compare(path, painted(TFLiteCaptioner(path).image_size))


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_photographs_get_the_same_captions_on_arm64(name, models, shared):
    tflite_2_16.require("arm64")
    folder = shared / "data" / "flickr8k_1k"
    if not folder.is_dir():
        pytest.skip(f"{folder} is absent: its photographs are captioned")
    names = (folder / "Flickr_8k.testImages.txt").read_text(encoding="utf-8").split()
    path = models / f"{name}.tflite"
    size = TFLiteCaptioner(path).image_size
    chosen = random.Random(3).sample(names, 4)
    compare(path, [read_image(folder / "Images" / file, size) for file in chosen])
