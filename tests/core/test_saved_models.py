"""Keras files that are damaged or come from strangers are read or refused, and never anything else."""

import io
import json
import shutil
import zipfile

import h5py
import keras
import numpy as np
import pytest
from tfsparsecap_export.__main__ import export

from tfsparsecap import caption, report
from tfsparsecap.core.saved_models import load_model, load_model_weights
from tfsparsecap.errors import InputError


def small_model(units=3):
    keras.utils.set_random_seed(1)
    layers = [keras.Input((4,)), keras.layers.Dense(units, "relu"), keras.layers.BatchNormalization()]
    return keras.Sequential([*layers, keras.layers.Dense(2)])


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    path = tmp_path_factory.mktemp("models") / "model.keras"
    small_model().save(path)
    return path


@pytest.fixture
def file(saved, tmp_path):
    (tmp_path / "a.keras").write_bytes(saved.read_bytes())
    return tmp_path / "a.keras"


def members(path):
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def replace(path, compression=zipfile.ZIP_STORED, **changed):
    """Writes the archive again; `config` is JSON or text, `weights` the bytes of HDF5."""
    content = members(path)
    for key, name in (("config", "config.json"), ("weights", "model.weights.h5")):
        if key in changed:
            value = changed[key]
            content[name] = value if isinstance(value, bytes) else json.dumps(value).encode()
    with zipfile.ZipFile(path, "w", compression) as archive:
        for name, value in content.items():
            archive.writestr(name, value)


def with_layer(**layer):
    """Replaces the first Dense layer in the configuration."""

    def change(path):
        config = json.loads(members(path)["config.json"])
        config["config"]["layers"][1] = layer
        replace(path, config=config)

    return change


def with_sizes(units):
    def change(path):
        replace(
            path, config=members(path)["config.json"].replace(b'"units": 3', f'"units": {units}'.encode())
        )

    return change


def with_hdf5(change):
    """Changes the opened file of weights."""

    def write(path):
        stream = io.BytesIO(members(path)["model.weights.h5"])
        with h5py.File(stream, "a") as opened:
            change(opened)
        replace(path, weights=stream.getvalue())

    return write


def flipped(path):
    content = bytearray(path.read_bytes())
    content[content.index(b"\x89HDF") + 40] ^= 1
    path.write_bytes(bytes(content))


def deep(path):
    config = {"class_name": "Sequential", "module": "keras", "config": {"name": "a", "layers": []}}
    for _ in range(150):
        config = {**config, "config": {"name": "a", "layers": [config]}}
    replace(path, config=config)


REFUSED = {
    "missing": (lambda path: path.rename(path.with_name("other")), "No such file"),
    "truncated": (lambda path: path.write_bytes(path.read_bytes()[:-100]), "not a zip file"),
    "CRC": (flipped, "CRC"),
    "deep": (deep, "nested too deeply"),
    "no configuration": (lambda path: replace(path, config=[1]), "does not describe a model"),
    "resource exhausted": (with_sizes(10**11), "kernel of shape .* is too large"),
    "missing module": (
        with_layer(class_name="Layer", module="absent.module", config={}, registered_name="Layer"),
        "contains Layer of absent.module, which is not a registered class",
    ),
    "another module": (
        with_layer(class_name="Popen", module="subprocess", config={"args": ["touch", "executed"]}),
        "contains Popen of subprocess",
    ),
    "Lambda layer": (
        with_layer(class_name="Lambda", module="keras.layers", config={"function": "relu"}),
        "contains Lambda of keras.layers",
    ),
    "file": (
        with_layer(class_name="StringLookup", module="keras.layers", config={"vocabulary": "/etc/passwd"}),
        r"names a file \(vocabulary\)",
    ),
    "zip bomb": (
        lambda path: replace(path, zipfile.ZIP_DEFLATED, weights=bytes(50_000_000)),
        "archive is much larger than the file",
    ),
    "3 TiB": (
        with_hdf5(lambda file: file.create_dataset("bomb", (3, 1 << 40), "u1", chunks=(1, 1 << 20))),
        r"arrays are larger than the file \(from bomb on\)",
    ),
    "link": (
        with_hdf5(lambda file: file.__setitem__("x", h5py.ExternalLink("/etc/passwd", "/"))),
        "x is a link",
    ),
    "external": (
        with_hdf5(lambda file: file.create_dataset("x", (4,), "u1", external="/etc/passwd")),
        "x is stored in another file",
    ),
    "deep groups": (with_hdf5(lambda file: file.create_group("/".join("a" * 200))), "groups are nested"),
    "other weights": (with_hdf5(lambda file: file.__delitem__("layers")), "could not be loaded"),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_damaged_and_hostile_models_are_refused_in_one_sentence(kind, file, monkeypatch):
    change, reason = REFUSED[kind]
    change(file)
    monkeypatch.chdir(file.parent)
    with pytest.raises(
        InputError, match=rf"(?s)^cannot read .*a\.keras \(.*{reason}.*\): train again$"
    ) as error:
        load_model(file, "train again")
    assert "\n" not in str(error.value) and len(str(error.value)) < 500
    assert len(list(file.parent.iterdir())) == 1


@keras.saving.register_keras_serializable("tests")
class Doubling(keras.layers.Layer):
    def call(self, inputs):
        return 2 * inputs


def test_registered_classes_and_compressed_archives_are_loaded(tmp_path):
    layers = [keras.Input((4,)), Doubling(), keras.layers.Dense(2, activation=keras.activations.gelu)]
    model = keras.Sequential(layers)
    model.save(tmp_path / "a.keras")
    replace(tmp_path / "a.keras", zipfile.ZIP_DEFLATED)
    x = np.ones((2, 4), "float32")
    np.testing.assert_array_equal(load_model(tmp_path / "a.keras", "")(x), model(x))


@pytest.mark.parametrize("name", ["a.keras", "a.weights.h5", "a.h5"])
def test_weights_are_loaded_from_each_format_or_the_model_stays_unchanged(name, tmp_path):
    model, other = small_model(), small_model()
    for variable in model.weights:
        variable.assign(variable + 1)
    path = tmp_path / name
    save = model.save_weights if name.endswith("weights.h5") else model.save
    save(path)
    load_model_weights(other, path, "give other weights")
    for weight, same_weight in zip(model.get_weights(), other.get_weights(), strict=True):
        np.testing.assert_array_equal(weight, same_weight)
    path.write_bytes(path.read_bytes()[:2000])
    with pytest.raises(InputError, match=rf"cannot read .*{name} \(.*\): give other weights"):
        load_model_weights(other, path, "give other weights")
    wide = small_model(units=5)
    save(path)
    before = wide.get_weights()
    with pytest.raises(InputError, match=rf"cannot read .*{name} \(.*\): give other weights"):
        load_model_weights(wide, path, "give other weights")
    for weight, same_weight in zip(before, wide.get_weights(), strict=True):
        np.testing.assert_array_equal(weight, same_weight)


@pytest.mark.slow
@pytest.mark.parametrize(
    "command",
    [
        lambda run: caption.main([str(run), "photo.jpg"]),
        lambda run: report.main([str(run), "--output", str(run.parent / "report.html")]),
        lambda run: export(["--tflite", str(run / "model.keras")]),
    ],
)
def test_every_command_reports_a_damaged_model(command, trained_run, tmp_path):
    run = shutil.copytree(trained_run, tmp_path / "trained")
    flipped(run / "model.keras")
    with pytest.raises(InputError, match=r"cannot read .*model\.keras \(Bad CRC-32 .*\): (copy|save)"):
        command(run)
    assert [path.name for path in tmp_path.iterdir()] == ["trained"]
