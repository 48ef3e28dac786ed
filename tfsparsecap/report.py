"""python -m tfsparsecap.report: one page about runs, to be read in any browser."""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tfsparsecap.command import parser, run, start_tensorflow
from tfsparsecap.errors import InputError
from tfsparsecap.files import atomic_write, check_no_other

if TYPE_CHECKING:
    from tfsparsecap.inference.finished_run import FinishedRun
    from tfsparsecap.reports.figures import FigureFile
    from tfsparsecap.reports.images import GalleryPicture, LookedAt
    from tfsparsecap.reports.page import Page
    from tfsparsecap.reports.runs import ReportRun

EXAMPLES = [
    ("python -m tfsparsecap.report runs/quickstart", "one run, in report.html"),
    (
        "python -m tfsparsecap.report runs/dense runs/smp --latency --output compared.html",
        "two runs side by side, their exported files timed",
    ),
    ("python -m tfsparsecap.report runs/smp --figures figures", "its figures as .png and .svg files, too"),
]


def arguments(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line of a report."""
    options = parser(
        "python -m tfsparsecap.report",
        "Writes one page about runs: what was trained, scores side by side, test pictures with their\n"
        "captions, training progression, layer-wise sparsity, density of the remaining weights, exported\n"
        "files, and where captioners with attention looked at each word. The page is one file without\n"
        "scripts that needs no network.",
        EXAMPLES,
    )
    options.add_argument("runs", nargs="+", metavar="RUN", help="run folders; unfinished ones are said to be")
    options.add_argument(
        "--output", metavar="FILE.html", default="report.html", help="the page (default: report.html)"
    )
    options.add_argument(
        "--pictures", type=int, default=12, metavar="N", help="test pictures in the gallery (default: 12)"
    )
    options.add_argument(
        "--attention",
        type=int,
        default=3,
        metavar="N",
        help="of how many of these pictures it is shown where each run looked (default: 3; 0: none)",
    )
    options.add_argument("--latency", action="store_true", help="time the exported files on this machine")
    options.add_argument("--figures", metavar="FOLDER", help="write the figures there, as .png and .svg")
    options.add_argument("--data", metavar="FOLDER", help="where the data lies now, in place of data.folder")
    options.add_argument("--title", help="heading of the page")
    return options.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> None:
    """Writes the page that the command line asks for.

    Raises:
        InputError: a folder is no run, a file in it is damaged, or the page cannot be written.
    """
    given = arguments(argv)
    output = Path(given.output)
    if not output.parent.is_dir():
        raise InputError(f"there is no folder {output.parent} for {output.name}: make it first")
    check_no_other(output)
    if given.pictures < 0 or given.attention < 0:
        raise InputError("--pictures and --attention count pictures: give 0 or more")
    start_tensorflow()
    from tfsparsecap.reports.runs import read_runs

    runs = read_runs(given.runs)
    page = _page(runs, given)
    if given.figures:
        _write_figures(Path(given.figures), [page.progression, page.layers, page.density])
    from tfsparsecap.reports.page import render

    text = render(page)
    atomic_write(output, text)
    print(f"written: {output} ({len(text.encode()) / 1e6:.1f} MB)")


def _page(runs: Sequence["ReportRun"], given: argparse.Namespace) -> "Page":
    from tfsparsecap.inference.finished_run import FinishedRun
    from tfsparsecap.reports import exported_files, figures
    from tfsparsecap.reports.page import Page
    from tfsparsecap.reports.runs import notes, same_data, scores_table, settings_table
    from tfsparsecap.studies.layers import layerwise

    said = notes(runs)
    layers, remaining, gallery, attention, exported = {}, {}, [], [], []
    groups = same_data(runs)
    for number, group in enumerate(groups):
        # All pictures that are asked for, dealt to the data sets.
        share = len(range(number, given.pictures, len(groups)))
        pictures, files = _pictures(group, share, given.data, said)
        gallery += pictures
        readable = [picture.image_id for picture in pictures if picture.jpeg]
        looked = []
        for one in group:
            if one.finished:
                trained = FinishedRun.load(one.folder.path)
                with_encoder = one.config.pruning is not None and bool(one.config.pruning.encoder)
                layers[one.label] = layerwise(trained.captioner, with_encoder)
                remaining[one.label] = figures.remaining_weights(trained.captioner, with_encoder)
                looked += _looked(trained, one, readable[: given.attention], files)
        # What runs saw on the same picture stands together.
        attention += sorted(looked, key=lambda one: readable.index(one.image_id))
        picture = files[readable[0]] if readable else None
        exported += exported_files.exported_files(group, picture, given.latency)
    names = ", ".join(one.label for one in runs)
    return Page(
        title=given.title or (f"Run {names}" if len(runs) == 1 else f"{len(runs)} runs compared"),
        summary=f"{'The run' if len(runs) == 1 else 'The runs'} {names}.",
        notes=said,
        settings=settings_table(runs),
        scores=scores_table(runs),
        gallery=gallery,
        progression=figures.progression(runs),
        not_logged=figures.not_logged(runs),
        layers=figures.layers_figure(layers),
        density=figures.density_figure(remaining),
        files=exported_files.files_table(exported, given.latency) if exported else None,
        timed=given.latency,
        attention=attention if given.attention else None,
    )


def _pictures(
    group: Sequence["ReportRun"], number: int, data: str | None, said: list[str]
) -> tuple[list["GalleryPicture"], dict[str, Path]]:
    """Gallery of runs of the same data, and its files by their ids; what is missing is added to `said`."""
    from tfsparsecap.reports.images import choose, gallery, image_files

    chosen, files = choose(group, number), {}
    if chosen:
        config = group[0].config.model_copy(deep=True)
        config.data.folder = data or config.data.folder
        try:
            files = image_files(config)
        except InputError as error:
            said.append(f"There are no pictures of {group[0].label}: {error}.")
    pictures, unread = gallery(group, chosen, files)
    said.extend(f"A picture is left out: {reason}." for reason in unread)
    return pictures, files


def _looked(
    trained: "FinishedRun", one: "ReportRun", image_ids: Sequence[str], files: dict[str, Path]
) -> list["LookedAt"]:
    from tfsparsecap.reports.images import looked_at

    return looked_at(trained, one.label, [key for key in image_ids if key in one.captions], files)


def _write_figures(folder: Path, figures: Sequence["FigureFile | None"]) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"cannot make the folder {folder}: {error.strerror}; name another") from error
    for figure in figures:
        if figure is not None:
            for suffix, content in (("png", figure.png), ("svg", figure.svg)):
                atomic_write(folder / f"{figure.name}.{suffix}", content)
                print(f"written: {folder / figure.name}.{suffix}")


if __name__ == "__main__":
    run(main)
