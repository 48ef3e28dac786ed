"""Files side by side: milliseconds a caption, megabytes, and ratios to the first file.

python -m tfsparsecap_export.benchmark dense.tflite sparse.tflite
"""

import argparse
import dataclasses
import json
import statistics
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from tfsparsecap.command import only_json_on_stdout, parser, run
from tfsparsecap.errors import InputError

_DESCRIPTION = """\
Runs .tflite files on the same inputs and compares them: milliseconds a caption, megabytes, and ratios to
the first file.

The files take turns, run after run, so that whatever else the machine does falls on all of them alike;
what is shown is the median. Give the dense file first: ratios say how many times faster and smaller the
others are. Desktop figures are not phone figures.
"""

_EXAMPLES = [
    ("python -m tfsparsecap_export.benchmark dense.tflite sparse.tflite", "on made-up inputs"),
    (
        "python -m tfsparsecap_export.benchmark dense.tflite sparse.tflite --images photo.jpg --runs 100",
        "on a photograph: captions, and so times, have their real length",
    ),
]


@dataclasses.dataclass(frozen=True)
class Measurement:
    """One file's figures.

    Attributes:
        path: the file.
        bytes: its size.
        ms: median milliseconds of a run.
        fastest_ms, slowest_ms: of all runs.
        speedup: the first file's `ms` divided by this one's.
        size_ratio: the first file's `bytes` divided by this one's.
        words: mean number of steps that the beam search took, or None for a file that gives no captions.
    """

    path: str
    bytes: int
    ms: float
    fastest_ms: float
    slowest_ms: float
    speedup: float
    size_ratio: float
    words: float | None


def measure(
    paths: list[Path], *, threads: int = 1, runs: int = 30, images: list[Path] | None = None
) -> list[Measurement]:
    """Times .tflite files in turns on the same inputs.

    Args:
        paths: the files, the one to compare with first. Each has one signature; all take the same inputs.
        threads: CPU threads that the runtime may use.
        runs: runs of each file that count; two more before them do not.
        images: pictures to caption in turn; made-up inputs by default.

    Raises:
        InputError: a file cannot be read, files take different inputs, or a number is below 1.

    Example:
        >>> dense, sparse = measure([Path("dense.tflite"), Path("sparse.tflite")], runs=10)
        >>> sparse.speedup
        4.2
    """
    import numpy as np
    import tensorflow as tf
    from tfsparsecap_export.samples import synthetic_samples

    from tfsparsecap.data.images import read_image

    if threads < 1 or runs < 1:
        raise InputError(f"threads is {threads} and runs {runs}: both must be at least 1")
    runners = [_load(path, threads) for path in paths]
    inputs = [_inputs(runner) for runner in runners]
    for path, other in zip(paths, inputs, strict=True):
        if other != inputs[0]:
            raise InputError(
                f"{path} takes {_shown(other)}, {paths[0]} takes {_shown(inputs[0])}:"
                " compare files with the same inputs"
            )
    specs = {name: tf.TensorSpec(shape, dtype) for name, (shape, dtype) in inputs[0].items()}
    if images:
        shape = inputs[0].get("image", ((), ""))[0]
        if len(shape) != 4:
            raise InputError(f"{paths[0]} takes {_shown(inputs[0])}, no image: leave --images out")
        samples = [{"image": read_image(path, shape[1])[None]} for path in images]
    else:
        samples = synthetic_samples(specs, 4)

    times: list[list[float]] = [[] for _ in paths]
    words: list[list[int]] = [[] for _ in paths]
    for number in range(-2, runs):
        sample = samples[number % len(samples)]
        for file, runner in enumerate(runners):
            start = time.perf_counter()
            outputs = runner(**sample)
            elapsed = time.perf_counter() - start
            if number >= 0:
                times[file].append(1e3 * elapsed)
                if "token_ids" in outputs:
                    # Padding follows the end token: the longest beam tells how many steps the search took.
                    steps = np.flatnonzero((outputs["token_ids"] != 0).any(axis=0))
                    words[file].append(int(steps[-1]) + 1 if len(steps) else 0)
    medians, sizes = [statistics.median(ms) for ms in times], [path.stat().st_size for path in paths]
    return [
        Measurement(
            path=str(path),
            bytes=sizes[file],
            ms=medians[file],
            fastest_ms=min(times[file]),
            slowest_ms=max(times[file]),
            speedup=medians[0] / medians[file],
            size_ratio=sizes[0] / sizes[file],
            words=statistics.mean(words[file]) if words[file] else None,
        )
        for file, path in enumerate(paths)
    ]


def _load(path: Path, threads: int):
    from ai_edge_litert.interpreter import Interpreter
    from tfsparsecap_export.flatfile import check_identifier

    try:
        content = path.read_bytes()
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}; give .tflite files") from error
    check_identifier(content, str(path))
    try:
        interpreter = Interpreter(model_content=content, num_threads=threads)
        signatures = list(interpreter.get_signature_list())
        if len(signatures) != 1:
            raise InputError(
                f"{path} has {len(signatures)} signatures: give files with one, as tfsparsecap-export writes"
            )
        return interpreter.get_signature_runner(signatures[0])
    except (RuntimeError, ValueError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(
            f"the runtime cannot load {path} ({str(error).strip().splitlines()[0]}): export it again"
        ) from error


def _inputs(runner) -> dict[str, tuple[tuple[int, ...], str]]:
    """Names, shapes and types of a file's inputs."""
    return {
        name: (tuple(int(size) for size in detail["shape"]), detail["dtype"].__name__)
        for name, detail in sorted(runner.get_input_details().items())
    }


def _shown(inputs: dict[str, tuple[tuple[int, ...], str]]) -> str:
    return " and ".join(f"{name} {dtype} {list(shape)}" for name, (shape, dtype) in inputs.items())


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    options = parser("python -m tfsparsecap_export.benchmark", _DESCRIPTION, _EXAMPLES)
    options.add_argument(
        "files", nargs="+", type=Path, metavar="FILE.tflite", help="the one to compare with first"
    )
    options.add_argument("--threads", type=int, default=1, metavar="N", help="CPU threads (default: 1)")
    options.add_argument("--runs", type=int, default=30, metavar="N", help="runs of each file (default: 30)")
    options.add_argument(
        "--images",
        nargs="+",
        type=Path,
        metavar="PHOTO",
        help="pictures to caption in turn (default: made-up)",
    )
    options.add_argument("--json", action="store_true", help="print JSON instead of a table")
    return options.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> None:
    """Runs the command with `argv`, the arguments of the process by default.

    Raises:
        InputError: as `measure`.
    """
    options = _arguments(argv)
    with only_json_on_stdout(options.json):
        results = measure(options.files, threads=options.threads, runs=options.runs, images=options.images)
    if options.json:
        json.dump([dataclasses.asdict(result) for result in results], sys.stdout, indent=1)
        print()
        return
    from rich.console import Console
    from rich.table import Table

    table = Table(
        title=f"median of {options.runs} runs in turns, {options.threads} CPU thread(s)",
        title_justify="left",
    )
    table.add_column("file", overflow="fold")
    for name in ("MB", "smaller", "ms", "faster", "fastest", "slowest", "words"):
        table.add_column(name, justify="right")
    for result in results:
        table.add_row(
            result.path,
            f"{result.bytes / 1e6:.2f}",
            f"{result.size_ratio:.1f}x",
            f"{result.ms:.2f}",
            f"{result.speedup:.1f}x",
            f"{result.fastest_ms:.2f}",
            f"{result.slowest_ms:.2f}",
            "" if result.words is None else f"{result.words:.1f}",
        )
    Console().print(table)


if __name__ == "__main__":
    run(main)
