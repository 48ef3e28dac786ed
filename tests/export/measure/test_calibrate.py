"""Calibration: the fit of times made with known constants, and a run on tiny layers. No time is compared."""

import dataclasses
import json

import numpy as np
import pytest
import scipy.optimize
from tfsparsecap_export.encode import costs
from tfsparsecap_export.encode.costs import Costs
from tfsparsecap_export.measure import calibrate
from tfsparsecap_export.measure.calibrate import Case, Timing

from tfsparsecap.errors import InputError


def timings(constants, noise=0.0):
    """Times according to the cost model."""
    rng = np.random.default_rng(0)
    found = []
    for case in calibrate.cases():
        stored = float(np.prod(case.shape) * case.kept)
        found.append(Timing(case, stored, case.ns(stored, constants) * (1 + noise * rng.uniform(-1, 1))))
    return found


@pytest.mark.parametrize(
    ("case", "stored", "ns"),
    [
        (Case("csr", (10, 20), rows=2, order="ordered"), 50, 50 * (2 * 0.59 + 0.61) + 10 * 1.95),
        (Case("float32", (10, 20), rows=2), 200, 200 * 2 * 0.023),
        (Case("float32", (10, 20), rows=2, streamed=True), 200, 200 * (2 * 0.023 + 0.17)),
        (Case("depthwise int8", (3, 8, 4)), 1000, 1000 * 0.24),
    ],
)
def test_times_of_cases_follow_the_cost_model(case, stored, ns):
    assert case.ns(stored, Costs()) == pytest.approx(ns)


def test_the_fit_recovers_the_constants_of_exact_times():
    fitted, errors = calibrate.fit(timings(Costs()))
    assert dataclasses.astuple(fitted) == pytest.approx(dataclasses.astuple(Costs()), rel=1e-6)
    assert max(largest for _, largest in errors.values()) < 1e-6
    assert errors.keys() == {case.kind for case in calibrate.cases()}


def test_the_error_of_the_fit_is_about_the_noise_of_the_times():
    fitted, errors = calibrate.fit(timings(Costs(), noise=0.1))
    assert fitted.csr == pytest.approx(Costs().csr, rel=0.2)
    assert fitted.dense_row == pytest.approx(Costs().dense_row, rel=0.2)
    assert all(median < 0.15 for median, _ in errors.values())


def test_the_fit_is_not_negative_and_as_good_as_scipys():
    rng = np.random.default_rng(1)
    for _ in range(20):
        matrix = rng.random((30, 4)) * [1, 1000, 0.01, 1]
        target = matrix @ [1, 0.001, 0, 0] + 0.3 * rng.normal(size=30)
        solution = calibrate._non_negative(matrix, target)
        _, best = scipy.optimize.nnls(matrix, target)
        assert (solution >= 0).all()
        assert np.linalg.norm(matrix @ solution - target) <= 1.02 * best


def test_a_constant_that_no_case_measures_is_an_input_error():
    with pytest.raises(InputError, match="depends on dense, "):
        calibrate.fit([timing for timing in timings(Costs()) if timing.case.kind != "float32"])


def test_tiny_layers_are_timed_and_the_file_can_be_loaded(tmp_path):
    # One layer of each kind, order and place of the weights; all constants need two numbers of rows.
    tiny = {(c.kind, c.order, c.streamed, c.rows > 1): c for c in calibrate.cases(scale=0.03)}
    found = calibrate.calibrate(list(tiny.values()), seconds=0)
    assert found.rounds == 3 and all(timing.ns > 0 for timing in found.timings)
    assert all(0 <= value < 1e9 for value in dataclasses.astuple(found.costs))
    found.save(tmp_path / "costs.json")
    assert Costs.load(tmp_path / "costs.json") == found.costs
    about = json.loads((tmp_path / "costs.json").read_text())
    assert about["runtime"].startswith("ai-edge-litert ") and "csr" in about["relative_errors"]


def test_stored_weights_are_those_that_are_not_zero():
    _, stored = calibrate._build(Case("csr", (64, 64), 1, 0.25, 1, 4), np.random.default_rng(0))
    assert stored == pytest.approx(0.25 * 64 * 64, rel=0.1)


def test_an_unwritable_path_is_an_input_error_before_measuring(tmp_path, monkeypatch):
    monkeypatch.setattr(calibrate, "calibrate", lambda: pytest.fail("measured"))
    (tmp_path / "file").write_text("no folder")
    with pytest.raises(InputError, match="folder"):
        calibrate.run(tmp_path / "file" / "costs.json")


def test_by_default_the_file_is_where_the_exporter_looks(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    fitted, errors = calibrate.fit(timings(Costs()))
    monkeypatch.setattr(calibrate, "calibrate", lambda: calibrate.Calibration(fitted, errors, [], 3))
    path, _ = calibrate.run(None)
    assert path == costs.default_path() and costs.choose(None)[0] == fitted
    assert [file.name for file in path.parent.iterdir()] == ["costs.json"], "no trial file is left behind"
