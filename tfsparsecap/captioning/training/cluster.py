"""Training on several machines: the addresses of its processes, and which of them this one is."""

import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tfsparsecap.errors import InputError

_VARIABLE = "TF_CONFIG"
_ADDRESS = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+):([0-9]{1,5})")
_LAST_PORT = 65535


@dataclass(frozen=True)
class Cluster:
    """The worker processes of one training.

    Attributes:
        workers: their addresses, `host:port`, in the same order for all; the first one is the chief.
        index: which of them this process is, from 0.

    Raises:
        InputError: an address is malformed or occurs twice, there is only one, or there is no such index.

    Examples:
        >>> cluster = Cluster(("10.0.0.1:2222", "10.0.0.2:2222"), index=1)
        >>> cluster.is_chief, cluster.name(), cluster.host_and_port(1)
        (False, 'worker 1 (10.0.0.2:2222)', ('10.0.0.2', 2222))
    """

    workers: tuple[str, ...]
    index: int

    def __post_init__(self) -> None:
        for address in self.workers:
            match = _ADDRESS.fullmatch(address)
            if match is None or not 0 < int(match[2]) <= _LAST_PORT:
                raise InputError(
                    f"{address[:100]!r} is not the address of a worker: write host:port, such as"
                    " 10.0.0.1:2222"
                )
        if len(self.workers) < 2 or len(set(self.workers)) < len(self.workers):
            raise InputError(
                f"the workers are {', '.join(self.workers)[:200] or 'not given'}: give the addresses of two"
                " or more, each once"
            )
        if not 0 <= self.index < len(self.workers):
            last = len(self.workers) - 1
            raise InputError(f"there is no worker {self.index}: the workers have the numbers 0 to {last}")

    @property
    def is_chief(self) -> bool:
        """Whether this process writes the run folder."""
        return self.index == 0

    def name(self, index: int | None = None) -> str:
        """Number and address of a worker, for messages; by default of this one."""
        index = self.index if index is None else index
        return f"{'the chief' if index == 0 else f'worker {index}'} ({self.workers[index]})"

    def host_and_port(self, index: int) -> tuple[str, int]:
        """Host, without brackets, and port of a worker."""
        host, _, port = self.workers[index].rpartition(":")
        return host.strip("[]"), int(port)


def read_cluster(
    workers: str | None, worker: int | None, environment: Mapping[str, str] = os.environ
) -> Cluster | None:
    """The cluster of `--workers` and `--worker` or, without them, of `TF_CONFIG`; None without both.

    Args:
        workers: addresses, separated by commas.
        worker: index of this process.
        environment: with `TF_CONFIG` as in TensorFlow: `{"cluster": {"worker": ["host:port", …]}, "task":
            {"type": "worker", "index": 0}}`; a task of type `chief` comes before the workers.

    Raises:
        InputError: only one of the two is given, or they or `TF_CONFIG` are malformed, see `Cluster`.

    Examples:
        >>> read_cluster("a:1,b:1", 0, {}).name()
        'the chief (a:1)'
    """
    if (workers is None) != (worker is None):
        raise InputError("--workers HOST:PORT,HOST:PORT and --worker N belong together: give both")
    if workers is not None and worker is not None:
        return Cluster(tuple(address.strip() for address in workers.split(",")), worker)
    text = environment.get(_VARIABLE)
    return _from_tf_config(text) if text else None


def _from_tf_config(text: str) -> Cluster | None:
    try:
        content = json.loads(text)
        jobs, task = content["cluster"], content["task"]
        kind, index = task["type"], task["index"]
        addresses = {job: _addresses(jobs[job]) for job in ("chief", "worker") if job in jobs}
        if kind not in addresses or set(jobs) - set(addresses) or not isinstance(index, int):
            raise ValueError("only chief and worker train here")
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise InputError(
            f"the environment variable {_VARIABLE} is not of the form"
            ' {"cluster": {"worker": ["host:port", …]}, "task": {"type": "worker", "index": 0}}: correct it,'
            " or unset it and give --workers and --worker"
        ) from error
    chief, workers = addresses.get("chief", ()), addresses.get("worker", ())
    before = len(chief) if kind == "worker" else 0
    return Cluster((*chief, *workers), before + index)


def _addresses(content: Any) -> Sequence[str]:
    if not isinstance(content, list) or not all(isinstance(address, str) for address in content):
        raise ValueError("addresses must be a list of texts")
    return content
