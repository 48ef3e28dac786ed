"""Settings hold plain values: what YAML can contain beyond them is refused before it is evaluated."""

import yaml

from tfsparsecap.errors import InputError

# Deeper nesting than any section has, and far from Python's limit of recursion.
_DEEPEST = 20
# Python prints no integers of more than 4300 digits, which 3600 hexadecimal digits may have.
_LONGEST = 3000
#: What evaluating YAML raises besides its own exceptions, such as ValueError for an integer of 5000 digits.
EVALUATION_ERRORS = (ValueError, TypeError, LookupError, AttributeError, OverflowError, RecursionError)


def check_plain(text: str, where: str) -> None:
    """Checks that YAML contains plain values only: text, numbers, booleans, null, lists and mappings.

    References (`${oc.env:HOME}`, which reads an environment variable), aliases, tags and characters that no
    path can contain are refused.

    Args:
        text: of a file, or the value of an override.
        where: the file or the override, for messages.

    Raises:
        InputError: it contains something else, or is nested too deeply.
        yaml.YAMLError: it is not YAML.

    Examples:
        >>> check_plain("name: ${oc.env:USER}", "run.yaml")
        Traceback (most recent call last):
        tfsparsecap.errors.InputError: run.yaml contains a reference at line 1: write the value itself
    """
    depth = 0
    for event in yaml.parse(text, Loader=yaml.SafeLoader):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        value = event.value if isinstance(event, yaml.ScalarEvent) else ""
        if depth > _DEEPEST:
            wrong, remedy = "lists or sections inside each other that are nested too deeply", "remove them"
        elif "${" in value:
            wrong, remedy = "a reference", "write the value itself"
        elif isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None):
            wrong, remedy = "an anchor or alias (& or *)", "write the value itself, or in quotes"
        elif getattr(event, "tag", None):
            wrong, remedy = "a tag (!)", "write the value without it, or in quotes"
        elif len(value) > _LONGEST:
            wrong, remedy = f"a value of {len(value)} characters", "shorten it"
        elif not all(map(_is_plain, value)):
            wrong, remedy = "a character that is not text", "remove it"
        else:
            continue
        line = event.start_mark.line + 1 if event.start_mark else 1
        raise InputError(f"{where} contains {wrong} at line {line}: {remedy}")


def _is_plain(character: str) -> bool:
    # No path contains NUL, and half of a surrogate pair cannot be written.
    return character != "\0" and not "\ud800" <= character <= "\udfff"
