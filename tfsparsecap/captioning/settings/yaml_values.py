"""YAML with plain values only. Numbers keep their text: `010` may be the name of a folder, or 8."""

import re
from collections.abc import Hashable
from typing import Any

import yaml

from tfsparsecap.errors import InputError

# Deeper nesting than any section has, and far from Python's limit of recursion.
_DEEPEST = 20
# Python prints no integers of more than 4300 digits, which 3600 hexadecimal digits may have.
_LONGEST = 3000
# What some version of YAML reads as something else than text, besides what begins like a number.
_WORDS = re.compile(r"(null|true|false|yes|no|on|off|y|n|inf|infinity|nan)", re.IGNORECASE)
_TAG = "tag:yaml.org,2002:"


class Plain(str):
    """A number or boolean as it was typed, with its value: settings that are texts take the text.

    Attributes:
        value: the number or boolean.
    """

    value: bool | int | float

    def __repr__(self) -> str:
        return str(self)  # without quotes, as it was typed


def value_of(content: Any) -> Any:
    """Content that was read from YAML, with the values of numbers and booleans instead of their texts.

    Examples:
        >>> value_of(read_yaml("[010, 1e-1, on, '7']", "here"))
        [8, 0.1, True, '7']
    """
    if isinstance(content, dict):
        return {key: value_of(value) for key, value in content.items()}
    if isinstance(content, list):
        return [value_of(value) for value in content]
    return content.value if isinstance(content, Plain) else content


def read_yaml(text: str, where: str) -> Any:
    """Reads YAML that contains text, numbers, booleans, null, lists and mappings with texts as keys.

    Aliases, tags, references (`${NAME}`) and characters that no path can contain are refused.

    Args:
        text: of a file.
        where: the file, for messages.

    Returns:
        Its content, with each number and boolean as `Plain`; None if it is empty.

    Raises:
        InputError: it contains something else, or is nested too deeply.
        yaml.YAMLError: it is not YAML.

    Examples:
        >>> read_yaml("a: &b 1", "run.yaml")
        Traceback (most recent call last):
        tfsparsecap.errors.InputError: run.yaml contains an anchor or alias (& or *) at line 1: write the \
value itself, or in quotes
    """
    return _Loader(text, where).get_single_data()


def read_value(text: str, where: str) -> Any:
    """Reads a value on the command line: YAML in quotes or brackets, or a text, number, boolean or null.

    Raises:
        InputError: see `read_yaml`; or a comment follows it.
        yaml.YAMLError: it is not YAML.

    Examples:
        >>> read_value("my #1 photos", "here"), read_value("[a, b]", "here")
        ('my #1 photos', ['a', 'b'])
    """
    text = text.strip()
    loader = _Loader(text, where)
    if not text.startswith(('"', "'", "[", "{")):
        loader.check(yaml.ScalarEvent(None, None, (True, False), text))
        return loader.construct_object(
            yaml.ScalarNode(loader.resolve(yaml.ScalarNode, text, (True, False)), text)
        )
    node: Any = loader.get_single_node()
    if text[node.end_mark.index :].strip():
        raise InputError(
            f"{where} has a comment, which would be ignored: remove it, or put a value with # in quotes, as"
            " in 'data.image_column=\"image #\"'"
        )
    return loader.construct_document(node)


class _Loader(yaml.SafeLoader):
    # Dates, merge keys (<<) and default values (=) are texts.
    yaml_implicit_resolvers = {
        first: [
            (tag, pattern) for tag, pattern in resolvers if not tag.endswith(("timestamp", "merge", "value"))
        ]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }

    def __init__(self, text: str, where: str):
        super().__init__(text)
        self.where, self.depth = where, 0

    def check(self, event: yaml.Event) -> None:
        """Refuses what is no plain value."""
        value = event.value if isinstance(event, yaml.ScalarEvent) else ""
        if isinstance(event, yaml.CollectionStartEvent) and self.depth >= _DEEPEST:
            wrong, remedy = "lists or sections inside each other that are nested too deeply", "remove them"
        elif "${" in value:
            wrong, remedy = "a reference", "write the value itself"
        elif isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None):
            wrong, remedy = "an anchor or alias (& or *)", "write the value itself, or in quotes"
        elif getattr(event, "tag", None):
            wrong, remedy = "a tag (!)", "write the value without it, or in quotes"
        elif len(value) > _LONGEST:
            wrong, remedy = f"a value of {len(value)} characters", "shorten it"
        elif re.search("[\0\ud800-\udfff]", value):  # no path contains NUL or half of a surrogate pair
            wrong, remedy = "a character that is not text", "remove it"
        else:
            return
        raise self._error(wrong, remedy, event.start_mark)

    def compose_node(self, parent: Any, index: Any) -> Any:
        self.check(self.peek_event())
        self.depth += 1
        node = super().compose_node(parent, index)
        self.depth -= 1
        return node

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Hashable, Any]:
        content: dict[Hashable, Any] = {}
        for key, value in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise self._error("a key in brackets", "give a name", key.start_mark)
            if key.value in content:
                raise self._error(f"the key {key.value} twice", "remove one of them", key.start_mark)
            content[key.value] = self.construct_object(value, deep)
        return content

    def construct_object(self, node: Any, deep: bool = False) -> Any:
        try:
            value = super().construct_object(node, deep)
        except (ValueError, OverflowError):  # such as 0x_, which has no digits
            return node.value
        if not isinstance(value, bool | int | float):
            return value
        plain = Plain(node.value)
        plain.value = value
        return plain

    def _error(self, wrong: str, remedy: str, mark: Any) -> InputError:
        line = mark.line + 1 if mark else 1
        return InputError(f"{self.where} contains {wrong} at line {line}: {remedy}")


# YAML 1.1 takes these for texts.
_Loader.add_implicit_resolver(
    f"{_TAG}float", re.compile(r"[-+]?[0-9][0-9_]*(\.[0-9_]*)?[eE][-+]?[0-9]+$"), list("-+0123456789")
)


class Dumper(yaml.SafeDumper):
    """Writes texts so that every reader of YAML returns the same texts."""

    def represent_text(self, text: str) -> yaml.ScalarNode:
        plain = re.match(r"[A-Za-z_/]", text) and not _WORDS.fullmatch(text)
        # With single quotes or none, white space at ends of lines would be lost.
        style = None if plain else "'"
        if not text.isprintable() or text != text.strip():
            style = '"'
        return self.represent_scalar(f"{_TAG}str", text, style)


Dumper.add_representer(str, Dumper.represent_text)
