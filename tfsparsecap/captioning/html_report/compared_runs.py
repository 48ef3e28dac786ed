"""The runs of a report: curves, scores and captions, read from their folders."""

import csv
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, Field, FiniteFloat, StrictInt, TypeAdapter, ValidationError, create_model

from tfsparsecap.captioning.runs.run_folder import RunFolder, labelled_folders
from tfsparsecap.captioning.settings.schema import Config
from tfsparsecap.core.files import read_json
from tfsparsecap.core.text import one_line
from tfsparsecap.errors import InputError

#: Scores that the report shows, as `scores_test.json` names them.
SCORES = ("CIDEr", "BLEU-4", "METEOR", "ROUGE-L", "SPICE", "exact_match", "sparsity")

_Number = Annotated[FiniteFloat, Field(gt=-1e15, lt=1e15)]
_HISTORY = TypeAdapter(list[dict[str, _Number]])
_SCORE_FIELDS: dict[str, Any] = dict.fromkeys(SCORES, (Annotated[_Number, Field(strict=True)], None))
# A training writes no tokenizer: it scores with the light one.
_SCORE_FIELDS |= {"images": (Any, None), "tokenizer": (Any, "light")}
_SCORE_FILE = create_model("Scores", **_SCORE_FIELDS)


class _Caption(BaseModel):
    image_id: StrictInt | str
    caption: str
    references: list[Any] = []


_CAPTIONS = TypeAdapter(list[_Caption])


@dataclass
class ReportRun:
    """What is known of a run.

    Attributes:
        label: its name in the report.
        history: rows of `history.csv` without empty cells and without `phase`.
        scores: those of `SCORES` in `scores_test.json`; empty if there is none.
        scored: number of images and tokenizer behind these scores, in words; empty if there is none.
        captions: caption and references of the test images by image id, in the order of the file.
        missing: sentences about missing files, each to follow the label.
    """

    label: str
    folder: RunFolder
    config: Config
    history: list[dict[str, float]] = field(default_factory=list)
    scores: dict[str, float] = field(default_factory=dict)
    scored: str = ""
    captions: dict[str, tuple[str, list[str]]] = field(default_factory=dict)
    missing: list[str] = field(default_factory=list)

    @property
    def finished(self) -> bool:
        """Whether it has a model."""
        return self.folder.model.is_file()

    @property
    def data_key(self) -> str:
        """Equal for runs on the same data."""
        if digest := self.folder.data_digest():
            return digest
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
    for name, read in (
        ("history.csv", _read_history),
        ("scores_test.json", _read_scores),
        ("captions_test.json", _read_captions),
    ):
        if not (path / name).is_file():
            run.missing.append(f"has no {name}")
            continue
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
    file = _SCORE_FILE.model_validate_json(path.read_bytes())
    run.scores = file.model_dump(include=set(SCORES), exclude_unset=True)
    about = file.model_dump()
    run.scored = one_line(f"{about['images']} images, {about['tokenizer']} tokenizer")


def _read_captions(run: ReportRun, path: Path) -> None:
    # Not `validate_json`, which refuses the escapes of names that are not UTF-8.
    for row in _CAPTIONS.validate_python(read_json(path, "evaluate the run again")):
        image_id = str(row.image_id)  # exactly, because it finds the image's file
        if image_id in run.captions:
            raise ValueError(f"image {image_id} has more than one caption")
        references = [one_line(str(reference)) for reference in row.references]
        run.captions[image_id] = one_line(row.caption), references
