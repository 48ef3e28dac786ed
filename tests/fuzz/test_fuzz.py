"""500 damaged files of every kind; `make fuzz` reads 10 000."""

import importlib
import json
import os
import subprocess
import sys
import time

import numpy as np
import pytest

from tfsparsecap.errors import InputError

from .__main__ import kinds, plan, table
from .cases import Kind, Prepared, Session, forget_peak

KINDS = kinds()


@pytest.fixture(scope="module")
def session(tmp_path_factory):
    """Limits that a slow or busy machine does not reach."""
    return Session(tmp_path_factory.mktemp("fuzz") / "session", most_memory=2 << 30, most_seconds=600.0)


@pytest.mark.slow
@pytest.mark.parametrize("name", KINDS)
def test_damaged_files_end_with_one_sentence_or_are_read(session, name):
    valid = session.run(KINDS[name], 0, damaged=False)
    assert (valid.code, valid.violations) == (0, []), valid.message
    for seed in range(KINDS[name].quick_cases):
        outcome = session.run(KINDS[name], seed)
        assert not outcome.violations, (
            f"python -m tests.fuzz --kind {name} --seed {seed}: {outcome.violations}\n{outcome.message}"
        )
        assert outcome.code in (0, 2)


def outcome_of(session, read, reads_only=True):
    """What a session says about a case that does something to its folder."""

    def prepare(inputs, folder, damage):
        (folder / "input.txt").write_text("valid")
        return Prepared(lambda: read(folder), "a test", lambda: None, reads_only)

    return session.run(Kind("test", prepare, 1, 1), 0)


def raises(error):
    raise error


@pytest.mark.parametrize(
    ("read", "violation"),
    [
        (lambda folder: raises(KeyError("x")), "KeyError: 'x'"),
        (lambda folder: raises(ModuleNotFoundError("x", name="x")), "is not installed"),
        (lambda folder: os.system("true"), "os.system"),
        (lambda folder: subprocess.run([sys.executable, "-c", ""], check=True), "started"),
        (lambda folder: (folder.parent / "new.txt").write_text("x"), "wrote "),
        (lambda folder: os.remove(folder.parent / "outside" / "keep.txt"), "os.remove "),
        (lambda folder: (folder / "input.txt").write_text("changed"), "changed or removed its input"),
        (lambda folder: raises(InputError("")), "exit code 2 without a message"),
        (lambda folder: [time.process_time() for _ in range(10**8)], "TooSlow"),
    ],
)
def test_violations_are_found(tmp_path, read, violation):
    session = Session(tmp_path / "session", most_memory=200 << 20, most_seconds=0.5)
    found = outcome_of(session, read).violations
    assert any(violation in one for one in found), found


def test_memory_is_measured(tmp_path):
    if not forget_peak():
        pytest.skip("the peak of the memory cannot be reset here")
    session = Session(tmp_path / "session", most_memory=200 << 20)
    (found,) = outcome_of(session, lambda folder: int(len(np.ones(1 << 25)) < 0)).violations
    assert found.startswith("took 2") and found.endswith(" MB")


def test_a_module_that_a_file_names_must_not_be_imported(tmp_path):
    session = Session(tmp_path / "session")
    found = outcome_of(session, lambda folder: importlib.import_module("fuzz_canary")).violations
    assert "a file made it import fuzz_canary" in found


def test_a_case_may_write_into_its_folder_and_end_with_one_sentence(tmp_path):
    def read(folder):
        (folder / "below").mkdir()
        (folder / "below" / "new.txt").write_text("x")
        os.rename(folder / "input.txt", folder / "other.txt")
        raise InputError("it is not valid: give another")

    outcome = outcome_of(Session(tmp_path / "session"), read, reads_only=False)
    assert (outcome.code, outcome.message, outcome.violations) == (2, "it is not valid: give another", [])
    assert [line.split()[:5] for line in table([outcome]).splitlines()[1:]] == [
        ["test", "1", "0", "1", "0"],
        ["all", "1", "0", "1", "0"],
    ]


def test_equal_seeds_give_equal_inputs(session, tmp_path):
    for place in ("one", "other"):
        session.run_only_damage(KINDS["results"], 3, tmp_path / place)
    contents = [
        {path.name: path.read_bytes() for path in sorted((tmp_path / place).iterdir())}
        for place in ("one", "other")
    ]
    assert contents[0] == contents[1] and json.loads(contents[0]["references.json"])


def test_ten_thousand_cases_are_planned_and_500_for_continuous_integration():
    assert len(plan(list(KINDS.values()), None, 0)) == 10_000
    assert sum(kind.quick_cases for kind in KINDS.values()) == 500
    assert plan([KINDS["image"], KINDS["cache"]], 20, 7)[:3] == [("cache", 7), ("image", 7), ("image", 8)]
