"""SHA-256 of the graph and the vocabulary of an exported file, which its description contains.

They find damage and changes by mistake. They do not prove who wrote a file: whoever changes it on purpose can
compute them again.
"""

import hashlib
from pathlib import Path
from typing import Any

from tfsparsecap.errors import InputError

#: Entries of `captioner.json`: of the graph, of the vocabulary.
DIGESTS = GRAPH, VOCABULARY = "graph_sha256", "vocabulary_sha256"


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
    found = {GRAPH: _digest(graph)}
    if vocabulary is not None:
        found[VOCABULARY] = _digest(vocabulary)
    return found


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
    for name, what, content in ((GRAPH, "graph", graph), (VOCABULARY, "vocabulary", vocabulary)):
        expected = description.get(name)
        if expected is not None and (content is None or expected != _digest(content)):
            raise ChangedFile(
                f"the {what} of {path} was changed after its export, or is damaged (its SHA-256 is not"
                f" {name} of captioner.json): copy or download the file again, or export the run again"
            )
    return description.get(GRAPH) is not None


def _digest(content: bytes | memoryview) -> str:
    return hashlib.sha256(content).hexdigest()
