"""Settings that are texts keep what was typed, which YAML would change: `010` is 8 there, ` #` a comment."""

import functools
import inspect
import math
import re
import types
import typing
from collections.abc import Iterator
from typing import Any, Literal

import yaml
from pydantic import BaseModel

from tfsparsecap.errors import InputError
from tfsparsecap.settings.plain_yaml import check_plain
from tfsparsecap.settings.schema import MODELS, Config

#: Options of data sources that are texts; only settings of the schema are known without importing TensorFlow.
_OPTIONS = ("table", "image_column", "caption_column", "split_column", "captions")
_NULL = ("", "~", "null", "Null", "NULL")
# What some version of YAML reads as something else than text, besides what begins like a number.
_WORDS = re.compile(r"(null|true|false|yes|no|on|off|y|n|inf|infinity|nan)", re.IGNORECASE)


@functools.cache
def text_keys() -> frozenset[str]:
    """Dotted keys of all settings that are texts or lists of texts.

    Examples:
        >>> sorted(text_keys() & {"name", "seed", "data.folder", "training.teacher"})
        ['data.folder', 'name', 'training.teacher']
    """
    return frozenset([*_text_keys(Config, ""), *(f"data.{name}" for name in _OPTIONS)])


def value_as_yaml(key: str, value: str, where: str) -> str:
    """The value of an override in YAML: what it says if the setting is a text and it is not in quotes.

    Args:
        key: dotted key of the setting.
        value: as typed.
        where: the override, for messages.

    Raises:
        InputError: it is not a plain value, see `check_plain`, or a comment follows it.
        yaml.YAMLError: the value is not YAML.

    Examples:
        >>> value_as_yaml("data.folder", "my #1 photos", ""), value_as_yaml("training.epochs", "3", "")
        ('"my #1 photos"', '3')
    """
    text = value.strip()
    if key in text_keys() and text not in _NULL and text[0] not in "\"'[{":
        value = _quoted(text)
        check_plain(value, where)
        return value
    check_plain(value, where)
    tokens = yaml.scan(value, Loader=yaml.SafeLoader)
    content = (one for one in tokens if not isinstance(one, yaml.BlockEndToken | yaml.StreamEndToken))
    if value[max((one.end_mark.index for one in content), default=0) :].lstrip().startswith("#"):
        raise InputError(
            f"{where} has a comment, which would be ignored: remove it, or put a value with # in quotes, as"
            " in 'data.image_column=\"image #\"'"
        )
    return with_quoted_texts(value, key)


def with_quoted_texts(text: str, key: str = "") -> str:
    """YAML with quotes around the values of settings that are texts.

    Args:
        text: YAML without anchors, aliases and tags.
        key: dotted key of the setting whose value it is; empty for all settings.

    Examples:
        >>> with_quoted_texts("name: 010\\nseed: 010")
        'name: "010"\\nseed: 010'
    """
    node = yaml.compose(text, Loader=yaml.SafeLoader)
    parts, end = [], 0
    for scalar in _plain_texts(node, key):
        parts += [text[end : scalar.start_mark.index], _quoted(scalar.value)]
        end = scalar.end_mark.index
    return "".join(parts) + text[end:]


class Dumper(yaml.SafeDumper):
    """Writes texts so that every reader of YAML returns the same texts."""

    def represent_text(self, text: str) -> yaml.ScalarNode:
        plain = re.match(r"[A-Za-z_/]", text) and not _WORDS.fullmatch(text)
        # With single quotes or none, white space at ends of lines would be lost.
        style = None if plain else "'"
        if not text.isprintable() or text != text.strip():
            style = '"'
        return self.represent_scalar("tag:yaml.org,2002:str", text, style)


Dumper.add_representer(str, Dumper.represent_text)


def _quoted(text: str) -> str:
    return yaml.safe_dump(text, default_style='"', allow_unicode=True, width=math.inf).rstrip("\n")


def _plain_texts(node: Any, key: str) -> Iterator[yaml.ScalarNode]:
    """Values without quotes of settings that are texts, in their order."""
    if isinstance(node, yaml.MappingNode):
        for name, value in node.value:
            below = str(name.value) if isinstance(name, yaml.ScalarNode) else ""
            yield from _plain_texts(value, f"{key}.{below}" if key else below)
    elif key in text_keys():
        for one in node.value if isinstance(node, yaml.SequenceNode) else [node]:
            if isinstance(one, yaml.ScalarNode) and one.style is None and one.value not in _NULL:
                yield one


def _text_keys(schema: type[BaseModel], prefix: str) -> Iterator[str]:
    for name, field in schema.model_fields.items():
        if _is_text(field.annotation):
            yield prefix + name
        choices = _members(field.annotation) if (schema, name) != (Config, "model") else MODELS.values()
        for choice in choices:
            if inspect.isclass(choice) and issubclass(choice, BaseModel):
                yield from _text_keys(choice, f"{prefix}{name}.")


def _is_text(annotation: Any) -> bool:
    """Whether values of a type are texts or lists of texts, or null."""
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is Literal:
        return all(isinstance(value, str) for value in arguments)
    if origin in (list, typing.Annotated):
        return _is_text(arguments[0])
    members = _members(annotation)
    return annotation is str or (members != [annotation] and all(map(_is_text, members)))


def _members(annotation: Any) -> list[Any]:
    """The types in a union, without null."""
    if typing.get_origin(annotation) not in (typing.Union, types.UnionType):
        return [annotation]
    return [member for member in typing.get_args(annotation) if member is not type(None)]
