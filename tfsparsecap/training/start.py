"""What a run starts with, where that is another run: `training.start_from`."""

import itertools

import numpy as np

from tfsparsecap.errors import InputError
from tfsparsecap.inference.finished_run import FinishedRun
from tfsparsecap.models.captioner import Captioner
from tfsparsecap.runs.checkpoints import load_weights
from tfsparsecap.runs.run_folder import RunFolder
from tfsparsecap.settings.schema import Config


def load_start(config: Config) -> FinishedRun:
    """The run that `training.start_from` names.

    Raises:
        InputError: it is not finished, or its words are written otherwise than those of `config`.
    """
    start = FinishedRun.load(config.training.start_from)
    for name in ("radix_base", "sentencepiece"):
        theirs, own = getattr(start.config.data, name), getattr(config.data, name)
        if (theirs is None) != (own is None) or (name == "radix_base" and theirs != own):
            raise InputError(
                f"training.start_from: the run in {config.training.start_from} has"
                f" data.{name}={theirs or 'null'}, this one {own or 'null'}: set the same"
            )
    return start


def initial_weights(config: Config, captioner: Captioner) -> list[np.ndarray]:
    """What the run that a lottery ticket is drawn from started with: arrays as `captioner.get_weights()` has.

    Raises:
        InputError: it did not keep them, or they are of another captioner.
    """
    folder = RunFolder(config.training.start_from)
    if not folder.initial.is_file():
        raise InputError(
            f"a lottery ticket goes back to what its run started with, and {folder.path} has no"
            f" checkpoints/{folder.initial.name}: train it with training.keep_initial=true, or let this run"
            " train first (pruning.rounds=1, training.start_from=null)"
        )
    return load_weights(folder.initial, captioner)


def take_weights(captioner: Captioner, start: Captioner, where: str) -> None:
    """Sets a captioner's weights to those of another one.

    Raises:
        InputError: they are not of the same sizes.
    """
    for own, other in itertools.zip_longest(captioner.weights, start.weights):
        if own is None or other is None or own.name != other.name or own.shape != other.shape:
            weight = own if other is None else other
            raise InputError(
                f"training.start_from: the model in {where} is another one ({weight.path} of shape"
                f" {tuple(weight.shape)} does not fit): give model settings as in its config.yaml"
            )
    captioner.set_weights(start.get_weights())
