"""The report: one HTML file with everything in it, without scripts or external resources."""

import base64
import io
import json
from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import Any

import numpy as np
from markupsafe import Markup
from PIL import Image

from tfsparsecap.captioning import plotting
from tfsparsecap.captioning.data.images import read_image
from tfsparsecap.captioning.html_report.attention_maps import attention_maps
from tfsparsecap.captioning.html_report.compared_runs import SCORES, ReportRun
from tfsparsecap.captioning.inference.bundle import read_bundle
from tfsparsecap.captioning.inference.finished_run import FinishedRun
from tfsparsecap.captioning.settings.build import load_data
from tfsparsecap.captioning.settings.config_files import setting_values
from tfsparsecap.captioning.settings.schema import Config
from tfsparsecap.core.text import one_line
from tfsparsecap.errors import InputError
from tfsparsecap.model_summary.nonzeros import prunable_weights

# Column of history.csv and title of the panel. Some training and pruning methods log more than others.
_PANELS = {
    "loss": "training loss",
    "validation_CIDEr": "CIDEr, validation split",
    "sparsity": "sparsity",
    "gating_average": "average of the gating variables",
    "sparsity_loss": "sparsity loss",
    "weighted_sparsity_loss": "sparsity loss, weighted and annealed",
    "reward": "reward",
}
#: Prefix of the columns with the sparsity of each layer.
_LAYER = "sparsity/"
_SIDE, _MAP_SIDE = 288, 128
#: Images of a data set with attention maps.
_MAPS = 3
#: Shown if a run has no value.
_NOTHING = "\N{EN DASH}"
#: Scores without a best value.
_NO_BEST = ("sparsity",)
#: Each run has its own.
_NO_SETTINGS = ("name",)


def make_page(runs: Sequence[ReportRun], *, images: int = 12, data: str | None = None) -> str:
    """Renders the report.

    Args:
        runs: from `read_runs`.
        images: number of test images in the gallery; the first three have attention maps.
        data: folder of the data, instead of `data.folder`.

    Returns:
        HTML.

    Raises:
        InputError: a file of a run is damaged.

    Examples:
        >>> make_page(read_runs(["runs/quickstart"]))[:15]  # doctest: +SKIP
        '<!DOCTYPE html>'
    """
    from jinja2 import Environment, StrictUndefined

    notes = [f"{run.label} {missing}." for run in runs for missing in run.missing]
    groups: dict[str, list[ReportRun]] = {}
    for run in runs:
        groups.setdefault(run.data_key, []).append(run)
    if len(groups) > 1:
        notes.append("The runs use different data: their scores cannot be compared.")
    elif len({run.scored for run in runs if run.scores}) > 1:
        ways = "; ".join(f"{run.label}: {run.scored}" for run in runs if run.scores)
        notes.append(
            f"The scores were computed in different ways ({ways}) and cannot be compared: evaluate all runs"
            " again with python -m tfsparsecap.evaluate."
        )
    gallery, exported = [], []
    for number, group in enumerate(groups.values()):
        # The images are divided among the data sets.
        cards = _gallery(group, len(range(number, images, len(groups))), data, notes)
        readable = [card for card in cards if card["jpeg"]]
        _add_maps(group, readable[:_MAPS])
        exported += _exported_files(group)
        gallery += cards
    names = ", ".join(run.label for run in runs)
    environment = Environment(autoescape=True, undefined=StrictUndefined, keep_trailing_newline=True)
    source = files("tfsparsecap.captioning.html_report").joinpath("report.html").read_text(encoding="utf-8")
    return environment.from_string(source).render(
        title=f"Run {names}" if len(runs) == 1 else f"Comparison of {len(runs)} runs: {names}",
        notes=notes,
        score_table=score_table(runs),
        setting_table=setting_table(runs),
        gallery=gallery,
        curves=curves(runs),
        weights=weight_distribution(runs),
        file_table=exported and [["run", "file", "MB", "format"], *exported],
    )


def score_table(runs: Sequence[ReportRun]) -> list[list[str]]:
    """Scores of runs; the best value of a column is bold, if only one run has it."""
    names = [name for name in SCORES if any(name in run.scores for run in runs)]
    columns = [[_number(run.scores.get(name), 3) for run in runs] for name in names]
    for name, column in zip(names, columns, strict=True):
        values = [cell for cell in column if cell != _NOTHING]
        best = max(values, key=float)
        if name not in _NO_BEST and len(values) > 1 and values.count(best) == 1:
            column[column.index(best)] = Markup("<strong>{}</strong>").format(best)
    rows = zip(*columns, strict=True) if columns else [[]] * len(runs)
    return [["run", *names], *([run.label, *row] for run, row in zip(runs, rows, strict=True))]


def setting_table(runs: Sequence[ReportRun]) -> list[list[str]]:
    """The settings that differ from the defaults, those first in which the runs differ; empty without any.

    A captioner or a method of another kind than the default has no default of its own options: all are shown.
    """
    default = setting_values(Config())
    values = [setting_values(run.config) for run in runs]
    keys = dict.fromkeys(key for of_run in values for key in of_run if key not in _NO_SETTINGS)
    shown = [key for key in keys if any(of_run.get(key) != default.get(key) for of_run in values)]
    shown.sort(key=lambda key: all(of_run.get(key) == values[0].get(key) for of_run in values))
    labels = [run.label for run in runs]
    rows = [[key, *(_setting(of_run, key) for of_run in (*values, default))] for key in shown]
    return [["setting", *labels, "default"], *rows] if rows else []


def _setting(values: Mapping[str, Any], key: str) -> str:
    return json.dumps(values[key], ensure_ascii=False).strip('"') if key in values else _NOTHING


def _embedded(content: bytes, kind: str) -> str:
    return f"data:image/{kind};base64,{base64.b64encode(content).decode('ascii')}"


def _jpeg(image: np.ndarray) -> str:
    content = io.BytesIO()
    Image.fromarray(image).save(content, "JPEG", quality=80, optimize=True)
    return _embedded(content.getvalue(), "jpeg")


def _number(value: float | None, digits: int) -> str:
    return _NOTHING if value is None else f"{value:.{digits}f}"


def chosen_images(runs: Sequence[ReportRun], number: int) -> list[str]:
    """Chooses test images for the gallery, evenly spaced in the list.

    They are chosen from the images that all runs captioned; if there are none, from those of the first run.

    Args:
        runs: on the same data.
        number: of images; fewer if there are not enough.
    """
    captioned = [run.captions for run in runs if run.captions]
    if not captioned:
        return []
    ids = [key for key in captioned[0] if all(key in captions for captions in captioned)]
    ids = ids or list(captioned[0])
    number = min(number, len(ids))
    return [ids[place * len(ids) // number] for place in range(number)]


def _gallery(
    group: Sequence[ReportRun], number: int, folder: str | None, notes: list[str]
) -> list[dict[str, Any]]:
    """Test images with captions, of runs on the same data; adds to `notes` what is missing."""
    chosen, paths = chosen_images(group, number), {}
    if chosen:
        config = group[0].config.model_copy(deep=True)
        config.data.folder = folder or config.data.folder
        try:
            paths = {record.image_id: record.image for record in load_data(config).split("test")}
        except InputError as error:
            notes.append(f"The images of {group[0].label} are missing: {error}.")
    cards: list[dict[str, Any]] = []
    for image_id in chosen:
        captions = {run.label: run.captions[image_id] for run in group if image_id in run.captions}
        card: dict[str, Any] = {
            "id": one_line(image_id),
            "path": paths.get(image_id),
            "jpeg": None,
            "captions": {label: caption for label, (caption, _) in captions.items()},
            "references": next((references for _, references in captions.values() if references), []),
            "maps": {},
        }
        if card["path"] is not None:
            try:
                card["jpeg"] = _jpeg(read_image(card["path"], _SIDE))
            except InputError as error:
                notes.append(f"An image is missing: {error}.")
        cards.append(card)
    return cards


def _add_maps(group: Sequence[ReportRun], cards: Sequence[dict[str, Any]]) -> None:
    """Adds attention maps by label to cards of the gallery."""
    for run in group:
        captioned = [card for card in cards if run.label in card["captions"]]
        if run.finished and captioned:
            finished = FinishedRun.load(run.folder.path)
            for card in captioned:
                maps = attention_maps(finished, card["path"], _MAP_SIDE)
                if maps:
                    card["maps"][run.label] = [(word, _jpeg(image)) for word, image in maps]


def curves(runs: Sequence[ReportRun]) -> str | None:
    """Losses, sparsity, validation scores and gate values by epoch, as an embedded image; None without any.

    Like Figure 7 of "End-to-End Supermask Pruning" (Tan et al., https://arxiv.org/abs/2110.03298).
    """
    panels = [name for name in _PANELS if any(name in row for run in runs for row in run.history)]
    if not panels:
        return None
    # The layers of one run, the last that was pruned, as in Figure 2 of RNN-SMP (1908.10797).
    layers = {name: run for run in runs for row in run.history for name in row if name.startswith(_LAYER)}
    pruned = next(reversed(layers.values())) if layers else None
    panels += [_LAYER] * (pruned is not None)
    height, artists, looks = -(-len(panels) // 2), {}, _looks(runs)
    figure = plotting.make_figure(2.6 * height + 0.2 * len(runs))
    grid = figure.subplots(height, min(2, len(panels)), squeeze=False)
    for axes in grid.flat[len(panels) :]:
        axes.set_visible(False)
    for axes, name in zip(grid.flat, panels, strict=False):
        for run in runs:
            points = [(row["epoch"], row[name]) for row in run.history if name in row]
            if points:
                epochs, values = zip(*points, strict=True)
                (artists[run.label],) = axes.plot(epochs, values, marker=".", **looks[run.label])
        axes.set_title(_PANELS.get(name, "sparsity of the layers"), fontsize=10)
        if name == _LAYER and pruned is not None:
            _draw_layers(axes, pruned)
        axes.set_xlabel("epoch", fontsize=9)
        axes.xaxis.get_major_locator().set_params(integer=True)
        plotting.style_axes(axes)
    plotting.legend_below(figure, artists)
    return _embedded(plotting.as_png(figure), "png")


def _looks(runs: Sequence[ReportRun]) -> dict[str, dict[str, Any]]:
    """Colour and dashes of each run's lines."""
    forms = {"supermask_loss": "SMP (papers)", "supermask": "SMP on a schedule"}
    names = [forms.get(run.config.pruning.method, "") if run.config.pruning else "" for run in runs]
    return {run.label: look for run, look in zip(runs, plotting.line_looks(names), strict=True)}


def _draw_layers(axes: Any, run: ReportRun) -> None:
    for layer in dict.fromkeys(name for row in run.history for name in row if name.startswith(_LAYER)):
        points = [(row["epoch"], row[layer]) for row in run.history if layer in row]
        axes.plot(*zip(*points, strict=True), marker=".", label=layer.removeprefix(_LAYER))
    axes.set_title(f"sparsity of the layers of {run.label}", fontsize=10)
    axes.legend(fontsize=6)


def weight_distribution(runs: Sequence[ReportRun]) -> str | None:
    """Densities of the non-zero weights of the decoders, as an embedded image; None without a finished run.

    Like Figure 9 of "End-to-End Supermask Pruning" (Tan et al., https://arxiv.org/abs/2110.03298).
    """
    kept = {}
    for run in runs:
        if run.finished:
            weights = prunable_weights(FinishedRun.load(run.folder.path).captioner, with_encoder=False)
            values = np.concatenate([weight.values().ravel() for weight in weights])
            kept[run.label] = values[values != 0]
    kept = {label: values for label, values in kept.items() if len(values)}
    if not kept:
        return None
    # The few largest weights would hide the others.
    limit = max(np.percentile(np.abs(values), 99.5) for values in kept.values())
    figure = plotting.make_figure(2.8 + 0.2 * len(kept))
    axes, artists, looks = figure.subplots(), {}, _looks(runs)
    for label, values in kept.items():
        density, edges = np.histogram(values, 121, (-limit, limit), density=True)
        artists[label] = axes.stairs(density, edges, **looks[label])
    axes.set_xlabel("non-zero weight", fontsize=9)
    plotting.style_axes(axes)
    plotting.legend_below(figure, artists)
    return _embedded(plotting.as_png(figure), "png")


def _exported_files(runs: Sequence[ReportRun]) -> list[list[str]]:
    """Label, name, size and format of the `.tflite` files in the folders of runs."""
    rows = []
    for run in runs:
        for path in sorted(run.folder.path.glob("*.tflite")):
            row = [run.label, one_line(path.name), f"{path.stat().st_size / 1e6:.2f}"]
            try:
                description, _ = read_bundle(path)
                kind = one_line(str(description.get("export_format", ""))) + ", int8" * bool(
                    description.get("int8")
                )
                row.append(kind or _NOTHING)
            except InputError as error:
                row.append(f"cannot be used: {one_line(str(error))}")
            rows.append(row)
    return rows
