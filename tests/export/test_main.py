"""python -m tfsparsecap_export: exports of a run folder and of a single model file."""

import json
import math
import shutil

import keras
import numpy as np
import pytest
from PIL import Image
from tfsparsecap_export.__main__ import export

from tfsparsecap.captioning.inference.bundle import read_bundle
from tfsparsecap.captioning.settings.config_files import save_config
from tfsparsecap.captioning.settings.schema import Config, Data
from tfsparsecap.captioning.settings.sections import Decoding
from tfsparsecap.errors import InputError

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def finished(tmp_path_factory, blocks_captioner, vocabulary):
    run = tmp_path_factory.mktemp("runs") / "small"
    run.mkdir()
    absent = str(tmp_path_factory.getbasetemp() / "absent")
    (run / "config.yaml").write_text(
        save_config(Config(name="small", data=Data(folder=absent, max_length=6)))
    )
    (run / "vocabulary.txt").write_text("\n".join(vocabulary) + "\n")
    (run / "scores_test.json").write_text('{"CIDEr": 0.5}')
    blocks_captioner.save(run / "model.keras")
    return run


@pytest.fixture
def run(finished, tmp_path):
    return shutil.copytree(finished, tmp_path / "small")


def test_a_run_is_exported_and_a_table_is_printed(run, capsys, vocabulary):
    export(["--tflite", str(run), "--beam", "2", "--samples", "3"])
    printed = " ".join(capsys.readouterr().out.split())
    assert "1x16 blocks" in printed and "synthetic inputs" in printed
    assert "The file has no confidence: give at least 50 validation images with captions" in printed
    description, tokens = read_bundle(run / "model.tflite")
    assert tokens == vocabulary
    assert description["scores"] == {"CIDEr": 0.5}
    assert (description["beam"], description["max_length"], description["run"]) == (2, 6, "small")
    assert description["verification"]["samples"] == 3 and description["confidence"] is None


@pytest.mark.parametrize("images", [49, 50])
def test_validation_images_of_the_run_are_used(images, run, capsys, tmp_path):
    folder = tmp_path / "photos"
    folder.mkdir()
    rows = ["image,caption,split"]
    for number, split in enumerate(["train", *["validation"] * (images + 1), "test"]):
        Image.new("RGB", (30 + number, 20), (40 * number % 256, 99, 7)).save(folder / f"{number}.png")
        rows.append(f"{number}.png,a image,{split}")
    (folder / "captions.csv").write_text("\n".join(rows) + "\n")
    (folder / "3.png").write_bytes(b"broken")
    data = Data(kind="table", folder=str(folder), max_length=6)
    config = Config(name="small", data=data, decoding=Decoding(beam=4))
    (run / "config.yaml").write_text(save_config(config))
    target = tmp_path / "other.tflite"
    export(["--tflite", str(run), "--json", "--samples", "2", "--output", str(target)])
    description = read_bundle(target)[0]
    confidence = description["confidence"]
    assert description["beam"] == 4  # the run's
    report = json.loads(capsys.readouterr().out)
    if images < 50:
        assert confidence is None and "give at least 50 validation images" in report["notes"][-1]
    else:  # no caption of these and three drawn images is good: (0 + 1) / (53 + 2)
        assert confidence["images"] == 50 and confidence["good"] == 0
        assert 1 / (1 + math.exp(-confidence["intercept"])) == pytest.approx(1 / 55)
    assert report["bytes"] == target.stat().st_size and report["format"] == "auto"
    verification = report["verification"]
    assert verification["source"] == "validation images"
    assert verification["samples"] == 2


def test_any_keras_file(tmp_path, capsys):
    keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)]).save(tmp_path / "plain.keras")
    export(["--tflite", str(tmp_path / "plain.keras"), "--batch", "any"])
    printed = capsys.readouterr().out
    assert "outputs differ by at most" in printed and " ms " in printed and "words" not in printed
    assert (tmp_path / "plain.tflite").is_file()


def test_axes_without_a_fixed_size_get_one_from_the_command_line(tmp_path, capsys):
    inputs = [keras.Input((None,), name="ids", dtype="int32"), keras.Input((None, 2), name="series")]
    read, seen = keras.layers.Embedding(9, 2)(inputs[0]), keras.layers.Dense(2)(inputs[1])
    keras.Model(inputs, keras.layers.Add()([read, seen])).save(tmp_path / "open.keras")
    with pytest.raises(InputError, match=r"ids of functional\S* has shape .*--shape"):
        export(["--tflite", str(tmp_path / "open.keras")])
    export(["--tflite", str(tmp_path / "open.keras"), "--shape", "ids=5", "--shape", "series=5x2", "--json"])
    assert json.loads(capsys.readouterr().out)["verification"]["error"] < 1e-3


def test_a_convolutional_network_becomes_int8_with_inputs_from_files(tmp_path, capsys):
    network = keras.Sequential(
        [
            keras.Input((16, 16, 3), name="photo"),
            keras.layers.Conv2D(32, 3, activation="relu"),
            keras.layers.Conv2D(64, 3, activation="relu"),
            keras.layers.GlobalAveragePooling2D(),
        ]
    )
    network.save(tmp_path / "network.keras")
    np.save(tmp_path / "photos.npy", np.random.default_rng(0).normal(size=(6, 16, 16, 3)).astype("float32"))
    command = ["--tflite", str(tmp_path / "network.keras"), "--json", "--inputs"]
    export([*command, str(tmp_path / "photos.npy")])
    report = json.loads(capsys.readouterr().out)
    assert report["verification"]["source"] == "given inputs" and report["verification"]["samples"] == 6
    assert {layer["encoding"] for layer in report["layers"]} >= {"int8"}
    before = (tmp_path / "network.tflite").read_bytes()
    np.save(tmp_path / "objects.npy", np.array([{}, {}]), allow_pickle=True)
    np.save(tmp_path / "one.npy", 1.0)
    for file, message in [
        ("absent.npy", "there is no .*absent.npy"),
        ("objects.npy", "contains Python objects"),
        ("one.npy", "has one number"),
    ]:
        with pytest.raises(InputError, match=message):
            export([*command, str(tmp_path / file)])
    with pytest.raises(InputError, match=r"sample 0 is \['other'\]: give .* \['photo'\]"):
        export([*command, f"other={tmp_path / 'photos.npy'}"])
    assert (tmp_path / "network.tflite").read_bytes() == before


def deleted(name):
    return lambda run: (run / name).unlink()


def replaced(name, content):
    return lambda run: (run / name).write_bytes(content)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (deleted("model.keras"), "no model.keras yet"),
        (deleted("vocabulary.txt"), "vocabulary.txt"),
        (deleted("config.yaml"), "config.yaml"),
        (replaced("model.keras", b"no archive"), "cannot read"),
        (replaced("scores_test.json", b"{"), "is not JSON"),
        (replaced("vocabulary.txt", b"<pad>\n<start>\n<end>\n<unk>\na\n"), "5 tokens, the model 80"),
    ],
)
def test_a_damaged_run_is_reported_and_the_old_file_kept(run, damage, message):
    (run / "model.tflite").write_bytes(b"old")
    damage(run)
    with pytest.raises(InputError, match=message):
        export(["--tflite", str(run), "--samples", "1"])
    assert (run / "model.tflite").read_bytes() == b"old"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--tflite", "runs/absent"], "no run folder runs/absent"),
        (["--tflite", "absent.keras"], "no absent.keras"),
        (["--tflite", "x", "--format", "best"], 'no export format "best"'),
        (["--tflite", "x", "--beam", "0"], "--beam is 0"),
        (["--tflite", "x", "--output", "a.bin"], "cannot write a.bin as a .tflite file: give a name that"),
        (["--tflite", "x", "--batch", "-1"], "--batch is -1"),
        (["--tflite", "x", "--shape", "3xa"], "--shape is 3xa"),
        (["--tflite", "x", "--shape", "a=2", "--shape", "a=3"], "--shape is a=3"),
        (["--tflite", "x", "--shape", "a=2", "--shape", "3"], "without a name"),
        (["--tflite", "x", "--tolerance", "2"], "--tolerance is 2"),
        (["--tflite", "x", "--validation", "-1"], "--validation is -1"),
    ],
)
def test_wrong_arguments_are_rejected(arguments, message):
    with pytest.raises(InputError, match=message):
        export(arguments)
