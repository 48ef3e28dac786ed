"""Reading runs for a report, and the tables that compare their settings and scores."""

import csv
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, Field, FiniteFloat, StrictInt, TypeAdapter, ValidationError, create_model

from tfsparsecap.errors import InputError
from tfsparsecap.files import read_json
from tfsparsecap.inference.scoring import ImageCaption
from tfsparsecap.runs.run_folder import RunFolder, labelled_folders
from tfsparsecap.settings.schema import Config
from tfsparsecap.text import one_line, short_count

#: Shown if a run has no value.
NOTHING = "\u2013"
# Heading and format of each score.
_SCORES = {
    **{
        name: (name, "{:.3f}".format)
        for name in ("CIDEr", "BLEU-1", "BLEU-2", "BLEU-3", "BLEU-4", "METEOR", "ROUGE-L", "SPICE")
    },
    "exact_match": ("equal to a reference", "{:.1%}".format),
    "incomplete": ("incomplete", "{:.1%}".format),
    "repetitive": ("repetitive", "{:.1%}".format),
    "sparsity": ("sparsity", "{:.2%}".format),
    "nonzero_weights": ("non-zero weights", short_count),
    "ms_per_image": ("ms per image", "{:.1f}".format),
}
_SHOWN_FAULTS = 10
_LOW_IS_GOOD = ("incomplete", "repetitive")
_NEITHER_GOOD_NOR_BAD = ("sparsity", "nonzero_weights", "ms_per_image")
# Shown in this order; "model" and "pruning" with all that is below them.
_SETTINGS = (
    "data.kind", "data.folder", "data.features", "data.max_length", "model", "pruning", "training.start_from",
    "training.epochs", "training.fine_tune.epochs", "training.batch_size", "training.learning_rate",
    "training.schedule", "decoding.beam", "seed",
)  # fmt: skip

_Number = Annotated[FiniteFloat, Field(gt=-1e15, lt=1e15)]
_Score = Annotated[_Number, Field(strict=True)]
_Count = Annotated[int, Field(strict=True, ge=0, lt=10**15)]
_HISTORY = TypeAdapter(list[dict[str, _Number]])
_SCORE_FIELDS: dict[str, Any] = {
    **dict.fromkeys(_SCORES, (_Score, None)),
    "images": (_Count, None),
    "beam": (_Count | None, None),
}
_SCORE_FILE = create_model("Scores", **_SCORE_FIELDS)


class _Caption(BaseModel):
    image_id: StrictInt | str
    caption: str
    references: list[Any] = []
    token_faults: list[str] = []


_CAPTIONS = TypeAdapter(list[_Caption])


@dataclass(frozen=True)
class Table:
    """A table of the report.

    Attributes:
        caption: its title.
        columns: headings; the first column holds the rows' names.
        rows: text of the cells.
        best: (row, column) of the best values.
    """

    caption: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    best: frozenset[tuple[int, int]] = frozenset()


@dataclass
class ReportRun:
    """What is known of a run.

    Attributes:
        label: its name in the report.
        history: rows of `history.csv` without empty cells and without `phase`.
        scores: from `scores_test.json`; empty if there is none.
        captions: of the test images by image id, in the order of the file.
        missing: sentences about missing files, each to follow the label.
    """

    label: str
    folder: RunFolder
    config: Config
    history: list[dict[str, float]] = field(default_factory=list)
    scores: dict[str, Any] = field(default_factory=dict)
    captions: dict[str, ImageCaption] = field(default_factory=dict)
    missing: list[str] = field(default_factory=list)

    @property
    def finished(self) -> bool:
        """Whether it has a model."""
        return self.folder.model.is_file()

    @property
    def data_key(self) -> str:
        """Equal for runs on the same data."""
        data = self.config.data
        folder = data.folder and os.path.abspath(data.folder)
        return json.dumps([data.kind, folder, data.options], default=str)


def read_runs(folders: Sequence[str | os.PathLike]) -> list[ReportRun]:
    """Reads run folders, each once, in the given order; unfinished ones too.

    Raises:
        InputError: a folder is not a run, or a file in it is damaged.

    Examples:
        >>> [run.label for run in read_runs(["runs/dense", "runs/smp"])]  # doctest: +SKIP
        ['dense', 'smp']
    """
    return [_read(folder, one_line(label)) for label, folder in labelled_folders(folders).items()]


def _read(path: Path, label: str) -> ReportRun:
    folder = RunFolder(path)
    run = ReportRun(label, folder, folder.load_config())
    if not run.finished:
        run.missing.append("is not finished: it has no model.keras")
    for name, read, missing in (
        ("history.csv", _read_history, "has no history.csv: its training progression is unknown"),
        ("scores_test.json", _read_scores, "has no scores on the test split yet"),
        ("captions_test.json", _read_captions, "has no captions_test.json"),
    ):
        if (path / name).is_file():
            try:
                read(run, path / name)
            except (OSError, ValueError, csv.Error) as error:
                reason = str(error)
                if isinstance(error, ValidationError):
                    detail = error.errors()[0]
                    reason = f"{'.'.join(map(str, detail['loc']))}: {detail['msg']}"
                raise InputError(
                    f"cannot read {path / name} ({one_line(reason)[:200]}): evaluate the run again"
                ) from error
        elif name != "captions_test.json" or run.scores:
            run.missing.append(missing)
    return run


def _read_history(run: ReportRun, path: Path) -> None:
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file, strict=True))
    # Surplus cells have the key None, missing ones the value None.
    rows = [{k: v for k, v in row.items() if k != "phase" and v not in (None, "")} for row in rows]
    run.history = _HISTORY.validate_python(rows)
    if any("epoch" not in row for row in run.history):
        raise ValueError("a row has no epoch")


def _read_scores(run: ReportRun, path: Path) -> None:
    run.scores = _SCORE_FILE.model_validate_json(path.read_bytes()).model_dump(exclude_unset=True)


def _read_captions(run: ReportRun, path: Path) -> None:
    # Not `validate_json`, which refuses the escapes of names that are not UTF-8.
    for row in _CAPTIONS.validate_python(read_json(path, "evaluate the run again")):
        image_id = str(row.image_id)  # exactly, because it finds the image's file
        if image_id in run.captions:
            raise ValueError(f"image {image_id} has more than one caption")
        references = tuple(one_line(str(reference)) for reference in row.references)
        faults = tuple(map(one_line, row.token_faults))
        run.captions[image_id] = ImageCaption(image_id, one_line(row.caption), 0.0, references, faults)


def notes(runs: Sequence[ReportRun]) -> list[str]:
    """Sentences about what is missing, and what cannot be compared."""
    sentences = [f"{run.label} {missing}." for run in runs for missing in run.missing]
    groups = group_by_data(runs)
    if len(groups) > 1:
        sentences.append(
            "The runs use different data: their scores cannot be compared, and the best ones are not marked."
        )
    if any(len({frozenset(run.captions) for run in group if run.captions}) > 1 for group in groups):
        sentences.append("Runs on the same data were tested on different images.")
    return sentences


def group_by_data(runs: Sequence[ReportRun]) -> list[list[ReportRun]]:
    """Groups of runs on the same data, in order of appearance."""
    groups: dict[str, list[ReportRun]] = {}
    for run in runs:
        groups.setdefault(run.data_key, []).append(run)
    return list(groups.values())


def settings_table(runs: Sequence[ReportRun]) -> Table:
    """The main settings, a column for each run."""
    flat = [_flat(run.config) for run in runs]
    names = dict.fromkeys(
        name
        for wanted in _SETTINGS
        for settings in flat
        for name in settings
        if name == wanted or name.startswith(f"{wanted}.")
    )
    rows = [[name, *(settings.get(name, NOTHING) for settings in flat)] for name in names]
    return Table("Settings of the runs", ["setting", *(run.label for run in runs)], rows)


def _flat(config: Config) -> dict[str, str]:
    """Settings by dotted name, as text, without those that are null."""
    found = {}

    def walk(name: str, value: Any) -> None:
        if isinstance(value, Mapping):
            for key, inner in value.items():
                walk(f"{name}.{key}" if name else str(key), inner)
        elif value is not None:
            found[name] = _text(value)

    walk("", config.model_dump(mode="json"))
    if config.pruning is None:
        found["pruning.method"] = "none"
    return found


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ", ".join(map(_text, value)) or "none"
    return one_line(f"{value:g}" if isinstance(value, float) else str(value))


def scores_table(runs: Sequence[ReportRun]) -> Table:
    """Scores on the test split, a row for each run; the best are marked if the runs use the same data."""
    shown = [name for name in _SCORES if any(name in run.scores for run in runs)]
    best = set()
    if len(runs) > 1 and len(group_by_data(runs)) == 1:
        for column, name in enumerate(shown, start=2):
            values = [run.scores.get(name) for run in runs]
            there = [value for value in values if value is not None]
            if name not in _NEITHER_GOOD_NOR_BAD and len(there) > 1:
                best_value = min(there) if name in _LOW_IS_GOOD else max(there)
                best |= {(row, column) for row, value in enumerate(values) if value == best_value}
    rows = []
    for run in runs:
        images, beam = run.scores.get("images", len(run.captions)), run.scores.get("beam")
        about = (f"{images}, {beam}" if beam else str(images)) if run.scores else NOTHING
        cells = [_SCORES[name][1](run.scores[name]) if name in run.scores else NOTHING for name in shown]
        rows.append([run.label, about, *cells])
    headings = ["run", "images, beam", *(_SCORES[name][0] for name in shown)]
    caption = "Scores on the test split" + "; the best of each column in bold" * bool(best)
    return Table(caption, headings, rows, frozenset(best))


def faults_table(runs: Sequence[ReportRun]) -> Table | None:
    """The captions with most faults of each run; None if there are none."""
    rows = []
    for run in runs:
        rules = run.config.decoding.rules(run.config.data.kind)
        faults = {one: found for one in run.captions.values() if (found := one.faults(rules))}
        worst = sorted(faults, key=lambda one: -len(faults[one]))[:_SHOWN_FAULTS]
        rows += [[run.label, one_line(one.image_id), one.caption, ", ".join(faults[one])] for one in worst]
    caption = f"Incomplete and repetitive captions, at most {_SHOWN_FAULTS} of each run, the worst first"
    return Table(caption, ["run", "image", "caption", "faults"], rows) if rows else None
