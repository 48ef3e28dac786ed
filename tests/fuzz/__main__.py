"""python -m tests.fuzz: reads damaged files of every kind, and prints what happened.

Each case is a valid input that is damaged by a seed. It must end with exit code 0, or with exit code 2 and
one sentence, within limits of time and memory, without executing anything and without changing a file
outside its folder. Cases run in worker processes, so that a crash is one violation.

examples:
  python -m tests.fuzz
      10 000 cases of all kinds
  python -m tests.fuzz --cases 500 --kind table --kind image
      500 cases of two kinds
  python -m tests.fuzz --kind table --seed 1234
      one case again; its input is kept in build/fuzz/
"""

import argparse
import contextlib
import json
import os
import queue
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import IO

from .cases import Kind, Outcome, Session

OUTPUT = Path("build/fuzz")
# A worker that does not answer for so long, or takes so much memory, is ended; a case has lower limits.
_MOST_SECONDS, _MOST_MEMORY = 900.0, 6 << 30


def kinds() -> dict[str, Kind]:
    """All kinds by name."""
    from . import kinds_data, kinds_runs, kinds_weights

    return {kind.name: kind for one in (kinds_data, kinds_runs, kinds_weights) for kind in one.KINDS}


def plan(chosen: Sequence[Kind], total: int | None, first: int) -> list[tuple[str, int]]:
    """The kind and the seed of each case, with the kinds mixed evenly.

    Args:
        chosen: the kinds.
        total: number of cases, in the kinds' proportions; None takes all.
        first: the first seed of each kind.
    """
    whole = sum(kind.cases for kind in chosen)
    counts = {kind.name: kind.cases if total is None else -(-kind.cases * total // whole) for kind in chosen}
    cases = [(number / count, name, number) for name, count in counts.items() for number in range(count)]
    return [(name, first + number) for _, name, number in sorted(cases)]


class Worker:
    """A process that runs cases; it is started again after a crash.

    Args:
        cases: kind and seed of each.
        done: receives each outcome.
    """

    def __init__(self, cases: Sequence[tuple[str, int]], done: "queue.Queue[Outcome]"):
        self._cases, self._done = list(cases), done

    def run(self) -> None:
        """Runs all cases."""
        while self._cases:
            with tempfile.TemporaryFile() as messages:
                process = subprocess.Popen(
                    [sys.executable, "-m", "tests.fuzz", "--worker"],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=messages,
                    text=True,
                )
                with process:
                    self._run_in(process, messages)

    def _run_in(self, process: subprocess.Popen, messages: IO[bytes]) -> None:
        assert process.stdin is not None and process.stdout is not None
        answers: queue.Queue[str] = queue.Queue()
        reader = threading.Thread(target=lambda: [answers.put(line) for line in process.stdout], daemon=True)
        reader.start()
        while self._cases:
            name, seed = self._cases.pop(0)
            with contextlib.suppress(BrokenPipeError):
                process.stdin.write(f"{name} {seed}\n")
                process.stdin.flush()
            try:
                self._done.put(Outcome(**json.loads(_answer(process, answers))))
            except RuntimeError as error:
                process.kill()
                messages.seek(0)
                text = messages.read().decode("utf-8", "replace")[-4000:]
                self._done.put(Outcome(name, seed, message=text, violations=[str(error)]))
                return
        process.stdin.close()


def _answer(process: subprocess.Popen, answers: "queue.Queue[str]") -> str:
    """The next line of a worker. Raises RuntimeError if it crashed, is stuck, or takes too much memory."""
    end = time.monotonic() + _MOST_SECONDS
    while time.monotonic() < end:
        with contextlib.suppress(queue.Empty):
            return answers.get(timeout=0.3)
        if process.poll() is not None and answers.empty():
            raise RuntimeError(f"the process crashed with exit code {process.returncode}")
        with contextlib.suppress(OSError):
            pages = int(Path(f"/proc/{process.pid}/statm").read_text().split()[1])
            if pages * os.sysconf("SC_PAGE_SIZE") > _MOST_MEMORY:
                raise RuntimeError(f"took more than {_MOST_MEMORY >> 30} GB")
    raise RuntimeError(f"took more than {_MOST_SECONDS:.0f} s")


def work() -> None:
    """The process of a worker: reads cases from standard input, and writes outcomes to standard output."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    with tempfile.TemporaryDirectory(prefix="fuzz-") as folder:
        session, known = Session(Path(folder) / "session"), kinds()
        for line in sys.stdin:
            name, seed = line.split()
            answers.write(json.dumps(asdict(session.run(known[name], int(seed)))) + "\n")


def outcomes(cases: Sequence[tuple[str, int]], jobs: int) -> Iterator[Outcome]:
    """Runs cases in several processes."""
    done: queue.Queue[Outcome] = queue.Queue()
    threads = [
        threading.Thread(target=Worker(cases[part::jobs], done).run, daemon=True) for part in range(jobs)
    ]
    for thread in threads:
        thread.start()
    for _ in cases:
        yield done.get()


def table(found: Sequence[Outcome]) -> str:
    """A line for each kind."""
    lines = [f"{'kind':12}{'cases':>8}{'exit 0':>8}{'exit 2':>8}{'other':>8}{'MB':>8}{'s':>8}"]
    for name in [*dict.fromkeys(one.kind for one in found), None]:
        these = [one for one in found if name in (None, one.kind)]
        wrong = sum(bool(one.violations) for one in these)
        codes = [sum(one.code == code and not one.violations for one in these) for code in (0, 2)]
        most = max(one.memory for one in these) >> 20
        longest = max(one.seconds for one in these)
        counts = f"{len(these):>8}{codes[0]:>8}{codes[1]:>8}{wrong:>8}{most:>8}{longest:>8.1f}"
        lines.append(f"{name or 'all':12}{counts}")
    return "\n".join(lines)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the cases; returns 1 if there is a violation."""
    options = argparse.ArgumentParser(
        prog="python -m tests.fuzz", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    known = kinds()
    add = options.add_argument
    add("--kind", action="append", choices=sorted(known), help="default: all; can be repeated")
    add("--cases", type=int, metavar="N", help="number of cases (default: 10000 of all kinds)")
    add("--minutes", type=float, metavar="N", help="stop then, and print the table of what was read")
    add("--seed", type=int, metavar="N", help="run this case only, and keep its input")
    add("--first", type=int, default=0, metavar="N", help="seed of the first case (default: 0)")
    add("--jobs", type=int, default=len(os.sched_getaffinity(0)), metavar="N", help="default: all cores")
    add("--output", type=Path, default=OUTPUT, metavar="FOLDER", help="of violations (default: build/fuzz)")
    add("--worker", action="store_true", help=argparse.SUPPRESS)
    given = options.parse_args(argv)
    if given.worker:
        work()
        return 0
    chosen = [known[name] for name in given.kind or known]
    if given.seed is not None:
        cases = [(kind.name, given.seed) for kind in chosen]
    else:
        cases = plan(chosen, given.cases, given.first)
    found, began = [], time.monotonic()
    for number, outcome in enumerate(outcomes(cases, min(given.jobs, len(cases))), 1):
        found.append(outcome)
        if outcome.violations:
            print(f"--kind {outcome.kind} --seed {outcome.seed}: {outcome.violations[0]}", flush=True)
        seconds = time.monotonic() - began
        if number % 500 == 0:
            print(f"{number} cases, {seconds:.0f} s", flush=True)
        if given.minutes is not None and seconds > 60 * given.minutes:
            print(f"stopped after {number} of {len(cases)} cases")
            break
    wrong = [one for one in found if one.violations]
    kept = wrong if given.seed is None else found
    if kept:
        with tempfile.TemporaryDirectory(prefix="fuzz-") as folder:
            session = Session(Path(folder) / "session")
            for outcome in kept:
                session.save(known[outcome.kind], outcome, given.output / f"{outcome.kind}-{outcome.seed}")
        print(f"inputs and messages: {given.output}")
    print(table(found))
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
