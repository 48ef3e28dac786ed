"""Reading bundles: what is in them, and every kind of file that is none."""

import io
import json
import os
import struct
import tracemalloc
import zipfile
from types import SimpleNamespace

import numpy as np
import pytest

from tfsparsecap.errors import InputError
from tfsparsecap.inference.bundle import TFLiteCaptioner, read_bundle

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
    with pytest.raises(InputError, match="no captioner's file"):
        read_bundle(tmp_path / "foreign.tflite")


def archive(path, members, method=zipfile.ZIP_DEFLATED):
    content = io.BytesIO(MODEL)
    content.seek(0, io.SEEK_END)
    with zipfile.ZipFile(content, "a", method) as file:
        for name, data in members.items():
            file.writestr(name, data)
    path.write_bytes(content.getvalue())
    return path


@pytest.mark.parametrize(
    ("members", "message"),
    [
        ({"captioner.json": b" " * (5 << 20)}, "captioner.json in .* is larger than 4 MB"),
        (
            {"captioner.json": json.dumps(DESCRIPTION), "vocabulary.txt": b"a\n" * (9 << 20)},
            "vocabulary.txt in .* is larger than 16 MB",
        ),
        ({str(number): "" for number in range(1001)}, "holds no captioner.json"),
        (
            {"captioner.json": json.dumps(DESCRIPTION), "vocabulary.txt": b"dog\n\xff\n"},
            "no UTF-8 text .byte 4",
        ),
        ({"captioner.json": "[" * 100_000}, "holds no captioner.json"),
    ],
)
def test_an_archive_that_would_fill_the_memory_is_refused(tmp_path, members, message):
    path = archive(tmp_path / "bomb.tflite", members)
    tracemalloc.start()
    with pytest.raises(InputError, match=message):
        read_bundle(path)
    assert tracemalloc.get_traced_memory()[1] < 20e6
    tracemalloc.stop()


def test_an_archive_that_lies_about_its_sizes_is_refused(tmp_path):
    """256 MB in 256 KB that say that they are 1 KB."""
    bomb = archive(tmp_path / "bomb.tflite", {"captioner.json": b" " * (1 << 28)})
    content = bytearray(bomb.read_bytes())
    for signature, field in ((b"PK\x03\x04", 22), (b"PK\x01\x02", 24)):
        struct.pack_into("<I", content, content.index(signature) + field, 1000)
    bomb.write_bytes(content)
    tracemalloc.start()
    with pytest.raises(InputError, match=r"holds no captioner\.json"):
        read_bundle(bomb)
    assert tracemalloc.get_traced_memory()[1] < 50e6
    tracemalloc.stop()


def test_other_compressions_are_refused(tmp_path):
    path = archive(tmp_path / "a.tflite", {"captioner.json": json.dumps(DESCRIPTION)}, zipfile.ZIP_BZIP2)
    with pytest.raises(InputError, match="compressed in a way"):
        read_bundle(path)


def test_damage_anywhere_is_a_sentence(tmp_path):
    whole = archive(
        tmp_path / "a.tflite",
        {"captioner.json": json.dumps(DESCRIPTION), "vocabulary.txt": "\n".join(VOCABULARY)},
    ).read_bytes()
    path, refused = tmp_path / "damaged.tflite", 0
    for place in range(len(MODEL), len(whole)):
        for value in (0, 0xFF, whole[place] ^ 1):
            path.write_bytes(whole[:place] + bytes([value]) + whole[place + 1 :])
            try:
                read_bundle(path)
            except InputError:
                refused += 1
    assert refused > 500


def test_a_pipe_is_refused_at_once(tmp_path):
    os.mkfifo(tmp_path / "pipe.tflite")
    with pytest.raises(InputError, match=r"cannot read .*it is no file"):
        read_bundle(tmp_path / "pipe.tflite")


@pytest.fixture
def without_graph(monkeypatch):
    """The runtime without a model: what words come out is not its affair."""
    from ai_edge_litert import interpreter

    features = {"features": {"shape": np.array([1, 2, 3]), "dtype": np.float32}}
    outputs = dict.fromkeys(("token_ids", "scores"))
    runner = SimpleNamespace(get_input_details=lambda: features, get_output_details=lambda: outputs)
    loaded = SimpleNamespace(get_signature_runner=lambda name: runner)
    monkeypatch.setattr(interpreter, "Interpreter", lambda **options: loaded)


PIECES = ["<pad>", "<unk>", "<s>", "</s>", "\u2581a", "\u2581dog", "s", "\u2581", "o"]
IN_PIECES = {"format_version": 1, "join": "pieces", "special_ids": {"pad": 0, "start": 2, "end": 3}}


@pytest.mark.parametrize(
    ("token_ids", "text"),
    [
        ([4, 5, 3, 0, 0], "a dog"),
        ([4, 5, 6, 3, 5], "a dogs"),
        ([6, 5, 6], "s dogs"),
        ([7, 5, 8, 8, 5, 7, 3], "dogoo dog"),
        ([2, 4, 0, 1, 5, 3], "a dog"),
        ([1, 1, 3], ""),
        ([3, 4], ""),
    ],
)
def test_pieces_are_joined_where_words_begin(tmp_path, without_graph, token_ids, text):
    description = {**IN_PIECES, "unknown_id": 1}
    captioner = TFLiteCaptioner(bundle(tmp_path / "a.tflite", MODEL, description, PIECES))
    assert captioner.text(np.array(token_ids, np.int32)) == text


@pytest.mark.parametrize("nothing", [-np.inf, np.finfo(np.float32).min])
def test_a_beam_that_found_nothing_is_left_out(tmp_path, monkeypatch, without_graph, nothing):
    captioner = TFLiteCaptioner(bundle(tmp_path / "a.tflite", MODEL, IN_PIECES, PIECES))
    found = np.array([[4, 5, 3], [3, 0, 0]], np.int32), np.array([-2.5, nothing], np.float32)
    monkeypatch.setattr(captioner, "token_ids", lambda image=None, **features: found)
    assert captioner.caption() == [("a dog", -2.5)]


def test_an_unknown_word_is_left_out_where_the_file_says_which_it_is(tmp_path, without_graph):
    token_ids = np.array([1, 4, 3, 5, 3, 6, 2, 4], np.int32)
    all_words = "a <unk> dog\u2028s <unk> \U0001f436"
    # Older files say nothing of it.
    for also, said in (
        ({"unknown_id": 3}, "a dog\u2028s \U0001f436"),
        ({"unknown_id": 4}, "<unk> dog\u2028s <unk> \U0001f436"),
        ({"unknown_id": None}, all_words),
        ({}, all_words),
    ):
        captioner = TFLiteCaptioner(bundle(tmp_path / "a.tflite", description={**DESCRIPTION, **also}))
        assert captioner.text(token_ids) == said
    with pytest.raises(InputError, match=r"gives token 7, its vocabulary.txt has 7 lines"):
        captioner.text([4, 7])


def test_captions_in_pieces_are_the_originals(tmp_path, without_graph, shared):
    folder = shared / "fixtures" / "updown_smp975"
    vocabulary = (folder / "vocab.txt").read_text(encoding="utf-8").split("\n")[:-1]
    description = {**IN_PIECES, "unknown_id": 1}
    captioner = TFLiteCaptioner(bundle(tmp_path / "a.tflite", MODEL, description, vocabulary))
    computed = json.loads((folder / "expected.json").read_text(encoding="utf-8"))["computed"]
    beams = [beam for image in computed.values() for beam in image.values() if "caption" in beam]
    assert len(beams) == 20 and any(1 in beam["token_ids"] for beam in beams)
    for beam in beams:
        assert captioner.text([*beam["token_ids"], 3, 0]) == beam["caption"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"special_ids": None}, "does not name the special tokens"),
        ({"special_ids": {"end": "2"}}, "does not name the special tokens"),
        ({"join": ["words"]}, "does not say how words are joined"),
        ({"join": "syllables"}, "does not say how words are joined"),
        ({"image_size": 10**9}, "gives the image size 1000000000"),
        ({"image_size": "64"}, "gives the image size '64'"),
    ],
)
def test_a_description_that_captioning_cannot_use_is_said(tmp_path, change, message):
    path = bundle(tmp_path / "a.tflite", description={**DESCRIPTION, **change})
    with pytest.raises(InputError, match=message):
        TFLiteCaptioner(path)
