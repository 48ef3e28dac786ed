"""Valid, unusual and damaged bundles, and how Python reads them."""

import contextlib
import functools
import hashlib
import lzma
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import keras
import numpy as np
import tensorflow as tf
from ai_edge_litert import interpreter
from tfsparsecap_export import CaptionOptions, export_model
from tfsparsecap_export.caption_files.export_captioner import make_bundle
from tfsparsecap_export.flatbuffer import model_file as flatfile

from tfsparsecap.captioning.captioners import captioner_path
from tfsparsecap.captioning.data.images import read_image
from tfsparsecap.captioning.inference.bundle import TFLiteCaptioner, read_bundle
from tfsparsecap.captioning.inference.confidence import Calibration
from tfsparsecap.captioning.models import SoftAttention
from tfsparsecap.errors import InputError

DENSE = Path(__file__).resolve().parents[4] / "models" / "dense.tflite.xz"
SIDE, BEAMS, LENGTH = 4, 3, 4
DESCRIPTION = {
    "format_version": 1,
    "model": "Echo",
    "input": "image",
    "image_size": SIDE,
    "special_ids": {"pad": 0, "start": 1, "end": 2},
    "unknown_id": 3,
    "join": "words",
}
OBJECTS = ["cat", "dog", "sofa", "person", "tv"]
WORDS = ["<pad>", "<start>", "<end>", "<unk>", "a", "dog", "schläft", "\U0001f436"]
PIECES = ["<pad>", "<unk>", "<s>", "</s>", "\u2581a", "\u2581dog", "s", "\u2581", "o"] + [
    f"<0x{byte:02X}>" for byte in (0xC3, 0xA4, 0x20, 0xF0, 0x9F, 0x90, 0xB6, 0xFF, 0xE2, 0x82, 0xED, 0xA0)
]


def model_captions(images: list[Path]) -> dict:
    """Captions of the app's models, with the digests of the models: `{model: {"sha256", …}}`."""
    with app_models() as models:
        return {
            name: {
                "sha256": digest(path),
                # In nats: runtimes sum in different orders, which sometimes changes the rounding of an int8
                # activation, also in the encoder.
                "score_error": 0.25,
                "beam": captioner.metadata["beam"],
                "captions": {
                    image.name: [{"text": caption.text, "score": caption.score}]
                    for image in images
                    if _is_stable(path, image)
                    for caption in captioner.caption(read_image(image, captioner.image_size))[:1]
                },
            }
            for name, path in models.items()
            for captioner in [phone_captioner(path)]
        }


def captions_of_100(photos: Path) -> dict:
    """The best captions of the app's sparse models for 100 Flickr8k test images: `{model: {"sha256", …}}`."""
    names = (photos / "Flickr_8k.testImages.txt").read_text().split()[:100]
    with app_models() as models:
        return {
            model: {
                "sha256": digest(models[model]),
                "captions": {
                    name: captioner.caption(read_image(photos / "Images" / name, captioner.image_size))[0][0]
                    for name in names
                },
            }
            for model in ("sparse.tflite", "small.tflite")
            for captioner in [phone_captioner(models[model])]
        }


@contextlib.contextmanager
def app_models() -> Iterator[dict[str, Path]]:
    """The app's models, by their names there, while the context is open."""
    with tempfile.TemporaryDirectory() as name, lzma.open(DENSE) as packed:
        dense = Path(name) / "dense.tflite"
        with dense.open("wb") as unpacked:
            shutil.copyfileobj(packed, unpacked)
        good, small = map(captioner_path, ("good", "small"))
        yield {dense.name: dense, "small.tflite": small, "sparse.tflite": good}


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def phone_captioner(path: Path) -> TFLiteCaptioner:
    """A captioner with kernels that agree with those of TFLite 2.16.1.

    For dense int8 layers, XNNPACK in this runtime rounds activations differently from 2.16.1; other kernels
    agree.
    """
    if not _is_dense_int8(path):
        return TFLiteCaptioner(path)
    without_xnnpack = functools.partial(
        interpreter.Interpreter,
        experimental_op_resolver_type=interpreter.OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES,
    )
    with mock.patch.object(interpreter, "Interpreter", without_xnnpack):
        return TFLiteCaptioner(path)


def _is_stable(path: Path, image: Path) -> bool:
    """Whether the best caption does not depend on how kernels for int8 layers round activations.

    Differences of rounding are as large as those by a few grey levels.
    """
    captions = set()
    for captioner in (TFLiteCaptioner(path), phone_captioner(path)):
        pixels = read_image(image, captioner.image_size).astype(int)
        for change in (-4, -2, 0, 2, 4):
            changed = np.clip(pixels + change, 0, 255).astype(np.uint8)
            captions.add(captioner.caption(changed)[0].text)
    return len(captions) == 1


def _is_dense_int8(path: Path) -> bool:
    return read_bundle(path)[0]["export_format"] == "dense-int8"


class Echo(tf.Module):
    """A graph that returns the tokens and scores encoded in its input image.

    Token t of beam b is the red value of pixel [b, t]. The score of beam b is minus a sixteenth of the green
    value of pixel [b, 0], or minus infinity, as for a beam without caption, if green is 255 (computed as a
    logarithm) or blue is 255 (a constant, which the converter changes to the lowest float).
    """

    @tf.function(input_signature=[tf.TensorSpec((1, SIDE, SIDE, 3), tf.uint8, name="image")])
    def caption(self, image):
        green, blue = (tf.cast(image[0, :BEAMS, 0, band], tf.float32) for band in (1, 2))
        scores = tf.math.log(tf.cast(green != 255, tf.float32)) - green / 16
        scores = tf.where(blue == 255, tf.fill([BEAMS], -np.inf), scores)
        return {"token_ids": tf.cast(image[0, :BEAMS, :LENGTH, 0], tf.int32), "scores": scores}


class Features(tf.Module):
    """A graph that takes region features."""

    @tf.function(input_signature=[tf.TensorSpec((1, 3, 8), tf.float32, name="features")])
    def caption(self, features):
        return {"token_ids": tf.cast(features[0, :, :LENGTH], tf.int32), "scores": features[0, :, 0]}


class NoCaptions(tf.Module):
    """A graph that takes an image and returns no captions."""

    @tf.function(input_signature=[tf.TensorSpec((1, SIDE, SIDE, 3), tf.uint8, name="image")])
    def caption(self, image):
        return {"mean": tf.reduce_mean(tf.cast(image, tf.float32), [1, 2])}


def graphs(folder: Path) -> None:
    """Small bundles that the exporter never writes."""
    echo = _converted(Echo(), "caption")
    _write(folder, "echo", echo)
    _write(folder, "features", _converted(Features(), "caption"))
    _write(folder, "silent", _converted(NoCaptions(), "caption"))
    _write(folder, "other_signature", _converted(Echo(), "serving_default"))
    future = flatfile.read_model(echo)
    future.operatorCodes[-1].version = 99
    _write(folder, "future_operator", flatfile.write_model(future))


def objects(folder: Path, images: list[Path]) -> dict:
    """A small captioner that predicts objects, `objects.tflite`, and what it finds in images in Python.

    Its weights are random, and it is not sure of half of its captions.
    """
    keras.utils.set_random_seed(2)
    layers = [keras.layers.Rescaling(1 / 127.5, -1), keras.layers.Conv2D(8, 8, 8, activation="relu")]
    encoder = keras.Sequential([keras.Input((32, 32, 3)), *layers, keras.layers.Reshape((-1, 8))])
    words = [*WORDS[:6], "runs", "on", "the", "beach"]
    sizes = {"embedding_size": 8, "rnn_size": 16, "attention_size": 8}
    captioner = SoftAttention(len(words), encoder=encoder, objects=OBJECTS, **sizes)
    captioner.output_layer.bias.assign(np.where(np.arange(len(words)) < 4, -3.0, 0.0))
    for layer, factor in ((captioner.object_scores, 8), (captioner.output_layer, 4)):
        layer.kernel.assign(layer.kernel * factor)
    pixels = {image.name: read_image(image, 32) for image in images}
    batch = {"image": np.stack(list(pixels.values()))}
    captioner.object_scores.bias.assign(captioner.object_scores.bias * 0)
    probable = captioner.encode(batch)["objects"].numpy().astype(np.float64)
    # Between two images: no probability and no confidence is close to 0.5.
    captioner.object_scores.bias.assign(-np.quantile(np.log(probable / (1 - probable)), 0.45, axis=0))
    path, options = folder / "objects.tflite", {"inputs": {"image": (32, 32, 3)}}
    captions = CaptionOptions(beam=BEAMS, max_length=LENGTH, vocabulary=words)
    export_model(captioner, path, captions=captions, **options)
    scores = [TFLiteCaptioner(path).caption(image)[0].score for image in pixels.values()]
    calibration = Calibration(2.0, -2.0 * float(np.quantile(scores, 0.45)), 0.0)
    captions = replace(captions, description={"confidence": calibration.as_dict()})
    export_model(captioner, path, captions=captions, **options)
    file = TFLiteCaptioner(path)
    return {
        name: {
            "captions": [
                {"text": one.text, "score": one.score, "confidence": one.confidence} for one in found
            ],
            "objects": [object for object, _ in found.objects],
        }
        for name, image in pixels.items()
        for found in [file.caption(image)]
    }


def texts() -> list[dict]:
    """Rows of token ids, and their text in Python."""
    generator = np.random.default_rng(11)
    cases = []
    for join, vocabulary, special, unknown in (
        ("words", WORDS, {"pad": 0, "start": 1, "end": 2}, 3),
        ("words", WORDS, {"pad": 0, "start": 1, "end": 2}, None),
        ("words", WORDS, {"end": 7}, 4),
        ("pieces", PIECES, {"pad": 0, "start": 2, "end": 3}, 1),
        ("pieces", PIECES, {"pad": 0, "start": 2, "end": 3}, None),
    ):
        description = {**DESCRIPTION, "join": join, "special_ids": special, "unknown_id": unknown}
        text = _text_of(description, vocabulary)
        for _ in range(12):
            length = int(generator.integers(1, 9))
            row = generator.integers(0, len(vocabulary), length).tolist()
            cases.append(
                {"description": description, "vocabulary": vocabulary, "ids": row, "text": text(row)}
            )
    cut = [
        "\u2581",
        "<0xF0>",
        "<0x9F>",
        "a",
        "<0xE2>",
        "<0x82>",
        "<0x41>",
        "<0xED>",
        "<0xA0>",
        "<0x80>",
        "</s>",
    ]
    description = {**DESCRIPTION, "join": "pieces", "special_ids": {"end": len(cut) - 1}, "unknown_id": None}
    row = list(range(len(cut)))
    text = _text_of(description, cut)(row)
    return [*cases, {"description": description, "vocabulary": cut, "ids": row, "text": text}]


def damage(folder: Path) -> dict:
    """A bundle, and whether Python rejects it after a change of one byte in its archive.

    `verdicts` has a letter for each byte and each of three new values (0, 255, lowest bit flipped): `r`
    rejected, `n` no vocabulary, `.` accepted.
    """
    graph = b"\x1c\0\0\0TFL3" + bytes(56)
    whole = make_bundle(graph, {"format_version": 1, "special_ids": {"end": 2}}, WORDS)
    (folder / "damage.tflite").write_bytes(whole)
    verdicts = []
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "damaged.tflite"
        for place in range(len(graph), len(whole)):
            for value in (0, 0xFF, whole[place] ^ 1):
                path.write_bytes(whole[:place] + bytes([value]) + whole[place + 1 :])
                verdicts.append(_verdict(path))
    return {"bundle": "damage.tflite", "start": len(graph), "verdicts": "".join(verdicts)}


def _verdict(path: Path) -> str:
    try:
        return "." if read_bundle(path)[1] else "n"
    except InputError:
        return "r"


def _text_of(description: dict, vocabulary: list[str]):
    """`TFLiteCaptioner.text`, without the graph, which it does not need."""
    inputs = {"image": {"shape": np.array([1, SIDE, SIDE, 3]), "dtype": np.uint8}}
    outputs = dict.fromkeys(("token_ids", "scores"))
    runner = SimpleNamespace(get_input_details=lambda: inputs, get_output_details=lambda: outputs)
    with (
        tempfile.NamedTemporaryFile(suffix=".tflite") as file,
        mock.patch("tfsparsecap.captioning.inference.bundle.signature_runner", return_value=runner),
    ):
        file.write(make_bundle(b"\x1c\0\0\0TFL3" + bytes(56), description, vocabulary))
        file.flush()
        return TFLiteCaptioner(file.name).text


def _converted(module: tf.Module, signature: str) -> bytes:
    with tempfile.TemporaryDirectory() as name:
        tf.saved_model.save(module, name, signatures={signature: module.caption})
        return tf.lite.TFLiteConverter.from_saved_model(name, signature_keys=[signature]).convert()


def _write(folder: Path, name: str, graph: bytes) -> None:
    (folder / f"{name}.tflite").write_bytes(make_bundle(graph, DESCRIPTION, WORDS))
