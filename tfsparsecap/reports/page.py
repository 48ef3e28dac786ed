"""The report: one HTML file with everything in it, without scripts or external resources."""

import base64
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from tfsparsecap.errors import InputError
from tfsparsecap.inference.finished_run import FinishedRun
from tfsparsecap.reports import figures
from tfsparsecap.reports.exported_files import exported_files, files_table
from tfsparsecap.reports.images import GalleryImage, attended_captions, choose, gallery
from tfsparsecap.reports.runs import (
    ReportRun,
    faults_table,
    group_by_data,
    notes,
    scores_table,
    settings_table,
)
from tfsparsecap.reports.sizes import size_row, sizes_table
from tfsparsecap.settings.build import load_data
from tfsparsecap.studies.layers import layerwise
from tfsparsecap.text import one_line

_TEMPLATE = "report.html"


def make_page(
    runs: Sequence[ReportRun],
    *,
    title: str | None = None,
    images: int = 12,
    attention: int = 3,
    latency: bool = False,
    data: str | None = None,
) -> tuple[str, list[figures.FigureFile]]:
    """Renders the report.

    Args:
        runs: from `read_runs`.
        title: heading; None for a default.
        images: number of test images in the gallery.
        attention: number of these images that are shown with attention maps.
        latency: whether to measure the latency of exported files.
        data: folder of the data, instead of `data.folder`.

    Returns:
        HTML, and the figures in it.

    Raises:
        InputError: a file of a run is damaged.
    """
    messages = notes(runs)
    layers, weights, sizes, shown, attended, exported = {}, {}, [], [], [], []
    groups = group_by_data(runs)
    for number, group in enumerate(groups):
        # The images are divided among the data sets.
        share = len(range(number, images, len(groups)))
        found, paths = _gallery(group, share, data, messages)
        shown += found
        readable = [image.image_id for image in found if image.jpeg]
        of_group = []
        for one in group:
            if one.finished:
                run = FinishedRun.load(one.folder.path)
                with_encoder = bool(one.config.pruning and one.config.pruning.encoder)
                layers[one.label] = layerwise(run.captioner, with_encoder)
                sizes.append(size_row(one.label, run))
                weights[one.label] = figures.nonzero_weights(run.captioner, with_encoder)
                captioned = [key for key in readable[:attention] if key in one.captions]
                of_group += attended_captions(run, one.label, captioned, paths)
        # Maps of the same image stand together.
        attended += sorted(of_group, key=lambda one: readable.index(one.image_id))
        exported += exported_files(group, paths[readable[0]] if readable else None, latency)
    drawn = {
        "progression": figures.progression(runs),
        "layers": figures.layer_sparsities(layers),
        "density": figures.weight_distribution(weights),
    }
    names = ", ".join(one.label for one in runs)
    html = _render(
        title=title or (f"Run {names}" if len(runs) == 1 else f"Comparison of {len(runs)} runs"),
        summary=f"{'Run' if len(runs) == 1 else 'Runs'}: {names}.",
        notes=messages,
        settings=settings_table(runs),
        scores=scores_table(runs),
        faults=faults_table(runs),
        sizes=sizes_table(sizes),
        gallery=shown,
        not_logged=figures.not_logged(runs),
        files=files_table(exported, latency) if exported else None,
        latency=latency,
        attention=attended if attention else None,
        **drawn,
    )
    return html, [figure for figure in drawn.values() if figure is not None]


def _gallery(
    group: Sequence[ReportRun], number: int, data: str | None, messages: list[str]
) -> tuple[list[GalleryImage], dict[str, Path]]:
    """The gallery of runs on the same data, and image files by id; adds to `messages` what is missing."""
    chosen, paths = choose(group, number), {}
    if chosen:
        config = group[0].config.model_copy(deep=True)
        config.data.folder = data or config.data.folder
        try:
            paths = {record.image_id: record.image for record in load_data(config).split("test")}
        except InputError as error:
            messages.append(f"The images of {group[0].label} are missing: {error}.")
    images, errors = gallery(group, chosen, paths)
    messages.extend(f"An image is missing: {error}." for error in errors)
    return images, paths


def _render(**content: Any) -> str:
    """Fills the template; all text is escaped."""
    from jinja2 import Environment, StrictUndefined

    environment = Environment(autoescape=True, undefined=StrictUndefined, keep_trailing_newline=True)
    for kind in ("png", "jpeg"):
        prefix = f"data:image/{kind};base64,"
        environment.filters[kind] = lambda data, prefix=prefix: (
            prefix + base64.b64encode(data).decode("ascii")
        )
    environment.filters["one_line"] = one_line
    source = files("tfsparsecap.reports").joinpath(_TEMPLATE).read_text(encoding="utf-8")
    return environment.from_string(source).render(**content)
