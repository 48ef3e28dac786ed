"""A study: a grid of runs (captioners x methods x sparsities x seeds) from one file."""

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from tfsparsecap.errors import InputError
from tfsparsecap.training.config import Config, Share
from tfsparsecap.training.config_files import load_config, read_settings, sentence_of

Settings = dict[str, Any]


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Method(_Section):
    """A line of the table.

    Attributes:
        settings: what a run of it changes, `section.key: value`; `pruning: null` is the dense one.
        start_from: label of the method whose finished run, of the same captioner and seed (and sparsity, if
            it has them), this one starts with.
        sparsities: in place of the study's.
        captioners: labels of those that it is run on; null is all.
    """

    settings: Settings = {}
    start_from: str | None = None
    captioners: list[str] | None = None
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
        score: what is shown.
        published: label of a captioner -> name of a table of published values (TSV: a column for each
            method), looked for in `published_folder`; drawn beside ours where it is present.
        published_folder: relative to the study's file.
    """

    score: str = "CIDEr"
    published: dict[str, str] = {}
    published_folder: str = "../../../shared/fixtures/published_curves"


class Study(_Section):
    """What `configs/studies/NAME.yaml` says.

    Attributes:
        name: the runs lie in `runs/NAME/`.
        title: of table and plot.
        config: a configuration of `python -m tfsparsecap.train`, relative to the study's file, that all runs
            share; null is the quickstart.
        settings: what all runs change in it.
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

    Raises:
        InputError: it is missing or no YAML, a key is unknown, or a value is of the wrong type.
    """
    try:
        return Study.model_validate(read_settings(path))
    except ValidationError as error:
        raise InputError(sentence_of(error, Study, lambda key: f"in {path}")) from error


def grid(study: Study, source: str | Path, runs: str | Path = "runs") -> list[GridRun]:
    """All runs of a study, those that others start from before these.

    Args:
        source: the study's file, whose folder `study.config` is relative to.
        runs: folder of all studies and runs.

    Raises:
        InputError: a setting is unknown, `start_from` names no method or leads in a circle.

    Example:
        >>> study = Study(name="s", methods={"Dense": {"settings": {"pruning": None}}, "SMP": {}})
        >>> [run.name for run in grid(study, "studies/s.yaml")][:2]
        ['dense-s1', 'smp-0.8-s1']
    """
    order = _in_order(study.methods)
    made: list[GridRun] = []
    for captioner, what in study.captioners.items():
        if what is None:
            continue
        config = what.config or study.config
        base = None if config is None else Path(source).parent / config
        for variant, of_variant in study.variants.items():
            for seed in study.seeds:
                for label in order:
                    method = study.methods[label]
                    if captioner not in (method.captioners or study.captioners):
                        continue
                    parts = [study.settings, what.settings, of_variant, method.settings]
                    settings = {key: value for part in parts for key, value in part.items()}
                    dense = settings.get("pruning", "") is None
                    if dense:
                        settings = {key: v for key, v in settings.items() if not key.startswith("pruning.")}
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
                        whole = _configured(base, settings | own, label, source)
                        made.append(GridRun(captioner, label, variant, sparsity, seed, start, whole))
    doubled = [run.name for run in made if sum(run.name == other.name for other in made) > 1]
    if doubled:
        raise InputError(f"{source}: two runs would lie in the same folder {doubled[0]}: change a label")
    return made


def _configured(base: Path | None, settings: Settings, label: str, source: str | Path) -> Config:
    # JSON is YAML, on one line.
    overrides = [f"{key}={json.dumps(value)}" for key, value in settings.items()]
    return load_config(base, overrides, f"in {source}, method {label!r},")


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
