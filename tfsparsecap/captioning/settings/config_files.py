"""Reads settings from YAML files and `key=value` overrides, and reports what is wrong and where."""

import difflib
import inspect
import os
import re
import shlex
import types
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ValidationError

from tfsparsecap.captioning.settings.schema import MODELS, Config, Pruning
from tfsparsecap.captioning.settings.yaml_values import Dumper, read_value, read_yaml, value_of
from tfsparsecap.core.files import check_input_file
from tfsparsecap.errors import InputError

# Maximum size of a settings file in bytes: YAML takes quadratic time for nested brackets.
_LARGEST = 1 << 16
# Sections of which another choice keeps only some settings: the setting that chooses, its default, and these.
_CHOICES: dict[str, tuple[str, str, Sequence[str]]] = {
    "model": ("kind", "soft_attention", ["encoder"]),
    "model.encoder": ("network", "mobilenet_v1", ["trainable"]),
    "pruning": ("method", "supermask", [*Pruning.model_fields]),
}
# The files of `configs/`: in a wheel they are part of the package, in a clone beside it.
_PACKAGE = Path(__file__).resolve().parents[2]
_CONFIGS = next(
    (folder for folder in (_PACKAGE / "configs", _PACKAGE.parent / "configs") if folder.is_dir()), _PACKAGE
)
#: Settings of training that went, with the values that have no effect.
_FORMER = {"first": None, "feature_weight": 0.0, "early_stopping": None}


def config_file(file: str | os.PathLike, folder: str | os.PathLike = ".") -> Path:
    """The path of a settings file, which may be one of those that come with the package.

    Args:
        file: a path relative to `folder`, or, if nothing is there, a name such as `flickr8k_good`,
            `studies/scenes` or `configs/flickr8k_good.yaml`.

    Examples:
        >>> config_file("flickr8k_good").name, str(config_file("mine.yaml"))
        ('flickr8k_good.yaml', 'mine.yaml')
    """
    path = Path(folder) / file
    name = Path(file)
    if os.path.lexists(path) or name.is_absolute() or ".." in name.parts:
        return path
    packaged = _CONFIGS.joinpath(*name.parts[name.parts[:1] == ("configs",) :])
    packaged = packaged if packaged.suffix == ".yaml" else packaged.with_name(f"{packaged.name}.yaml")
    return packaged if os.path.isfile(packaged) else path


def load_config(
    path: str | Path | None = None, overrides: Sequence[str] = (), source: str = "on the command line"
) -> Config:
    """Reads and checks a run's settings.

    Args:
        path: a YAML file, or the name of one that comes with the package; None uses the defaults, which are
            the quickstart. With `extends: FILE.yaml` it overrides the settings of another file, given
            relative to its own folder, or by its name in the package.
        overrides: `section.key=value`; they override the file. Values are YAML, but texts without quotes or
            brackets are taken as they are.
        source: where the overrides come from, for messages.

    Raises:
        InputError: the file is missing or not YAML, a key is unknown, or a value has the wrong type. What
            settings require of each other is checked before training, see `contradictions.check_settings`.

    Examples:
        >>> load_config(None, ["training.epochs=3", "pruning=null"]).training.epochs
        3
    """
    names: list[str] = []
    changes: dict[str, Any] = {}
    for text in overrides:
        name, value = _override(text)
        names.append(name)
        for part in reversed(name.split(".")):
            value = {part: value}
        changes = _merged(changes, value, {})
    path = None if path is None else config_file(path)
    content = _merged({} if path is None else _read(path), changes)
    if {"methods", "captioners"} <= content.keys():
        command = f"python -m tfsparsecap.study --config {shlex.quote(str(path))}"
        raise InputError(f"{path} describes a study: run it with {command}")

    def where(key: str) -> str:
        # An unknown key may be a section whose keys were given.
        section = f"{key}."
        is_override = any(f"{name}.".startswith(section) or section.startswith(f"{name}.") for name in names)
        if path is None or is_override:
            return source
        return f"in {path}{' or what it extends' if 'extends' in _loaded(path) else ''}"

    return checked_config(content, where)


def checked_config(
    content: dict[str, Any], where: Callable[[str], str] = lambda key: "among the settings"
) -> Config:
    """Settings from a dictionary.

    Args:
        content: sections and keys as in YAML.
        where: key -> where it was set, for messages.

    Raises:
        InputError: see `load_config`.
    """
    try:
        return Config.model_validate(content)
    except ValidationError as error:
        raise InputError(sentence_of(error, Config, where)) from error


def read_settings(path: str | Path, prepare: Callable[[dict, Path], dict] | None = None) -> dict[str, Any]:
    """The content of a YAML file with what it `extends`, unchecked.

    Args:
        prepare: called with the content and the folder of each file; returns the content to use.

    Raises:
        InputError: the file is missing, not YAML, or has no keys and values.
    """
    return _read(config_file(path), prepare=prepare)


def save_config(config: Config) -> str:
    """All settings as YAML, including defaults."""
    return yaml.dump(config.model_dump(mode="json"), Dumper=Dumper, sort_keys=False, allow_unicode=True)


def differences(first: Config, second: Config) -> list[tuple[str, Any, Any]]:
    """The settings in which two runs differ: `(dotted key, first value, second value)`."""
    first_values, second_values = setting_values(first), setting_values(second)
    return [
        (key, first_values.get(key), second_values.get(key))
        for key in first_values | second_values
        if first_values.get(key) != second_values.get(key)
    ]


def setting_values(config: Config) -> dict[str, Any]:
    """All settings as JSON values, by dotted key."""
    return dict(_leaves(config.model_dump(mode="json")))


def _read(
    path: str | Path,
    extending: tuple[Path, ...] = (),
    prepare: Callable[[dict, Path], dict] | None = None,
) -> dict[str, Any]:
    content = _without_former(_loaded(path), path)
    file = Path(os.path.realpath(path))
    if file in extending:
        raise InputError(f"{path} extends itself through other files: remove one extends")
    if prepare is not None:
        content = prepare(content, Path(path).parent)
    base = content.pop("extends", None)
    if base is None:
        return content
    if not isinstance(base, str):
        raise InputError(f"extends in {path} is {base!r}: give the path of one YAML file")
    return _merged(_read(config_file(base, Path(path).parent), (*extending, file), prepare), content)


def _without_former(content: dict[str, Any], path: str | Path) -> dict[str, Any]:
    """Settings without those that went, as in the run folders of older versions.

    Raises:
        InputError: one of them had an effect.
    """
    training = content.get("training")
    if not isinstance(training, dict):
        return content
    for key in _FORMER.keys() & training:
        if value_of(training[key]) != _FORMER[key]:
            raise InputError(
                f"training.{key} in {path} is a setting of an older version, which this one does not have:"
                " remove it"
            )
    return {**content, "training": {key: training[key] for key in training if key not in _FORMER}}


def _merged(below: Any, above: Any, choices: Mapping[str, Any] = _CHOICES, section: str = "") -> Any:
    """Settings overridden by others.

    With another captioner, only the encoder's settings are kept; with another encoder, only whether it is
    trained; with another pruning method, all but the options of the method.
    """
    if not (isinstance(below, dict) and isinstance(above, dict)):
        return above
    if section in choices:
        name, default, common_keys = choices[section]
        if above.get(name) not in (None, below.get(name) or default):
            below = {key: below[key] for key in common_keys if key in below}
    changed = {
        key: _merged(below.get(key), value, choices, f"{section}.{key}".lstrip("."))
        for key, value in above.items()
    }
    return {**below, **changed}


def _loaded(path: str | Path) -> dict[str, Any]:
    try:
        check_input_file(path)
        if Path(path).stat().st_size > _LARGEST:
            raise InputError(f"{path} is too large for settings: give a file such as one of configs/")
        content = read_yaml(Path(path).read_text(encoding="utf-8"), str(path))
    except FileNotFoundError as error:
        shelf = (_CONFIGS / Path(path).parent).resolve()  # for "studies/NAME", configs/studies/
        shelf = shelf if shelf.is_dir() and _CONFIGS.resolve() in shelf.parents else _CONFIGS
        files = [file for folder in (Path(path).parent, shelf) for file in sorted(folder.glob("*.yaml"))]
        near = difflib.get_close_matches(Path(path).stem, [file.stem for file in files], n=1)
        similar_file = next((file for file in files if [file.stem] == near), None)
        names = ", ".join(file.stem for file in sorted(shelf.glob("*.yaml")))
        which = "one of" if shelf == _CONFIGS else f"{Path(path).parent}/ and a name:"
        hint = f"did you mean {similar_file}?" if similar_file else f"check the path, or give {which} {names}"
        raise InputError(f"there is no file {path}: {hint}") from error
    except IsADirectoryError as error:
        raise InputError(f"{path} is a folder: give a YAML file, such as one of configs/") from error
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise InputError(f"{path} is not YAML at line {line} ({error.problem}): correct that line") from error
    except (UnicodeDecodeError, yaml.YAMLError) as error:
        raise InputError(f"{path} is not a YAML file: give a file such as one of configs/") from error
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}; check the path") from error
    if content is not None and not isinstance(content, dict):
        raise InputError(f"{path} has no settings: write keys and values as in the files of configs/")
    return content or {}


def _override(text: str) -> tuple[str, Any]:
    """The dotted key and the value of an override."""
    name, equals, value = (part.strip() for part in text.partition("="))
    where = f"{text!r:.200} on the command line"
    if len(text) > _LARGEST:
        raise InputError(f"{text!r:.60}… on the command line is too long for a setting: write it into a file")
    if not equals or not all(name.split(".")) or name.startswith("-"):
        raise InputError(f"{where} is not a setting: write section.key=value, as in training.epochs=3")
    try:
        return name, read_value(value, where)
    except yaml.YAMLError as error:
        raise InputError(
            f"the value in {where} is not YAML: close all brackets and quotes, as in"
            " 'pruning.block_shape=[16,1]'"
        ) from error


#: Messages that replace those of pydantic, which use Python's terms.
_TYPE = re.compile(r"bool$|int$|float$|str$|literal\[")
_RULES = {
    "model_type": "it should be a section with keys and values",
    "union_tag_not_found": "it should be a section with keys and values",
    **dict.fromkeys(("int_type", "int_parsing", "int_from_float"), "it should be an integer"),
    **dict.fromkeys(("float_type", "float_parsing"), "it should be a number"),
    **dict.fromkeys(("bool_type", "bool_parsing"), "it should be true or false"),
    "tuple_type": "it should be a list in brackets, such as [16,1]",
    "list_type": "it should be a list in brackets, such as [12]",
    "too_short": "give one value or more",
    "string_pattern_mismatch": "it should be letters, digits and _ . - only, starting with a letter or digit",
}


def sentence_of(
    error: ValidationError,
    schema: type[BaseModel],
    where: Callable[[str], str],
    section: str = "",
    siblings: list[str] | None = None,
) -> str:
    """One sentence about the first error; unknown keys first, because they explain others."""
    details = sorted(error.errors(), key=lambda detail: detail["type"] != "extra_forbidden")
    detail = details[0]
    if detail["type"] == "value_error":  # an InputError of a validator
        return str(detail["ctx"]["error"])
    loc, kind = detail["loc"], "soft_attention"
    if len(loc) > 1 and loc[0] == "model" and loc[1] in MODELS:
        # Pydantic inserts the kind of captioner between section and key.
        kind, loc = str(loc[1]), (loc[0], *loc[2:])
    key = ".".join(str(part) for part in (section, *loc) if part != "")
    if detail["type"] == "union_tag_invalid":
        kinds = difflib.get_close_matches(detail["ctx"]["tag"], MODELS, n=1, cutoff=0.4)
        hint = f"did you mean {kinds[0]}?" if kinds else f"choose one of {', '.join(MODELS)}"
        return f"{key}.kind {where(f'{key}.kind')} is {detail['ctx']['tag']!r}: {hint}"
    if detail["type"] == "extra_forbidden":
        keys = list(_keys(schema, kind))
        if siblings is not None:
            keys = [f"{section}.{name}" for name in siblings] + keys
        near = _nearest(key, keys)
        hint = f"did you mean {near}?" if near else "remove it"
        return f"unknown key {key} {where(key).rstrip(',')}; {hint}"
    if detail["type"] == "missing" and isinstance(loc[-1], int):
        key = key.rpartition(".")[0]
        return f"{key} {where(key)} has too few values: {_RULES['tuple_type']}"
    if detail["type"] == "missing":
        return f"{key} is missing {where(key).rstrip(',')}: add it"
    shown = repr(detail["input"])
    shown = shown if len(shown) <= 60 else shown[:57] + "..."
    # Pydantic has an error for each type that a value may have, at `key.type`.
    types = [
        other for other in details if _TYPE.match(str(other["loc"][-1])) and other["loc"][:-1] == loc[:-1]
    ]
    key = key.rpartition(".")[0] if types else key
    rules: list[str] = []
    for other in types or [detail]:
        rule = other["msg"].replace("Input should", "it should").replace("String should", "it should")
        rule = _RULES.get(other["type"], rule)
        rules.append(f"{rule[0].lower()}{rule[1:]}".removeprefix("it should be " if rules else ""))
    left = len(details) - len(rules)
    others = f" (and {left} more like it)" if left else ""
    return f"{key} {where(key)} is {shown}: {', or '.join(rules)}{others}"


def _nearest(key: str, keys: list[str]) -> str | None:
    """The known key that the user most likely meant."""
    head, _, name = key.rpartition(".")
    siblings = [candidate.rpartition(".")[2] for candidate in keys if candidate.rpartition(".")[0] == head]
    similar = [sibling for sibling in siblings if sibling.startswith(f"{name}_")]
    similar = similar or difflib.get_close_matches(name, siblings, n=1, cutoff=0.6)
    if similar:
        return f"{head}.{similar[0]}" if head else similar[0]
    same = [candidate for candidate in keys if candidate.rpartition(".")[2] == name]
    if same:
        return same[0]
    for candidate in difflib.get_close_matches(key, keys, n=3, cutoff=0.7):
        if difflib.get_close_matches(name, [candidate.rpartition(".")[2]], cutoff=0.6):
            return candidate
    return None


def _keys(schema: type[BaseModel], kind: str, prefix: str = "") -> Iterator[str]:
    """All dotted keys, with those of one kind of captioner."""
    for name, field in schema.model_fields.items():
        yield prefix + name
        # `Pruning | None` is a section, too.
        union = isinstance(field.annotation, types.UnionType)
        choices = typing.get_args(field.annotation) if union else (field.annotation,)
        if schema is Config and name == "model":
            choices = (MODELS[kind],)
        for choice in choices:
            if inspect.isclass(choice) and issubclass(choice, BaseModel):
                yield from _keys(choice, kind, f"{prefix}{name}.")


def _leaves(content: dict, prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in content.items():
        if isinstance(value, dict):
            yield from _leaves(value, f"{prefix}{name}.")
        else:
            yield prefix + name, value
