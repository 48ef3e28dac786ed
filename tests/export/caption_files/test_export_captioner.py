"""Bundles: the bytes of the archive, and what `TFLiteCaptioner` reads from them."""

import json
import tempfile

import numpy as np
import pytest
from tfsparsecap_export.caption_files.export_captioner import make_bundle, plain_description
from tfsparsecap_export.flatbuffer import model_file as flatfile

from tfsparsecap.captioning.inference.bundle import TFLiteCaptioner
from tfsparsecap.core.files import check_output
from tfsparsecap.errors import InputError


@pytest.fixture(scope="module")
def path(exported):
    return exported("blocks", "auto")[0]


def test_captions_are_the_words_of_the_token_ids(path, images, vocabulary):
    runner = TFLiteCaptioner(path, threads=2)
    for image in images:
        token_ids, scores = runner.token_ids(image)
        captions = runner.caption(image)
        assert [caption.score for caption in captions] == pytest.approx(list(scores))
        expected = []
        for token in token_ids[0]:
            if token == 2:
                break
            if token > 2:
                expected.append(vocabulary[token])
        assert captions[0][0].split() == expected


def test_text_ends_at_the_end_token_and_drops_special_tokens(path):
    assert TFLiteCaptioner(path).text([1, 5, 0, 6, 2, 7]) == "word1 word2"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"features": np.zeros((4, 4), np.float32)}, "takes image, not features"),
        ({}, "not nothing"),
        ({"image": np.zeros((8, 8, 3), np.uint8)}, r"\[16, 16, 3\]"),
        ({"image": np.zeros((16, 16, 3), np.float32)}, "uint8"),
    ],
)
def test_wrong_inputs_are_rejected(path, given, message):
    with pytest.raises(InputError, match=message):
        TFLiteCaptioner(path).caption(**given)


def test_the_bytes_of_the_model_do_not_move():
    model = b"\x1c\0\0\0TFL3" + bytes(range(200))
    assert make_bundle(model, {"a": 1}, ["é"]).startswith(model)


def test_an_output_path_must_be_writable(tmp_path, monkeypatch):
    check_output(tmp_path / "a.tflite")
    for path, message in ((tmp_path, r"is a folder"), (tmp_path / "no" / "a", r"no does not exist")):
        with pytest.raises(InputError, match=message):
            check_output(path)

    def refuse(**options):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(tempfile, "TemporaryFile", refuse)
    with pytest.raises(InputError, match=r"cannot write .*a\.tflite: Permission denied; choose a folder"):
        check_output(tmp_path / "a.tflite")
    assert not list(tmp_path.iterdir())


def test_descriptions_have_plain_numbers():
    description = {"scores": {"CIDEr": np.float32(0.5), "all": np.arange(2)}, "name": "é"}
    plain = {"scores": {"CIDEr": 0.5, "all": [0, 1]}, "name": "é"}
    assert json.dumps(plain_description(description)) == json.dumps(plain)
    for value in ({1, 2}, [b"x"], np.longdouble(1), {(1,): 2}, {"a": object()}):
        with pytest.raises(InputError, match=r"the entry 'scores' of description cannot be written as JSON"):
            plain_description({"scores": value})


def test_a_damaged_model_and_a_short_vocabulary_are_reported(path, tmp_path, vocabulary):
    special = {"pad": 0, "start": 1, "end": 2}
    description = {"format_version": 1, "join": "words", "special_ids": special}
    broken = tmp_path / "broken.tflite"
    broken.write_bytes(make_bundle(b"\x1c\0\0\0TFL3" + bytes(100), description, vocabulary))
    with pytest.raises(InputError, match="cannot load"):
        TFLiteCaptioner(broken)
    short = tmp_path / "short.tflite"
    short.write_bytes(
        make_bundle(flatfile.write_model(flatfile.read_model(path.read_bytes())), description, vocabulary[:5])
    )
    with pytest.raises(InputError, match="5 lines"):
        TFLiteCaptioner(short).text([70])
