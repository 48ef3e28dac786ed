"""What happens at the end of an epoch: validation by decoding, checkpoint, history, TensorBoard."""

import importlib.util
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import keras
import tensorflow as tf

from tfsparsecap.data.records import Record
from tfsparsecap.data.tokenizers import Tokenizer
from tfsparsecap.decoding import Decoder
from tfsparsecap.inference.scoring import scores_of
from tfsparsecap.inference.splits import caption_records
from tfsparsecap.runs.checkpoints import save_checkpoint
from tfsparsecap.runs.run_folder import RunFolder, best_epoch, of_phase


class Validation(keras.callbacks.Callback):
    """Captions validation images greedily and adds `validation_CIDEr` and `validation_BLEU-4` to the epoch's
    logs.

    Args:
        captioner: what is trained.
        records: the images, with captions; `batches`: their pictures, see `data.pipeline.image_batches`.
        max_length: tokens of a caption at most.
    """

    #: What it adds to the logs.
    NAMES = ("validation_CIDEr", "validation_BLEU-4")
    #: How many images each of them takes: CIDEr weighs words by how many images they are said of.
    FEWEST: ClassVar = {"validation_CIDEr": 2, "validation_BLEU-4": 1}

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
        scores = scores_of(captions)
        for name in self.NAMES:
            # One image has no CIDEr.
            if name.removeprefix("validation_") in scores:
                logs[name] = scores[name.removeprefix("validation_")]


class SaveEpoch(keras.callbacks.Callback):
    """Writes the checkpoint and `history.csv` after each epoch, and ends the training early where that is
    asked.

    Comes after every callback that adds to the logs.

    Args:
        folder: of the run.
        optimizer: whose variables are saved with the model's.
        history: rows of the epochs before; the new ones are appended.
        phase: `"train"` or `"fine_tune"`.
        sparsity: gives the target of a pruned model, None where any sparsity will do: only epochs that have
            it can be the best. Asked each time, since some methods know it only in the end.
        patience: epochs without a better validation CIDEr after which training ends; None never does.
        phases_differ: only epochs of this phase can be the best.
    """

    def __init__(
        self,
        folder: RunFolder,
        optimizer: keras.optimizers.Optimizer,
        history: list[dict[str, Any]],
        phase: str,
        sparsity: Callable[[], float | None] = lambda: None,
        patience: int | None = None,
        phases_differ: bool = False,
    ):
        super().__init__()
        self.folder, self.optimizer, self.history, self.phase = folder, optimizer, history, phase
        self.sparsity, self.patience, self.phases_differ = sparsity, patience, phases_differ

    def on_epoch_end(self, epoch, logs=None):
        rate = float(keras.ops.convert_to_numpy(self.optimizer.learning_rate))
        self.history.append({"epoch": epoch + 1, "phase": self.phase, "learning_rate": rate, **logs})
        target = self.sparsity()
        rows = of_phase(self.history, self.phase) if self.phases_differ else self.history
        best = best_epoch(rows, target)
        notes = {"epoch": epoch + 1, "phase": self.phase, "history": self.history}
        save_checkpoint(self.folder.checkpoint(epoch + 1), self.model, self.optimizer, notes)
        self.folder.write_history(self.history)
        self.folder.drop_old_checkpoints(epoch + 1, best)
        if ends_early(self.history, self.phase, target, self.patience):
            self.model.stop_training = True


def ends_early(
    history: list[dict[str, Any]], phase: str, sparsity: float | None, patience: int | None
) -> bool:
    """Whether the last `patience` epochs of a phase brought no better CIDEr at the final sparsity."""
    rows = of_phase(history, phase)
    best = best_epoch(rows, sparsity)
    return patience is not None and best is not None and rows[-1]["epoch"] - best >= patience


class TimeLeft(keras.callbacks.Callback):
    """Says after each epoch how long the others will take; Keras's bar knows the end of its own epoch alone.

    Args:
        say: gets the sentence.
    """

    def __init__(self, say: Callable[[str], None]):
        super().__init__()
        self.say = say
        self.began: float | None = None

    def on_epoch_begin(self, epoch, logs=None):
        # Said here, so that validation and checkpoint of the epoch before are in its time.
        now, epochs = time.monotonic(), self.params["epochs"]
        if self.began is not None:
            minutes = (now - self.began) * (epochs - epoch) / 60
            self.say(f"{epoch} of {epochs} epochs done, about {duration(minutes)} left")
        self.began = now


def duration(minutes: float) -> str:
    """A time as people say it.

    Example:
        >>> duration(0.4), duration(7.2), duration(95)
        ('24 s', '7 min', '1 h 35 min')
    """
    if minutes < 1:
        return f"{60 * minutes:.0f} s"
    hours, rest = divmod(round(minutes), 60)
    return f"{hours} h {rest} min" if hours else f"{rest} min"


class TensorBoard(keras.callbacks.Callback):
    """Scalars of every epoch for TensorBoard; Keras's own callback asks for a compiled model.

    Args:
        folder: where the logs go.
    """

    def __init__(self, folder: Path):
        super().__init__()
        self.writer = tf.summary.create_file_writer(str(folder))

    @staticmethod
    def available() -> bool:
        """Whether the optional package is installed."""
        return importlib.util.find_spec("tensorboard") is not None

    def on_epoch_end(self, epoch, logs=None):
        with self.writer.as_default():
            for name, value in logs.items():
                tf.summary.scalar(name, value, step=epoch + 1)
        self.writer.flush()

    def on_train_end(self, logs=None):
        self.writer.close()
