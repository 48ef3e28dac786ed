"""500 damaged files of every kind; `make fuzz` reads 10 000."""

import pytest

from .__main__ import kinds
from .cases import Session

KINDS = kinds()
#: Not yet clean: models whose HDF5 file is damaged.
PENDING = ("run",)


@pytest.fixture(scope="module")
def session(tmp_path_factory):
    """Limits that a slow or busy machine does not reach."""
    return Session(tmp_path_factory.mktemp("fuzz") / "session", most_memory=2 << 30, most_seconds=600.0)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in KINDS if name not in PENDING])
def test_damaged_files_end_with_one_sentence_or_are_read(session, name):
    valid = session.run(KINDS[name], 0, damaged=False)
    assert (valid.code, valid.violations) == (0, []), valid.message
    for seed in range(KINDS[name].quick_cases):
        outcome = session.run(KINDS[name], seed)
        assert not outcome.violations, (
            f"python -m tests.fuzz --kind {name} --seed {seed}: {outcome.violations}\n{outcome.message}"
        )
        assert outcome.code in (0, 2)
