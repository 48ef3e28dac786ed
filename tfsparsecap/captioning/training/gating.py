"""Adds and changes gates in each phase of a run: on the decoder and, depending on the scheme, the encoder."""

import inspect
from collections.abc import Sequence

import numpy as np

from tfsparsecap.captioning.data.tokenizers import Tokenizer
from tfsparsecap.captioning.models.captioner_base import Captioner
from tfsparsecap.captioning.settings.build import make_captioner
from tfsparsecap.captioning.settings.schema import ENCODER_SCHEMES, Config, Pruning
from tfsparsecap.errors import error_prefix
from tfsparsecap.gates import gates
from tfsparsecap.pruning import FrozenMask, PruningMethod, fix_zeros, prune, registry, strip_pruning


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
            keep_masks(captioner, settings.block_shape, restored=restored)
        else:
            prune(captioner, make_method(settings, total_steps, config.training.fine_tune.epochs))


def keep_masks(captioner: Captioner, block_shape: tuple[int, int], *, restored: bool) -> None:
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
