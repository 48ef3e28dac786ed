"""Checks of a study before its first training, so that no run fails after hours of others."""

import json
import sys
import warnings
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from tqdm import tqdm

from tfsparsecap.captioning.data.records import SPLITS, CaptionData
from tfsparsecap.captioning.data.tokenizers import Tokenizer
from tfsparsecap.captioning.runs.run_folder import RunFolder
from tfsparsecap.captioning.settings.build import (
    load_data,
    make_captioner,
    make_encoder,
    make_tokenizer,
    objects_of,
    region_features,
)
from tfsparsecap.captioning.settings.contradictions import check_settings
from tfsparsecap.captioning.settings.schema import Config, EncoderSettings
from tfsparsecap.captioning.training.callbacks import Validation
from tfsparsecap.captioning.training.other_runs import (
    check_same_vocabulary,
    check_start,
    check_teacher,
    check_tokens,
)
from tfsparsecap.captioning.training.phases import check_batches, optimizer_steps, phases
from tfsparsecap.captioning.training.run_pruning import (
    gate_captioner,
    gate_for_fine_tuning,
    make_method,
    phases_differ,
    train_encoder,
)
from tfsparsecap.errors import InputError, error_prefix
from tfsparsecap.papers.study_grid import GridRun

# Optimizer steps of the pruning methods that are made as a check: more than those of any training.
_STEPS = 10**9


def check_runs(runs: Sequence[GridRun]) -> None:
    """Checks the settings of all runs, and that each fits the runs that it starts from and learns from.

    Nothing is read or written.

    Raises:
        InputError: a training of a run would fail because of its settings, or of those of another run.
    """
    configs, seen = {run.name: run.config for run in runs}, set()
    for run in runs:
        with error_prefix(f"run {run.name}"):
            check_settings(run.config)
            if run.config.pruning is not None:
                make_method(run.config.pruning, _STEPS, run.config.training.epochs)
            # Sparsities and seeds change nothing about the captioners.
            if (run.captioner, run.variant, run.method) in seen:
                continue
            seen.add((run.captioner, run.variant, run.method))
            if run.start_from is not None:
                check_start(configs[run.start_from], run.config, f"start_from: the run {run.start_from}")
            if run.teacher is not None:
                where = f"teacher: the run {run.teacher}"
                check_tokens(configs[run.teacher], run.config, where)
                check_teacher(configs[run.teacher], run.config, where)


def check_data(
    waiting: Sequence[GridRun], runs: Sequence[GridRun], study_folder: Path, *, progress: bool = False
) -> None:
    """Makes what each training makes before its first step, once for equal settings: data with region
    features, vocabulary, image encoder with its weights, and captioner with its gates.

    Args:
        waiting: the runs to be trained.
        runs: all runs of the study.
        study_folder: their folder; encoders of runs in it may not exist yet.
        progress: show progress bars.

    Raises:
        InputError: a training would fail before its first step, the data have no test split, or a run was
            trained on other data.
    """
    origins = {run.name: run.config for run in runs}
    for run in runs:  # those that it starts from come first
        origins[run.name] = origins[run.start_from or run.name]
    inputs = _Inputs(progress)
    made: list[EncoderSettings] = []
    gated = set()
    for run in tqdm(
        waiting, "checking", unit="run", delay=3, leave=False, disable=not progress, file=sys.stderr
    ):
        config = run.config
        with error_prefix(f"run {run.name}"):
            data = inputs.data(config)
            inputs.check_regions(config)
            check_batches(phases(config), config, data)
            tokenizer = inputs.tokenizer(origins[run.name])
            if run.teacher is not None:
                theirs = inputs.tokenizer(origins[run.teacher])
                check_same_vocabulary(theirs, tokenizer, f"teacher: the run {run.teacher}")
            _check_encoder(config, study_folder, made)
            key = (run.captioner, run.variant, run.method, run.sparsity)  # seeds change nothing
            if config.pruning is not None and key not in gated:
                gated.add(key)
                with warnings.catch_warnings(action="ignore"):  # the training warns
                    _check_gates(config, data, tokenizer, study_folder)
    check_same_data(runs, study_folder, inputs.digests)


def check_same_data(
    runs: Sequence[GridRun], study_folder: Path, digests: Mapping[str, Collection[str]] | None = None
) -> None:
    """Compares the data that runs with equal data settings were trained on.

    Args:
        runs: those without a folder, and those of earlier versions, are left out.
        study_folder: their folder.
        digests: `CaptionData.digests` of the data as they are now, by `_records_key`.

    Raises:
        InputError: two runs were trained on different data, or a run on other data than those of `digests`.
    """
    seen = {key: ("there are now", known) for key, known in (digests or {}).items()}
    for run in runs:
        folder = RunFolder(study_folder / run.name)
        trained_on = folder.data_digest()
        if trained_on is None:
            continue
        other, expected = seen.setdefault(_records_key(run.config), (f"{folder.path} was", [trained_on]))
        if trained_on not in expected:
            raise InputError(
                f"{folder.path} was trained on other data than {other}, so their scores cannot be compared:"
                " restore the data, remove that folder to train it again, or rename the study"
            )


def _records_key(config: Config) -> str:
    """Equal for settings that load the same records."""
    data = config.data
    about = [data.kind, data.folder, data.on_bad_record, data.options, config.model.encoder is None]
    return json.dumps(about, default=str, sort_keys=True)


class _Inputs:
    """Data and vocabularies, made once for equal settings; and digests of the data, by `_records_key`."""

    def __init__(self, progress: bool) -> None:
        self._progress = progress
        self.digests: dict[str, Collection[str]] = {}
        self._data: dict[str, CaptionData] = {}
        self._regions: set[str] = set()
        self._tokenizers: dict[str, Tokenizer] = {}

    def data(self, config: Config) -> CaptionData:
        key = config.data.model_dump_json()
        if key not in self._data:
            features = config.data.features
            if features is not None and not Path(features).expanduser().is_dir():
                raise InputError(f"data.features is {features}, which is not a folder: set data.features=…")
            data = load_data(config)
            if not data.split("test"):
                raise InputError(
                    f"{data.name} has no test split, on which a study compares its runs: add one"
                )
            self._data[key] = data
            self.digests[_records_key(config)] = data.digests()
        return self._data[key]

    def check_regions(self, config: Config) -> None:
        """Indexes the region features of all splits, for captioners that read them.

        All images must have them: kinds of captioners read different files, and would be tested on
        different images.
        """
        kind, width = config.model.kind, config.model.feature_size
        key = json.dumps([config.data.model_dump_json(), kind, width])
        if config.model.encoder is None and key not in self._regions:
            data = self.data(config)
            for split in filter(None, map(data.split, SPLITS)):
                features = region_features(config, split, progress=self._progress)
                if features.skipped:
                    raise InputError(
                        f"{config.data.features} has no usable features for {len(features.skipped)} of"
                        f" {len(split)} images of a split, and a study compares captioners on the same"
                        " images: complete the features, or take these images out of the data; the first:"
                        f" {features.skipped[0]}"
                    )
            self._regions.add(key)

    def tokenizer(self, config: Config) -> Tokenizer:
        """The vocabulary of a run that starts from no other run of the study."""
        if config.training.start_from is not None:
            start = RunFolder(Path(config.training.start_from).expanduser())
            return start.load_tokenizer(config.data.radix_base)
        key = config.data.model_dump_json()
        if key not in self._tokenizers:
            self._tokenizers[key] = make_tokenizer(config, self.data(config))
        return self._tokenizers[key]


def _check_encoder(config: Config, study_folder: Path, made: list[EncoderSettings]) -> None:
    settings = config.model.encoder
    if settings is None or settings in made:
        return
    made.append(settings)
    if not _is_of_study(settings, study_folder):
        make_encoder(settings, "float32", weights=config.training.start_from is None)


def _is_of_study(settings: EncoderSettings | None, study_folder: Path) -> bool:
    """Whether the encoder comes from a run of the study, which may not exist yet."""
    named = (settings.weights, settings.slimmed) if settings is not None else ()
    files = [Path(file).expanduser() for file in named if file is not None]
    return any(study_folder.resolve() in file.resolve().parents for file in files)


def _check_gates(config: Config, data: CaptionData, tokenizer: Tokenizer, study_folder: Path) -> None:
    """Prunes a captioner with random weights as the training does, in both phases of an encoder scheme."""
    assert config.pruning is not None
    steps = {phase.kind: optimizer_steps(phase.kind, config, data) for phase in phases(config)}
    first, *later = steps
    if _is_of_study(config.model.encoder, study_folder):
        tuned = config.pruning.encoder == "B"
        kind, part = ("fine_tune", config.training.fine_tune) if tuned else (first, config.training)
        with error_prefix(f"pruning.method={config.pruning.method}"):
            make_method(config.pruning, steps[kind], part.epochs)
        return
    captioner = make_captioner(config, tokenizer, objects=objects_of(config, data), weights=False)
    gate_captioner(captioner, config, steps[first], kind=first, restored=True)
    Validation.check_metric(getattr(captioner, "pruning", None), config, data)
    if phases_differ(config) and "fine_tune" in later:
        train_encoder(captioner, "fine_tune")
        gate_for_fine_tuning(captioner, config, steps["fine_tune"], restored=True)
