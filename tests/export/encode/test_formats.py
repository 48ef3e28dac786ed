"""Which encoding a layer gets, and whether its bytes are as foreseen."""

import dataclasses

import numpy as np
import pytest
from tfsparsecap_export.encode import formats, sparse
from tfsparsecap_export.encode.costs import Costs
from tfsparsecap_export.encode.formats import Pattern, choose

from tfsparsecap.errors import InputError

ENCODINGS = [sparse.FLOAT16, sparse.SPARSE16, sparse.SPARSE32, sparse.CSR, sparse.BLOCK4, sparse.BLOCK16]
ENCODINGS += [sparse.INT8, sparse.SPARSE_INT8]


def weight(rows=256, columns=512, block=1, kept=0.05, *, role=sparse.FULLY_CONNECTED, beams=1, in_loop=True):
    rng = np.random.default_rng(0)
    mask = np.repeat(rng.random((rows, columns // block)) < kept, block, axis=1)
    mask = np.pad(mask, ((0, 0), (0, columns - mask.shape[1])))
    values = (rng.normal(size=(rows, columns)) * mask).astype(np.float32)
    return sparse.Weight(0, "layer", role, values.shape, values, beams, in_loop, ())


def chosen(given, format, **options):
    return choose(given, Pattern.of(given.values), format, **options).encoding


@pytest.mark.parametrize(
    ("block", "kept", "pattern"),
    [
        (1, 1.0, "dense"),
        (1, 0.05, "unstructured"),
        (4, 0.1, "1x4 blocks"),
        (16, 0.2, "1x16 blocks"),
        (16, 0.85, "1x16 blocks"),
    ],
)
def test_pattern_is_told(block, kept, pattern):
    assert str(Pattern.of(weight(block=block, kept=kept).values)) == pattern


def test_pattern_counts():
    values = np.zeros((2, 32), np.float32)
    values[0, [0, 5, 31]] = 1
    pattern = Pattern.of(values)
    assert (pattern.weights, pattern.nonzeros, pattern.most_blocks) == (64, 3, 2)
    assert pattern.stored == {1: 3, 4: 12, 16: 32}


@pytest.mark.parametrize(
    ("given", "format", "encoding"),
    [
        (weight(block=16), "auto", sparse.BLOCK16),
        (weight(block=16), "int8", sparse.BLOCK16),
        (weight(block=16), "fast", sparse.BLOCK4),
        (weight(block=16), "compact", sparse.SPARSE16),
        (weight(block=16), "dense", sparse.DENSE),
        (weight(block=16), "dense-int8", sparse.INT8),
        (weight(kept=0.01), "dense-int8", sparse.INT8),
        (weight(kept=0.05), "auto", sparse.CSR),
        (weight(kept=0.05), "fast", sparse.CSR),
        (weight(kept=0.15), "int8", sparse.INT8),
        (weight(block=4, kept=0.1), "auto", sparse.BLOCK4),
        (weight(kept=1.0), "auto", sparse.FLOAT16),
        (weight(kept=1.0), "fast", sparse.FLOAT16),
        (weight(kept=1.0), "int8", sparse.INT8),
        (weight(kept=1.0), "compact", sparse.FLOAT16),
        # Many rows at once: multiplying dense is faster, keeping it sparse is smaller.
        (weight(kept=0.1, beams=49, in_loop=False), "fast", sparse.FLOAT16),
        (weight(kept=0.2, beams=5), "fast", sparse.FLOAT16),
        (weight(kept=0.01), "auto", sparse.CSR),
        (weight(kept=0.1, beams=3), "auto", sparse.CSR),
        (weight(kept=0.1, beams=49, in_loop=False), "auto", sparse.SPARSE16),
        (weight(10, 64, kept=0.05), "auto", sparse.DENSE),
        (weight(role=sparse.CONVOLUTION), "auto", sparse.FLOAT16),
        (weight(role=sparse.TABLE), "auto", sparse.SPARSE32),
        (weight(role=sparse.TABLE), "int8", sparse.SPARSE_INT8),
        (weight(role=sparse.TABLE), "dense-int8", sparse.INT8),
        (weight(role=sparse.TABLE, kept=1.0), "fast", sparse.FLOAT16),
        (weight(role=sparse.TABLE, kept=1.0), "int8", sparse.INT8),
    ],
)
def test_choice(given, format, encoding):
    assert chosen(given, format) == encoding


def test_tables_become_int8_where_layers_are():
    table = weight(role=sparse.TABLE)
    assert chosen(table, "auto", int8_tables=True) == sparse.SPARSE_INT8


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        (weight(columns=500, block=4), "no multiple of 16"),
        (weight(rows=8, columns=4112, block=16), "4096"),
        (weight(rows=8, columns=4096, block=16, kept=1.0), "255"),
    ],
)
def test_beyond_the_limits_of_the_int8_kernel_another_encoding_is_chosen_and_said(given, reason):
    pattern = Pattern.of(given.values)
    for format in ("auto", "int8"):
        choice = choose(given, pattern, format)
        assert choice.encoding != sparse.BLOCK16
    assert reason in choice.reason and reason in formats.block16_obstacle(given, pattern)


def test_without_float16_float32_takes_its_place():
    assert chosen(weight(kept=1.0), "fast", float16=False) == sparse.DENSE
    assert chosen(weight(), "compact", float16=False) == sparse.SPARSE32


@pytest.mark.parametrize("encoding", [sparse.DENSE, *ENCODINGS])
@pytest.mark.parametrize("columns", [256, 512, 4112])
@pytest.mark.parametrize("role", [sparse.FULLY_CONNECTED, sparse.TABLE])
def test_expected_bytes_are_the_encoded_bytes(encoding, columns, role):
    given = weight(300, columns, 16, 0.2, role=role)
    size = formats.expected_bytes(given, Pattern.of(given.values), encoding)
    if encoding == sparse.DENSE:
        assert size == given.values.nbytes
    else:
        actual = sparse.encode(encoding, given.values, given.role).bytes
        # Rounding to int8 makes zeros of small weights, and the one scale of a whole matrix is not counted.
        assert size == pytest.approx(actual, abs=12, rel=0.03 if encoding == sparse.SPARSE_INT8 else 0)


def test_expected_time_is_the_cost_models_for_each_word():
    given = weight(block=16, beams=3)
    pattern = Pattern.of(given.values)
    # Nanoseconds a stored weight and row, and nothing else.
    costs = Costs(**{field.name: 0.0 for field in dataclasses.fields(Costs)} | {"block16": 0.2, "csr": 1.6})
    assert formats.expected_ms(given, pattern, sparse.BLOCK16, 10, costs) == pytest.approx(
        10 * 0.2e-6 * 3 * pattern.stored[16]
    )
    assert formats.expected_ms(given, pattern, sparse.CSR, 10, costs) == pytest.approx(
        10 * 1.6e-6 * 3 * pattern.nonzeros
    )


def test_unknown_format_is_said():
    with pytest.raises(InputError, match=r"sparce.*auto, int8, fast, compact, dense"):
        chosen(weight(), "sparce")
