"""python -m tfsparsecap_export.benchmark: latency, size, memory and captions of .tflite files.

Runs .tflite files on the same inputs and compares them: milliseconds per run and per word, size, memory,
captions, and ratios to the first file.

The files take turns, so that other programs on the machine slow down all of them alike; the table shows
medians. Give the dense file first: the ratios say how many times faster and smaller the others are.
Memory is how much a separate process grows when it loads and runs the file. Desktop times are not phone
times. All files are run, also those without a digest: compare only files that you trust.

examples:
  python -m tfsparsecap_export.benchmark dense.tflite sparse.tflite
      on synthetic inputs
  python -m tfsparsecap_export.benchmark dense.tflite sparse.tflite --images photographs/ --runs 100
      on photographs, with captions of realistic length
"""

import argparse
import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tfsparsecap.captioning.captioners import captioner_path
from tfsparsecap.command import only_json_on_stdout, parser, print_json, run, start_tensorflow
from tfsparsecap.errors import InputError

if TYPE_CHECKING:
    from tfsparsecap_export.timing import Measurement


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    options = parser(__doc__)
    options.add_argument(
        "files",
        nargs="*",
        metavar="FILE.tflite",
        help="files, reference first; good and small are the captioners that come with the package, and"
        " hf://USER/NAME one on the Hugging Face Hub",
    )
    options.add_argument("--threads", type=int, default=1, metavar="N", help="CPU threads (default: 1)")
    options.add_argument("--runs", type=int, default=30, metavar="N", help="runs of each file (default: 30)")
    inputs = options.add_mutually_exclusive_group()
    inputs.add_argument(
        "--images",
        nargs="+",
        type=Path,
        metavar="PHOTO",
        help="images to use as inputs; of a folder, the first 16",
    )
    inputs.add_argument(
        "--inputs", type=int, default=16, metavar="N", help="number of synthetic inputs (default: 16)"
    )
    options.add_argument("--json", action="store_true", help="print JSON instead of tables")
    return options.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> None:
    """Runs the command with `argv`, the arguments of the process by default.

    Raises:
        InputError: an argument or a file cannot be used; see `timing.measure`.
    """
    options = _arguments(argv)
    options.files = [captioner_path(file) for file in options.files]
    if not options.files:
        raise InputError("no file is given: give .tflite files, the reference first")
    start_tensorflow()
    from tfsparsecap_export import timing

    with only_json_on_stdout(options.json):
        samples = timing.samples(options.files, images=options.images, count=options.inputs)
        results = timing.measure(
            options.files, samples, threads=options.threads, runs=options.runs, trust=True
        )
    if options.json:
        print_json([dataclasses.asdict(result) for result in results], indent=1)
    else:
        _print_table(results, options)


def _print_table(results: list["Measurement"], options: argparse.Namespace) -> None:
    from tfsparsecap_export.tables import console, new_table

    captions = results[0].words is not None
    columns = {
        "MB": lambda result: f"{result.bytes / 1e6:.2f}",
        "smaller": lambda result: f"{result.size_ratio:.1f}x",
        "ms": lambda result: f"{result.ms:.2f}",
        "faster": lambda result: f"{result.speedup:.1f}x",
        "expected": lambda result: f"{result.expected:.1f}x" if result.expected else "",
    }
    if captions:
        columns["words"] = lambda result: "" if result.words is None else f"{result.words:.1f}"
        columns["ms/word"] = lambda result: "" if result.words is None else f"{result.ms_a_word:.3f}"
    columns["memory"] = lambda result: "" if result.peak_bytes is None else f"{result.peak_bytes / 1e6:.1f}"
    columns["captions" if captions else "difference"] = _comparison
    title = f"median of {options.runs} runs in turns, {options.threads} CPU thread(s)"
    table = new_table(title, "file", *(f">{name}" for name in columns))
    for name, result in zip(_short_names(results), results, strict=True):
        cells = [cell(result) for cell in columns.values()]
        table.add_row(name, *cells[:-1], "" if result is results[0] else cells[-1])
    console().print(table)
    last = (
        "words: steps of the search, including the end of a caption. captions: equal to the first file's."
        if captions
        else "difference: largest difference from the first file's outputs, relative to the largest output."
    )
    memory = "memory: MB that a process grows by when it loads and runs the file."
    console().print(f"expected: speed-up by the cost model. {memory} {last}")


def _short_names(results: list["Measurement"]) -> list[str]:
    """The files' names, with as many parent folders as make them different."""
    paths = [Path(result.path) for result in results]
    parts = 1
    while parts < max(len(path.parts) for path in paths):
        if len({path.parts[-parts:] for path in paths}) == len(set(paths)):
            break
        parts += 1
    return [str(Path(*path.parts[-parts:])) for path in paths]


def _comparison(result: "Measurement") -> str:
    """How a file's outputs compare with the first file's."""
    if result.same_captions is None:
        return f"{result.difference:.1e}"
    return f"{result.same_captions} of {result.inputs}"


if __name__ == "__main__":
    run(main)
