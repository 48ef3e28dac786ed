"""A study: a grid of runs (captioners x methods x variants x sparsities x seeds) described by one file."""

import functools
import itertools
import json
import os
import re
import shlex
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, get_args

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from pydantic_core import PydanticCustomError

from tfsparsecap.captioning.settings.config_files import (
    config_file,
    load_config,
    read_settings,
    sentence_of,
)
from tfsparsecap.captioning.settings.schema import Config
from tfsparsecap.captioning.settings.sections import Count, Options, Share
from tfsparsecap.errors import InputError, error_prefix, unknown_name

#: Scores that every training writes.
Score = Literal["CIDEr", "BLEU-1", "BLEU-2", "BLEU-3", "BLEU-4"]
SCORES = get_args(Score)
# Settings that the study sets for each run, and the key of the study's file to use instead.
_RESERVED = {
    "name": "labels",
    "seed": "seeds",
    "pruning.sparsity": "sparsities",
    "training.start_from": "start_from",
}


def _not_reserved(settings: dict[str, Any]) -> dict[str, Any]:
    sections = {key: value for key, value in settings.items() if isinstance(value, dict)}
    for key in [*settings, *(f"{name}.{key}" for name, section in sections.items() for key in section)]:
        if key in _RESERVED:
            message = f"the study sets {key} for each run: use {_RESERVED[key]}"
            raise PydanticCustomError("reserved", message)
    return settings


def _unique(values: list) -> list:
    if len(set(values)) < len(values):
        raise PydanticCustomError("repeated", "a value is repeated: list each one once")
    return values


def _without_null(sections: Any) -> Any:
    if isinstance(sections, dict):
        return {label: section for label, section in sections.items() if section is not None}
    return sections


Item = TypeVar("Item")
#: At least one item, none of them twice.
Items = Annotated[list[Item], Field(min_length=1), AfterValidator(_unique)]
#: Sections by label; a null section removes one of the study that is extended.
Labelled = Annotated[dict[str, Item], BeforeValidator(_without_null), Field(min_length=1)]
Settings = Annotated[Options, AfterValidator(_not_reserved)]


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Method(_Section):
    """A method: one line of the table.

    Attributes:
        config: configuration file, instead of the captioner's and the study's.
        settings: what its runs change, `section.key: value`; `pruning: null` trains a dense model.
        start_from: label of another method; each run starts from that method's finished run with the same
            captioner, variant and seed (and sparsity, unless that one is dense).
        teacher: label of another method, whose finished run is, in the same way, the teacher of each run;
            a teacher that is not part of the study is a setting, `training.teacher`.
        captioners: labels of the captioners that it is run on; null is all.
        sparsities: instead of the study's.
    """

    config: str | None = None
    settings: Settings = {}
    start_from: str | None = None
    teacher: str | None = None
    captioners: Items[str] | None = None
    sparsities: Items[Share] | None = None


class StudiedCaptioner(_Section):
    """A captioner: one part of the table.

    Attributes:
        config: configuration file, instead of the study's.
        settings: what its runs change.
    """

    config: str | None = None
    settings: Settings = {}


class Study(_Section):
    """The content of `configs/studies/NAME.yaml`.

    Attributes:
        name: the runs are written to `runs/NAME/`.
        title: of table and plot.
        score: shown in table and plot.
        config: a configuration file of `python -m tfsparsecap.train` for all runs, relative to the file that
            names it; null is the quickstart.
        settings: what all runs change in it. The study sets name, seed, sparsity and start_from itself.
        captioners: label -> captioner.
        methods: label -> method. Methods without pruning are run once for each seed, not for each sparsity.
        variants: label -> settings, for studies that compare something other than methods, such as initial
            gate values; combined with everything else.
        sparsities, seeds: each method is run with each combination.

    Examples:
        >>> Study(name="two", methods={"SMP": {}}, sparsities=[0.8, 0.9]).methods["SMP"].start_from
    """

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.\-]*$")]
    title: str = ""
    score: Score = "CIDEr"
    config: str | None = None
    settings: Settings = {}
    captioners: Labelled[StudiedCaptioner] = {"": StudiedCaptioner()}
    methods: Labelled[Method]
    variants: Labelled[Settings] = {"": {}}
    sparsities: Items[Share] = [0.8, 0.9, 0.95, 0.975]
    seeds: Items[Count] = [1]


@dataclass(frozen=True)
class GridRun:
    """One run of a study.

    Attributes:
        sparsity: target sparsity; None for a dense model.
        start_from: name of the run that it starts from.
        teacher: name of the run that is its teacher.
        config: all its settings; `config.name` is its folder inside the study's.
    """

    captioner: str
    method: str
    variant: str
    sparsity: float | None
    seed: int
    start_from: str | None
    teacher: str | None
    config: Config

    @property
    def name(self) -> str:
        return self.config.name

    @property
    def needs(self) -> tuple[str, ...]:
        """Names of the runs that must be finished first."""
        return tuple(dict.fromkeys(name for name in (self.start_from, self.teacher) if name is not None))


def load_study(path: str | Path) -> Study:
    """Reads and checks a study's file; its key `extends: FILE.yaml` names another study that it changes.

    Paths of configuration files become absolute; they are relative to the file that contains them.

    Raises:
        InputError: the file is missing, not YAML, or the configuration of a run; a key is unknown, or a value
            has the wrong type.
    """
    if not os.path.lexists(path) and Path(path).name == Path(path).stem == str(path):
        path = f"studies/{path}"  # the name of one that comes with the package
    settings = read_settings(path, _with_absolute_paths)
    if settings.keys() & {"data", "model", "training"}:
        command = f"python -m tfsparsecap.train --config {shlex.quote(str(path))}"
        raise InputError(
            f"{path} has the settings of one run: train it with {command},"
            " or name it as `config` in a study's file, such as those in configs/studies/"
        )
    try:
        return Study.model_validate(settings)
    except ValidationError as error:
        raise InputError(sentence_of(error, Study, lambda key: f"in {path}")) from error


def _with_absolute_paths(content: dict[str, Any], folder: Path) -> dict[str, Any]:
    sections = [content]
    for name in ("captioners", "methods"):
        sections += list(content[name].values()) if isinstance(content.get(name), dict) else []
    for section in sections:
        if isinstance(section, dict) and isinstance(section.get("config"), str):
            section["config"] = os.path.realpath(config_file(section["config"], folder))
    return content


def grid(
    study: Study, source: str | Path, runs: str | Path = "runs", overrides: Sequence[str] = ()
) -> list[GridRun]:
    """All runs of a study; runs that others start from or learn from come first.

    Args:
        source: the study's file; `config` is relative to its folder.
        runs: folder of all studies and runs.
        overrides: `section.key=value` for all runs, with priority over the file.

    Raises:
        InputError: a setting is unknown or reserved for the study; `captioners`, `start_from` or `teacher`
            name something that does not exist; or methods need each other in a circle.

    Examples:
        >>> study = Study(name="s", methods={"Dense": {"settings": {"pruning": None}}, "SMP": {}})
        >>> [run.name for run in grid(study, "studies/s.yaml")][:2]
        ['dense-s1', 'smp-0.8-s1']
    """
    for text in overrides:
        key = text.partition("=")[0].strip()
        if key in _RESERVED:
            raise InputError(
                f"{text} on the command line: the study sets {key}, use {_RESERVED[key]} in {source}"
            )
    order = _in_order(study.methods)
    for label, method in study.methods.items():
        if method.captioners and "" in study.captioners:
            raise InputError(
                f"{source}: method {label!r} has captioners, but the study has none: remove them"
            )
        _check_labels(method.captioners or (), study.captioners, f"{source}: captioners of method {label!r}")

    @functools.cache
    def settings(captioner: str, variant: str, label: str) -> Config:
        """What runs with different sparsities and seeds have in common."""
        method, section = study.methods[label], study.captioners[captioner]
        base = method.config or section.config or study.config
        changes = {**study.settings, **section.settings, **study.variants[variant], **method.settings}
        if changes.get("pruning", "") is None:
            changes = {key: value for key, value in changes.items() if not key.startswith("pruning.")}
        # JSON is YAML on one line.
        texts = [
            *(f"{key}={json.dumps(value, ensure_ascii=False)}" for key, value in changes.items()),
            *overrides,
        ]
        where = f"in {source}, method {label!r}," + " or on the command line" * bool(overrides)
        return load_config(base and config_file(base, Path(source).parent), texts, where)

    grid_runs: dict[tuple, GridRun] = {}
    for captioner, variant, seed, label in itertools.product(
        study.captioners, study.variants, study.seeds, order
    ):
        method = study.methods[label]
        if captioner not in (method.captioners or study.captioners):
            continue
        common = settings(captioner, variant, label)
        for sparsity in [None] if common.pruning is None else method.sparsities or study.sparsities:
            config = common.model_copy(deep=True)
            config.name, config.seed = _slug(captioner, label, variant, sparsity, seed), seed
            if config.pruning is not None and sparsity is not None:
                config.pruning.sparsity = sparsity
            run = GridRun(captioner, label, variant, sparsity, seed, None, None, config)
            if method.start_from is not None:
                start = _needed(run, "starts from", method.start_from, grid_runs)
                config.training.start_from = (Path(runs) / study.name / start).as_posix()
                run = replace(run, start_from=start)
            if method.teacher is not None:
                teacher = _needed(run, "learns from", method.teacher, grid_runs)
                config.training.teacher = [(Path(runs) / study.name / teacher).as_posix()]
                run = replace(run, teacher=teacher)
            grid_runs[captioner, variant, seed, label, sparsity] = run
    names = [run.name for run in grid_runs.values()]
    for name in names:
        if names.count(name) > 1:
            raise InputError(f"{source}: two runs have the same folder name {name}: change a label")
    return list(grid_runs.values())


def _needed(run: GridRun, verb: str, label: str, grid_runs: dict[tuple, GridRun]) -> str:
    """Name of the run of method `label` with the same captioner, variant, seed and sparsity."""
    same = (run.captioner, run.variant, run.seed, label)
    needed = grid_runs.get((*same, run.sparsity)) or grid_runs.get((*same, None))
    if needed is None and not any(key[:4] == same for key in grid_runs):
        raise InputError(
            f"method {run.method!r} {verb} {label!r}, which is not run on the captioner {run.captioner!r}:"
            " add it to the captioners there"
        )
    if needed is None and run.sparsity is None:
        raise InputError(
            f"method {run.method!r} is dense and {verb} {label!r}, which is pruned:"
            f" {verb.replace('s ', ' ')} a dense method"
        )
    if needed is None:
        raise InputError(
            f"method {run.method!r} at sparsity {run.sparsity} {verb} {label!r}, which is not run at that"
            " sparsity: add the sparsity there"
        )
    return needed.name


def _check_labels(labels: Iterable[str], defined_labels: Collection[str], where: str) -> None:
    with error_prefix(where):
        for label in labels:
            if label not in defined_labels:
                raise unknown_name("label", label, defined_labels)


def _in_order(methods: dict[str, Method]) -> list[str]:
    """Labels in the order of the file, but each after those that it starts from and learns from."""
    order: dict[str, None] = {}

    def visit(label: str, path: tuple[str, ...]) -> None:
        if label in path:
            raise InputError(
                f"methods {' -> '.join((*path, label))} start or learn from each other: remove one start_from"
                " or teacher"
            )
        for key in ("start_from", "teacher"):
            needed = getattr(methods[label], key)
            if needed is not None:
                _check_labels([needed], methods, f"{key} of method {label!r}")
                visit(needed, (*path, label))
        order[label] = None

    for label in methods:
        visit(label, ())
    return list(order)


def _slug(captioner: str, method: str, variant: str, sparsity: float | None, seed: int) -> str:
    parts = [captioner, method, variant, "" if sparsity is None else f"{sparsity:g}", f"s{seed}"]
    words = [re.sub(r"[^a-z0-9.]+", "_", part.lower()).strip("_") for part in parts]
    return "-".join(word for word in words if word)
