"""500 damaged files of every kind; `make fuzz` reads 10 000."""

import importlib
import os

import pytest

from tfsparsecap.errors import InputError

from .__main__ import plan, table
from .corpus import KINDS
from .session import Case, run_case


@pytest.mark.slow
@pytest.mark.parametrize("name", KINDS)
def test_damaged_files_end_with_one_sentence_or_are_read(name, tmp_path, monkeypatch):
    monkeypatch.setattr("tests.fuzz.session.MOST_SECONDS", 600.0)  # which a busy machine does not reach
    valid = run_case(name, KINDS[name].make, 0, tmp_path / "case", damaged=False)
    assert (valid.code, valid.violation) == (0, ""), valid.message
    for seed in range(KINDS[name].cases // 20):
        outcome = run_case(name, KINDS[name].make, seed, tmp_path / "case")
        again = f"python -m tests.fuzz --kind {name} --seed {seed}"
        assert not outcome.violation, f"{again}: {outcome.violation}\n{outcome.message}"
        assert outcome.code in (0, 2)


def outcome_of(tmp_path, read):
    """The outcome of a case that does something to its folder."""

    def make(folder, damage):
        (folder / "input.txt").write_text("valid")
        return Case(lambda: read(folder), [lambda: None])

    return run_case("test", make, 0, tmp_path / "case")


def raises(error):
    raise error


@pytest.mark.parametrize(
    ("read", "violation"),
    [
        (lambda folder: raises(KeyError("x")), "KeyError: 'x'"),
        (lambda folder: os.system("true"), "os.system"),
        (lambda folder: importlib.import_module("fuzz_canary"), "fuzz_canary.py"),
        (lambda folder: (folder.parent / "new.txt").write_text("x"), "open "),
        (lambda folder: os.rename(folder / "input.txt", folder.parent / "moved.txt"), "os.rename "),
        (lambda folder: (folder / "input.txt").write_text("changed"), "changed its input"),
        (lambda folder: raises(InputError("")), "not one printable sentence"),
        (lambda folder: raises(SystemExit(3)), "exit code 3"),
        (lambda folder: bytearray(1100 << 20).count(1), "took 1"),
    ],
)
def test_violations_are_found(tmp_path, read, violation):
    assert violation in outcome_of(tmp_path, read).violation


def test_a_case_may_write_into_its_folder_and_end_with_one_sentence(tmp_path):
    def read(folder):
        (folder / "new.txt").write_text("x")
        raise InputError("it is not valid: give another")

    outcome = outcome_of(tmp_path, read)
    assert (outcome.code, outcome.message, outcome.violation) == (2, "it is not valid: give another", "")
    assert [line.split()[:5] for line in table([outcome]).splitlines()[1:]] == [
        ["test", "1", "0", "1", "0"],
        ["all", "1", "0", "1", "0"],
    ]


def test_ten_thousand_cases_are_planned_and_500_for_continuous_integration():
    assert len(plan(list(KINDS), None, 0)) == 10_000
    assert sum(kind.cases // 20 for kind in KINDS.values()) == 500
    assert plan(["image", "cache"], 20, 7)[:3] == [("cache", 7), ("image", 7), ("image", 8)]
