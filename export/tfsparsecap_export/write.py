"""Appending the vocabulary and the description of a captioner to its .tflite file."""

import io
import json
import zipfile

from tfsparsecap.inference.bundle import VOCABULARY
from tfsparsecap.inference.description import DESCRIPTION
from tfsparsecap.inference.digests import DIGESTS, digests


def make_bundle(model: bytes, description: dict, vocabulary: list[str] | None) -> bytes:
    """Appends associated files to a model, as TFLite metadata does.

    The files form an uncompressed zip archive behind the FlatBuffer: `unzip` and every zip library read it,
    and the interpreter ignores it. The bytes of the model do not move. The same input gives the same bytes.
    The description gets the digests of model and vocabulary (`inference.digests`).

    Args:
        model: a .tflite file.
        description: content of `captioner.json`, to which the digests are added; see docs/export.md, "Files
            of captioners".
        vocabulary: the token strings in the order of their ids for `vocabulary.txt`, or None if unknown.

    Returns:
        The bytes of the bundle, which `tfsparsecap.inference.bundle` reads.
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
