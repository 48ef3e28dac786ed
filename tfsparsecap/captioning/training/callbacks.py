"""Callbacks of a run: validation by decoding, checkpoints and history, time left."""

import time
import warnings
from collections.abc import Callable
from typing import Any, ClassVar

import keras
import tensorflow as tf

from tfsparsecap.captioning.data.records import CaptionData, Record
from tfsparsecap.captioning.data.tokenizers import Tokenizer
from tfsparsecap.captioning.inference.scoring import scores_of
from tfsparsecap.captioning.inference.splits import caption_records
from tfsparsecap.captioning.runs.checkpoints import save_checkpoint
from tfsparsecap.captioning.runs.run_folder import RunFolder, best_epoch, of_phase
from tfsparsecap.captioning.search.beam_search import Decoder
from tfsparsecap.captioning.settings.schema import Config
from tfsparsecap.captioning.training.distribution import gather
from tfsparsecap.errors import InputError
from tfsparsecap.pruning.feedback import ValidationDriven


def validation_records(config: Config, data: CaptionData) -> list[Record]:
    """The images that are captioned after each epoch of a run."""
    return data.split("validation")[: config.training.validation_images]


class Validation(keras.callbacks.Callback):
    """Captions validation images greedily and adds `validation_CIDEr` and `validation_BLEU-4` to the logs.

    The search is plain, without rules for complete sentences.

    Args:
        captioner: the captioner in training.
        records: the images with their reference captions.
        batches: the same images, see `data.pipeline.image_batches`.
        tokenizer: of the captioner.
        max_length: maximum number of tokens in a caption.
    """

    #: The scores, and how many images each needs: CIDEr weighs words by the number of images they occur in.
    SCORES: ClassVar = {"validation_CIDEr": 2, "validation_BLEU-4": 1}

    @classmethod
    def check_metric(cls, method: object, config: Config, data: CaptionData) -> None:
        """Checks that a validation computes the score that a pruning method follows, if it follows one.

        Raises:
            InputError: it does not.
        """
        if not isinstance(method, ValidationDriven):
            return
        images = len(validation_records(config, data))
        names = [name for name, fewest in cls.SCORES.items() if images >= fewest]
        if method.metric in cls.SCORES and method.metric not in names:
            raise InputError(
                f"{type(method).__name__} needs {method.metric}, but there are {images} validation images:"
                " set training.validation_images higher, and give data with a validation split"
            )
        method.check_metric(["loss", *names])

    def __init__(
        self,
        captioner: keras.Model,
        records: list[Record],
        batches: tf.data.Dataset,
        tokenizer: Tokenizer,
        max_length: int,
    ):
        super().__init__()
        self.records, self.batches, self.tokenizer = records, batches, tokenizer
        self.decoder = Decoder(captioner, beam=1, max_length=max_length)

    def on_epoch_end(self, epoch, logs=None):
        captions, _ = caption_records(self.decoder, self.records, self.batches, self.tokenizer)
        try:
            scores = {f"validation_{name}": score for name, score in scores_of(captions).items()}
        except InputError as error:  # no image can be read, or no caption has a word
            warnings.warn(f"there are no validation scores: {error}", stacklevel=2)
            return
        logs.update((name, scores[name]) for name in self.SCORES if name in scores)


class ShareLogs(keras.callbacks.Callback):
    """Gives all workers the logs of the chief, so that all decide alike.

    It must come after every callback of the chief that adds to the logs.

    Args:
        strategy: of the training.
    """

    def __init__(self, strategy: tf.distribute.Strategy):
        super().__init__()
        self.strategy = strategy

    def on_epoch_end(self, epoch, logs=None):
        shared = gather(self.strategy, logs)[0]
        logs.clear()
        logs.update(shared)


class SaveEpoch(keras.callbacks.Callback):
    """Writes a checkpoint and `history.csv` after each epoch.

    The history has the sparsity of each layer, too, as in Figure 2 of the RNN-SMP paper. The callback must
    come after every callback that adds to the logs.

    Args:
        folder: of the run.
        history: rows of previous epochs; this callback appends the new ones.
        phase: name of the phase.
        sparsity: returns the final sparsity of a pruned model, or None: only epochs with that sparsity can
            be the best. It is called after each epoch, because some methods know it only at the end.
        phases_differ: only epochs of this phase can be the best.
        writes: whether to write; workers other than the chief only append to the history.
    """

    def __init__(
        self,
        folder: RunFolder,
        history: list[dict[str, Any]],
        phase: str,
        sparsity: Callable[[], float | None] = lambda: None,
        phases_differ: bool = False,
        writes: bool = True,
    ):
        super().__init__()
        self.folder, self.history, self.phase = folder, history, phase
        self.sparsity, self.phases_differ, self.writes = sparsity, phases_differ, writes

    def on_epoch_end(self, epoch, logs=None):
        optimizer, number = self.model.optimizer, epoch + 1
        rate = float(keras.ops.convert_to_numpy(optimizer.learning_rate))
        row = {"epoch": number, "phase": self.phase, "learning_rate": rate, **logs}
        self.history.append(row | layer_sparsities(self.model))
        if not self.writes:
            return
        rows = of_phase(self.history, self.phase) if self.phases_differ else self.history
        objects = list(getattr(self.model, "objects", ()))
        notes = {"epoch": number, "phase": self.phase, "history": self.history, "objects": objects}
        save_checkpoint(self.folder.checkpoint(number), self.model, self.model.optimizer, notes)
        self.folder.write_history(self.history)
        self.folder.drop_old_checkpoints(number, best_epoch(rows, self.sparsity()))


def layer_sparsities(model: keras.Model) -> dict[str, float]:
    """The share of closed gates of each pruned weight, as columns of `history.csv`: `sparsity/PATH`."""
    method = getattr(model, "pruning", None)
    if method is None:
        return {}
    pairs = zip(method.classes(), method.gates, strict=True)
    return {f"sparsity/{path}": 1.0 - float(gate.open_count()) / size for (path, size, _), gate in pairs}


class TimeLeft(keras.callbacks.Callback):
    """Reports after each epoch how long the remaining epochs will take; Keras's bar covers one epoch only.

    Args:
        report: called with the message.
        more_epochs: epochs of later iterations of `training.slim`.
    """

    def __init__(self, report: Callable[[str], None], more_epochs: int = 0):
        super().__init__()
        self.report, self.more_epochs = report, more_epochs
        self.began: float | None = None

    def on_epoch_begin(self, epoch, logs=None):
        # Measured here, so that the time includes validation and checkpoint of the previous epoch.
        now, epochs = time.monotonic(), self.params["epochs"] + self.more_epochs
        if self.began is not None:
            minutes = (now - self.began) * (epochs - epoch) / 60
            self.report(f"{epoch} of {epochs} epochs done, about {duration(minutes)} left")
        self.began = now


def duration(minutes: float) -> str:
    """A duration as text.

    Examples:
        >>> duration(0.4), duration(7.2), duration(95)
        ('24 s', '7 min', '1 h 35 min')
    """
    if minutes < 1:
        return f"{60 * minutes:.0f} s"
    hours, minutes = divmod(round(minutes), 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min"
