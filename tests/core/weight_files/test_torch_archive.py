"""Reading PyTorch checkpoints: written by PyTorch, written by hand, damaged, and malicious."""

import base64
import os
import struct
import tracemalloc
import zipfile
import zlib

import numpy as np
import pytest

from tfsparsecap.core.weight_files.torch_archive import read_checkpoint
from tfsparsecap.errors import InputError

from .torch_files import (
    PLAIN,
    SIX,
    coo,
    mapping,
    number,
    read,
    storage,
    tensor,
    text,
    weight,
    write,
    write_legacy,
)

# Written by torch.save of PyTorch 2.15: {"epoch", "best", "name", "history", "rng", "model", "optimizer"}.
# With grid = arange(24).reshape(4, 6), the model holds grid.t() as "transposed", grid[1:3, 1:6:2] as "block",
# Parameter([7].expand(3, 2)), [0, 1, 100] in four types (in bfloat16, -1.7 instead of 100), and two sparse
# tensors: "twice" with two values at [0, 1], "rows" with one sparse and one dense axis.
WRITTEN_BY_TORCH = (
    "eNqlWFtwG1cZXkmOrKiu7VyaG5CaUkCB1tHFluRcKlttlcKmqbNuiygYeSWtpSUrrf7dI7sOmJoWqTEpNG1K6Y0QLmkLlBJomcIDAwP0"
    "DZjpA6UDnWlmOsMMMwy89IHhpfznHEnZPcIxyDv+R/Zqv8u5/P9/1tOyr0+SAgGp6xqWtkqqVSjrC9r+okrU0doJI5MelO5xXSveZZBC"
    "2U0I0GpmoQwe2ZdFRimv2QS8R1J/ty6O/PbpZ9m9qlrRgH9N9OoS9GX78deybhPTWoJNs+APHUn9i8sf07I+/LCqJegv4PeF8miuTnTD"
    "DuYsLV/XjWKOaFXbtHIL0SAEQiHGRZnUkgabOSSYXiLaDL8XhGDWg4+E4SrGXKjVYUAOELj6uCzJgQYMyp4GDK0WCqZhaAWim1U7eIdV"
    "1CyteIteIEEY3qfAFgJbFdjGBlwxi5oB28v0/jWhrB9vLWp6qUxgRxkNldsmMoapko6LncxFBHaVB2Qvgd1U3duAPVT9PauM7L0E3qfA"
    "3uw2Omf1Si6vkkJZs3PEUgsntCJc66I/alZLHfYRxh6F9yO7h8B1yL5vH2f9AIHrFfhgNkin31Krds20kexDnKzMfcXgw4jcRSBEffnl"
    "vibskz2yvwkf4SwfJXCDAjeyCcgbZuEEjLYJyi3o/uNyv+yVfU0II4O3CREOjRKIKTCW3YzQmmrhZiCaBeNrrG7niSDEXRbHIMEHl6QW"
    "fVRgAn+RmnCA6xwkcEiBw6fYHzc9CCkFJtnumKcLEYnDlGv+blON+c78pZnEONyMEj4CtzCJBtxKVyfD6Y8QuE2Bj2VpzuTblB93UaYz"
    "/HaHVma0cTjKaW9v0R6jtHdw2mkCxxVQWHboVZKEGRflzWXV6tDdyegScBenu7tF9wlKl+V0nyRwjwKf4rlomgZ82u0Qb3XoZhldEj7D"
    "6XItujlKp3K6PIGCAkW27GRRL2igrbFuNi6crbWSMwjzrcdszdJVQz+p0sQK5koayRnqklnHvCplhykrf4yjC6YJ5QboCnw21Fp8vrMn"
    "4ASa9BMwWN7QTVbBPeBpQpUbNQnUFIDOjvHSZAuDxYdmt4ZG6NDqHLFAYFGBe1sTM6OfxBlZ4vvqZAM+p8DnVwksN+ELCtzHptMyF21Y"
    "Kc+XHd6YTAS+yJP6firjoQwPoEc09yUu1SDQVOBBt7konEJUH4FVPiREfZmjTnPUQwS+osBXyy1TDzfgjAKPnCLwaBPOKvBYfRm+xpIq"
    "h/mi0loNjzPg17O0ksITy/Ak2/8LmmXj7MNTste27TzDmDWiV3DMFjy9DM/wSm4TlWjwjWU4J0vL8M3sECt2Fa1KaDGqz8/j0+fdg4jB"
    "t/jQv92qZ9+hM/xdPoALBJ5V4Dnbzg60Uz9Xssx6zYbnZ+F7y/D9EGMxLPjBkdTPn6TXUyy/2qrwAnaS39Hr98x1Ua3UtKqOzeGHssRY"
    "eeXNFbWCugQv4k0Kr2IT0ixzAX60yunUe9lg4eIqLwimpanYtH58LDtIWXU6NBTU1byhwU9W2WzM12mZfOkYK/DMvA0vz8JPZUmtq/X6"
    "6LTcH/jTHy79xoeMNKbXbKk7pWSnpY6idkUludaaZNJjQmf9364IVX/ln28+QJODxtrqe6TEZfVWo8xhSpaqdI4z6VgvBuJj1EBqEf5G"
    "F9B7RQNbpFTHQB4bs0mbayZ9sKeBty5DJ8TQqIfG4bd30xXyX9HDoHST61SzP5xJH9iAgdOrrwb/8vC/r2UOdg1topKBdRwccjuIZNLJ"
    "nh1I0koKSSep/sKF1GgP+tGN6fOL6utvXaf1oB/buD6fA/zBWME4j/ErjEsY0hSeZTFGMMIYkxjTGHMYNYwVjFMYZzCewDiP8TzGRYyf"
    "TdFx3T/1ZnUOiebWGdf17nGNZdIj0vr+L7G1m6v8dTPtLX3raEy6NcYz6UMbSR86f4cm76YOzvp//Y8e8ie+sfyha/fnX1L9X8QvzPSg"
    "n9igvqdIxbfe3niBvhT41hGfcosnM+nDG5p+1PdQ/VffmH2kB/2Jjeu3Lq8g5Vnjb2r27XfePRCmb1JXNDskbRPqHJbaIWmN+kXzlnK/"
    "O/XOEm3nA+twJwTuSI/9Sxw/9RA6eu7FYfYGfGUPMcEDFtL9Uo/1u127qP6d25873Yt+rGf9lRTVPXPc/8f16/eQdLCj2zm8JHrdhbEg"
    "VX7tXOmu9c8Pe6Xo5QMMG7LrpSKnFzPp0f/TSGQ8Go6ExxMT0fhELByPjY1PJMOR8eT4WDSeCEeisVgSv5gIU5e7+183QugjxFx62JZp"
    "+3QeAIe7nIv/RxHRzgPcThdypl9a68gokjgPYXtcJK85SbpOfiKP8yC1xcWjBKTuA1wX3HEKGnTBXw9IwtlLxDpPMG4sPfW7d7uIdZ4+"
    "3Ng3RGxUxDo7vKAbFLAxEevs3G5s+CoBOyZinT3XjX1MxI6LWGe/dGN3DAjYuIh1tjs39nERmxCxzlblxm67WsAmRayzc7ixZ0XshIh1"
    "doYhF3ZyUNwbXRvLWdLd4Ge6wF07y1mP3eCRIRHctbWcRdUNPt8F7tpbzrroBu8alsQqLIKd5WqvC/yoA/zfC+m07Pff0C67vhs7yO3C"
    "51t9/DO5pd0+/f3sTXfH5WPDtLzJzzHb2fP82f8ATHJJ2A=="
)


def test_a_published_sparse_checkpoint_equals_its_dense_weights(fixtures):
    folder = fixtures / "updown_smp975"
    weights = read_checkpoint(folder / "model_best_pruned_sparse.pth")
    with np.load(folder / "weights.npz") as expected:
        assert list(weights) == list(expected)
        for key, value in expected.items():
            assert weights[key].dtype == value.dtype
            np.testing.assert_array_equal(weights[key], value, err_msg=key)


def test_a_file_written_by_pytorch_is_read(tmp_path):
    (tmp_path / "model.pth").write_bytes(zlib.decompress(base64.b64decode("".join(WRITTEN_BY_TORCH))))
    grid = np.arange(24, dtype=np.float32).reshape(4, 6)
    expected = {
        "weight": np.array([1, 2], np.float32),
        "num_batches_tracked": np.array(0),
        "transposed": grid.T,
        "block": grid[1:3, 1:6:2],
        "parameter": np.full((3, 2), 7, np.float32),
        "float16": np.array([0, 1, 100], np.float16),
        "bfloat16": np.array([0, 1, -1.703125], np.float32),
        "int8": np.array([0, 1, 100], np.int8),
        "bool": np.array([False, True, True]),
        "twice": np.array([[0, 5], [0, 0], [2, 0]], np.float32),
        "rows": np.array([[1, 2], [0, 0], [3, 4]], np.float32),
    }
    weights = read_checkpoint(tmp_path / "model.pth")
    assert list(weights) == list(expected)
    for key, value in expected.items():
        assert weights[key].dtype == value.dtype, key
        assert weights[key].flags.c_contiguous and weights[key].flags.writeable, key
        np.testing.assert_array_equal(weights[key], value, err_msg=key, strict=True)


KINDS = {"Float": "f4", "Double": "f8", "Half": "f2", "Long": "i8", "Int": "i4", "Short": "i2"}
KINDS |= {"Char": "i1", "Byte": "u1"}


@pytest.mark.parametrize(("kind", "dtype"), KINDS.items(), ids=KINDS)
@pytest.mark.parametrize(("order", "word"), [("<", b"little"), (">", b"big")])
def test_every_type_is_read_in_both_byte_orders(tmp_path, kind, dtype, order, word):
    values = np.array([0, 1, 100, 7])
    program = mapping({"w": tensor(storage("k", 4, kind), (4,), (1,))})
    weights = read(tmp_path, program, {"k": values.astype(order + dtype)}, byteorder=word)
    np.testing.assert_array_equal(weights["w"], values.astype(dtype), strict=True)
    assert weights["w"].dtype.isnative


def test_sparse_tensors_are_made_dense(tmp_path):
    random = np.random.default_rng(3)
    indices, values = random.integers(0, [[4], [3]], (2, 40)), random.integers(-9, 9, (40, 5))
    expected = np.zeros((4, 3, 5), np.float32)
    for row, column, value in zip(*indices, values, strict=True):
        expected[row, column] += value
    weights = read(tmp_path, *coo(indices, values, (4, 3, 5)))
    np.testing.assert_array_equal(weights["w"], expected, strict=True)


OTHER = mapping({"v": tensor(storage("0", 6), (6,), (1,))})
ONE = tensor(storage("0", 6), (), (), 3)


@pytest.mark.parametrize(
    ("program", "names"),
    [
        (mapping({"model": PLAIN, "epoch": number(3), "note": text("x"), "none": b"N"}), ["w"]),
        (mapping({"state_dict": PLAIN, "rng": tensor(storage("0", 6), (6,), (1,)), "ema": OTHER}), ["w"]),
        (mapping({"model": mapping({"model_state_dict": PLAIN}), "extra": OTHER}), ["w"]),
        (mapping({"my_net": PLAIN, "best": ONE, "lr": b"G" + struct.pack(">d", 0.1)}), ["w"]),
        (mapping({"a": ONE, "history": b"](" + number(1) + b"Ne", "b": ONE}), ["a", "b"]),
        (b"}(" + number(7) + text("x") + text("w") + ONE + b"u", ["w"]),
    ],
)
def test_the_state_dict_is_found(tmp_path, program, names):
    assert list(read(tmp_path, program)) == names


@pytest.mark.parametrize(
    ("program", "message"),
    [
        (mapping({"one": PLAIN, "two": OTHER}), r"several dicts of tensors, at \[one\] and \[two\]"),
        (mapping({"one": PLAIN, "w": tensor(storage("0", 6), (6,), (1,))}), r"at \[one\] and the top"),
        (mapping({"epoch": number(3)}), "contains no state dict"),
        (tensor(storage("0", 6), (6,), (1,)), "contains no state dict"),
        (b"](" + ONE + ONE + b"e", "contains no state dict"),
        (b"}(" + number(7) + ONE + b"u", "under numbers"),
    ],
)
def test_files_without_or_with_several_state_dicts_are_rejected(tmp_path, program, message):
    with pytest.raises(InputError, match=message + r".*: save model\.state_dict\(\) alone"):
        read(tmp_path, program)


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        (coo([[0, 3]], [1, 2], (3,)), "an index of tensor w lies outside"),
        (coo([[0, -1]], [1, 2], (3,)), "an index of tensor w lies outside"),
        (coo([[0]], [1, 2], (3,)), "do not fit"),
        (coo([[0, 1], [0, 1]], [1, 2], (3,)), "do not fit"),
        (coo([0, 1], [1, 2], (3,)), "do not fit"),
        (coo([[0, 1]], [[1], [2]], (3, 2)), "do not fit"),
        (coo([[0, 1]], [1, 2], (-3,)), "negative or absurd"),
        (coo([[0, 1]], [1, 2], (3,), layout="torch.sparse_csr"), r"unsupported layout torch\.sparse_csr"),
    ],
)
def test_damaged_sparse_tensors_are_rejected(tmp_path, parts, message):
    with pytest.raises(InputError, match=message):
        read(tmp_path, *parts)


@pytest.mark.parametrize(
    ("program", "held"),
    [
        coo([[0, 1, 2], [3, 4, 5]], [1, 2, 3], (10**6, 10**6)),
        coo(np.zeros((2, 0)), [], (2**62, 2**62)),
        (weight((10**5, 10**5), (0, 0)), {}),
        (weight((0, 2**62, 2**62), (1, 1, 1)), {}),
        (mapping({str(i): tensor(storage("0", 6), (10**8,), (0,)) for i in range(11)}), {}),
    ],
)
def test_absurd_sizes_are_rejected_before_memory_is_allocated(tmp_path, program, held, monkeypatch):
    monkeypatch.setattr(
        "tfsparsecap.core.weight_files.torch_archive._strided", lambda name, tensor, *_: np.zeros(0)
    )
    tracemalloc.start()
    with pytest.raises(InputError, match="1,000,000,000 numbers when dense"):
        read(tmp_path, program, held)
    assert tracemalloc.get_traced_memory()[1] < 20e6
    tracemalloc.stop()


def test_archives_that_unpack_to_too_many_bytes_are_rejected(tmp_path):
    bomb = write(
        tmp_path / "a.pth", weight((1 << 25,), (1,), 0, 1 << 25), {"0": bytes(1 << 27)}, zipfile.ZIP_DEFLATED
    )
    assert bomb.stat().st_size < 1 << 18
    falsified = bytearray(bomb.read_bytes())
    for signature, field in ((b"PK\x03\x04", 22), (b"PK\x01\x02", 24)):
        struct.pack_into("<I", falsified, falsified.rindex(signature) + field, 1000)
    (tmp_path / "falsified.pth").write_bytes(falsified)
    write(tmp_path / "long.pth", b"N" * (17 << 20), {}, zipfile.ZIP_DEFLATED)
    tracemalloc.start()
    for file, message in (
        ("a", "larger when unpacked"),
        ("falsified", "damaged"),
        ("long", "larger when unpacked"),
    ):
        with pytest.raises(InputError, match=message):
            read_checkpoint(tmp_path / f"{file}.pth")
    assert tracemalloc.get_traced_memory()[1] < 20e6
    tracemalloc.stop()


def encrypted(path):
    content = bytearray(write(path, PLAIN, {"0": SIX}).read_bytes())
    content[content.rindex(b"PK\x01\x02") + 8] |= 1
    path.write_bytes(content)


def another_archive(path):
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("config.json", "{}")


OBJECTS = {"0": SIX}
OLD = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19.\x80\x02M\xe9\x03."


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda path: None, r"cannot read .*a\.pth: No such file"),
        (lambda path: path.mkdir(), "not a regular file"),
        (os.mkfifo, "not a regular file"),
        (
            lambda path: path.write_bytes(b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19.\x80\x02M\xe9\x03."),
            "damaged",
        ),
        (lambda path: path.write_bytes(b""), "not a zip archive"),
        (lambda path: path.write_bytes(b"PK\x03\x04" + bytes(100)), "damaged"),
        (encrypted, "is encrypted, or compressed"),
        (lambda path: write(path, PLAIN, OBJECTS, zipfile.ZIP_BZIP2), "is encrypted, or compressed"),
        (another_archive, r"no data\.pkl"),
        (lambda path: write(path, PLAIN, OBJECTS, constants_pkl=b"\x80\x02)."), "is a TorchScript program"),
        (lambda path: write(path, PLAIN, OBJECTS, byteorder=b"middle"), "neither little nor big"),
    ],
)
def test_other_files_are_refused(tmp_path, make, message):
    make(tmp_path / "a.pth")
    with pytest.raises(InputError, match=message):
        read_checkpoint(tmp_path / "a.pth")


ARRAYS = {"a.weight": np.arange(6.0).reshape(2, 3), "a.bias": np.array([5.0]), "b": np.zeros((0, 2))}


def test_tensors_are_read(tmp_path):
    read = read_checkpoint(write_legacy(tmp_path / "a.pth", ARRAYS))
    assert list(read) == list(ARRAYS)
    for name, values in ARRAYS.items():
        assert read[name].dtype == np.float32
        np.testing.assert_array_equal(read[name], values)


def test_damaged_files_are_rejected(tmp_path):
    path = write_legacy(tmp_path / "a.pth", ARRAYS)
    content = path.read_bytes()
    for end in (len(content) - 9, len(content) - 30, 200, 30):
        path.write_bytes(content[:end])
        with pytest.raises(InputError, match=r"a\.pth is damaged"):
            read_checkpoint(path)
    with pytest.raises(InputError, match="is missing or has another length"):
        read_checkpoint(write_legacy(path, ARRAYS, count=7))
    path.write_bytes(content.replace(number(1001), number(1002)))
    with pytest.raises(InputError, match="its version is unknown"):
        read_checkpoint(path)


def test_calls_of_functions_are_rejected(tmp_path):
    path = write_legacy(tmp_path / "a.pth", ARRAYS)
    path.write_bytes(path.read_bytes().replace(b"ctorch\nFloatStorage\n", b"cposix\nsystem\n"))
    with pytest.raises(InputError, match=r"tries to call posix\.system.*nothing was executed"):
        read_checkpoint(path)
