"""Removes channels of the image encoder while a captioner is trained: the setting `training.slim`."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import keras
import numpy as np

from tfsparsecap.captioning.data.images import read_image
from tfsparsecap.captioning.data.records import Record
from tfsparsecap.captioning.models.image_encoders.encoder_base import Encoder
from tfsparsecap.captioning.runs.run_folder import RunFolder
from tfsparsecap.captioning.settings.sections import Slim
from tfsparsecap.core.files import atomic_path
from tfsparsecap.core.keras_internals import restart_averages
from tfsparsecap.core.saved_models import load_model
from tfsparsecap.errors import InputError, error_prefix
from tfsparsecap.model_summary.summary_tables import amount
from tfsparsecap.slimming.channel_choice import RatioError
from tfsparsecap.slimming.compiled import carry_state
from tfsparsecap.slimming.iterative import regularize_gammas
from tfsparsecap.slimming.options import Options
from tfsparsecap.slimming.plan import plan_removal, whole_of
from tfsparsecap.slimming.rebuild import Pair

#: Images that choose and predict channels, and images in a batch.
SAMPLES, BATCH = 64, 16


def sample_batches(encoder: Encoder, records: Sequence[Record]) -> list[np.ndarray]:
    """Images for `sc.slim`, evenly spread over the records; those that cannot be read are left out.

    Args:
        encoder: defines the size and the preprocessing.
        records: of the training split.

    Returns:
        Batches of at most `BATCH` inputs of `encoder.backbone`, float32 [B, S, S, 3], `SAMPLES` together or
        fewer.

    Raises:
        InputError: no image can be read; the reason of the last one.
    """
    images, problem = [], InputError("there are no training images")
    for index in np.linspace(0, len(records) - 1, min(len(records), SAMPLES)).astype(int):
        try:
            images.append(read_image(records[index].image, encoder.image_size))
        except InputError as error:
            problem = error
    if not images:
        raise problem
    scaled = np.array(encoder.preprocess(np.stack(images).astype("float32")))
    return [scaled[start : start + BATCH] for start in range(0, len(scaled), BATCH)]


def penalise_gammas(encoder: Encoder | None, weight: float) -> None:
    """Adds the loss of `training.gamma_l2`; it replaces that of an earlier run. Slim copies keep it.

    Raises:
        InputError: the encoder has no batch normalisation with a gamma, as those of `.onnx` files.
    """
    if encoder is not None:
        with error_prefix("training.gamma_l2"):
            regularize_gammas(encoder.backbone, weight)


class EncoderSlimming:
    """Iterative channel pruning of an encoder, as `sc.Slim` does it for a model in `fit`.

    Args:
        settings: ratio, iterations, budget and criterion.
        encoder: with all its channels.
        records: of the training split, whose images are the samples of `sample_batches`.

    Raises:
        InputError: so much cannot be removed.
    """

    def __init__(self, settings: Slim, encoder: Encoder, records: Sequence[Record]) -> None:
        self.settings, self.encoder, self._records = settings, encoder, records
        self._carried: tuple[list[Pair], np.ndarray] | None = None
        with error_prefix("training.slim"):
            self._options = Options(settings.budget, settings.criterion)
            try:
                self._whole = whole_of(encoder.backbone, settings.ratio, self._options)
            except RatioError as error:
                raise error.of_setting("ratio", settings.ratio) from error

    def begin(self, iteration: int, folder: RunFolder) -> str:
        """Removes the channels of an iteration, counted from 1, and writes the network into the run's folder.

        Returns:
            A sentence about it.
        """
        message = self._remove(iteration)
        self.save(folder.slim_encoder(iteration))
        # That of the last iteration stays, in case the next checkpoint is damaged.
        folder.slim_encoder(iteration - 2).unlink(missing_ok=True)
        return message

    def _remove(self, iteration: int) -> str:
        ratio = self.settings.ratio * iteration / self.settings.iterations
        options = replace(self._options, samples=sample_batches(self.encoder, self._records))
        plan = plan_removal(self.encoder.backbone, ratio, options, self._whole)
        self._carried = None
        if plan is None:
            return f"iteration {iteration} of {self.settings.iterations}: the one before has removed enough"
        slim, pairs, alive = plan.apply_with_pairs()
        self._carried = pairs, alive
        self.encoder.replace(slim)
        before, after = plan.before, plan.after
        return (
            f"iteration {iteration} of {self.settings.iterations}: the encoder keeps {after.channels} of"
            f" {before.channels} channels, {amount(after.flops)} of {amount(before.flops)} multiply-adds"
        )

    def carry_over(self, old: keras.Optimizer, new: keras.Optimizer) -> None:
        """Gives a built optimizer the state that the one before the last removal has of all that stays.

        Averages of the weights, which are in the model now, start anew.
        """
        pairs, alive = self._carried or ([], np.ones(0, bool))
        carry_state(old, new, pairs, alive)
        restart_averages(new)

    def save(self, path: Path) -> None:
        """Writes the encoder's network to a `.keras` file."""
        with atomic_path(path) as temporary:
            self.encoder.backbone.save(temporary)

    def load(self, path: Path) -> None:
        """Restores the network that `save` has written.

        Raises:
            InputError: the file is missing or damaged.
        """
        self.encoder.replace(load_model(path, "copy it there again, or train under another name="))
