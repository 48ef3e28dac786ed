"""Runs a command as its users do."""

from collections.abc import Callable

import pytest

from tfsparsecap.command import run


def exit_code(main: Callable, *arguments) -> int:
    """The exit code of a command with these arguments, which may be paths and numbers."""
    with pytest.raises(SystemExit) as end:
        run(lambda: main([str(argument) for argument in arguments]))
    return end.value.code
