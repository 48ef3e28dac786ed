"""What all command lines share: exit codes, help with examples, and a quiet start of TensorFlow."""

import argparse
import errno
import io
import json
import os
import re
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, redirect_stdout
from typing import Any, NoReturn

from tfsparsecap.core.child_processes import end_with_parent
from tfsparsecap.core.files import DISK_FULL
from tfsparsecap.core.hidden_stderr import hidden_stderr
from tfsparsecap.core.installation import pip_install
from tfsparsecap.errors import InputError, WorkerLost

# Set before TensorFlow is imported anywhere: users of commands do not need its log messages.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
# TensorFlow switches oneDNN on by itself only on some processors; on others, training with it is faster, too.
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")

#: What the operating system answers for paths that nobody can read or write, whatever the file contains.
_UNUSABLE = (errno.EACCES, errno.EPERM, errno.EROFS, errno.ELOOP, errno.ENAMETOOLONG)

DONE, FAILED, WRONG_INPUT, WORKER_LOST, INTERRUPTED = 0, 1, 2, 3, 130


def run(main: Callable[[], int | None]) -> NoReturn:
    """Runs a command and exits: 0 for success, 2 with one sentence for wrong input, 3 with one sentence
    if another worker of the training is lost, 1 for anything else.

    Args:
        main: reads `sys.argv`; returns an exit code, or None for 0.

    Examples:
        >>> run(lambda: 0)
        Traceback (most recent call last):
        SystemExit: 0
    """
    end_with_parent()
    if isinstance(sys.stdout, io.TextIOWrapper):
        # File names that are not UTF-8, or not in the encoding of the terminal, are printed with escapes.
        sys.stdout.reconfigure(errors="backslashreplace")
    # Omits the line of source code that Python shows by default.
    warnings.formatwarning = lambda message, *arguments, **options: f"warning: {message}\n"
    try:
        code = main() or DONE
        if sys.stdout is not None:  # nobody has closed it
            sys.stdout.flush()
    except InputError as error:
        fail(str(error))
        code = WRONG_INPUT
    except WorkerLost as error:
        fail(str(error))
        code = WORKER_LOST
    except KeyboardInterrupt as stop:  # may say how to continue
        fail(str(stop) or "stopped")
        code = INTERRUPTED
    except BrokenPipeError:
        # The reader, such as `head`, has closed the pipe; without this, flushing stdout at exit fails, too.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = DONE
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] in ("", "tfsparsecap", "tfsparsecap_export"):
            raise
        fail(f"{error.name} is not installed: {pip_install('all')}")
        code = WRONG_INPUT
    except OSError as error:
        if error.errno in DISK_FULL:
            fail(_disk_full(error.filename))
        elif error.errno in _UNUSABLE and error.filename is not None:
            fail(f"cannot use {error.filename!s:.200}: {error.strerror}; check the path and its permissions")
        else:
            raise
        code = WRONG_INPUT
    except _out_of_memory() as error:
        # TensorFlow raises the same error for both: `PATH; No space left on device`.
        if full := re.search(r"(?:([^{}]*); )?(?:No space left on device|Disk quota)", str(error)):
            fail(_disk_full(full[1]))
        else:
            fail("there is not enough memory: reduce batch, beam or model sizes, or close other programs")
        code = WRONG_INPUT
    raise SystemExit(code)


def _disk_full(path: object) -> str:
    return f"the disk is full while writing {path or 'a file'}: free some space and try again"


def _out_of_memory() -> tuple[type[BaseException], ...]:
    """What Python, NumPy and, if it is imported, TensorFlow raise without memory."""
    tensorflow = sys.modules.get("tensorflow")
    return (MemoryError,) if tensorflow is None else (MemoryError, tensorflow.errors.ResourceExhaustedError)


def fail(sentence: str) -> None:
    """Prints an error on one line of standard error."""
    print(f"error: {' '.join(sentence.split())}", file=sys.stderr)


def add_search_options(options: argparse.ArgumentParser) -> None:
    """Adds the options of the search for complete sentences, which `search_options` reads."""
    group = options.add_argument_group("complete sentences (default: the run's settings, section decoding)")
    group.add_argument(
        "--no-repeat-ngram",
        type=int,
        metavar="N",
        help="no N words in a row occur twice; 0 allows repetitions (default: 3, for synthetic scenes 0)",
    )
    group.add_argument(
        "--length-penalty",
        type=float,
        metavar="A",
        help="rank captions by score / length ** A; larger values favour longer captions (default: 1)",
    )
    group.add_argument(
        "--plain",
        action="store_true",
        help="plain beam search: captions may contain unknown words (which are left out), repeat themselves,"
        " and end early; ranked by score",
    )


def add_trust_option(options: argparse.ArgumentParser) -> None:
    """Adds `--trust`, for the argument of that name of `TFLiteCaptioner`."""
    options.add_argument(
        "--trust",
        action="store_true",
        help="run .tflite files without a digest, such as those of other programs, too: give it only if you"
        " know where they come from, because the runtime is no sandbox",
    )


def search_options(options: argparse.Namespace) -> dict[str, Any]:
    """The options of `add_search_options` that were given.

    Raises:
        InputError: a value is out of range, or an option contradicts `--plain`.
    """
    names = ("no_repeat_ngram", "length_penalty")
    values = {name: getattr(options, name) for name in names if getattr(options, name) is not None}
    if options.plain and values:
        raise InputError("--plain excludes --no-repeat-ngram and --length-penalty: leave them out")
    for name, value in values.items():
        if not 0 <= value <= 10:
            raise InputError(f"--{name.replace('_', '-')} is {value}: use 0 to 10")
    return {"plain": True} if options.plain else values


def parser(documentation: str) -> argparse.ArgumentParser:
    """An argument parser whose help is the documentation of the command's module.

    Args:
        documentation: `COMMAND: summary.`, then paragraphs, then lines after `examples:`, which the help
            prints last.
    """
    command, _, text = documentation.partition(": ")
    description, heading, examples = text.partition("examples:\n")
    return argparse.ArgumentParser(
        prog=command,
        description=description[:1].upper() + description[1:],
        epilog=heading + examples,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )


def start_tensorflow() -> None:
    """Imports TensorFlow without its messages, which come from C++ and ignore the log level.

    If the import fails, they are printed.
    """
    if "tensorflow" in sys.modules:
        return
    reasons = b""
    try:
        with hidden_stderr() as messages:
            try:
                import tensorflow
                import tensorflow_text  # noqa: F401 (prints the same messages again)
            except ImportError:
                messages.seek(0)
                reasons = messages.read()
                raise
    finally:
        if reasons:
            os.write(2, reasons)
    tensorflow.get_logger().setLevel("ERROR")


@contextmanager
def only_json_on_stdout(is_json: bool) -> Iterator[None]:
    """With `--json`, redirects everything that is printed to standard error, so that stdout is pure JSON."""
    with redirect_stdout(sys.stderr) if is_json else nullcontext():
        yield


def print_json(content: Any, indent: int | None = None) -> None:
    """Prints JSON to standard output: characters that its encoding lacks become JSON's escapes."""
    text = json.dumps(content, indent=indent, ensure_ascii=False)
    try:
        text.encode(getattr(sys.stdout, "encoding", None) or "utf-8")
    except UnicodeEncodeError:
        text = json.dumps(content, indent=indent)
    print(text)


def print_table(title: str, rows: Sequence[tuple[str, str]]) -> None:
    """Prints a table of names and values."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    # `Text`, because brackets in names of files are not markup.
    table = Table(title=Text(title, style="table.title"), title_justify="left", show_header=False)
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    for name, value in rows:
        table.add_row(Text(name), Text(value))
    Console().print(table)
