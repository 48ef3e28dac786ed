"""Drawn scenes for the screen tests, and their captions in Python.

    python android_demo/app/src/test/python/screen_fixtures.py SPARSE.tflite DENSE.tflite

The models are captioners of scenes (`captioning/data/scenes.py`) at 48 x 48 pixels, trained for one epoch:
one pruned to 80 % and exported as `auto`, the other unpruned and exported as `dense-int8`.
"""

import gzip
import json
import sys
from pathlib import Path

import numpy as np

from tfsparsecap.captioning.data import scenes
from tfsparsecap.captioning.data.images import read_image
from tfsparsecap.captioning.inference.bundle import TFLiteCaptioner

FOLDER = Path(__file__).parents[1] / "resources" / "demo"
# Scenes that the sparse model captions correctly.
SEEDS = {"heart_star": 138, "cross_heart": 88, "heart_cross": 206, "circle_star": 17, "triangle": 245}
PIXELS = 640


def main(sparse: str, dense: str) -> None:
    models = {"sparse": TFLiteCaptioner(sparse), "dense": TFLiteCaptioner(dense)}
    for name, model in models.items():
        (FOLDER / f"shapes_{name}.tflite.gz").write_bytes(gzip.compress(model.path.read_bytes(), 9, mtime=0))
    expected = {}
    for name, seed in SEEDS.items():
        random = np.random.default_rng(seed)
        scene = scenes.random_scene(random, "train")
        path = FOLDER / f"{name}.jpg"
        scenes.paint(scene, PIXELS, random).save(path, quality=88)
        expected[name] = {}
        for key, model in models.items():
            captions = model.caption(read_image(path, model.image_size))
            expected[name][key] = [{"text": one.text, "confidence": one.confidence} for one in captions]
        assert expected[name]["sparse"][0]["text"] in scene.captions(), name
    (FOLDER / "captions.json").write_text(json.dumps(expected, indent=1) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
