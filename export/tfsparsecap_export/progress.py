"""How far an export is: its current step, and which share of the step is done."""

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

#: Called with what is being done, and the share of it that is done, 0 to 1; None if it is not known.
Progress = Callable[[str, float | None], None]
Item = TypeVar("Item")


def silent(text: str, share: float | None) -> None:
    """Shows nothing."""


def counted(progress: Progress, text: str, items: Sequence[Item]) -> Iterator[Item]:
    """Yields items, and reports the share of them that is done before each one."""
    for number, item in enumerate(items):
        progress(text, number / len(items))
        yield item
