"""What all command lines share: how they end, and that TensorFlow starts quietly."""

import argparse
import errno
import os
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from typing import NoReturn

from tfsparsecap.errors import InputError

# Before TensorFlow is imported anywhere: its notes are not for the person who types a command.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

DONE, FAILED, WRONG_INPUT, INTERRUPTED = 0, 1, 2, 130


def run(main: Callable[[], int | None]) -> NoReturn:
    """Runs a command and ends the process: 0 done, 2 the input is wrong (one sentence), 1 anything else.

    Args:
        main: reads `sys.argv`; returns an exit code, None meaning 0.

    Example:
        >>> run(lambda: 0)
        Traceback (most recent call last):
        SystemExit: 0
    """
    # What a library would show with a line of its code is one sentence here, too.
    warnings.formatwarning = lambda message, *rest, **more: f"warning: {message}\n"
    try:
        code = main() or DONE
        sys.stdout.flush()
    except InputError as error:
        fail(str(error))
        code = WRONG_INPUT
    except KeyboardInterrupt:
        fail("stopped")
        code = INTERRUPTED
    except BrokenPipeError:
        # Whoever read the output has seen enough; Python would complain once more when it closes it.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = DONE
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        fail(f"the disk is full while writing {error.filename or 'a file'}: free some space and try again")
        code = WRONG_INPUT
    raise SystemExit(code)


def fail(sentence: str) -> None:
    """Says on standard error what is wrong, on one line."""
    print(f"error: {' '.join(sentence.split())}", file=sys.stderr)


def parser(command: str, description: str, examples: Sequence[tuple[str, str]]) -> argparse.ArgumentParser:
    """An argument parser whose help ends with examples.

    Args:
        command: what people type, such as `python -m tfsparsecap.train`.
        description: what it does.
        examples: pairs of a command line and what it is for.
    """
    lines = "\n".join(f"  {line}\n      {purpose}" for line, purpose in examples)
    return argparse.ArgumentParser(
        prog=command,
        description=description,
        epilog=f"examples:\n{lines}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )


def start_tensorflow() -> None:
    """Imports TensorFlow without the notes that it prints while it is imported, whatever its log level is.

    They come from C++, so standard error itself is turned away for that moment; when the import fails they
    are printed after all.
    """
    if "tensorflow" in sys.modules:
        return
    sys.stderr.flush()
    kept = os.dup(2)
    with tempfile.TemporaryFile() as notes:
        os.dup2(notes.fileno(), 2)
        try:
            import tensorflow
            import tensorflow_text  # noqa: F401 (brings the same notes once more)
        except ImportError:
            notes.seek(0)
            os.write(kept, notes.read())
            raise
        finally:
            os.dup2(kept, 2)
            os.close(kept)
    tensorflow.get_logger().setLevel("ERROR")


@contextmanager
def only_json_on_stdout(wanted: bool) -> Iterator[None]:
    """With `--json` standard output belongs to the program that reads it: all else goes to standard error."""
    if not wanted:
        yield
        return
    with redirect_stdout(sys.stderr):
        yield


def print_table(title: str, rows: Sequence[tuple[str, str]]) -> None:
    """A table of names and values on the terminal."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    # Brackets in names of files and images are no commands to the terminal.
    table = Table(title=Text(title, style="table.title"), title_justify="left", show_header=False)
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    for name, value in rows:
        table.add_row(Text(name), Text(value))
    Console().print(table)
