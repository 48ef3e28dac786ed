"""Appending the vocabulary and the description of a captioner to its .tflite file."""

import io
import json
import zipfile
from typing import Any

import numpy as np

from tfsparsecap.captioning.inference.bundle import VOCABULARY
from tfsparsecap.captioning.inference.description import DESCRIPTION
from tfsparsecap.captioning.inference.digests import DIGESTS, digests
from tfsparsecap.errors import InputError


def plain_description(description: dict) -> dict:
    """A description with Python's numbers and lists instead of NumPy's, as JSON has them.

    Raises:
        InputError: JSON has no such values.
    """
    plain = {}
    for name, value in description.items():
        try:
            plain.update(json.loads(json.dumps({name: value}, default=_plain)))
        except (TypeError, ValueError, RecursionError) as error:
            raise InputError(
                f"the entry {name!r:.60} of description cannot be written as JSON ({error}): give numbers,"
                " strings, lists and dictionaries"
            ) from error
    return plain


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    raise TypeError(f"it contains {type(value).__name__}")


def make_bundle(model: bytes, description: dict, vocabulary: list[str] | None) -> bytes:
    """Appends associated files to a model, as TFLite metadata does.

    The files form an uncompressed zip archive behind the FlatBuffer: `unzip` and every zip library read it,
    and the interpreter ignores it. The bytes of the model do not move. The same input gives the same bytes.
    The description gets the digests of model and vocabulary (`inference.digests`).

    Args:
        model: a .tflite file.
        description: content of `captioner.json`, to which the digests are added; see docs/bundle.md.
        vocabulary: the token strings in the order of their ids for `vocabulary.txt`, or None if unknown.

    Returns:
        The bytes of the bundle, which `tfsparsecap.captioning.inference.bundle` reads.
    """
    files = {}
    if vocabulary is not None:
        files[VOCABULARY] = ("\n".join(vocabulary) + "\n").encode()
    others = {name: value for name, value in description.items() if name not in DIGESTS}
    description = {**others, **digests(model, files.get(VOCABULARY))}
    files[DESCRIPTION] = (json.dumps(description, ensure_ascii=False, indent=1) + "\n").encode()
    content = io.BytesIO()
    content.write(model)
    with zipfile.ZipFile(content, "a", zipfile.ZIP_STORED) as archive:
        for name, data in sorted(files.items()):
            # ZipInfo's default date is constant (1980).
            archive.writestr(zipfile.ZipInfo(name), data)
    return content.getvalue()
