"""Checks that the schema cannot make: sources, methods and their options, and what training requires."""

import inspect
import typing
from collections.abc import Callable, Sequence
from typing import Any

from pydantic import ConfigDict, ValidationError, create_model

from tfsparsecap import data as sources
from tfsparsecap.errors import InputError, unknown_name
from tfsparsecap.pruning import registry
from tfsparsecap.settings.files import sentence_of
from tfsparsecap.settings.schema import ENCODER_SCHEMES, Config, Pruning, TransformerModel
from tfsparsecap.settings.training import Training

# Arguments of a data source and of a pruning method that the run sets itself.
_SET_FOR_SOURCES = ("folder", "on_bad_record")
_SET_FOR_METHODS = ("sparsity", "total_steps", "block_shape", "initial_weights", "steps_per_epoch")


def check_settings(config: Config) -> None:
    """Checks settings before training reads or writes anything.

    `Config` itself checks types, unknown keys and most combinations; this function adds what depends on the
    data source and the pruning method, and what training requires but a finished run does not.

    Raises:
        InputError: an unknown method, source or option, or a setting that another one requires.
    """
    if config.data.features is None and config.model.encoder is None:
        raise InputError(
            "model.encoder is null and data.features is not set: set data.features=FOLDER (the folder that"
            " contains cocobu_att/), or give the captioner an encoder"
        )
    data_options(config)
    _check_losses(config)
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


def _check_losses(config: Config) -> None:
    training, transformer = config.training, isinstance(config.model, TransformerModel)
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
    trained = encoder is not None and encoder.trainable
    if training.feature_weight and not (trained and training.teacher and training.teacher_loss == "words"):
        raise InputError(
            f"training.feature_weight is {training.feature_weight}, but there is no trained encoder to learn"
            " features, or no teacher of words: set model.encoder.trainable=true,"
            " training.teacher=runs/NAME and training.teacher_loss=words, or training.feature_weight=0"
        )
    if training.feature_weight and config.data.augmentation:
        raise InputError(
            f"training.feature_weight is {training.feature_weight}, which compares positions with a teacher"
            " that sees images without data.augmentation: set data.augmentation=[] or"
            " training.feature_weight=0"
        )
    if training.gamma_l2 and not trained:
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
            " run: set training.start_from=runs/NAME"
        )
    supported = [name for name, method in registry.METHODS.items() if method.supports_encoder_schemes]
    if settings.encoder in ENCODER_SCHEMES and settings.method not in supported:
        raise InputError(
            f"pruning.encoder={settings.encoder} supports the methods {', '.join(supported)}, not"
            f" {settings.method}: choose one of them, or pruning.encoder=false"
        )
