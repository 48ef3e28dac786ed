"""A study: a grid of runs (captioners x methods x sparsities x seeds) from one file."""

import difflib
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from tfsparsecap.errors import InputError
from tfsparsecap.settings.files import load_config, read_settings, sentence_of
from tfsparsecap.settings.schema import Config, Share

Settings = dict[str, Any]
#: What every training scores its captions by.
Score = Literal["CIDEr", "BLEU-1", "BLEU-2", "BLEU-3", "BLEU-4"]
SCORES = get_args(Score)
#: What the study itself sets for each run, and by which of its keys.
_OWN = {
    "name": "labels",
    "seed": "seeds",
    "pruning.sparsity": "sparsities",
    "training.start_from": "start_from",
}


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Method(_Section):
    """A line of the table.

    Attributes:
        settings: what a run of it changes, `section.key: value`; `pruning: null` is the dense one.
        config: in place of the captioner's and the study's.
        start_from: label of the method whose finished run, of the same captioner and seed (and sparsity, if
            it has them), this one starts with.
        sparsities: in place of the study's.
        captioners: labels of those that it is run on; null is all.
    """

    config: str | None = None
    settings: Settings = {}
    start_from: str | None = None
    captioners: Annotated[list[str], Field(min_length=1)] | None = None
    sparsities: list[Share] | None = None


class Captioner(_Section):
    """A part of the table.

    Attributes:
        config: in place of the study's.
        settings: what its runs change in it.
    """

    config: str | None = None
    settings: Settings = {}


class Plot(_Section):
    """The picture of a study.

    Attributes:
        score: what table and picture show.
        published: label of a captioner -> name of a table of published values (TSV: a column for each
            method), looked for in `published_folder`; drawn beside ours where it is present.
        published_score: what those values are; of another score than `score` they are not drawn.
        published_folder: relative to the study's file.
    """

    score: Score = "CIDEr"
    published: dict[str, str] = {}
    published_score: str = "CIDEr"
    published_folder: str = "../../../shared/fixtures/published_curves"


class Study(_Section):
    """What `configs/studies/NAME.yaml` says.

    Attributes:
        name: the runs lie in `runs/NAME/`.
        title: of table and plot.
        config: a configuration of `python -m tfsparsecap.train` that all runs share, relative to the file
            that names it; null is the quickstart.
        settings: what all runs change in it. Name, seed, sparsity and start are the study's to set.
        captioners: label -> what is trained; null leaves out one of a study that this one extends.
        methods: label -> how it is trained. Methods without pruning have no sparsities.
        variants: label -> settings, for a study of something else than methods, such as a gate's start; each
            is combined with all of the others.
        sparsities, seeds: each method is run at each of the ones with each of the others.
        plot: the picture.

    Example:
        >>> Study(name="two", methods={"SMP": {}}, sparsities=[0.8, 0.9]).methods["SMP"].start_from
    """

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.\-]*$")]
    title: str = ""
    config: str | None = None
    settings: Settings = {}
    captioners: Annotated[dict[str, Captioner | None], Field(min_length=1)] = {"": Captioner()}
    methods: Annotated[dict[str, Method], Field(min_length=1)]
    variants: Annotated[dict[str, Settings], Field(min_length=1)] = {"": {}}
    sparsities: Annotated[list[Share], Field(min_length=1)] = [0.8, 0.9, 0.95, 0.975]
    seeds: Annotated[list[Annotated[int, Field(ge=0, lt=2**31)]], Field(min_length=1)] = [1]
    plot: Plot = Plot()


@dataclass(frozen=True)
class GridRun:
    """One run of a study.

    Attributes:
        sparsity: None for a dense one.
        start_from: name of the run that it starts with.
        config: all its settings; `config.name` is its folder in the study's.
    """

    captioner: str
    method: str
    variant: str
    sparsity: float | None
    seed: int
    start_from: str | None
    config: Config

    @property
    def name(self) -> str:
        return self.config.name


def load_study(path: str | Path) -> Study:
    """Reads and checks a study's file; its key `extends: FILE.yaml` names another study that it changes.

    Paths of configurations come out absolute, each having been relative to the file that it stands in.

    Raises:
        InputError: it is missing or no YAML, a key is unknown, or a value is of the wrong type.
    """
    try:
        return Study.model_validate(read_settings(path, _with_absolute_paths))
    except ValidationError as error:
        raise InputError(sentence_of(error, Study, lambda key: f"in {path}")) from error


def _with_absolute_paths(content: Settings, folder: Path) -> Settings:
    """What one file of a study says, paths no longer relative to its folder."""
    sections = [content]
    for name in ("captioners", "methods"):
        sections += list(content[name].values()) if isinstance(content.get(name), dict) else []
    places = [(section, "config") for section in sections] + [(content.get("plot"), "published_folder")]
    for section, key in places:
        if isinstance(section, dict) and isinstance(section.get(key), str):
            section[key] = (folder / section[key]).resolve().as_posix()
    return content


def grid(
    study: Study, source: str | Path, runs: str | Path = "runs", overrides: Sequence[str] = ()
) -> list[GridRun]:
    """All runs of a study, those that others start from before these.

    Args:
        source: the study's file, whose folder `study.config` is relative to.
        runs: folder of all studies and runs.
        overrides: `section.key=value` for all runs; they win over the file.

    Raises:
        InputError: a setting is unknown or the study's own to set, `captioners` or `start_from` name what
            there is not, or the latter leads in a circle.

    Example:
        >>> study = Study(name="s", methods={"Dense": {"settings": {"pruning": None}}, "SMP": {}})
        >>> [run.name for run in grid(study, "studies/s.yaml")][:2]
        ['dense-s1', 'smp-0.8-s1']
    """
    order = _in_order(study.methods)
    _check_labels(study, source)
    _check_settings(study, source, overrides)
    made: list[GridRun] = []
    for captioner, what in study.captioners.items():
        if what is None:
            continue
        for variant, of_variant in study.variants.items():
            for seed in study.seeds:
                for label in order:
                    method = study.methods[label]
                    if captioner not in (method.captioners or study.captioners):
                        continue
                    config = method.config or what.config or study.config
                    base = None if config is None else Path(source).parent / config
                    parts = [study.settings, what.settings, of_variant, method.settings]
                    settings = {key: value for part in parts for key, value in part.items()}
                    if settings.get("pruning", "") is None:
                        settings = {key: v for key, v in settings.items() if not key.startswith("pruning.")}
                    where = f"in {source}, method {label!r},"
                    dense = _configured(base, settings, overrides, where).pruning is None
                    for sparsity in [None] if dense else method.sparsities or study.sparsities:
                        start = None
                        if method.start_from is not None:
                            same = (captioner, method.start_from, variant, seed)
                            start = _start(made, same, sparsity, label)
                        own = {"seed": seed, "name": _slug(captioner, label, variant, sparsity, seed)}
                        if sparsity is not None:
                            own["pruning.sparsity"] = sparsity
                        if start is not None:
                            own["training.start_from"] = (Path(runs) / study.name / start).as_posix()
                        whole = _configured(base, settings | own, overrides, where)
                        made.append(GridRun(captioner, label, variant, sparsity, seed, start, whole))
    doubled = [run.name for run in made if sum(run.name == other.name for other in made) > 1]
    if doubled:
        raise InputError(f"{source}: two runs would lie in the same folder {doubled[0]}: change a label")
    return made


def _check_labels(study: Study, source: str | Path) -> None:
    """Raises InputError where a method is for no captioner, or something stands twice in a list."""
    there = [label for label, what in study.captioners.items() if what is not None]
    for label, method in study.methods.items():
        for name in method.captioners or ():
            if name not in study.captioners:
                near = difflib.get_close_matches(name, there, n=1)
                hint = f"did you mean {near[0]!r}?" if near else f"choose of {', '.join(there)}"
                raise InputError(
                    f"{source}: method {label!r} is for {name!r}, which is none of the captioners: {hint}"
                )
    lists = {"seeds": study.seeds, "sparsities": study.sparsities}
    lists |= {f"methods.{label}.sparsities": each.sparsities or [] for label, each in study.methods.items()}
    for name, values in lists.items():
        twice = [value for value in values if values.count(value) > 1]
        if twice:
            raise InputError(f"{source}: {twice[0]} stands twice in {name}: take one away")


def _check_settings(study: Study, source: str | Path, overrides: Sequence[str]) -> None:
    """Raises InputError where settings are given that the study sets for each run."""
    given = [("settings", study.settings)]
    for kind in ("captioners", "methods"):
        parts = getattr(study, kind).items()
        given += [(f"{kind}.{label}.settings", part.settings) for label, part in parts if part is not None]
    given += [(f"variants.{label}", settings) for label, settings in study.variants.items()]
    for where, settings in given:
        for key, by in _OWN.items():
            if key in settings:
                raise InputError(f"{source}: {where} sets {key}, which is the study's: use {by} instead")
    for text in overrides:
        key = text.partition("=")[0].strip()
        if key in _OWN:
            raise InputError(f"{text} on the command line: the study sets {key}, use {_OWN[key]} in {source}")


def _configured(base: Path | None, settings: Settings, overrides: Sequence[str], where: str) -> Config:
    # JSON is YAML, on one line.
    written = [f"{key}={json.dumps(value)}" for key, value in settings.items()]
    return load_config(base, [*written, *overrides], where + " or on the command line" * bool(overrides))


def _in_order(methods: dict[str, Method]) -> list[str]:
    """Labels, each after the one that it starts from, else as they are listed."""
    order: list[str] = []

    def visit(label: str, way: tuple[str, ...]) -> None:
        start = methods[label].start_from
        if label in way:
            raise InputError(f"methods {' -> '.join((*way, label))} start from each other: break the circle")
        if start is not None:
            if start not in methods:
                raise InputError(
                    f"method {label!r} starts from {start!r}, which is none of the methods: choose one of"
                    f" {', '.join(methods)}"
                )
            visit(start, (*way, label))
        if label not in order:
            order.append(label)

    for label in methods:
        visit(label, ())
    return order


def _start(made: list[GridRun], same: tuple, sparsity: float | None, label: str) -> str:
    """The run to start from: of the same sparsity, or the dense one."""
    found = {
        run.sparsity: run.name for run in made if (run.captioner, run.method, run.variant, run.seed) == same
    }
    if sparsity in found or None in found:
        return found.get(sparsity, found.get(None))
    raise InputError(
        f"method {label!r} at sparsity {sparsity} starts from {same[1]!r}, which is not run at it: add the"
        " sparsity there"
    )


def _slug(captioner: str, method: str, variant: str, sparsity: float | None, seed: int) -> str:
    parts = [captioner, method, variant, "" if sparsity is None else f"{sparsity:g}", f"s{seed}"]
    words = [re.sub(r"[^a-z0-9.]+", "_", part.lower()).strip("_") for part in parts]
    return "-".join(word for word in words if word)
