"""The encoding that each export format chooses for a layer, and the estimate of its size."""

import dataclasses

import numpy as np
import pytest
from tfsparsecap_export.encode import encodings, formats, sparse
from tfsparsecap_export.encode.costs import kernel_costs
from tfsparsecap_export.encode.formats import WeightPattern

from tfsparsecap.errors import InputError
from tfsparsecap.model_summary.storage import Pattern


def weight(
    rows=256, columns=512, block=1, density=0.05, *, role=sparse.FULLY_CONNECTED, beams=1, in_loop=True
):
    rng = np.random.default_rng(0)
    mask = np.repeat(rng.random((rows, columns // block)) < density, block, axis=1)
    mask = np.pad(mask, ((0, 0), (0, columns - mask.shape[1])))
    values = (rng.normal(size=(rows, columns)) * mask).astype(np.float32)
    return sparse.FileWeight(0, "layer", role, values.shape, values, beams, in_loop, ())


ARM64 = kernel_costs("arm64")


def with_full_row(matrix):
    matrix.values[0] = 1.0
    return matrix


def layer(matrix, **options):
    return WeightPattern(matrix, Pattern.of(matrix.values), **options)


def chosen(matrix, format, **options):
    return formats.choose_encoding(layer(matrix), format, ARM64, **options).encoding


@pytest.mark.parametrize(
    ("block", "density", "pattern"),
    [
        (1, 1.0, "dense"),
        (1, 0.05, "unstructured"),
        (4, 0.1, "1x4 blocks"),
        (16, 0.2, "1x16 blocks"),
        (16, 0.85, "1x16 blocks"),
    ],
)
def test_patterns_are_recognized(block, density, pattern):
    values = weight(block=block, density=density).values
    assert formats.pattern_name(Pattern.of(values)) == pattern


@pytest.mark.parametrize(
    ("given", "format", "encoding"),
    [
        (weight(block=16), "auto", encodings.BLOCK16),
        (weight(block=16), "int8", encodings.BLOCK16),
        # The more rows per call, the more zeros int8 blocks need to be as fast as dense int8.
        (weight(block=16, beams=64), "auto", encodings.BLOCK16),
        (weight(block=16, density=0.2), "auto", encodings.BLOCK16),
        (weight(block=16, density=0.2, beams=64), "auto", encodings.INT8),
        (weight(block=16, density=0.5, beams=8), "auto", encodings.INT8),
        (weight(columns=500, block=4, density=0.5, beams=64), "int8", encodings.INT8),
        (weight(block=16), "fast", encodings.BLOCK4),
        (weight(block=16), "compact", encodings.SPARSE16),
        (weight(block=16), "dense", encodings.DENSE),
        (weight(block=16), "dense-int8", encodings.INT8),
        (weight(density=0.01), "dense-int8", encodings.INT8),
        (weight(density=0.05), "auto", encodings.CSR),
        (weight(density=0.05), "fast", encodings.BLOCK4),
        (weight(density=0.5), "int8", encodings.INT8),
        (weight(block=4, density=0.1), "auto", encodings.BLOCK4),
        (weight(density=1.0), "auto", encodings.FLOAT16),
        (weight(density=1.0), "fast", encodings.FLOAT16),
        (weight(density=1.0), "int8", encodings.INT8),
        (weight(density=1.0), "compact", encodings.FLOAT16),
        # With many rows per call, dense products are faster, but sparse weights are smaller.
        (weight(density=0.1, beams=49, in_loop=False), "fast", encodings.FLOAT16),
        (weight(density=0.2, beams=5), "fast", encodings.FLOAT16),
        (weight(density=0.01), "auto", encodings.CSR),
        (weight(density=0.1, beams=3), "auto", encodings.CSR),
        (weight(density=0.1, beams=49, in_loop=False), "auto", encodings.SPARSE16),
        (weight(10, 64, density=0.05), "auto", encodings.DENSE),
        (weight(role=sparse.CONVOLUTION, density=1.0), "auto", encodings.FLOAT16),
        (weight(role=sparse.CONVOLUTION, in_loop=False), "fast", encodings.SPARSE16),
        (weight(role=sparse.CONVOLUTION), "compact", encodings.SPARSE32),
        (weight(role=sparse.CONVOLUTION), "dense-int8", encodings.FLOAT16),
        (weight(role=sparse.TABLE), "auto", encodings.SPARSE32),
        (weight(role=sparse.TABLE), "int8", encodings.SPARSE_INT8),
        (weight(role=sparse.TABLE), "dense-int8", encodings.INT8),
        (weight(role=sparse.TABLE, density=1.0), "fast", encodings.FLOAT16),
        (weight(role=sparse.TABLE, density=1.0), "int8", encodings.INT8),
    ],
)
def test_choice(given, format, encoding):
    assert chosen(given, format) == encoding


def test_tables_become_int8_if_layers_are():
    table = weight(role=sparse.TABLE)
    assert chosen(table, "auto", int8_tables=True) == encodings.SPARSE_INT8


@pytest.mark.parametrize("format", ["int8", "dense-int8"])
def test_tables_whose_rows_a_common_scale_would_round_away_stay_float(format):
    table = weight(role=sparse.TABLE, density=1.0)
    for factor, encoding in ((5, encodings.INT8), (50, encodings.FLOAT16)):
        values = table.values.copy()
        values[:2] *= factor
        assert chosen(dataclasses.replace(table, values=values), format) == encoding


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        (weight(columns=500, block=4), "not a multiple of 16"),
        (weight(columns=4112, block=16), "4096"),
        (with_full_row(weight(columns=4096, block=16)), "255"),
    ],
)
def test_layers_beyond_the_limits_of_the_int8_kernel_get_another_encoding(given, reason):
    for format in ("auto", "int8"):
        choice = formats.choose_encoding(layer(given), format, ARM64)
        assert choice.encoding != encodings.BLOCK16
    assert reason in choice.reason and reason in formats.block16_obstacle(layer(given))


def test_float32_replaces_float16_if_that_changes_captions():
    for matrix, format, encoding in (
        (weight(density=1.0), "fast", encodings.DENSE),
        (weight(), "compact", encodings.SPARSE32),
    ):
        assert formats.choose_encoding(layer(matrix, float16=False), format, ARM64).encoding == encoding


@pytest.mark.parametrize("encoding", encodings.ENCODINGS)
@pytest.mark.parametrize("columns", [256, 512, 4112])
@pytest.mark.parametrize("role", [sparse.FULLY_CONNECTED, sparse.TABLE])
def test_expected_bytes_are_the_encoded_bytes(encoding, columns, role):
    matrix = weight(300, columns, 16, 0.2, role=role)
    size = formats.expected_bytes(layer(matrix), encoding)
    if encoding == encodings.DENSE:
        assert size == matrix.values.nbytes
    else:
        actual = encodings.encode(encoding, matrix.values, table=matrix.role == sparse.TABLE).bytes
        # Quantization adds zeros, and the single scale of a matrix is not counted.
        assert size == pytest.approx(actual, abs=12, rel=0.03 if encoding == encodings.SPARSE_INT8 else 0)


def test_an_unknown_format_is_rejected():
    with pytest.raises(InputError, match=r"sparce.*auto, int8, fast, compact, dense"):
        formats.check_format("sparce")
