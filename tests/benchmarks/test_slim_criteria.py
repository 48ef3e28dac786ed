"""The benchmark of importance criteria: rows, spread, and networks of which nothing is left."""

import keras
import numpy as np
import pytest
from PIL import Image

from benchmarks import slim_criteria
from tfsparsecap.slimming.importance import CRITERIA

RANDOM = np.random.default_rng(0)


@pytest.fixture
def photographs(tmp_path, monkeypatch):
    monkeypatch.setattr(slim_criteria, "PHOTOGRAPHS", 6)
    monkeypatch.setattr(slim_criteria, "HELD_OUT", 3)
    monkeypatch.setattr(slim_criteria, "SAMPLES", 4)
    folder = tmp_path / "photographs"
    folder.mkdir()
    for index in range(9):
        Image.fromarray(RANDOM.integers(0, 256, (32, 32, 3), np.uint8)).save(folder / f"{index}.jpg")
    return folder


@pytest.fixture
def data(monkeypatch):
    split = RANDOM.integers(0, 256, (40, 8, 8, 3), np.uint8), RANDOM.integers(0, 3, 40).astype(np.uint8)
    monkeypatch.setattr("benchmarks.image_data.load", lambda name, folder: (split, split))
    return split


def classifier(width=16):
    layers = keras.layers
    return keras.Sequential(
        [
            keras.Input((8, 8, 3)),
            layers.Rescaling(1 / 255),
            layers.Conv2D(width, 3, activation="relu"),
            layers.GlobalAveragePooling2D(),
            layers.Dense(3, "softmax"),
        ]
    )


def printed(capsys):
    rows = (line.split("   ") for line in capsys.readouterr().out.splitlines())
    return [[cell.strip() for cell in row if cell.strip()] for row in rows]


@pytest.mark.slow
def test_encoders_are_compared_on_photographs(photographs, capsys):
    settings = ["width=0.25", "image_size=32", "layer=conv_pw_2_relu"]
    command = ["encoder", str(photographs), *settings, "--draws", "2", "--ratios", "0.3", "--multiple", "1"]
    slim_criteria.main(command)
    rows = [row for row in printed(capsys) if row and row[0] in CRITERIA]
    assert [row[0] for row in rows] == ["rtic", "rtic", "l1", "l1", "l2", "l2", "taylor"]
    for row in rows:
        assert ("±" in row[2]) == (row[1] == "yes") and float(row[2].split()[0]) > 0


@pytest.mark.slow
def test_constant_channels_cost_no_accuracy(data, tmp_path, capsys):
    images, labels = data
    network = classifier()
    kernel, bias = network.layers[1].get_weights()
    kernel[..., ::2] = 0  # half of the channels
    network.layers[1].set_weights([kernel, bias])
    path = tmp_path / "network.keras"
    network.save(path)
    accuracy = 100 * np.mean(network.predict(images, verbose=0).argmax(axis=1) == labels)
    options = ["--draws", "1", "--ratios", "0.5", "--budget", "channels", "--multiple", "1"]
    slim_criteria.main(["classifier", str(path), *options])
    rows = [row for row in printed(capsys) if row and row[0] in CRITERIA]
    assert {row[2] for row in rows} == {f"{accuracy:.1f}"} and len(rows) == 7
