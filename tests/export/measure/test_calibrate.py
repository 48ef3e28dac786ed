"""Calibration: the fit against times that are known, and a run on tiny layers. No time is compared."""

import dataclasses
import json

import numpy as np
import pytest
import scipy.optimize
from tfsparsecap_export.encode import costs
from tfsparsecap_export.encode.costs import Costs
from tfsparsecap_export.measure import calibrate, one_operator
from tfsparsecap_export.measure.calibrate import Case, Timing

from tfsparsecap.errors import InputError


def expected_ns(case, stored, constants):
    """What the cost model says of a case."""
    kind, _, int8 = case.kind.partition(" ")
    if kind in ("convolution", "depthwise"):
        return constants.filter(stored, depthwise=kind == "depthwise", int8=bool(int8))
    if not case.streamed:  # whose weights are in the cache
        constants = dataclasses.replace(constants, dense=0.0, int8=0.0)
    outputs, inputs = case.shape
    ordered = case.order != one_operator.AS_GIVEN
    product = constants.product(
        case.kind, rows=case.rows, outputs=outputs, inputs=inputs, stored=stored, ordered=ordered
    )
    restored = case.order == one_operator.RESTORED
    return product + (constants.restoring(case.rows, outputs) if restored else 0)


def timings(constants, noise=0.0):
    rng = np.random.default_rng(0)
    found = []
    for case in calibrate.cases():
        stored = float(np.prod(case.shape) * case.kept)
        ns = expected_ns(case, stored, constants) * (1 + noise * rng.uniform(-1, 1))
        found.append(Timing(case, stored, ns))
    return found


def test_the_fit_finds_the_constants_that_the_times_were_made_with():
    fitted, errors = calibrate.fit(timings(Costs()))
    assert dataclasses.astuple(fitted) == pytest.approx(dataclasses.astuple(Costs()), rel=1e-6)
    assert max(most for _, most in errors.values()) < 1e-6
    assert errors.keys() == {case.kind for case in calibrate.cases()}


def test_the_fit_of_noisy_times_is_off_by_about_the_noise():
    fitted, errors = calibrate.fit(timings(Costs(), noise=0.1))
    assert fitted.csr == pytest.approx(Costs().csr, rel=0.2)
    assert fitted.dense_row == pytest.approx(Costs().dense_row, rel=0.2)
    assert all(half < 0.15 for half, _ in errors.values())


def test_no_constant_is_negative_and_the_fit_is_as_good_as_scipys():
    rng = np.random.default_rng(1)
    for _ in range(20):
        matrix = rng.random((30, 4)) * [1, 1000, 0.01, 1]
        target = matrix @ [1, 0.001, 0, 0] + 0.3 * rng.normal(size=30)
        solution = calibrate._non_negative(matrix, target)
        _, best = scipy.optimize.nnls(matrix, target)
        assert (solution >= 0).all()
        assert np.linalg.norm(matrix @ solution - target) <= 1.02 * best


def test_what_nothing_tells_is_said():
    with pytest.raises(InputError, match="tells dense, "):
        calibrate.fit([timing for timing in timings(Costs()) if timing.case.kind != "float32"])


def test_tiny_layers_are_timed_and_the_file_is_what_export_reads(tmp_path):
    shares = []
    found = calibrate.calibrate(
        calibrate.cases(scale=0.03), seconds=0, progress=lambda share, what: shares.append((what, share))
    )
    assert found.rounds == 3 and all(timing.ns > 0 for timing in found.timings)
    assert all(0 <= value < 1e9 for value in dataclasses.astuple(found.costs))
    assert {what for what, _ in shares} == {"building files", "timing"}
    calibrate.save(found, tmp_path / "costs.json")
    assert Costs.load(tmp_path / "costs.json") == found.costs
    about = json.loads((tmp_path / "costs.json").read_text())
    assert about["runtime"].startswith("ai-edge-litert ") and "csr" in about["relative_errors"]


def test_stored_weights_are_counted_in_the_matrices():
    _, stored = calibrate._build(Case("csr", (64, 64), 1, 0.25, 1, 4), np.random.default_rng(0))
    assert stored == pytest.approx(0.25 * 64 * 64, rel=0.1)


def test_a_place_that_cannot_be_written_is_said_before_measuring(tmp_path, monkeypatch):
    monkeypatch.setattr(calibrate, "calibrate", lambda **options: pytest.fail("measured"))
    (tmp_path / "file").write_text("no folder")
    with pytest.raises(InputError, match="cannot make the folder"):
        calibrate.run(tmp_path / "file" / "costs.json")


def test_by_default_the_file_is_where_export_looks(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    fitted, errors = calibrate.fit(timings(Costs()))
    monkeypatch.setattr(
        calibrate, "calibrate", lambda **options: calibrate.Calibration(fitted, errors, [], 3)
    )
    path, _ = calibrate.run(None)
    assert path == costs.default_path() and costs.current() == fitted
    assert [file.name for file in path.parent.iterdir()] == ["costs.json"], "nothing else is left behind"
