"""Which gates a run has in which phase: the captioner's, and the encoder's by the SMP paper's schemes."""

import contextlib
import inspect
from collections.abc import Iterator, Sequence

import numpy as np

from tfsparsecap.errors import InputError
from tfsparsecap.models.captioner import Captioner
from tfsparsecap.pruning import FrozenMask, PruningMethod, fix_zeros, prune, registry, strip_pruning
from tfsparsecap.settings.schema import ENCODER_SCHEMES, Config


def draws_from_run(config: Config) -> bool:
    """Whether the run draws a lottery ticket from the run that it starts from, and so needs what that one
    started with."""
    pruning = config.pruning
    return pruning is not None and pruning.method == "lottery" and pruning.options.get("rounds") == 0


def gate_captioner(
    captioner: Captioner,
    config: Config,
    total_steps: int,
    *,
    initial_weights: Sequence[np.ndarray] | None = None,
    restored: bool = False,
) -> None:
    """Puts the gates of the first phase on, as `config.pruning` says; null leaves the captioner dense.

    Args:
        total_steps: optimizer steps of the phase, whose epochs (`training.epochs`) have equally many.
        initial_weights: for a lottery ticket from a trained run, see `draws_from_run`.
        restored: weights and masks come from a checkpoint afterwards.

    Raises:
        InputError: the method cannot do what is asked of it.
    """
    settings = config.pruning
    if settings is None or settings.encoder == "B":
        return
    method = _method(config, total_steps, config.training.epochs, initial_weights, restored)
    encoder = captioner.encoder
    # Frozen layers are left alone anyway, and scheme A has their gates learn.
    learns_only = encoder is not None and encoder.trainable and settings.encoder is not True
    skip = encoder.name if learns_only else ()
    _prune(captioner, config, method, skip=skip, prune_frozen=settings.encoder == "A")


def phases_differ(config: Config) -> bool:
    """Whether fine-tuning has other gates than the phase before it, whose epochs then do not compare."""
    return config.pruning is not None and config.pruning.encoder in ENCODER_SCHEMES


def gate_for_fine_tuning(
    captioner: Captioner, config: Config, total_steps: int, *, restored: bool = False
) -> None:
    """Changes the gates for the phase in which the encoder is trained, too.

    - Scheme A: encoder and decoder are pruned in the first phase, the encoder's weights being frozen; here
      all masks stay as they are.
    - Scheme B: nothing is pruned in the first phase; here everything is.
    - Scheme C: the decoder is pruned in the first phase; here its mask stays, and the encoder is pruned.

    Without a scheme the gates of the first phase go on. Call it with an encoder that is trainable.

    Args: as of `gate_captioner`.
    """
    settings = config.pruning
    if settings is None or settings.encoder not in ENCODER_SCHEMES:
        return
    if settings.encoder != "B":
        strip_pruning(captioner)
    if settings.encoder == "A":
        method = FrozenMask(block_shape=settings.block_shape)
        method.restored = restored
    else:
        method = _method(config, total_steps, config.training.fine_tune.epochs)
    if settings.encoder == "C":
        fix_zeros(captioner, skip=captioner.encoder.name, block_shape=settings.block_shape)
    _prune(captioner, config, method)


def _method(
    config: Config,
    total_steps: int,
    epochs: int,
    initial_weights: Sequence[np.ndarray] | None = None,
    restored: bool = False,
) -> PruningMethod:
    settings = config.pruning
    options = dict(settings.options)
    if "steps_per_epoch" in inspect.signature(registry.METHODS[settings.method]).parameters:
        options["steps_per_epoch"] = max(1, total_steps // max(1, epochs))
    if initial_weights is not None:
        options["initial_weights"] = initial_weights
    with _named(config):
        method = registry.get(
            settings.method,
            sparsity=settings.sparsity,
            total_steps=total_steps,
            block_shape=settings.block_shape,
            **options,
        )
    if restored:
        # A method that looks at the weights to choose its mask has chosen long ago.
        method = type(method).from_config(method.get_config())
    return method


def _prune(captioner: Captioner, config: Config, method: PruningMethod, **options) -> None:
    with _named(config):
        prune(captioner, method, **options)


@contextlib.contextmanager
def _named(config: Config) -> Iterator[None]:
    try:
        yield
    except InputError as error:
        raise InputError(f"pruning.method={config.pruning.method}: {error}") from error
