"""The description in an exported file, `captioner.json`: what captioning needs of it, and digests.

Digests, SHA-256 of the graph and the vocabulary, find damage and changes by mistake. They do not prove who
wrote a file: whoever changes it on purpose can compute them again.
"""

import hashlib
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tfsparsecap.errors import InputError

#: Name of the associated file with the description.
DESCRIPTION = "captioner.json"
_MAX_IMAGE_SIZE = 4096
_BYTE = re.compile("<0x([0-9A-F]{2})>")


def _join_pieces(tokens: list[str]) -> str:
    """SentencePiece's text: U+2581 is a space, `<0xNN>` is a byte."""
    matches = (_BYTE.fullmatch(token) for token in tokens)
    parts = [
        bytes([int(match[1], 16)]) if match else token.replace("\u2581", " ").encode()
        for token, match in zip(tokens, matches, strict=True)
    ]
    return b"".join(parts).decode("utf-8", "replace").strip(" ")


#: How tokens become a caption, by the value of `join` in the description.
JOINS: dict[str, Callable[[list[str]], str]] = {"words": " ".join, "pieces": _join_pieces}


def check_description(description: dict[str, Any], path: Path) -> None:
    """Checks the entries that captioning reads.

    Args:
        description: any content of `captioner.json` that is a JSON object.
        path: the file, for messages.

    Raises:
        InputError: one of them is missing, or has another type.
    """
    special, size, join = (description.get(name) for name in ("special_ids", "image_size", "join"))
    if not isinstance(special, dict) or "end" not in special or not all(map(_is_id, special.values())):
        raise InputError(f"{DESCRIPTION} in {path} does not name the special tokens: export the run again")
    if not isinstance(join, str) or join not in JOINS:
        raise InputError(f"{DESCRIPTION} in {path} does not say how to join tokens: export the run again")
    if size is not None and (not _is_id(size) or not 1 <= size <= _MAX_IMAGE_SIZE):
        raise InputError(
            f"{DESCRIPTION} in {path} gives the image size {size!r:.50}, not 1 to {_MAX_IMAGE_SIZE}: export"
            " the run again"
        )
    for name in ("unknown_id", "beam", "max_length"):
        if description.get(name) is not None and not _is_id(description[name]):
            raise InputError(
                f"{DESCRIPTION} in {path} gives {name} as {description[name]!r:.50}, not as a whole number of"
                " 32 bits: export the run again"
            )
    names = description.get("objects") or []
    if not isinstance(names, list) or not all(isinstance(name, str) and name for name in names):
        raise InputError(
            f"{DESCRIPTION} in {path} gives the objects {names!r:.50}, not a list of names: export the run"
            " again"
        )


def _is_id(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) < 1 << 31


#: Entries of `captioner.json`: of the graph, of the vocabulary.
DIGESTS = GRAPH_DIGEST, VOCABULARY_DIGEST = "graph_sha256", "vocabulary_sha256"


class ChangedFile(InputError):
    """A part of an exported file does not have the digest in its description."""


def digests(graph: bytes, vocabulary: bytes | None) -> dict[str, str]:
    """The entries for `captioner.json`.

    Args:
        graph: all bytes in front of the archive.
        vocabulary: content of `vocabulary.txt`, or None if the file has none.

    Examples:
        >>> digests(b"", None)["graph_sha256"][:8]
        'e3b0c442'
    """
    entries = {GRAPH_DIGEST: _digest(graph)}
    if vocabulary is not None:
        entries[VOCABULARY_DIGEST] = _digest(vocabulary)
    return entries


def check_digests(
    description: dict[str, Any], graph: bytes | memoryview, vocabulary: bytes | None, path: Path
) -> bool:
    """Compares a file with the digests in its description.

    Args:
        description: content of `captioner.json`.
        graph, vocabulary: as of `digests`.
        path: the file, for the message.

    Returns:
        Whether the description has a digest of the graph; files of other programs and of older versions
        have none.

    Raises:
        ChangedFile: a part of the file has another digest, or is missing.
    """
    for name, what, content in (
        (GRAPH_DIGEST, "graph", graph),
        (VOCABULARY_DIGEST, "vocabulary", vocabulary),
    ):
        expected = description.get(name)
        if expected is not None and (content is None or expected != _digest(content)):
            raise ChangedFile(
                f"the {what} of {path} was changed after its export, or is damaged (its SHA-256 is not"
                f" {name} of captioner.json): copy or download the file again, or export the run again"
            )
    return description.get(GRAPH_DIGEST) is not None


def _digest(content: bytes | memoryview) -> str:
    return hashlib.sha256(content).hexdigest()
