"""`training.first`: a run that is trained before another one, which starts from it and learns from it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from tfsparsecap.errors import InputError
from tfsparsecap.runs.run_folder import RunFolder
from tfsparsecap.settings.build import load_data, make_captioner
from tfsparsecap.settings.checks import check_settings
from tfsparsecap.settings.files import with_changes
from tfsparsecap.settings.schema import Config
from tfsparsecap.training.phases import check_batches, phases
from tfsparsecap.training.start import check_start
from tfsparsecap.training.teachers import check_features, check_length

#: How messages call the first run.
_FIRST = "training.first: the run that is trained first"
# Size of the vocabulary of the captioner that is checked.
_TOKENS = 8


def first_and_second(config: Config, runs: str | Path = "runs") -> tuple[Config, Config]:
    """The settings of the two runs of a configuration with `training.first`.

    Args:
        config: settings with `training.first`.
        runs: folder of all runs.

    Returns:
        The settings of the first run, `NAME_first`, and of the second, whose `training.start_from` and
        `training.teacher` are the first run. With `training.teacher_weight=0` it has no teacher.

    Raises:
        InputError: they contradict each other, or a setting in `training.first` does not exist.

    Examples:
        >>> from tfsparsecap.settings.files import load_config
        >>> config = load_config(None, ["name=small", "training.first={pruning: null}"])
        >>> first, second = first_and_second(config)
        >>> first.name, first.pruning, second.training.start_from
        ('small_first', None, 'runs/small_first')
    """
    changes = config.training.first or {}
    given = config.training
    if given.start_from is not None or given.teacher:
        name = "start_from" if given.start_from is not None else "teacher"
        raise InputError(
            f"training.{name} and training.first are both set, but the run that is trained first is what this"
            f" one starts and learns from: remove training.{name}, or set training.first=null"
        )
    if given.distribution == "multi_worker":
        raise InputError(
            "training.first trains two runs in one process, which training.distribution=multi_worker does not"
            " support: set training.first=null"
        )
    nested = changes.get("training")
    for key, section in (("name", changes), ("first", nested)):
        if isinstance(section, dict) and key in section:
            raise InputError(f"training.first contains {key}, which is set for it: remove it")
    name = f"{config.name}_first"
    alone = with_changes(config, {"training": {"first": None}}, "in training.first")
    untaught = {"teacher_weight": 0.5, "teacher_captions": 0, "teacher_loss": "words", "feature_weight": 0}
    first = with_changes(alone, {"training": untaught}, "in training.first")
    first = with_changes(first, {**changes, "name": name}, "in training.first")
    where = (Path(runs) / name).as_posix()
    learning = {"start_from": where, "teacher": [where] if given.teacher_weight else []}
    second = with_changes(alone, {"training": learning}, "among the settings")
    return first, second


def check_fit(first: Config, second: Config) -> None:
    """Checks that the second run can start from the first one and learn from it, before that is trained.

    Captioners are made and compared, but no data is read.

    Args:
        first, second: see `first_and_second`.

    Raises:
        InputError: they do not fit together.
    """
    check_length(first, second, _FIRST)
    check_start(first, _whole(second) if first.training.slim is not None else second, _FIRST)
    if second.training.feature_weight:
        check_features(make_captioner(first, _TOKENS, weights=False), "the run of training.first")


def _whole(second: Config) -> Config:
    """The settings of the second run with the encoder before the first run has removed channels from it."""
    model = second.model
    if model.encoder is None or model.encoder.slimmed is None:
        raise InputError(
            f"{_FIRST} removes channels of the encoder (training.slim), which this one does not start with:"
            f" set model.encoder.slimmed={second.training.start_from}/encoder.keras for this one, or"
            " training.slim=null"
        )
    encoder = model.encoder.model_copy(update={"slimmed": None})
    return second.model_copy(update={"model": model.model_copy(update={"encoder": encoder})})


def train_first(
    config: Config,
    runs: str | Path,
    resume: bool,
    report: Callable[[str], None],
    train: Callable[..., dict[str, Any]],
) -> tuple[Config, bool]:
    """Trains the first run of a configuration with `training.first`, unless it is finished.

    Args:
        config: settings with `training.first`.
        runs: folder of all runs.
        resume: continue what is not finished.
        report: called with messages about the progress.
        train: trains a run; called with its settings and `resume`.

    Returns:
        The settings of the second run, and whether it is resumed.

    Raises:
        InputError: see `first_and_second` and `check_fit`; or the data do not fill a batch of the second run;
            or a folder exists and `resume` is False, or has other settings.
    """
    first, second = first_and_second(config, runs)
    folders = [RunFolder(Path(runs) / one.name) for one in (first, second)]
    begun = [folder.config_file.is_file() for folder in folders]
    if resume and not any(begun):
        folders[0].check(first, resume)  # says that there is nothing to resume
    for one, folder, exists in zip((first, second), folders, begun, strict=True):
        check_settings(one)
        finished = folder is folders[0] and folder.model.is_file()
        folder.check(one, exists and (resume or finished))
    if folders[0].model.is_file():
        report(f"{folders[0].path} is finished and is not trained again")
    else:
        check_fit(first, second)
        check_batches(phases(second), second, load_data(second))
        report(f"training {folders[0].path} first: {second.name} starts from it and learns from it")
        train(first, resume=begun[0])
    report(f"training {folders[1].path}")
    return second, begun[1]
