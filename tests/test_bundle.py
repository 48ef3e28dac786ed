"""Reading bundles: what is in them, and every kind of file that is none."""

import io
import json
import zipfile

import pytest

from tfsparsecap.bundle import read_bundle
from tfsparsecap.errors import InputError

DESCRIPTION = {"format_version": 1, "join": "words", "special_ids": {"pad": 0, "start": 1, "end": 2}}
VOCABULARY = ["<pad>", "<start>", "<end>", "<unk>", "a", "dog\u2028s", "\U0001f436"]
MODEL = b"\x1c\0\0\0TFL3" + bytes(56)


def bundle(path, model=MODEL, description=DESCRIPTION, vocabulary=VOCABULARY):
    content = io.BytesIO()
    content.write(model)
    with zipfile.ZipFile(content, "a") as archive:
        if description is not None:
            text = description if isinstance(description, str) else json.dumps(description)
            archive.writestr("captioner.json", text)
        if vocabulary is not None:
            archive.writestr("vocabulary.txt", "\n".join(vocabulary) + "\n")
    path.write_bytes(content.getvalue())
    return path


def test_description_and_vocabulary_come_back(tmp_path):
    assert read_bundle(bundle(tmp_path / "a.tflite")) == (DESCRIPTION, VOCABULARY)


def test_a_vocabulary_may_be_missing(tmp_path):
    assert read_bundle(bundle(tmp_path / "a.tflite", vocabulary=None)) == (DESCRIPTION, [])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"model": b"text, not a model"}, "no .tflite file"),
        ({"description": None}, "holds no captioner.json"),
        ({"description": "{"}, "holds no captioner.json"),
        ({"description": "[1]"}, "no format version"),
        ({"description": {"format_version": "1"}}, "no format version"),
        ({"description": {"format_version": 99}}, "reads up to 1"),
    ],
)
def test_what_is_no_bundle_is_said(tmp_path, options, message):
    with pytest.raises(InputError, match=message):
        read_bundle(bundle(tmp_path / "a.tflite", **options))


def test_absent_cut_and_foreign_files_are_said(tmp_path):
    with pytest.raises(InputError, match="cannot read"):
        read_bundle(tmp_path / "absent.tflite")
    with pytest.raises(InputError, match="cannot read"):
        read_bundle(tmp_path)
    whole = bundle(tmp_path / "a.tflite").read_bytes()
    (tmp_path / "cut.tflite").write_bytes(whole[:-30])
    with pytest.raises(InputError, match="cut short"):
        read_bundle(tmp_path / "cut.tflite")
    (tmp_path / "foreign.tflite").write_bytes(MODEL)
    with pytest.raises(InputError, match="from another program"):
        read_bundle(tmp_path / "foreign.tflite")


def test_an_archive_that_would_fill_the_memory_is_refused(tmp_path):
    content = io.BytesIO(MODEL)
    content.seek(0, io.SEEK_END)
    with zipfile.ZipFile(content, "a", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("captioner.json", b" " * (65 << 20))
    (tmp_path / "bomb.tflite").write_bytes(content.getvalue())
    with pytest.raises(InputError, match="larger than 64 MB"):
        read_bundle(tmp_path / "bomb.tflite")
