"""Watches what a case does to the machine: processes, network, imports, and files outside its folder."""

import contextlib
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tfsparsecap.inference import runtime_child

#: A module that only damaged files name; reading it means that a file chose what is imported.
CANARY = "fuzz_canary"
# Events of Python's audit hooks that no damaged file may cause.
_FORBIDDEN = {
    *("os.system", "os.exec", "os.posix_spawn", "os.spawn", "os.fork", "os.forkpty", "os.startfile"),
    *("pty.spawn", "socket.connect", "socket.bind", "socket.getaddrinfo", "urllib.Request"),
    *("webbrowser.open", "pickle.find_class", "ftplib.connect", "http.client.connect"),
}
# Events that change files -> the positions of the paths among their arguments.
_CHANGES = {
    **dict.fromkeys(("os.remove", "os.rmdir", "os.mkdir", "os.truncate", "os.chmod", "os.chown"), (0,)),
    **dict.fromkeys(("os.utime", "os.setxattr", "os.removexattr", "os.mkfifo", "os.mknod"), (0,)),
    **{"os.rename": (0, 1), "os.link": (1,), "os.symlink": (1,)},
}
# Position of the directory's descriptor that a relative path starts from, by event.
_DIRECTORY = {"os.remove": 1, "os.rmdir": 1, "os.mkdir": 2, "os.chmod": 2, "os.chown": 3, "os.utime": 3}
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_DEVICES = re.compile(r"/dev/(null|tty|fd/.*)|/proc/self/.*")
_OWN_PROCESS = Path(runtime_child.__file__).resolve()

_watching: "Guard | None" = None
_installed = False


class Guard:
    """Records violations while the block of `watched` runs.

    Args:
        folder: the only one in which files may be written or removed.
        kept: folders that must not change, compared before and after.

    Attributes:
        violations: a sentence for each.
    """

    def __init__(self, folder: Path, kept: list[Path]):
        self._folder, self._kept = os.path.realpath(folder), kept
        self.violations: list[str] = []

    @contextlib.contextmanager
    def watched(self) -> Iterator[None]:
        """Watches this process, in all its threads, while the block runs."""
        global _watching
        _install()
        before = self._state()
        _watching = self
        try:
            yield
        finally:
            _watching = None
        self.violations += [f"changed {path}" for path in sorted(before ^ self._state())[:3]]

    def _state(self) -> set[tuple]:
        found = set()
        for folder in self._kept:
            for place, folders, names in os.walk(folder):
                for name in (*folders, *names):
                    stat = os.lstat(os.path.join(place, name))
                    size = 0 if name in folders else stat.st_size
                    found.add((os.path.join(place, name), stat.st_ino, size, stat.st_mtime_ns))
        return found

    def event(self, name: str, arguments: tuple[Any, ...]) -> None:
        """Judges an event of Python's audit hooks."""
        if name in _FORBIDDEN:
            self._add(f"{name} {arguments!r:.200}")
        elif name == "subprocess.Popen" and not _is_own(arguments):
            self._add(f"started {arguments[1]!r:.200}")
        elif name == "open":
            path, _, flags = arguments
            if os.path.basename(str(path)) == f"{CANARY}.py":
                self._add(f"a file made it import {CANARY}")
            if isinstance(path, str | bytes | os.PathLike) and flags & _WRITING:
                self._check(os.fspath(path), "wrote", follow=True)
        elif name in _CHANGES:
            place = _DIRECTORY.get(name)
            descriptor = arguments[place] if place is not None and place < len(arguments) else -1
            for position in _CHANGES[name]:
                if isinstance(arguments[position], str | bytes | os.PathLike):
                    self._check(os.fspath(arguments[position]), name, descriptor)

    def _check(self, path: str | bytes, what: str, descriptor: int = -1, follow: bool = False) -> None:
        text = os.fsdecode(path)
        if not os.path.isabs(text) and isinstance(descriptor, int) and descriptor >= 0:
            text = os.path.join(os.readlink(f"/proc/self/fd/{descriptor}"), text)
        folder, name = os.path.split(os.path.abspath(text))
        real = os.path.realpath(text) if follow else os.path.join(os.path.realpath(folder), name)
        if not (real == self._folder or real.startswith(f"{self._folder}/") or _DEVICES.fullmatch(real)):
            self._add(f"{what} {real}")

    def _add(self, violation: str) -> None:
        if len(self.violations) < 10:
            self.violations.append(violation)


def _is_own(arguments: tuple[Any, ...]) -> bool:
    """Whether a process is the one in which an exported file without a digest is run."""
    command = arguments[1]
    return (
        isinstance(command, list | tuple)
        and [str(command[0])] == [sys.executable]
        and str(_OWN_PROCESS) in command
    )


def _install() -> None:
    # An audit hook stays for the life of the process; it does nothing unless a guard watches.
    global _installed
    if not _installed:
        sys.addaudithook(_hook)
        _installed = True


def _hook(name: str, arguments: tuple[Any, ...]) -> None:
    if _watching is not None:
        _watching.event(name, arguments)
