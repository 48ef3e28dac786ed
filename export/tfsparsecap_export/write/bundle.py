"""A .tflite file that carries its vocabulary and its description with it."""

import io
import json
import zipfile

from tfsparsecap.inference.bundle import DESCRIPTION, VOCABULARY


def bundled(model: bytes, description: dict, vocabulary: list[str] | None) -> bytes:
    """A model with its associated files appended, the way TFLite metadata does it.

    The files form a zip archive, stored uncompressed, behind the FlatBuffer: `unzip` and every zip library
        read them,
    the interpreter does not look there, and no byte of the model moves. The same input gives the same bytes.

    Args:
        model: a .tflite file.
        description: what goes into `captioner.json`; docs/export.md, "A captioner's file".
        vocabulary: the tokens in the order of their ids, for `vocabulary.txt`, or None where they are not
            known.

    Returns:
        The bytes of the bundle, to be read by `tfsparsecap.inference.bundle`.
    """
    files = {DESCRIPTION: json.dumps(description, ensure_ascii=False, indent=1) + "\n"}
    if vocabulary is not None:
        files[VOCABULARY] = "\n".join(vocabulary) + "\n"
    content = io.BytesIO()
    content.write(model)
    with zipfile.ZipFile(content, "a", zipfile.ZIP_STORED) as archive:
        for name, text in sorted(files.items()):
            # The default date of a ZipInfo, 1980, not the time of writing.
            archive.writestr(zipfile.ZipInfo(name), text.encode("utf-8"))
    return content.getvalue()
