"""Checkpoints: written atomically, restored exactly, rejected if damaged or of another model."""

import errno

import keras
import numpy as np
import pytest

from tfsparsecap.errors import InputError
from tfsparsecap.runs import checkpoints
from tfsparsecap.runs.checkpoints import load_checkpoint, newest_complete, read_notes, save_checkpoint


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
    one = model_and_optimizer()
    step(*one)
    save_checkpoint(tmp_path / "a.npz", *one, {"epoch": 3, "history": [{"loss": 0.1}]})
    step(*one)
    other = model_and_optimizer(seed=1)
    notes = load_checkpoint(tmp_path / "a.npz", *other)
    assert notes["epoch"] == 3 and notes["history"] == [{"loss": 0.1}]
    step(*other)
    # The seeds of dropout are saved, too.
    for first, second in zip(values(*one), values(*other), strict=True):
        np.testing.assert_array_equal(first, second)


def test_the_model_can_be_restored_without_its_optimizer(tmp_path):
    one, other = model_and_optimizer(), model_and_optimizer(seed=1)
    save_checkpoint(tmp_path / "a.npz", *one, {})
    load_checkpoint(tmp_path / "a.npz", other[0])
    for first, second in zip(values(one[0]), values(other[0]), strict=True):
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


def test_damaged_checkpoints_are_ignored(tmp_path):
    paths = [tmp_path / f"epoch-000{number}.npz" for number in (1, 2, 3)]
    for number, path in enumerate(paths, 1):
        save_checkpoint(path, *model_and_optimizer(), {"epoch": number})
    whole = paths[2].read_bytes()
    paths[2].write_bytes(whole[: len(whole) // 2])
    assert newest_complete(paths) == (paths[1], [paths[2]])
    middle = bytearray(whole)
    middle[len(whole) // 3] ^= 255
    paths[1].write_bytes(bytes(middle))
    assert newest_complete(paths) == (paths[0], [paths[2], paths[1]])
    paths[0].write_bytes(b"")
    assert newest_complete(paths) == (None, [paths[2], paths[1], paths[0]])


def test_files_that_are_not_checkpoints_are_rejected(tmp_path):
    with pytest.raises(InputError, match="there is no checkpoint"):
        read_notes(tmp_path / "absent.npz")
    np.savez(tmp_path / "other.npz", a=np.ones(3))
    with pytest.raises(InputError, match="is not a complete checkpoint"):
        read_notes(tmp_path / "other.npz")
    np.save(tmp_path / "array.npz", np.ones(3))
    (tmp_path / "array.npz.npy").rename(tmp_path / "array.npz")
    with pytest.raises(InputError, match="is not a complete checkpoint"):
        read_notes(tmp_path / "array.npz")
    np.savez(tmp_path / "pickled.npz", notes=np.array([{"format": 1}], dtype=object))
    with pytest.raises(InputError, match="is not a complete checkpoint"):
        read_notes(tmp_path / "pickled.npz")
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
