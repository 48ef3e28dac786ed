"""How far a long computation is: its current step, and which share of the step is done."""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TypeVar

#: Called with what is being done, and the share of it that is done, 0 to 1; None if it is not known.
Progress = Callable[[str, float | None], None]
Item = TypeVar("Item")


def silent(text: str, share: float | None) -> None:
    """Shows nothing."""


def with_count(progress: Progress, text: str, items: Sequence[Item]) -> Iterator[Item]:
    """Yields items, and reports the share of them that is done before each one."""
    for number, item in enumerate(items):
        progress(text, number / len(items))
        yield item


@contextmanager
def progress_bar() -> Iterator[Progress]:
    """Yields what shows steps as a bar on standard error, which disappears at the end of the block.

    Where standard error is not a terminal, nothing is shown.

    Examples:
        >>> with progress_bar() as progress:
        ...     squares = [number**2 for number in with_count(progress, "squares", range(3))]
    """
    from rich.console import Console
    from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bar

    try:
        # A descriptor of its own, which is not redirected with standard error.
        file = os.fdopen(os.dup(2), "w", encoding="utf-8", errors="replace")
    except OSError:  # standard error is closed
        yield silent
        return
    with file:
        console = Console(file=file)
        if not console.is_terminal and not console.is_jupyter:
            yield silent
            return
        columns = TextColumn("{task.description}", markup=False), BarColumn(), TimeElapsedColumn()
        with Bar(*columns, console=console, transient=True) as bar:
            task = bar.add_task("", total=None)

            def progress(text: str, share: float | None = None) -> None:
                bar.update(task, description=text, total=None if share is None else 1, completed=share or 0)

            yield progress


def shown_progress(progress: Progress | None) -> AbstractContextManager[Progress]:
    """A block's progress: the given one, or a bar for None."""
    return progress_bar() if progress is None else nullcontext(progress)
