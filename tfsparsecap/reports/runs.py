"""What a report says of runs: read from their folders, put into tables beside each other."""

import csv
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tfsparsecap.data.records import shown
from tfsparsecap.errors import InputError
from tfsparsecap.runs.run_folder import RunFolder
from tfsparsecap.settings.schema import Config
from tfsparsecap.text import one_line, short_count

#: What stands where a run has no value.
NOTHING = "\u2013"
_LARGEST = 1e15
# Score, its heading, how it is written, and whether more is better (None: it is neither good nor bad).
_SCORES = (
    ("CIDEr", "CIDEr", "{:.3f}", True),
    ("BLEU-1", "BLEU-1", "{:.3f}", True),
    ("BLEU-2", "BLEU-2", "{:.3f}", True),
    ("BLEU-3", "BLEU-3", "{:.3f}", True),
    ("BLEU-4", "BLEU-4", "{:.3f}", True),
    ("METEOR", "METEOR", "{:.3f}", True),
    ("ROUGE-L", "ROUGE-L", "{:.3f}", True),
    ("SPICE", "SPICE", "{:.3f}", True),
    ("exact_match", "exactly a reference", "{:.1%}", True),
    ("sparsity", "sparsity", "{:.2%}", None),
    ("nonzero_weights", "weights left", "", None),
    ("ms_per_image", "ms an image", "{:.1f}", None),
)
# Settings that are asked for first; "model" and "pruning" are shown whole.
_SETTINGS = (
    "data.kind",
    "data.folder",
    "data.features",
    "data.max_length",
    "model",
    "pruning",
    "training.start_from",
    "training.epochs",
    "training.fine_tune.epochs",
    "training.batch_size",
    "training.learning_rate",
    "training.schedule",
    "decoding.beam",
    "seed",
)


@dataclass(frozen=True)
class Cell:
    """A cell of a table: its text, and whether it is the best of its column."""

    text: str
    best: bool = False


@dataclass(frozen=True)
class Table:
    """A table of a page.

    Attributes:
        caption: what is to be seen in it.
        columns: headings; the first one is of the rows' names.
        rows: name and cells of each.
    """

    caption: str
    columns: Sequence[str]
    rows: Sequence[tuple[str, Sequence[Cell]]]


@dataclass(frozen=True)
class Said:
    """A test picture's caption by a run, and what people say."""

    image_id: str
    caption: str
    references: tuple[str, ...]


@dataclass
class ReportRun:
    """What is known of a run.

    Attributes:
        label: its name on the page.
        history: rows of `history.csv`; a cell that is empty is left out, numbers are floats.
        scores: `scores_test.json`, or empty.
        captions: of the test pictures, by the picture's id, in the order of the file.
        missing: sentences about what it has not got.
    """

    label: str
    folder: RunFolder
    config: Config
    history: list[dict[str, float | str]] = field(default_factory=list)
    scores: dict[str, Any] = field(default_factory=dict)
    captions: dict[str, Said] = field(default_factory=dict)
    missing: list[str] = field(default_factory=list)

    @property
    def finished(self) -> bool:
        """Whether it has a model to look into."""
        return self.folder.model.is_file()

    @property
    def data_key(self) -> str:
        """Equal for runs of the same data; a report compares their scores."""
        data = self.config.data
        return json.dumps(
            [data.kind, data.folder and os.path.abspath(data.folder), data.options], default=str
        )


def read_runs(paths: Sequence[str | os.PathLike]) -> list[ReportRun]:
    """Reads run folders, each once, in the order given.

    Raises:
        InputError: a folder is no run, or a file in it is damaged. An unfinished one is read as it is.

    Example:
        >>> [run.label for run in read_runs(["runs/dense", "runs/smp"])]  # doctest: +SKIP
        ['dense', 'smp']
    """
    paths = list({Path(path).resolve(): Path(path) for path in paths}.values())
    names = [path.resolve().name for path in paths]
    if len(set(names)) < len(names):
        names = [str(path) for path in paths]
    return [_read(path, one_line(name)) for path, name in zip(paths, names, strict=True)]


def _read(path: Path, label: str) -> ReportRun:
    folder = RunFolder(path)
    run = ReportRun(label, folder, folder.load_config())
    if not run.finished:
        run.missing.append("is not finished: there is no model.keras to look into yet")
    if folder.history.is_file():
        run.history = _history(folder.history)
    else:
        run.missing.append("has no history.csv: nothing is known of its training")
    scores, captions = path / "scores_test.json", path / "captions_test.json"
    if scores.is_file():
        run.scores = _scores(scores)
    else:
        run.missing.append("has no scores on the test split yet")
    if captions.is_file():
        run.captions = _captions(captions)
    elif scores.is_file():
        run.missing.append("has no captions_test.json")
    return run


def _history(path: Path) -> list[dict[str, float | str]]:
    try:
        with path.open(encoding="utf-8", newline="") as file:
            rows = list(csv.DictReader(file, strict=True))
        for row in rows:
            # Too many or too few cells stand under, or are, None.
            if None in row or row.get("epoch") in (None, ""):
                raise ValueError(f"line {rows.index(row) + 2} does not fit the headings")
        return [
            {
                name: value if name == "phase" else _number(name, value)
                for name, value in row.items()
                if value not in (None, "")
            }
            for row in rows
        ]
    except (OSError, ValueError, csv.Error) as error:
        raise _damaged(path, error) from error


def _number(name: str, text: str) -> float:
    value = float(text)
    if not abs(value) < _LARGEST:
        raise ValueError(f"{name} is {text:.20}")
    return value


def _json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise _damaged(path, error) from error


def _scores(path: Path) -> dict[str, Any]:
    scores = _json(path)
    if not isinstance(scores, dict):
        raise _damaged(path, "it holds no scores by name")
    for name, *_ in _SCORES:
        value = scores.get(name, 0)
        # JSON has numbers that no float holds.
        if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < _LARGEST:
            raise _damaged(path, f"{name} is no number")
    for name in ("images", "beam"):
        value = scores.get(name)
        if value is not None and (type(value) is not int or not 0 <= value < _LARGEST):
            raise _damaged(path, f"{name} is no whole number")
    return scores


def _captions(path: Path) -> dict[str, Said]:
    found = {}
    rows = _json(path)
    for row in rows if isinstance(rows, list) else [None]:
        if not isinstance(row, dict) or not isinstance(row.get("caption"), str) or "image_id" not in row:
            raise _damaged(path, 'it holds no list of {"image_id": …, "caption": …}')
        references = row.get("references", [])
        if not isinstance(references, list):
            raise _damaged(path, "references are no list")
        if type(row["image_id"]) not in (int, str):
            raise _damaged(path, "an image_id is no number and no text")
        image_id = str(row["image_id"])
        if image_id in found:
            raise _damaged(path, f"image {shown([image_id])} is captioned more than once")
        said = tuple(one_line(str(reference)) for reference in references)
        found[image_id] = Said(image_id, one_line(row["caption"]), said)
    return found


def _damaged(path: Path, reason: object) -> InputError:
    return InputError(
        f"cannot read {path} ({one_line(str(reason))[:200]}): evaluate the run again, or leave it out"
    )


def notes(runs: Sequence[ReportRun]) -> list[str]:
    """Sentences about what is missing, and what must not be compared."""
    said = [f"{run.label} {missing}." for run in runs for missing in run.missing]
    groups = same_data(runs)
    if len(groups) > 1:
        said.append("The runs are of different data: their scores do not compare, and no best one is marked.")
    if any(len({frozenset(run.captions) for run in group if run.captions}) > 1 for group in groups):
        said.append("Runs of the same data were tested on different pictures.")
    return said


def same_data(runs: Sequence[ReportRun]) -> list[list[ReportRun]]:
    """The runs, those of the same data together, in the order in which the data first comes up."""
    groups: dict[str, list[ReportRun]] = {}
    for run in runs:
        groups.setdefault(run.data_key, []).append(run)
    return list(groups.values())


def settings_table(runs: Sequence[ReportRun]) -> Table:
    """What was trained: settings, a column a run."""
    flat = [_flat(run.config) for run in runs]
    names = list(dict.fromkeys(name for wanted in _SETTINGS for one in flat for name in _within(one, wanted)))
    rows = [
        (name, [Cell(_setting(one[name])) if name in one else Cell(NOTHING) for one in flat])
        for name in names
    ]
    return Table("Settings of the runs", ["setting", *(run.label for run in runs)], rows)


def _within(flat: Mapping[str, Any], wanted: str) -> list[str]:
    return [name for name in flat if name == wanted or name.startswith(f"{wanted}.")]


def _flat(config: Config) -> dict[str, Any]:
    """Settings by their dotted names, those that are null left out, but for a run that is not pruned."""
    found = {}

    def walk(name: str, value: Any) -> None:
        if isinstance(value, Mapping) and value:
            for key, inner in value.items():
                walk(f"{name}.{key}" if name else str(key), inner)
        elif value is not None:
            found[name] = value

    walk("", config.model_dump(mode="json"))
    if config.pruning is None:
        found["pruning.method"] = "none"
    return found


def _setting(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return ", ".join(map(_setting, value)) or "none"
    return one_line(f"{value:g}" if isinstance(value, float) else str(value))


def scores_table(runs: Sequence[ReportRun]) -> Table:
    """Scores on the test split, a row a run; the best is marked where the runs are of the same data."""
    shown = [entry for entry in _SCORES if any(entry[0] in run.scores for run in runs)]
    marked = len(runs) > 1 and len(same_data(runs)) == 1
    best = {}
    for name, _, _, more in shown:
        there = [run.scores[name] for run in runs if name in run.scores]
        if marked and more and len(there) > 1:
            best[name] = max(there)
    rows = []
    for run in runs:
        cells = [Cell(_images(run))]
        for name, _, form, _ in shown:
            value = run.scores.get(name)
            if value is None:
                cells.append(Cell(NOTHING))
            else:
                text = form.format(value) if form else short_count(value)
                cells.append(Cell(text, name in best and value == best[name]))
        rows.append((run.label, cells))
    headings = ["run", "pictures, beam", *(heading for _, heading, _, _ in shown)]
    said = "; the best of each column in bold" if best else ""
    return Table(f"Scores on the test split{said}", headings, rows)


def _images(run: ReportRun) -> str:
    if not run.scores:
        return NOTHING
    beam = run.scores.get("beam")
    images = run.scores.get("images", len(run.captions))
    return one_line(f"{images}, {beam}" if beam else f"{images}")
