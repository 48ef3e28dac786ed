"""python -m tfsparsecap.report: an HTML page that compares runs.

Shows scores side by side, test images with captions and attention maps, values by epoch, and exported
files. The page is a single file without scripts and needs no network.

examples:
  python -m tfsparsecap.report runs/quickstart
      one run, in report.html
  python -m tfsparsecap.report runs/dense runs/smp --output comparison.html
      two runs side by side, with the sizes of their exported files
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

from tfsparsecap.command import parser, run, start_tensorflow
from tfsparsecap.core.files import atomic_write, check_regular_file, check_suffix
from tfsparsecap.errors import InputError, check_whole


def arguments(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """Parses the command line."""
    options = parser(__doc__)
    options.add_argument("runs", nargs="+", metavar="RUN", help="run folders; they may be unfinished")
    options.add_argument(
        "--output", metavar="FILE.html", default="report.html", help="the page (default: report.html)"
    )
    options.add_argument(
        "--images", type=int, default=12, metavar="N", help="test images in the gallery (default: 12)"
    )
    options.add_argument("--data", metavar="FOLDER", help="folder of the data, instead of data.folder")
    return options.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> None:
    """Writes the page.

    Raises:
        InputError: a folder is not a run, a file in it is damaged, or the page cannot be written.
    """
    options = arguments(argv)
    output = Path(options.output)
    if not output.parent.is_dir():
        raise InputError(f"there is no folder {output.parent} for {output.name}: create it first")
    check_regular_file(output)
    check_suffix(output, ".html")
    check_whole("--images", options.images, at_least=0)
    start_tensorflow()
    from tfsparsecap.captioning.html_report.compared_runs import read_runs
    from tfsparsecap.captioning.html_report.page import make_page

    html = make_page(read_runs(options.runs), images=options.images, data=options.data)
    atomic_write(output, html)
    print(f"written: {output} ({output.stat().st_size / 1e6:.1f} MB)")


if __name__ == "__main__":
    run(main)
