"""How a training starts: with new weights, those of another run (`training.start_from`) or a checkpoint."""

import itertools
from collections.abc import Callable
from pathlib import Path

import numpy as np

from tfsparsecap.captioning.data.records import CaptionData, shown
from tfsparsecap.captioning.inference.finished_run import FinishedRun
from tfsparsecap.captioning.models.captioner_base import Captioner
from tfsparsecap.captioning.runs.checkpoints import load_weights, newest_intact, read_notes
from tfsparsecap.captioning.runs.run_folder import RunFolder
from tfsparsecap.captioning.settings.build import make_captioner, objects_of
from tfsparsecap.captioning.settings.schema import Config
from tfsparsecap.captioning.training.gating import rewinds_to_initial_weights
from tfsparsecap.captioning.training.phases import phases
from tfsparsecap.errors import InputError
from tfsparsecap.model_summary.nonzeros import weight_counts

# Size of the vocabulary of captioners that are compared.
_TOKENS = 8


def load_start(config: Config) -> FinishedRun:
    """The run in `training.start_from`.

    Raises:
        InputError: it is not finished, or encodes words differently from `config`.
    """
    assert config.training.start_from is not None
    start = FinishedRun.load(Path(config.training.start_from).expanduser())
    check_tokens(start.config, config, f"training.start_from: the run in {config.training.start_from}")
    return start


def check_tokens(theirs: Config, config: Config, run: str) -> None:
    """Checks that a run encodes words like the one that starts from it, `config`.

    Args:
        run: names the run in the message.

    Raises:
        InputError: it does not.
    """
    for name in ("radix_base", "sentencepiece"):
        value, own = getattr(theirs.data, name), getattr(config.data, name)
        if (value is None) != (own is None) or (name == "radix_base" and value != own):
            raise InputError(
                f"{run} has data.{name}={value or 'null'}, this one {own or 'null'}: set the same value"
            )


def check_start(start: Config, config: Config, run: str) -> None:
    """Checks that a run can start from another one, before that one is trained.

    Captioners are made and compared if more than their dropout differs, but no data is read.

    Args:
        start: settings of the run that is trained first.
        config: settings of the run that starts from it.
        run: what messages call the first one.

    Raises:
        InputError: they do not fit together.
    """
    check_tokens(start, config, run)
    if rewinds_to_initial_weights(config) and not start.training.keep_initial:
        raise InputError(
            f"{run} does not keep its initial weights, with which a lottery ticket starts: set"
            " training.keep_initial=true for it"
        )
    frozen = config.pruning is not None and config.pruning.method == "frozen"
    if frozen and start.pruning is None and start.training.start_from is None:
        raise InputError(
            f"{run} is not pruned, so there are no zeros for pruning.method=frozen to keep: prune it, or"
            " choose another method"
        )
    sizes = [
        {name: value for name, value in settings.model.model_dump().items() if "dropout" not in name}
        for settings in (start, config)
    ]
    if sizes[0] == sizes[1]:
        return
    # The run takes the vocabulary of the one that it starts from, so that any size will do.
    made = [make_captioner(settings, _TOKENS, weights=False) for settings in (start, config)]
    differs = differing_weight(*made)
    if differs:
        raise InputError(
            f"{run} has another captioner, from which this one cannot start ({differs}): set the same"
            " sizes and the same encoder"
        )


def load_initial_weights(config: Config, captioner: Captioner) -> list[np.ndarray]:
    """The weights that the run in `training.start_from` started with, in the order of `get_weights()`.

    Raises:
        InputError: the run did not keep them, or its captioner is another one.
    """
    assert config.training.start_from is not None
    folder = RunFolder(Path(config.training.start_from).expanduser())
    if not folder.initial.is_file():
        raise InputError(
            f"a lottery ticket is rewound to the initial weights of its run, but {folder.path} has no"
            f" checkpoints/{folder.initial.name}: train that run with training.keep_initial=true, or let this"
            " run train first (pruning.rounds=1, training.start_from=null)"
        )
    return load_weights(folder.initial, captioner)


def newest_checkpoint(config: Config, folder: RunFolder, report: Callable[[str], None]) -> Path | None:
    """The newest intact checkpoint of a run; None if there is none yet.

    Args:
        report: called with what is wrong with newer ones, and with the epoch.
    """
    path, damaged = newest_intact(folder.checkpoint_files(), [phase.name for phase in phases(config)])
    for what in damaged:
        report(f"ignored: {what}")
    if path is None:
        report("there is no complete checkpoint yet: starting from the beginning")
    else:
        report(f"resuming after epoch {read_notes(path)['epoch']}")
    return path


def objects_of_run(
    config: Config,
    data: CaptionData,
    start: FinishedRun | None,
    checkpoint: Path | None,
    report: Callable[[str], None],
) -> tuple[str, ...]:
    """Names of the objects that a run's captioner predicts.

    They are those of the checkpoint or of the run that it starts from, otherwise the labels of the data.

    Raises:
        InputError: the run that it starts from and the data have different objects.
    """
    labelled, where = objects_of(config, data), config.training.start_from
    if checkpoint is not None:
        return tuple(read_notes(checkpoint).get("objects", labelled))
    if start is None:
        return labelled
    objects = start.captioner.objects
    if labelled and not objects:
        report(f"the captioner in {where} predicts no objects: the labels of {data.name} are not used")
    elif labelled and objects != labelled:
        different = shown(sorted({*objects} ^ {*labelled}))
        raise InputError(
            f"training.start_from: the captioner in {where} predicts {len(objects)} objects, but"
            f" {len(labelled)} are labelled in {data.name} (only one of the two has {different}): give data"
            " with the same labels, or set training.object_weight=0 to train without them"
        )
    return objects


def start_with(start: Captioner, captioner: Captioner, config: Config, report: Callable[[str], None]) -> None:
    """Copies all weights of `start`, the captioner of the run in `training.start_from`, to `captioner`.

    Raises:
        InputError: the captioners differ.
    """
    where = config.training.start_from
    differs = differing_weight(start, captioner)
    if differs:
        raise InputError(
            f"training.start_from: the captioner in {where} is different ({differs}): use the model settings"
            " of its config.yaml"
        )
    captioner.set_weights(start.get_weights())
    report(f"starting with the weights of {where}")
    zeros = weight_counts(captioner)["sparsity"]
    if config.pruning is None and zeros > 0.2:
        report(
            f"{zeros:.0%} of its weights are zero and will be trained: pruning.method=frozen"
            f" pruning.sparsity={zeros:.3g} keeps them zero"
        )


def differing_weight(start: Captioner, captioner: Captioner) -> str:
    """The first weight in which two captioners differ, in words; empty if one can start with the other's."""
    for own, other in itertools.zip_longest(captioner.weights, start.weights):
        if own is None or other is None or own.name != other.name or own.shape != other.shape:
            weight = own if other is None else other
            return f"{weight.path} of shape {tuple(weight.shape)} does not match"
    return ""


def start_at_frequencies(captioner: Captioner, targets: np.ndarray) -> None:
    """Sets the biases of the output layer to the logarithms of the frequencies of the tokens.

    The captioner then starts with the tokens' frequencies as its prediction, and does not spend its first
    steps on them: with biases of zero, an LSTM saturates its units in order to express them.

    Args:
        captioner: a new captioner of this package.
        targets: int [N, T], the tokens that it learns to predict; padding is ignored.
    """
    counts = np.bincount(targets[targets != captioner.pad_id], minlength=captioner.vocabulary_size)
    # One more for each, so that every token remains possible.
    captioner.output_layer.bias.assign(np.log((counts + 1) / (counts + 1).sum()))
