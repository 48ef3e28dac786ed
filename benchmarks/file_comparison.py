"""Files that are written once and then compared by `tfsparsecap_export.benchmark`."""

import argparse
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from tfsparsecap.command import start_tensorflow
from tfsparsecap.errors import InputError


def add_options(options: argparse.ArgumentParser, variants: Iterable[str]) -> None:
    """Adds the folder, which files to compare, runs and threads to the arguments of a command."""
    names = [*variants]
    options.add_argument("folder", type=Path, metavar="FOLDER", help="folder for the files")
    options.add_argument(
        "--variants",
        nargs="+",
        choices=names,
        default=names,
        metavar="NAME",
        help=f"files to compare, the reference first (default: {' '.join(names)})",
    )
    options.add_argument("--runs", type=int, default=40, metavar="N", help="runs of each file (default: 40)")
    options.add_argument("--threads", type=int, default=1, metavar="N", help="CPU threads (default: 1)")


def compare(
    options: argparse.Namespace, files: Mapping[str, Callable[[Path], None]], inputs: int = 4
) -> list[Path]:
    """Writes the files that do not exist yet, and prints their sizes and times.

    Args:
        options: of `add_options`.
        files: by file name, what writes a file to a path.
        inputs: number of inputs that files run on.

    Returns:
        The paths of the files.

    Raises:
        InputError: the folder cannot be created.
    """
    try:
        options.folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"cannot create the folder {options.folder}: {error.strerror}") from error
    start_tensorflow()
    from rich.console import Console
    from tfsparsecap_export import benchmark

    paths = [options.folder / name for name in files]
    with Console(stderr=True).status("") as status:
        for number, (path, write) in enumerate(zip(paths, files.values(), strict=True)):
            if not path.exists():
                status.update(f"writing {path} ({number + 1} of {len(paths)})")
                write(path)
    runs, threads = str(options.runs), str(options.threads)
    benchmark.main([*map(str, paths), "--runs", runs, "--threads", threads, "--inputs", str(inputs)])
    return paths
