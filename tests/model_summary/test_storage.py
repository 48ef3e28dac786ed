"""Bytes of weights against counts by hand, the exporter, a published file, and gzip."""

import bz2
import gzip
import zipfile

import numpy as np
import pytest
from tfsparsecap_export.encode import encodings

from tfsparsecap.model_summary.storage import (
    CONVOLUTION,
    MATRIX,
    OTHER,
    TABLE,
    compressed_bytes,
    stored_bytes,
)


def sparse(shape, sparsity, seed=0):
    """Random weights without negative zeros, and none that int8 rounds to zero."""
    random = np.random.default_rng(seed)
    weights = random.uniform(0.3, 1.0, shape) * random.choice([-1.0, 1.0], shape)
    return np.where(random.random(shape) >= sparsity, weights, 0.0).astype("float32")


def test_formats_by_hand():
    kernel = np.zeros((4, 3), "float32")
    kernel[1, 2] = kernel[3, 0] = 1.0
    sizes = stored_bytes(kernel)
    assert (sizes["float32"], sizes["float16"]) == (4 * 12, 2 * 12)
    assert sizes["coo"] == 2 * (8 + 8 + 4)  # two indices and a value
    assert sizes["csr"] == 2 * (4 + 4) + (3 + 1) * 4  # a row for every output
    assert sizes["int8_blocks"] == 4 * 12  # too small to be encoded
    assert stored_bytes(kernel, TABLE)["csr"] == 2 * (4 + 4) + (4 + 1) * 4  # a row for every token
    kernel = sparse((3, 3, 5, 7), 0.5)
    sizes, count = stored_bytes(kernel, CONVOLUTION), np.count_nonzero(kernel)
    assert (sizes["coo"], sizes["csr"]) == (count * (4 * 8 + 4), count * 8 + 8 * 4)
    heads = sparse((6, 4, 8), 0.5)  # of an EinsumDense: 6 inputs, 4 heads of 8
    assert stored_bytes(heads, inputs=6)["csr"] == np.count_nonzero(heads) * 8 + (32 + 1) * 4


def test_csr_equals_scipy():
    scipy_sparse = pytest.importorskip("scipy.sparse")
    kernel = sparse((70, 30), 0.9)
    stored = scipy_sparse.csr_array(kernel.T)
    bytes_there = stored.data.nbytes + stored.indices.nbytes + stored.indptr.nbytes
    assert stored_bytes(kernel)["csr"] == bytes_there


def test_vectors_are_stored_dense():
    sizes = stored_bytes(np.zeros(5000, "float32"), OTHER)
    assert sizes.pop("float16") == 10_000
    assert set(sizes.values()) == {20_000}


@pytest.mark.parametrize(
    ("shape", "sparsity"), [((64, 40), 0.9), ((100, 30), 0.97), ((4096, 20), 0.99), ((640, 300), 1.0)]
)
def test_int8_blocks_of_layers_are_what_the_exporter_stores(shape, sparsity):
    kernel = sparse(shape, sparsity)
    # The exporter pads inputs to a multiple of 16.
    outputs = np.pad(kernel.T, ((0, 0), (0, -shape[0] % 16)))
    in_blocks, dense = (
        encodings.encode(encodings.BLOCK16, outputs).bytes,
        encodings.encode(encodings.INT8, kernel.T).bytes,
    )
    assert stored_bytes(kernel, MATRIX)["int8_blocks"] == min(in_blocks, dense)


def test_int8_blocks_are_small_for_weights_pruned_in_blocks():
    open_blocks = np.random.default_rng(0).random((32, 256)) < 0.05
    kernel = np.repeat(open_blocks, 16, axis=0) * sparse((512, 256), 0)
    expected = encodings.encode(encodings.BLOCK16, kernel.T.copy()).bytes
    assert stored_bytes(kernel)["int8_blocks"] == expected < kernel.size / 8


@pytest.mark.parametrize("sparsity", [0.0, 0.9, 0.99])
def test_tables_are_what_the_exporter_stores(sparsity):
    table = sparse((200, 48), sparsity)
    stored = [encodings.store(table, np.int8, block).bytes for block in (1, 4, 16)]
    expected = min(encodings.encode(encodings.INT8, table, table=True).bytes, *stored)
    assert stored_bytes(table, TABLE)["int8_blocks"] == expected


def test_convolutions_store_all_weights_or_those_that_are_not_zero():
    encodings = pytest.importorskip("tfsparsecap_export.encode.encodings")
    assert stored_bytes(np.ones((3, 3, 32, 40)), CONVOLUTION)["int8_blocks"] == 9 * 32 * 40 + 40 * 4
    kernel = sparse((3, 3, 32, 40), 0.9)
    rows = kernel.transpose(3, 0, 1, 2)
    expected = encodings.store(rows, np.float32, 1).bytes - 3 * np.count_nonzero(kernel) + 40 * 4
    assert stored_bytes(kernel, CONVOLUTION)["int8_blocks"] == expected


def test_coo_is_the_size_of_a_published_checkpoint(fixtures):
    """Up-Down at 97.5 %: matrices in COO with int64, biases dense; the file has 1 % of headers besides."""
    folder = fixtures / "updown_smp975"
    with np.load(folder / "weights.npz") as archive:
        total = sum(stored_bytes(archive[name])["coo"] for name in archive)
    with zipfile.ZipFile(folder / "model_best_pruned_sparse.pth") as archive:
        tensors = sum(entry.file_size for entry in archive.infolist() if "/data/" in entry.filename)
    assert total == tensors == 968_420
    assert total == pytest.approx((folder / "model_best_pruned_sparse.pth").stat().st_size, rel=0.011)


def test_compressed_sizes_are_those_of_the_files():
    weight = sparse((300, 200), 0.9)
    sizes = compressed_bytes(weight)
    assert sizes["bzip2"] == len(bz2.compress(weight.tobytes()))
    assert sizes["gzip"] == pytest.approx(len(gzip.compress(weight.tobytes(), 6)), rel=1e-3)


def test_negative_zeros_compress_like_zeros():
    weight = sparse((200, 200), 0.0)
    masked = weight * (np.random.default_rng(1).random(weight.shape) < 0.05)  # leaves -0.0 behind
    assert np.signbit(masked[masked == 0]).any()
    assert compressed_bytes(masked)["bzip2"] == len(bz2.compress((masked + 0.0).tobytes()))
