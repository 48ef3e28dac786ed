"""All checks of settings before training, besides their types and ranges: what they require of each other."""

import inspect
import typing
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from pydantic import ConfigDict, ValidationError, create_model

from tfsparsecap.captioning import data as sources
from tfsparsecap.captioning.settings.config_files import sentence_of
from tfsparsecap.captioning.settings.schema import (
    ENCODER_SCHEMES,
    Config,
    EncoderSettings,
    Pruning,
    TransformerModel,
)
from tfsparsecap.captioning.settings.sections import Training
from tfsparsecap.errors import InputError, unknown_name
from tfsparsecap.pruning import registry

# Arguments of a data source and of a pruning method that the run sets itself.
_SET_FOR_SOURCES = ("folder", "on_bad_record")
_SET_FOR_METHODS = ("sparsity", "total_steps", "block_shape", "initial_weights", "steps_per_epoch")


def check_settings(config: Config) -> None:
    """Checks settings before training reads or writes anything.

    `Config` itself checks types, ranges and unknown keys. The rest is checked here, because only training
    requires it: a finished run may be used whose data or teachers have gone.

    Raises:
        InputError: an unknown method, source or option, or a setting that another one requires or excludes.
    """
    if config.model.encoder is not None:
        _check_encoder(config.model.encoder)
    _check_images(config)
    data_options(config)
    _check_phases(config.training)
    _check_losses(config)
    _check_scheme(config)
    if config.pruning is not None:
        _check_pruning(config.pruning, config.training)


def data_options(config: Config) -> dict[str, Any]:
    """The options of the data source (extra keys of `data`), converted to the types of its `load` function.

    Raises:
        InputError: an unknown source or option, a wrong type, or no folder.
    """
    data = config.data
    if data.kind not in sources.SOURCES:
        raise unknown_name("data.kind", data.kind, sources.SOURCES)
    function, chosen = sources.SOURCES[data.kind], f"data.kind={data.kind}"
    options = check_options("data", data.options, function, _SET_FOR_SOURCES, chosen)
    if data.folder is None and data.kind != "scenes":
        raise InputError(
            f"data.folder is not set: give the folder of the {data.kind} data with data.folder=FOLDER (train,"
            " study) or --data FOLDER (other commands)"
        )
    return options


def check_options(
    section: str,
    options: dict[str, Any],
    function: Callable[..., Any],
    reserved: Sequence[str],
    chosen: str = "",
) -> dict:
    """Checks the extra keys of a section against the keyword arguments of the function that takes them.

    Args:
        section: name of the section, for the message.
        options: names and values as read.
        function: its signature gives the allowed names and types.
        reserved: arguments that are not options, because the run sets them.
        chosen: the setting that chose the function, such as `pruning.method=snip`, for the message.

    Returns:
        The options, converted to the types of the signature.

    Raises:
        InputError: an unknown name or a wrong type.
    """
    annotations = typing.get_type_hints(inspect.unwrap(function))
    fields: dict[str, Any] = {
        name: (annotations.get(name, Any), ... if parameter.default is parameter.empty else parameter.default)
        for name, parameter in inspect.signature(function).parameters.items()
        if name not in (*reserved, "self") and parameter.kind is not parameter.VAR_KEYWORD
    }
    settings = ConfigDict(extra="forbid", arbitrary_types_allowed=True)
    try:
        checked = create_model("Options", __config__=settings, **fields).model_validate(options)
    except ValidationError as error:
        place = "among the settings"
        if chosen and any(detail["type"] == "extra_forbidden" for detail in error.errors()):
            names = ", ".join(f"{section}.{name}" for name in fields)
            place = f"of {chosen}, " + (f"whose options are {names}" if names else "which has no options")
        message = sentence_of(error, Config, lambda key: place, section, list(fields))
        raise InputError(message) from error
    return {name: getattr(checked, name) for name in options}


def _check_encoder(encoder: EncoderSettings) -> None:
    mobilenet, weights = encoder.network == "mobilenet_v1", encoder.weights
    if mobilenet and weights not in (None, "imagenet") and not Path(weights).expanduser().is_dir():
        raise InputError(
            f"model.encoder.weights is {weights!r}: use imagenet, null or the folder of a run for"
            " mobilenet_v1"
        )
    if encoder.network == "inception_v1" and weights == "imagenet":
        raise InputError(
            "model.encoder.weights is 'imagenet', which inception_v1 does not have: give the path of"
            " TF-Slim's inception_v1.ckpt, or null"
        )
    if not mobilenet and encoder.width != EncoderSettings.model_fields["width"].default:
        raise InputError(
            f"model.encoder.width is {encoder.width}, but {encoder.network} has no width multiplier: remove"
            " it, or set model.encoder.network=mobilenet_v1"
        )


def _check_images(config: Config) -> None:
    data, encoder = config.data, config.model.encoder
    if data.features is None and encoder is None:
        raise InputError(
            "model.encoder is null and data.features is not set: set data.features=FOLDER (the folder that"
            " contains cocobu_att/), or give the captioner an encoder"
        )
    if data.features is not None and encoder is not None:
        raise InputError(
            "data.features and model.encoder are both set: set model.encoder=null to train on features, or"
            " data.features=null to train on images"
        )
    if encoder is None and (data.augmentation or config.training.fine_tune.epochs):
        raise InputError(
            "data.augmentation and training.fine_tune need images, but there is no encoder: remove them"
        )
    frozen = encoder is not None and (not encoder.trainable or encoder.frozen_until is not None)
    is_cached = frozen and data.cache_folder is not None
    is_pruned = config.pruning is not None and config.pruning.encoder == "A"  # its features change
    if data.augmentation and is_cached and not is_pruned and config.training.epochs:
        raise InputError(
            "data.augmentation changes images, but features are cached: set data.augmentation=[], with"
            " data.cached_views=8 for cached crops, or data.cache_folder=null to train from images"
        )
    if data.cached_views > 1 and not is_cached:
        raise InputError(
            f"data.cached_views is {data.cached_views}, but no features are cached: set"
            " model.encoder.trainable=false or model.encoder.frozen_until=LAYER and data.cache_folder, or"
            " augment images with data.augmentation"
        )


def _check_phases(training: Training) -> None:
    scst, slim = training.scst, training.slim
    if not training.epochs and (training.start_from is None or not (scst or training.fine_tune.epochs)):
        raise InputError(
            "training.epochs is 0, which needs a trained captioner (training.start_from=runs/NAME) and epochs"
            " of training.fine_tune or training.scst: set them, or train for 1 epoch or more"
        )
    if training.start_from is not None and not training.start_from.strip():
        raise InputError(
            "training.start_from contains an empty text: give the folder of a finished run, such as"
            " runs/NAME, or set training.start_from=null"
        )
    if training.clip_norm and training.clip_value:
        raise InputError(
            "training.clip_norm (1.0 by default) and training.clip_value are both set: set one of them to"
            " null"
        )
    if training.restore_best and training.validation_images in (0, 1):
        raise InputError(
            "training.restore_best=true needs the validation CIDEr of 2 images or more, but"
            f" training.validation_images is {training.validation_images}: set it to 2 or more or to null for"
            " all, or set training.restore_best=false"
        )
    for name, size in (("", training.batch_size), ("fine_tune.", training.fine_tune.batch_size)):
        if (size or 0) % training.captions_per_image:
            raise InputError(
                f"training.{name}batch_size is {size}, which is not a multiple of"
                f" training.captions_per_image={training.captions_per_image}: change one of them"
            )
    if scst is not None and training.jit_compile is True:
        raise InputError(
            "training.jit_compile is true, but XLA cannot compile training.scst, whose rewards are computed"
            " in Python: set training.jit_compile=auto"
        )
    if scst is not None and not scst.cider_d and not scst.bleu_4:
        raise InputError("training.scst has no reward: set cider_d or bleu_4 above 0")
    if scst is not None and scst.samples < 2 and scst.baseline != "greedy":
        raise InputError(
            f"training.scst.samples is {scst.samples}, but the baseline is the mean of several captions:"
            " sample 2 or more, or set training.scst.baseline=greedy"
        )
    if slim is not None and training.epochs < slim.iterations:
        raise InputError(
            f"training.epochs is {training.epochs}, but training.slim.iterations={slim.iterations}, and each"
            " iteration needs at least one epoch: change one of them"
        )
    if slim is not None and (training.precision, training.distribution) != ("float32", "default"):
        raise InputError(
            "training.slim needs training.precision=float32 and training.distribution=default: set them, or"
            " training.slim=null"
        )


def _check_losses(config: Config) -> None:
    training, transformer = config.training, isinstance(config.model, TransformerModel)
    if not all(folder.strip() for folder in training.teacher):
        raise InputError(
            "training.teacher contains an empty text: give the folder of a finished run, such as runs/NAME,"
            " or set training.teacher=null"
        )
    if training.teacher_loss != "words" and (len(training.teacher) != 1 or not transformer):
        raise InputError(
            f"training.teacher_loss={training.teacher_loss} needs one teacher and a transformer, but there"
            f" are {len(training.teacher)} teachers and model.kind={config.model.kind}: set"
            " training.teacher=runs/NAME and model.kind=transformer, or training.teacher_loss=words"
        )
    if training.teacher_captions and not training.teacher:
        raise InputError(
            f"training.teacher_captions is {training.teacher_captions}, but there is no teacher to write"
            " them: set training.teacher=runs/NAME, or training.teacher_captions=0"
        )
    if training.teacher_captions and training.distribution == "multi_worker":
        raise InputError(
            "training.teacher_captions needs the same captions in all processes, which"
            " training.distribution=multi_worker does not ensure: set training.teacher_captions=0"
        )
    encoder = config.model.encoder
    if training.gamma_l2 and not (encoder is not None and encoder.trainable):
        raise InputError(
            f"training.gamma_l2 is {training.gamma_l2}, but no image encoder is trained: set"
            " model.encoder.trainable=true, or training.gamma_l2=0"
        )
    if training.encoder_l2 and not transformer:
        raise InputError(
            f"training.encoder_l2 is {training.encoder_l2}, but model.kind={config.model.kind} has no"
            " transformer encoder: set training.encoder_l2=0, or model.kind=transformer"
        )


def _check_pruning(settings: Pruning, training: Training) -> None:
    if settings.method not in registry.METHODS:
        raise unknown_name("pruning.method", settings.method, registry.METHODS)
    function, chosen = registry.factory(settings.method), f"pruning.method={settings.method}"
    check_options("pruning", settings.options, function, _SET_FOR_METHODS, chosen)
    from_trained = settings.method == "lottery" and settings.options.get("rounds") == 0
    if (settings.method == "frozen" or from_trained) and training.start_from is None:
        raise InputError(
            f"pruning.method={settings.method}{' with pruning.rounds=0' * from_trained} starts from a trained"
            " run: set training.start_from=runs/NAME, or start_from: METHOD in a study"
        )
    supported = [name for name, method in registry.METHODS.items() if method.supports_encoder_schemes]
    if settings.encoder in ENCODER_SCHEMES and settings.method not in supported:
        raise InputError(
            f"pruning.encoder={settings.encoder} supports the methods {', '.join(supported)}, not"
            f" {settings.method}: choose one of them, or pruning.encoder=false"
        )


def _check_scheme(config: Config) -> None:
    """Checks `pruning.encoder` and `training.slim`, which change an image encoder."""
    encoder, training = config.model.encoder, config.training
    scheme = config.pruning.encoder if config.pruning is not None else False
    trained = encoder is not None and encoder.trainable and encoder.frozen_until is None
    if training.slim is not None and (scheme or not trained):
        raise InputError(
            "training.slim needs an encoder all of whose layers are trained, without gates: set"
            " model.encoder.trainable=true, model.encoder.frozen_until=null and pruning.encoder=false"
        )
    if scheme in ENCODER_SCHEMES and (encoder is None or encoder.trainable or not training.fine_tune.epochs):
        raise InputError(
            f"pruning.encoder={scheme} needs an encoder that is frozen until fine-tuning: set"
            " model.encoder.trainable=false and training.fine_tune.epochs"
        )
    if scheme in ENCODER_SCHEMES and not training.epochs:
        raise InputError(
            f"pruning.encoder={scheme} needs training before fine-tuning, but training.epochs is 0: set it to"
            " 1 or more, or set pruning.encoder to true or false"
        )
