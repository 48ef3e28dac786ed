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
import collections
import dataclasses
import faulthandler
import json
import os
import queue
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from .corpus import KINDS
from .session import Outcome, run_case

OUTPUT = Path("build/fuzz")
# A case that does not end within so many seconds ends its process.
_LONGEST_WAIT = 600.0


def plan(kinds: Sequence[str], total: int | None, first: int) -> list[tuple[str, int]]:
    """The kind and the seed of each case, with the kinds mixed evenly.

    Args:
        kinds: names.
        total: number of cases, in the kinds' proportions; None takes all.
        first: the first seed of each kind.
    """
    all_cases = sum(KINDS[name].cases for name in kinds)
    counts = {name: -(-KINDS[name].cases * (total or all_cases) // all_cases) for name in kinds}
    cases = [(number / count, name, number) for name, count in counts.items() for number in range(count)]
    return [(name, first + number) for _, name, number in sorted(cases)]


def work() -> None:
    """The process of a worker: reads cases from standard input, and writes outcomes to standard output."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    with tempfile.TemporaryDirectory(prefix="fuzz-") as folder:
        for line in sys.stdin:
            name, seed = line.split()
            faulthandler.dump_traceback_later(_LONGEST_WAIT, exit=True)
            outcome = run_case(name, KINDS[name].make, int(seed), Path(folder) / "case")
            answers.write(json.dumps(dataclasses.asdict(outcome)) + "\n")


def supervise(cases: Sequence[tuple[str, int]], done: "queue.Queue[Outcome]") -> None:
    """Runs cases in a process, which is started again after a crash."""
    pending_cases = collections.deque(cases)
    while pending_cases:
        command = [sys.executable, "-m", "tests.fuzz", "--worker"]
        with tempfile.TemporaryFile("w+", errors="replace") as log, tempfile.TemporaryFile("w+") as lines:
            lines.write("".join(f"{name} {seed}\n" for name, seed in pending_cases))
            lines.seek(0)
            with subprocess.Popen(
                command, stdin=lines, stdout=subprocess.PIPE, stderr=log, text=True
            ) as process:
                assert process.stdout is not None
                for answer in process.stdout:
                    pending_cases.popleft()
                    done.put(Outcome(**json.loads(answer)))
            if pending_cases:
                log.seek(0)
                reason = f"the process ended with code {process.returncode}"
                done.put(Outcome(*pending_cases.popleft(), message=log.read()[-4000:], violation=reason))


def table(outcomes: Sequence[Outcome]) -> str:
    """A line for each kind."""
    lines = [f"{'kind':12}{'cases':>8}{'exit 0':>8}{'exit 2':>8}{'other':>8}{'MB':>8}{'s':>8}"]
    for name in [*dict.fromkeys(outcome.kind for outcome in outcomes), "all"]:
        group = [outcome for outcome in outcomes if name in ("all", outcome.kind)]
        codes = collections.Counter("other" if outcome.violation else outcome.code for outcome in group)
        most = max(outcome.memory for outcome in group) >> 20
        longest = max(outcome.seconds for outcome in group)
        counts = f"{len(group):>8}{codes[0]:>8}{codes[2]:>8}{codes['other']:>8}{most:>8}{longest:>8.1f}"
        lines.append(f"{name:12}{counts}")
    return "\n".join(lines)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the cases; returns 1 if there is a violation."""
    options = argparse.ArgumentParser(
        prog="python -m tests.fuzz", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = options.add_argument
    add("--kind", action="append", choices=sorted(KINDS), help="default: all; can be repeated")
    add("--cases", type=int, metavar="N", help="number of cases (default: 10000 of all kinds)")
    add("--minutes", type=float, metavar="N", help="stop then, and print the table of what was read")
    add("--seed", type=int, metavar="N", help="run this case only, and keep its input in build/fuzz/")
    add("--first", type=int, default=0, metavar="N", help="seed of the first case (default: 0)")
    add("--jobs", type=int, default=len(os.sched_getaffinity(0)), metavar="N", help="default: all cores")
    add("--worker", action="store_true", help=argparse.SUPPRESS)
    arguments = options.parse_args(argv)
    if arguments.worker:
        work()
        return 0
    kinds, outcomes, began = list(dict.fromkeys(arguments.kind or KINDS)), [], time.monotonic()
    if arguments.seed is not None:
        outcomes = [
            run_case(name, KINDS[name].make, arguments.seed, OUTPUT / f"{name}-{arguments.seed}")
            for name in kinds
        ]
        print(
            *(
                f"{result.kind} {result.seed}: {result.violation or result.code}\n{result.message}"
                for result in outcomes
            )
        )
        print(f"inputs: {OUTPUT}")
    else:
        cases, done = plan(kinds, arguments.cases, arguments.first), queue.Queue()
        for part in range(arguments.jobs):
            threading.Thread(
                target=supervise, args=(cases[part :: arguments.jobs], done), daemon=True
            ).start()
        while len(outcomes) < len(cases):
            outcomes.append(outcome := done.get())
            if outcome.violation:
                print(f"--kind {outcome.kind} --seed {outcome.seed}: {outcome.violation}", flush=True)
            if len(outcomes) % 500 == 0:
                print(f"{len(outcomes)} cases, {time.monotonic() - began:.0f} s", flush=True)
            if arguments.minutes is not None and time.monotonic() - began > 60 * arguments.minutes:
                print(f"stopped after {len(outcomes)} of {len(cases)} cases")
                break
    print(table(outcomes))
    return int(any(outcome.violation for outcome in outcomes))


if __name__ == "__main__":
    raise SystemExit(main())
