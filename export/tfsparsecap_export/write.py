"""Appending the vocabulary and the description of a captioner to its .tflite file."""

import io
import json
import zipfile

from tfsparsecap.inference.bundle import DESCRIPTION, VOCABULARY


def make_bundle(model: bytes, description: dict, vocabulary: list[str] | None) -> bytes:
    """Appends associated files to a model, as TFLite metadata does.

    The files form an uncompressed zip archive behind the FlatBuffer: `unzip` and every zip library read it,
        and
    the interpreter ignores it. The bytes of the model do not move. The same input gives the same bytes.

    Args:
        model: a .tflite file.
        description: content of `captioner.json`; see docs/export.md, "Files of captioners".
        vocabulary: the token strings in the order of their ids for `vocabulary.txt`, or None if unknown.

    Returns:
        The bytes of the bundle, which `tfsparsecap.inference.bundle` reads.
    """
    files = {DESCRIPTION: json.dumps(description, ensure_ascii=False, indent=1) + "\n"}
    if vocabulary is not None:
        files[VOCABULARY] = "\n".join(vocabulary) + "\n"
    content = io.BytesIO()
    content.write(model)
    with zipfile.ZipFile(content, "a", zipfile.ZIP_STORED) as archive:
        for name, text in sorted(files.items()):
            # ZipInfo's default date is constant (1980).
            archive.writestr(zipfile.ZipInfo(name), text.encode("utf-8"))
    return content.getvalue()
