"""Shape and first rows of array files, intact and damaged."""

import io
import os
import struct
import zipfile

import numpy as np
import pytest

from tfsparsecap.core.array_files import open_array
from tfsparsecap.errors import InputError


def npy(array, version=None):
    stream = io.BytesIO()
    np.lib.format.write_array(stream, array, version=version)
    return stream.getvalue()


def header(text):
    text = text.encode("latin1")
    return np.lib.format.magic(1, 0) + struct.pack("<H", len(text)) + text


VALUES = np.random.default_rng(0).random([7, 5])


@pytest.mark.parametrize("version", [(1, 0), (2, 0), (3, 0)])
@pytest.mark.parametrize("array", [VALUES.astype(">f4"), np.asfortranarray(VALUES), VALUES[0]])
@pytest.mark.parametrize("rows", [0, 1, 5])
def test_first_rows_equal_numpys(tmp_path, version, array, rows):
    path = tmp_path / "array.npy"
    path.write_bytes(npy(array, version))
    with open_array(path) as opened:
        assert (opened.shape, opened.dtype) == (array.shape, array.dtype)
        np.testing.assert_array_equal(opened.first(rows), np.load(path)[:rows], strict=True)


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
@pytest.mark.parametrize("name", ["feat", "arr_0"])
def test_the_only_array_of_an_npz_file_may_have_any_name(tmp_path, save, name):
    save(tmp_path / "array.npz", **{name: VALUES})
    with open_array(tmp_path / "array.npz") as opened:
        assert opened.shape == (7, 5)
        np.testing.assert_array_equal(opened.first(4), VALUES[:4])


def test_other_rows_are_not_read(tmp_path):
    path = tmp_path / "large.npy"
    with path.open("wb") as file:
        file.write(npy(np.zeros([1, 4]))[:-32].replace(b"(1, 4), }         ", b"(1000000000, 4), }"))
        file.truncate(128 + 32 * 10**9)  # takes no space on the disk
    with open_array(path) as opened:
        assert opened.shape == (10**9, 4)
        assert opened.first(2).tolist() == [[0.0] * 4] * 2


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is damaged"),
        (npy(VALUES)[:50], "is damaged"),
        (npy(VALUES)[:-1], "is truncated, 407 of 408 bytes"),
        (b"PK\x03\x04 a zip file with the wrong name", "is damaged .the magic string is not correct"),
        (npy(VALUES, (2, 0))[:8] + b"\xff" * 40, "is damaged"),
        (np.lib.format.magic(9, 0) + npy(VALUES, (2, 0))[8:], "is damaged"),
        (header("{'descr': '<f4', 'fortran_order': False, 'shape': (-1, 4)}"), r"shape is \(-1, 4\)"),
        (header("{'descr': '<f4', 'fortran_order': False, 'shape': (10**9, 4)}"), "is damaged"),
        (header("{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999, 4)}"), "is truncated"),
        (header("{'descr': '<f4', 'fortran_order': 3, 'shape': (1, 4)}"), "is damaged"),
        (header("{'descr': 'what', 'fortran_order': False, 'shape': (1, 4)}"), "is damaged"),
        (header("{'descr': '<f4'}"), "is damaged"),
        (header("[1"), "is damaged"),
        (header("(" * 5000), "is damaged"),
        (header("__import__('os').getcwd()"), "is damaged"),
        (npy(np.array([{"a": 1}], object)), "contains Python objects, which are not read"),
    ],
)
def test_damaged_files_are_reported(tmp_path, content, message):
    path = tmp_path / "array.npy"
    path.write_bytes(content)
    with pytest.raises(InputError, match=f"^{path}.* {message}"), open_array(path) as opened:
        opened.first(1)
    with zipfile.ZipFile(tmp_path / "array.npz", "w") as archive:
        archive.writestr("array.npy", content)
    with pytest.raises(InputError, match=f"npz.* {message}"), open_array(tmp_path / "array.npz") as opened:
        opened.first(1)


def test_damaged_zip_files_are_reported(tmp_path):
    path = tmp_path / "array.npz"
    for arrays in ({}, {"one": VALUES, "two": VALUES}):
        np.savez(path, **arrays)
        with pytest.raises(InputError, match=f"contains {len(arrays)} arrays"), open_array(path):
            pass
    np.savez_compressed(path, feat=VALUES)
    content = path.read_bytes()
    for damaged in (content[:-30], content[30:], b"", npy(VALUES)):
        path.write_bytes(damaged)
        with pytest.raises(InputError, match="is damaged"), open_array(path) as opened:
            opened.first(7)
    np.savez(path, feat=VALUES)
    stored = bytearray(path.read_bytes())
    stored[250] ^= 1  # a value; only the checksum detects it
    path.write_bytes(stored)
    with pytest.raises(InputError, match="Bad CRC-32"), open_array(path) as opened:
        opened.first(7)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda path: None, "there is no .*: check the path"),
        (lambda path: path.mkdir(), "is damaged"),
        (os.mkfifo, "it is a device or a pipe"),
        (lambda path: path.symlink_to("/dev/zero"), "it is a device or a pipe"),
    ],
)
def test_what_is_no_file_is_refused(tmp_path, make, message):
    make(tmp_path / "array.npy")
    with pytest.raises(InputError, match=message), open_array(tmp_path / "array.npy"):
        pass
