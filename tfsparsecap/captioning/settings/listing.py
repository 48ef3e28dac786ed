"""All settings with their defaults and meanings, as text."""

import inspect
import json
import re
import textwrap
import typing
from collections.abc import Iterator

from pydantic import BaseModel

from tfsparsecap.captioning.settings.schema import MODELS, Config
from tfsparsecap.errors import unknown_name

_WIDTH = 110
# An entry of `Attributes:` in a docstring: names, and a text whose further lines are indented.
_ENTRY = re.compile(r"^    (\w+(?:, \w+)*): (.*(?:\n     +.*)*)", re.MULTILINE)


def listing(section: str = "") -> str:
    """The settings of a section, or of all: `key=default`, and the meaning of each.

    Args:
        section: such as `training` or `model.encoder`; empty lists all sections.

    Raises:
        InputError: there is no such section.

    Examples:
        >>> print(listing("decoding").partition(":")[0])
        decoding
    """
    sections = list(_sections(Config, ""))
    names = [name for name, _ in sections if name]
    if section and section not in names:
        raise unknown_name("section of settings", section, dict.fromkeys(names))
    chosen = [
        (name, schema) for name, schema in sections if f"{name}.".startswith(f"{section}.") or not section
    ]
    return "\n\n".join(_shown(name, schema) for name, schema in chosen)


def _sections(schema: type[BaseModel], name: str) -> Iterator[tuple[str, type[BaseModel]]]:
    """Dotted name and class of each section; `model` has a class for each kind of captioner."""
    yield name, schema
    seen = set()
    for key, field in schema.model_fields.items():
        kinds = list(MODELS.values()) if (name, key) == ("", "model") else _classes(field.annotation)
        for kind in kinds:
            for inner in _sections(kind, f"{name}.{key}".strip(".")):
                # The encoder is the same for all captioners.
                if inner not in seen:
                    seen.add(inner)
                    yield inner


def _classes(annotation: object) -> list[type[BaseModel]]:
    """The section in a type such as `Pruning | None`."""
    choices = typing.get_args(annotation) or (annotation,)
    return [kind for kind in choices if inspect.isclass(kind) and issubclass(kind, BaseModel)]


def _shown(name: str, schema: type[BaseModel]) -> str:
    text = (inspect.getdoc(schema) or "").partition("\nAttributes:\n")[0]
    if name == "model":
        name = f"model.kind={schema.model_fields['kind'].default}"
    lines = textwrap.wrap(f"{name}: {' '.join(text.split())}" if name else " ".join(text.split()), _WIDTH)
    defaults = {
        key: json.dumps(field.get_default(call_default_factory=True), ensure_ascii=False)
        for key, field in schema.model_fields.items()
        if key != "model" and not _classes(field.annotation) and not (key == "kind" and "kind=" in name)
    }
    described: dict[str, str] = {}
    for base in reversed(schema.__mro__):
        for names, meaning in _ENTRY.findall(inspect.cleandoc(base.__doc__ or "")):
            described |= dict.fromkeys(names.split(", "), " ".join(meaning.split()))
    groups: dict[str, list[str]] = {}
    for key, default in defaults.items():
        groups.setdefault(described.get(key, ""), []).append(f"{key}={default}")
    for meaning, keys in groups.items():
        lines += textwrap.wrap(", ".join(keys), _WIDTH, initial_indent="  ", subsequent_indent="  ")
        lines += textwrap.wrap(meaning, _WIDTH, initial_indent="      ", subsequent_indent="      ")
    return "\n".join(lines)
