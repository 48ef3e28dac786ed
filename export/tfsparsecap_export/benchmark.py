"""Files side by side: milliseconds a caption, megabytes, memory, and ratios to the first file.

python -m tfsparsecap_export.benchmark dense.tflite sparse.tflite
"""

import argparse
import dataclasses
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tfsparsecap.command import only_json_on_stdout, parser, run, start_tensorflow
from tfsparsecap.errors import InputError

if TYPE_CHECKING:
    from tfsparsecap_export.measure.profiling import Profile
    from tfsparsecap_export.measure.timing import Measurement

_DESCRIPTION = """\
Runs .tflite files on the same inputs and compares them: milliseconds a caption and a word, megabytes, memory,
captions, and ratios to the first file.

The files take turns, run after run, so that whatever else the machine does falls on all of them alike;
what is shown is the median. Give the dense file first: ratios say how many times faster and smaller the
others are. Memory is what a process of its own grows by, at most, when it loads and runs the file. Desktop
figures are not phone figures.

--calibrate measures what the kernels cost on this machine, in about a minute. tfsparsecap-export then
chooses encodings by that.
"""

_EXAMPLES = [
    ("python -m tfsparsecap_export.benchmark dense.tflite sparse.tflite", "on made-up inputs"),
    (
        "python -m tfsparsecap_export.benchmark dense.tflite sparse.tflite --images *.jpg --runs 100",
        "on photographs: captions, and so times, have their real length",
    ),
    (
        "python -m tfsparsecap_export.benchmark dense.tflite sparse.tflite --plot sizes.png",
        "and a picture of size against latency",
    ),
    (
        "python -m tfsparsecap_export.benchmark sparse.tflite --profile",
        "where the time goes, layer by layer",
    ),
    ("python -m tfsparsecap_export.benchmark --calibrate", "what kernels cost here"),
]
#: Operations that the table of a profile shows one by one.
_SHOWN_OPERATIONS = 20
# A replayed run is slower than a real one.
_PROFILED_RUNS = 30
# Columns of a terminal from which on the fastest and the slowest run are shown, too.
_ROOMY = 110


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    options = parser("python -m tfsparsecap_export.benchmark", _DESCRIPTION, _EXAMPLES)
    options.add_argument(
        "files", nargs="*", type=Path, metavar="FILE.tflite", help="the one to compare with first"
    )
    options.add_argument("--threads", type=int, default=1, metavar="N", help="CPU threads (default: 1)")
    options.add_argument("--runs", type=int, default=30, metavar="N", help="runs of each file (default: 30)")
    inputs = options.add_mutually_exclusive_group()
    inputs.add_argument(
        "--images",
        nargs="+",
        type=Path,
        metavar="PHOTO",
        help="pictures to caption in turn (default: made-up)",
    )
    inputs.add_argument(
        "--inputs", type=int, default=16, metavar="N", help="how many inputs to make up (default: 16)"
    )
    options.add_argument(
        "--profile", action="store_true", help="show where each file's time goes, operation by operation"
    )
    options.add_argument(
        "--plot", type=Path, metavar="FILE", help="draw size against latency: a .png, .svg or .pdf file"
    )
    options.add_argument(
        "--calibrate",
        action="store_true",
        help="measure what kernels cost on this machine, for tfsparsecap-export to choose encodings by",
    )
    options.add_argument(
        "--costs",
        type=Path,
        metavar="FILE",
        help="with --calibrate: where to write (default: costs.json in the user's cache, where"
        " tfsparsecap-export looks)",
    )
    options.add_argument("--json", action="store_true", help="print JSON instead of a table")
    return options.parse_args(argv)


def _check(options: argparse.Namespace) -> None:
    """Raises InputError where arguments do not go together, before anything is loaded."""
    if options.calibrate:
        if options.files or options.plot or options.profile:
            raise InputError("--calibrate measures the machine, not files: give it without them")
        return
    if options.costs:
        raise InputError("--costs says where --calibrate writes: give both")
    if not options.files:
        raise InputError("no file is given: name .tflite files, the one to compare with first")
    if options.plot:
        from tfsparsecap_export.measure.plot import check_path

        check_path(options.plot)


def main(argv: Sequence[str] | None = None) -> None:
    """Runs the command with `argv`, the arguments of the process by default.

    Raises:
        InputError: an argument or a file cannot be used; see `timing.measure`.
    """
    options = _arguments(argv)
    _check(options)
    start_tensorflow()
    if options.calibrate:
        _calibrate(options)
        return
    from tfsparsecap_export.measure import timing

    profiles = None
    with only_json_on_stdout(options.json):
        samples = timing.samples(options.files, images=options.images, count=options.inputs)
        results = timing.measure(options.files, samples, threads=options.threads, runs=options.runs)
        if options.profile:
            from tfsparsecap_export.measure.profiling import profile

            runs = min(options.runs, _PROFILED_RUNS)
            profiles = [profile(path, samples, threads=options.threads, runs=runs) for path in options.files]
        if options.plot:
            from tfsparsecap_export.measure.plot import size_against_latency

            size_against_latency(results, options.plot)
    if options.json:
        entries = [dataclasses.asdict(result) for result in results]
        for entry, of_file in zip(entries, profiles or [], strict=False):
            entry["profile"] = dataclasses.asdict(of_file)
        json.dump(entries, sys.stdout, indent=1)
        print()
        return
    _print_table(results, options)
    for path, result, of_file in zip(options.files, results, profiles or [], strict=False):
        _print_profile(path, result.ms, of_file)
    if options.plot:
        print(f"Size against latency: {options.plot}")


def _calibrate(options: argparse.Namespace) -> None:
    from tfsparsecap_export.measure import calibrate

    with only_json_on_stdout(options.json):
        path, calibration = calibrate.run(options.costs)
    if options.json:
        print(path.read_text(encoding="utf-8"), end="")
    else:
        calibrate.print_table(calibration, path)


def _print_table(results: list["Measurement"], options: argparse.Namespace) -> None:
    from rich.console import Console

    from tfsparsecap_export.measure.plot import short_names

    console = Console()
    captions, roomy = results[0].words is not None, console.width >= _ROOMY
    names = ["MB", "smaller", "ms", "faster", *(["fastest", "slowest"] if roomy else [])]
    names += ["words", "ms/word"] if captions else []
    table = _table(
        f"median of {options.runs} runs in turns, {options.threads} CPU thread(s)",
        ["file"],
        [*names, "memory", "captions" if captions else "difference"],
    )
    for number, (name, result) in enumerate(zip(short_names(results), results, strict=True)):
        cells = [f"{result.bytes / 1e6:.2f}", f"{result.size_ratio:.1f}x"]
        cells += [f"{result.ms:.2f}", f"{result.speedup:.1f}x"]
        if roomy:
            cells += [f"{result.fastest_ms:.2f}", f"{result.slowest_ms:.2f}"]
        if captions:
            cells += ["", ""] if result.words is None else [f"{result.words:.1f}", f"{result.ms_a_word:.3f}"]
        cells.append("" if result.peak_bytes is None else f"{result.peak_bytes / 1e6:.1f}")
        if number == 0:
            cells.append("")
        elif result.same_captions is not None:
            cells.append(f"{result.same_captions} of {result.inputs}")
        else:
            cells.append(f"{result.difference:.1e}")
        table.add_row(name, *cells)
    console.print(table)
    what = (
        "words: steps of the search, the end of a caption included. captions: the same as the first file's,"
        " token by token."
        if captions
        else "difference: the largest to the first file's outputs, as a share of the largest of those."
    )
    console.print(f"memory: MB that a process grows by when it loads and runs the file. {what}")


def _print_profile(path: Path, ms: float, profile: "Profile") -> None:
    """Where a file's time goes. Operations of one kind are one line, but for layers."""
    from rich.console import Console

    table = _table(
        f"{path}: {profile.ms:.2f} ms in operations run one by one; {ms:.2f} ms in a whole run",
        ["operation", "on", "per", "layer", "stored as"],
        ["calls", "ms", "share"],
    )
    rows: dict[tuple, list[float]] = {}
    for operation in profile.operations:
        key = (
            operation.name.split(" (")[0],
            operation.kernel,
            "word" if operation.in_loop else "run",
            "" if operation.shape is None else " x ".join(map(str, operation.shape)),
            operation.stored or "",
        )
        sums = rows.setdefault(key, [0.0, 0.0, 0.0])
        for i, value in enumerate((operation.calls, operation.ms, operation.share)):
            sums[i] += value
    ordered = sorted(rows.items(), key=lambda row: -row[1][1])
    for key, (calls, took, share) in ordered[:_SHOWN_OPERATIONS]:
        table.add_row(*key, f"{calls:.0f}", f"{took:.3f}", f"{share:.1%}")
    rest = [sums for _, sums in ordered[_SHOWN_OPERATIONS:]]
    if rest:
        calls, took, share = map(sum, zip(*rest, strict=True))
        table.add_row(f"{len(rest)} others", "", "", "", "", f"{calls:.0f}", f"{took:.3f}", f"{share:.1%}")
    Console().print(table)


def _table(title: str, texts: list[str], numbers: list[str]):
    """A table whose first column gives way where the terminal is narrow."""
    from rich import box
    from rich.table import Table

    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column(texts[0], overflow="fold")
    for name in texts[1:]:
        table.add_column(name, no_wrap=True)
    for name in numbers:
        table.add_column(name, justify="right", no_wrap=True)
    return table


if __name__ == "__main__":
    run(main)
