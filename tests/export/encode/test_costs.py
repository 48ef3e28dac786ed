"""The cost model, and files with the costs of a machine."""

import dataclasses
import json

import pytest
from tfsparsecap_export.encode import costs, encodings
from tfsparsecap_export.encode.costs import Costs

from tfsparsecap.errors import InputError

ONES = Costs(**{field.name: 1.0 for field in dataclasses.fields(Costs)})


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "tfsparsecap" / "costs.json"


@pytest.mark.parametrize(
    ("encoding", "expected"),
    [
        # With 3 rows, 10 outputs, 20 inputs and 50 stored weights; every constant is 1 ns.
        (encodings.CSR, 50 * (1 + 3) + 10 + 10 * 3),
        (encodings.BLOCK4, 50 * (1 + 3) + 10 * (1 + 3) + 10 * 3),
        (encodings.BLOCK16, 50 * (1 + 3) + 10 * (1 + 3) + 10 * 3 + 20 * 3),
        (encodings.INT8, 200 * (1 + 3)),
        (encodings.DENSE, 200 * (1 + 3)),
        (encodings.FLOAT16, 200 * (1 + 3)),
        (encodings.SPARSE16, 200 * (1 + 3)),
    ],
)
def test_the_cost_of_a_layer_is_the_sum_of_its_parts(encoding, expected):
    assert ONES.product(encoding, rows=3, outputs=10, inputs=20, stored=50) == expected
    doubled = Costs(**{name: 2 * value for name, value in dataclasses.asdict(ONES).items()})
    assert doubled.product(encoding, rows=3, outputs=10, inputs=20, stored=50) == 2 * expected


@pytest.mark.parametrize("encoding", [encodings.CSR, encodings.BLOCK4, encodings.BLOCK16])
def test_sorting_saves_mispredictions_and_restoring_the_order_has_a_cost(encoding):
    layer = {"rows": 3, "outputs": 10, "inputs": 20, "stored": 50}
    guesses = ONES.product(encoding, **layer) - ONES.product(encoding, **layer, ordered=True)
    assert guesses == 10 * 3
    assert ONES.restoring(3, 10) == 10 * (1 + 3)


def test_shipped_costs_rank_kernels_as_measured():
    # Up-Down at full size, one row, 95 % sparse, on another machine and an older fit.
    big = {"rows": 1, "outputs": 4000, "inputs": 4000}
    dense, int8, csr, block4, block16 = (
        Costs().product(encoding, **big, stored=800_000)
        for encoding in (encodings.DENSE, encodings.INT8, encodings.CSR, encodings.BLOCK4, encodings.BLOCK16)
    )
    assert dense > csr > block4 > block16 and int8 > block16
    assert dense > 15 * block16


def test_the_cost_of_convolutions_is_proportional_to_their_multiplications():
    found = Costs(convolution=1.0, convolution_int8=2.0, depthwise=3.0, depthwise_int8=4.0)
    assert [found.filter(10), found.filter(10, int8=True)] == [10, 20]
    assert [found.filter(10, depthwise=True), found.filter(10, depthwise=True, int8=True)] == [30, 40]


def test_saved_costs_are_loaded(tmp_path):
    path = tmp_path / "new" / "folder" / "costs.json"
    ONES.save(path, rounds=3)
    assert Costs.load(path) == ONES and json.loads(path.read_text())["rounds"] == 3
    assert costs.choose(path) == (ONES, str(path))


def test_shipped_costs_are_the_default(cache):
    assert costs.default_path() == cache and not cache.exists()
    assert costs.choose(None) == (Costs(), "shipped")


def test_calibrated_costs_are_used_unless_declined(cache):
    ONES.save(cache)
    assert costs.choose(None) == (ONES, str(cache))
    assert costs.choose("shipped") == (Costs(), "shipped")


@pytest.mark.parametrize(
    "damage",
    [
        lambda content: "",
        lambda content: content[: len(content) // 2],
        lambda content: "[1, 2]",
        lambda content: content.replace('"format": 2', '"format": 99'),
        lambda content: content.replace('"csr": 1.0', '"csr": -1.0'),
        lambda content: content.replace('"csr": 1.0', '"csr": NaN'),
        lambda content: content.replace('"csr": 1.0', '"crs": 1.0'),
        lambda content: content.replace('"nanoseconds": {', '"nanoseconds": 3, "x": {'),
    ],
)
def test_a_damaged_file_is_reported_with_the_command_to_repair_it(cache, damage):
    ONES.save(cache)
    content = cache.read_text()
    assert damage(content) != content
    cache.write_text(damage(content))
    with pytest.raises(InputError, match=r"costs\.json .*again with python -m .*benchmark --calibrate$"):
        costs.choose(None)


def test_a_missing_file_is_reported(tmp_path):
    with pytest.raises(InputError, match=r"absent\.json.*--calibrate --costs .*absent\.json"):
        costs.choose(tmp_path / "absent.json")


def test_a_folder_that_cannot_be_created_is_reported(tmp_path):
    (tmp_path / "file").write_text("no folder")
    with pytest.raises(InputError, match="cannot create the folder"):
        ONES.save(tmp_path / "file" / "costs.json")
