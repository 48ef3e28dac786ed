"""Checkpoints: written atomically, restored exactly, rejected if damaged or of another model."""

import errno
import zipfile

import keras
import numpy as np
import pytest

from tfsparsecap.captioning.runs import checkpoints
from tfsparsecap.captioning.runs.checkpoints import (
    load_checkpoint,
    newest_intact,
    read_notes,
    save_checkpoint,
)
from tfsparsecap.errors import InputError


def model_and_optimizer(units=4, seed=0):
    keras.utils.set_random_seed(seed)
    layers = [keras.Input((3,)), keras.layers.Dense(units), keras.layers.Dropout(0.5), keras.layers.Dense(2)]
    model = keras.Sequential(layers)
    optimizer = keras.optimizers.Adam(0.1)
    optimizer.build(model.trainable_variables)
    return model, optimizer


def values(*things):
    return [np.array(variable) for thing in things for variable in thing.variables]


def step(model, optimizer):
    import tensorflow as tf

    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(model(tf.ones([5, 3]), training=True) ** 2)
    trainable = model.trainable_variables
    optimizer.apply(tape.gradient(loss, [variable.value for variable in trainable]), trainable)


def test_a_restored_model_takes_the_same_next_step(tmp_path):
    original = model_and_optimizer()
    step(*original)
    save_checkpoint(tmp_path / "a.npz", *original, {"epoch": 3, "history": [{"loss": 0.1}]})
    step(*original)
    restored = model_and_optimizer(seed=1)
    notes = load_checkpoint(tmp_path / "a.npz", *restored)
    assert notes["epoch"] == 3 and notes["history"] == [{"loss": 0.1}]
    step(*restored)
    # The seeds of dropout are saved, too.
    for first, second in zip(values(*original), values(*restored), strict=True):
        np.testing.assert_array_equal(first, second)


def test_the_model_can_be_restored_without_its_optimizer(tmp_path):
    original, restored = model_and_optimizer(), model_and_optimizer(seed=1)
    save_checkpoint(tmp_path / "a.npz", *original, {})
    load_checkpoint(tmp_path / "a.npz", restored[0])
    for first, second in zip(values(original[0]), values(restored[0]), strict=True):
        np.testing.assert_array_equal(first, second)


def test_a_checkpoint_of_another_model_is_rejected_without_changes(tmp_path):
    save_checkpoint(tmp_path / "a.npz", *model_and_optimizer(units=5), {})
    model, optimizer = model_and_optimizer()
    before = values(model, optimizer)
    with pytest.raises(InputError, match=r"kernel has shape \[3, 5\] there and \[3, 4\] here"):
        load_checkpoint(tmp_path / "a.npz", model, optimizer)
    for first, second in zip(before, values(model, optimizer), strict=True):
        np.testing.assert_array_equal(first, second)


def test_a_checkpoint_with_other_layers_is_rejected(tmp_path):
    keras.utils.set_random_seed(0)
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(4), keras.layers.Dense(2)])
    optimizer = keras.optimizers.SGD(0.1)
    optimizer.build(model.trainable_variables)
    save_checkpoint(tmp_path / "a.npz", model, optimizer, {})
    with pytest.raises(InputError, match="of another model: it does not contain"):
        load_checkpoint(tmp_path / "a.npz", *model_and_optimizer())


def notes(last, /, **changed):
    history = [{"epoch": number, "phase": "train", "loss": 0.5} for number in range(1, last + 1)]
    return {"epoch": last, "phase": "train", "history": history, **changed}


def two_epochs(folder):
    paths = [folder / f"epoch-000{number}.npz" for number in (1, 2)]
    for number, path in enumerate(paths, 1):
        save_checkpoint(path, *model_and_optimizer(), notes(number))
    return paths


def bomb(path):
    """Replaces the arrays by zeros that take far more memory than the file."""
    with zipfile.ZipFile(path) as archive:
        names = archive.namelist()
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in names:
            archive.writestr(name, bytes(1 << 20))


def with_notes(**changed):
    def damage(path):
        save_checkpoint(path, *model_and_optimizer(), notes(2, **changed))

    return damage


def flipped(path):
    content = bytearray(path.read_bytes())
    content[content.index(b"NUMPY")] ^= 1
    path.write_bytes(bytes(content))


DAMAGED = {
    "empty": lambda path: path.write_bytes(b""),
    "truncated": lambda path: path.write_bytes(path.read_bytes()[:-200]),
    "flipped": flipped,
    "bomb": bomb,
    "no dictionary": lambda path: np.savez(path, notes=np.array("[1]")),
    "no history": with_notes(history=None),
    "other epochs": with_notes(epoch=3),
    "rows that are no rows": with_notes(history=[1, 2]),
    "another phase": with_notes(phase="later"),
    "no epoch": with_notes(epoch="2"),
    "objects without names": with_notes(objects=[1]),
    "one object": with_notes(objects=1),
}


@pytest.mark.parametrize("kind", DAMAGED)
def test_the_newest_intact_checkpoint_is_found_and_the_damaged_one_named(kind, tmp_path):
    first, second = two_epochs(tmp_path)
    assert newest_intact([first, second], ["train"]) == (second, [])
    DAMAGED[kind](second)
    path, (reason,) = newest_intact([first, second], ["train"])
    assert path == first
    assert reason.startswith(f"{second} is not a ") and reason.endswith("remove it") and "\n" not in reason


def test_without_an_intact_checkpoint_a_run_is_not_resumed(tmp_path):
    assert newest_intact([], ["train"]) == (None, [])
    paths = two_epochs(tmp_path)
    for path in paths:
        path.write_bytes(b"")
    message = r"none of the 2 checkpoints in .* can be read \(.*epoch-0002\.npz .*\): copy .* or delete them"
    with pytest.raises(InputError, match=message):
        newest_intact(paths, ["train"])


def test_arrays_of_another_type_are_not_loaded(tmp_path):
    model, optimizer = model_and_optimizer()
    save_checkpoint(tmp_path / "a.npz", model, optimizer, {})
    with np.load(tmp_path / "a.npz", allow_pickle=False) as file:
        arrays = dict(file)
    key = next(key for key in arrays if key.endswith("kernel"))
    arrays[key] = arrays[key].astype(str)
    np.savez(tmp_path / "a.npz", **arrays)
    with pytest.raises(InputError, match=r"kernel contains <U32 there and float32 here"):
        load_checkpoint(tmp_path / "a.npz", model, optimizer)


def test_files_that_are_not_checkpoints_are_rejected(tmp_path):
    with pytest.raises(InputError, match="there is no checkpoint"):
        read_notes(tmp_path / "absent.npz")
    np.savez(tmp_path / "other.npz", a=np.ones(3))
    with pytest.raises(InputError, match="is not a complete checkpoint"):
        read_notes(tmp_path / "other.npz")
    np.savez(tmp_path / "newer.npz", notes=np.array('{"format": 99}'))
    with pytest.raises(InputError, match="format 99"):
        read_notes(tmp_path / "newer.npz")


def test_a_full_disk_keeps_the_existing_checkpoint(tmp_path, monkeypatch):
    path = tmp_path / "a.npz"
    save_checkpoint(path, *model_and_optimizer(), {"epoch": 1})

    def full(file, **arrays):
        file.write(b"half of")
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(checkpoints.np, "savez", full)
    with pytest.raises(InputError, match=r"the disk is full while writing .*a\.npz"):
        save_checkpoint(path, *model_and_optimizer(), {"epoch": 2})
    assert read_notes(path)["epoch"] == 1
    assert [file.name for file in tmp_path.iterdir()] == ["a.npz"]
