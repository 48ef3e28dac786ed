"""Tables for the terminal that several commands print."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from tfsparsecap_export.flatbuffer.stored import CONVOLUTION, FULLY_CONNECTED


def console() -> Console:
    """What prints tables: as wide as the terminal, and wide in a log file, which has no width."""
    terminal = Console(highlight=False)
    return terminal if terminal.is_terminal else Console(highlight=False, width=140)


def new_table(title: str | None, *headings: str) -> Table:
    """An empty table.

    Args:
        title: printed above the table, or None.
        headings: of the columns. Those that start with ">" contain numbers, which are aligned to the right
            and not wrapped.
    """
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, padding=0, pad_edge=False)
    for heading in headings:
        number = heading.startswith(">")
        table.add_column(
            heading.removeprefix(">"), justify="right" if number else "left", no_wrap=number, overflow="fold"
        )
    return table


def layer_rows(
    layers: Sequence[Any], stored: Callable[[Any], object]
) -> Iterator[tuple[str, str, list[Any]]]:
    """Rows of a table of layers: name, shape, and layers. Convolutions that are stored alike share a row.

    Args:
        layers: `LayerReport`s of the exporter, or `Constant`s of a file.
        stored: what is equal for convolutions that share a row.
    """
    groups: dict[object, list[Any]] = {}
    for number, layer in enumerate(layers):
        key = stored(layer) if layer.role == CONVOLUTION else number
        groups.setdefault(key, []).append(layer)
    # Weight paths start with the name of the model, and may end with the names of fused operations.
    models = {layer.name.split("/")[0] for layer in layers if layer.role == FULLY_CONNECTED}
    prefix = f"{models.pop()}/" if len(models) == 1 else ""
    for group in groups.values():
        if len(group) > 1:
            yield f"{len(group)} convolutions", "", group
        else:
            name = group[0].name.split(";")[0].removeprefix(prefix)
            yield name, "x".join(map(str, group[0].shape)), group
