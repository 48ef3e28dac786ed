"""python -m tfsparsecap.encoders: lists the networks that can encode images.

Published top-1 accuracy on ImageNet in percent, parameters and multiply-adds up to the feature map,
size of the images in pixels, height x width x channels of the feature map, and licence and source of
the published weights. Choose a network with model.encoder.network. KerasHub has more: keras_hub:PRESET,
with the extra hub of this package.

examples:
  python -m tfsparsecap.encoders
      all networks
  python -m tfsparsecap.encoders mobile lite --sort multiply_adds
      networks with one of these texts in their names, the fastest first
  python -m tfsparsecap.train --config flickr8k_up_down model.encoder.network=tiny_vit_5m
      train a captioner with one of them
"""

import argparse
import dataclasses
import json
from collections.abc import Sequence

from tfsparsecap.captioning.encoder_catalogue import CATALOGUE, KERAS_HUB, EncoderEntry
from tfsparsecap.command import parser, run
from tfsparsecap.errors import InputError

COLUMNS = ("network", "top-1", "parameters", "multiply-adds", "image", "feature map", "licence", "weights")
#: The table is at least this wide: narrower terminals wrap its lines, and nothing is cut off.
WIDTH = 120


def arguments(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """Parses the command line."""
    options = parser(__doc__)
    options.add_argument("names", nargs="*", metavar="TEXT", help="only networks whose name contains a text")
    options.add_argument(
        "--sort",
        choices=["name", *(field.name for field in dataclasses.fields(EncoderEntry))],
        help="order of the list (default: encoders of this package, then those of Keras)",
    )
    options.add_argument("--json", action="store_true", help="print the list as JSON")
    return options.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> None:
    """Prints the list.

    Raises:
        InputError: no network has the name.
    """
    options = arguments(argv)
    texts = [text.lower() for text in options.names]
    entries = {
        name: entry
        for name, entry in CATALOGUE.items()
        if not texts or any(text in name.lower() for text in texts)
    }
    if not entries:
        raise InputError(
            f"no network has {' or '.join(options.names)} in its name: run this without a text to list all"
        )
    if options.sort == "name":
        entries = dict(sorted(entries.items(), key=lambda item: item[0].lower()))
    elif options.sort:
        entries = dict(sorted(entries.items(), key=lambda item: getattr(item[1], options.sort)))
    if options.json:
        print(json.dumps({name: dataclasses.asdict(entry) for name, entry in entries.items()}, indent=1))
    else:
        _print(entries)


def _print(entries: dict[str, EncoderEntry]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for column in COLUMNS:
        right = column in ("top-1", "parameters", "multiply-adds", "image", "feature map")
        table.add_column(column, justify="right" if right else "left", no_wrap=column == "network")
    for name, entry in entries.items():
        table.add_row(
            name,
            f"{entry.top_1:.1f}",
            f"{entry.parameters / 1e6:.1f} M",
            f"{entry.multiply_adds / 1e9:.2f} G",
            str(entry.image_size),
            "x".join(map(str, entry.feature_map)),
            entry.licence,
            entry.source,
        )
    table.add_row(f"{KERAS_HUB}PRESET", "", "", "", "", "", "", "KerasHub (download)")
    console = Console()
    console.width = max(console.width, WIDTH)
    console.print(table)


if __name__ == "__main__":
    run(main)
