"""What is pruned in a run: the gates of each phase, and the channels that `training.slim` removes."""

import inspect
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import keras
import numpy as np

from tfsparsecap.captioning.data.images import read_image
from tfsparsecap.captioning.data.records import Record
from tfsparsecap.captioning.data.tokenizers import Tokenizer
from tfsparsecap.captioning.models.captioner_base import Captioner
from tfsparsecap.captioning.models.image_encoders.encoder_base import Encoder
from tfsparsecap.captioning.runs.run_folder import RunFolder
from tfsparsecap.captioning.settings.build import make_captioner
from tfsparsecap.captioning.settings.schema import ENCODER_SCHEMES, Config, Pruning
from tfsparsecap.captioning.settings.sections import SlimSettings
from tfsparsecap.core.array_files import spread
from tfsparsecap.core.files import atomic_path
from tfsparsecap.core.keras_internals import restart_averages
from tfsparsecap.core.saved_models import load_model
from tfsparsecap.errors import InputError, error_prefix
from tfsparsecap.gates import gates
from tfsparsecap.model_summary.summary_tables import amount
from tfsparsecap.pruning import FrozenMask, PruningMethod, fix_zeros, prune, registry, strip_pruning
from tfsparsecap.slimming.channel_choice import RatioError
from tfsparsecap.slimming.compiled import carry_state
from tfsparsecap.slimming.iterative import regularize_gammas
from tfsparsecap.slimming.options import Options
from tfsparsecap.slimming.plan import original_sizes, plan_removal
from tfsparsecap.slimming.rebuild import Pair


def rewinds_to_initial_weights(config: Config) -> bool:
    """Whether the run is a lottery ticket of `training.start_from`, and needs that run's initial weights."""
    pruning = config.pruning
    return pruning is not None and pruning.method == "lottery" and pruning.options.get("rounds") == 0


def phases_differ(config: Config) -> bool:
    """Whether fine-tuning has other gates than the first phase, so that their epochs cannot be compared."""
    return config.pruning is not None and config.pruning.encoder in ENCODER_SCHEMES


def train_encoder(captioner: Captioner, kind: str) -> None:
    """Makes the encoder trainable for `fine_tune`, and freezes it for `scst`, see `Phase.kind`."""
    if captioner.encoder is not None and kind != "train":
        captioner.encoder.trainable = kind == "fine_tune"


def gate_captioner(
    captioner: Captioner,
    config: Config,
    total_steps: int,
    *,
    kind: str = "train",
    initial_weights: Sequence[np.ndarray] | None = None,
    restored: bool = False,
) -> None:
    """Adds the gates of the first phase, and trains or freezes the encoder as the phase requires.

    Args:
        captioner: is changed in place; stays dense if `config.pruning` is None.
        config: settings of the run.
        total_steps: optimizer steps in all epochs of the phase.
        kind: of the phase, see `Phase.kind`.
        initial_weights: for a lottery ticket, see `rewinds_to_initial_weights`.
        restored: weights and masks will be loaded from a checkpoint.

    Raises:
        InputError: the method rejects an option or the captioner.
    """
    settings = config.pruning
    # A mask of the whole captioner includes an encoder that is frozen from now on; other methods would close
    # gates that get no gradient.
    freeze_later = kind == "scst" and settings is not None and settings.method == "frozen"
    if not freeze_later:
        train_encoder(captioner, kind)
    if settings is None or settings.encoder == "B":
        return
    if settings.encoder == "C" and settings.options.get("paper") == "soft_attention_with_encoder":
        # The decoder is pruned alone, with the weight of the loss of the papers' other pruned decoders.
        settings = settings.model_copy(update={"paper": "soft_attention"})
    with error_prefix(f"pruning.method={settings.method}"):
        method = make_method(settings, total_steps, config.training.epochs, initial_weights)
        if restored:
            # A method that computes its mask from the weights must not do so again.
            method = type(method).from_config(method.get_config())
        encoder = captioner.encoder
        # `prune` skips layers that are frozen, unless scheme A trains their gates.
        only_trained = encoder is not None and encoder.trainable and settings.encoder is not True
        skip = encoder.name if only_trained else ()
        prune(captioner, method, skip=skip, prune_frozen=settings.encoder == "A")
    if freeze_later:
        train_encoder(captioner, kind)


def gate_for_fine_tuning(
    captioner: Captioner, config: Config, total_steps: int, *, restored: bool = False
) -> None:
    """Changes the gates for fine-tuning, in which the encoder is trained, too.

    - Scheme A: encoder and decoder were pruned in the first phase; now all masks are fixed.
    - Scheme B: nothing was pruned in the first phase; now everything is.
    - Scheme C: the decoder was pruned in the first phase; now its mask is fixed and the encoder is pruned.

    Without a scheme, the gates of the first phase stay. The encoder must be trainable already.

    Args: see `gate_captioner`.
    """
    settings = config.pruning
    if settings is None or not phases_differ(config):
        return
    if settings.encoder == "C":
        _strip(captioner, restored)
        fix_zeros(captioner, skip=captioner.encoder.name, block_shape=settings.block_shape)
    with error_prefix(f"pruning.method={settings.method}"):
        if settings.encoder == "A":
            fix_masks(captioner, settings.block_shape, restored=restored)
        else:
            prune(captioner, make_method(settings, total_steps, config.training.fine_tune.epochs))


def fix_masks(captioner: Captioner, block_shape: tuple[int, int], *, restored: bool) -> None:
    """Fixes all masks of a captioner that has been pruned; call it before its encoder is frozen.

    A method that follows a score may have pruned nothing: then all gates stay open.

    Args: see `gate_captioner`.
    """
    encoder = captioner.encoder
    dense_encoder = encoder is not None and not gates(encoder)
    _strip(captioner, restored)
    mask = FrozenMask(block_shape=block_shape)
    mask.restored, mask.accept_dense = restored, True
    prune(captioner, mask, skip=encoder.name if dense_encoder else ())


def _strip(captioner: Captioner, restored: bool) -> None:
    method = getattr(captioner, "pruning", None)
    if restored and method is not None:  # these gates were never trained, which is no mistake: no warning
        method.detach()
    strip_pruning(captioner)


def final_captioner(captioner: Captioner, config: Config, tokenizer: Tokenizer) -> Captioner:
    """The captioner that is saved: without gates, in float32, on one device."""
    captioner = strip_pruning(captioner)
    if config.training.precision == "float32" and config.training.distribution == "default":
        return captioner
    final = make_captioner(config, tokenizer, objects=captioner.objects, precision="float32", weights=False)
    final.set_weights(captioner.get_weights())
    return final


def make_method(
    settings: Pruning, total_steps: int, epochs: int, initial_weights: Sequence[np.ndarray] | None = None
) -> PruningMethod:
    """The pruning method that settings describe, for a phase of so many optimizer steps and epochs.

    Raises:
        InputError: the method rejects an option.
    """
    options = settings.options
    if "steps_per_epoch" in inspect.signature(registry.METHODS[settings.method]).parameters:
        options["steps_per_epoch"] = max(1, total_steps // max(1, epochs))
    if initial_weights is not None:
        options["initial_weights"] = initial_weights
    return registry.get(
        settings.method,
        sparsity=settings.sparsity,
        total_steps=total_steps,
        block_shape=settings.block_shape,
        **options,
    )


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
    for index in spread(len(records), SAMPLES):
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

    def __init__(self, settings: SlimSettings, encoder: Encoder, records: Sequence[Record]) -> None:
        self.settings, self.encoder, self._records = settings, encoder, records
        self._carried: tuple[list[Pair], np.ndarray] | None = None
        with error_prefix("training.slim"):
            self._options = Options(settings.budget, settings.criterion)
            try:
                self._original = original_sizes(encoder.backbone, settings.ratio, self._options)
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
        plan = plan_removal(self.encoder.backbone, ratio, options, self._original)
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
