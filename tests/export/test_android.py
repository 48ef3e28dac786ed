"""python -m tfsparsecap_export.android: files that the Android app can use, and errors for other files."""

from functools import partial
from pathlib import Path

import pytest
from tfsparsecap_export import android
from tfsparsecap_export.caption_files.export_captioner import make_bundle
from tfsparsecap_export.flatbuffer import model_file as flatfile
from tfsparsecap_export.verify import portability

from tests import command_line
from tfsparsecap.captioning.inference.bundle import TFLiteCaptioner

#: Resources of the app's own tests.
RESOURCES = Path(__file__).parents[2] / "android_demo/app/src/test/resources/captioner"


@pytest.fixture(scope="module")
def path(exported):
    return exported("blocks", "auto")[0]


ended = partial(command_line.exit_code, android.main)


def test_a_captioner_of_images_can_be_used(path, capsys):
    assert android.check_bundle(path) == []
    assert ended(path, path) == 0
    assert capsys.readouterr() == (2 * f"{path}: the app can use it\n", "")


def test_warnings_are_printed_but_are_not_errors(path, capsys, monkeypatch):
    monkeypatch.setattr(portability, "warnings", lambda contents: [f"{contents.bytes} bytes"])
    assert ended(path) == 0
    printed = capsys.readouterr().out.splitlines()
    assert printed == [f"{path}: the app can use it", f"{path}: {path.stat().st_size} bytes"]


def without_weights(graph):
    """A graph without its largest constant."""
    model = flatfile.read_model(graph)
    largest = max(model.buffers, key=lambda buffer: 0 if buffer.data is None else len(buffer.data))
    largest.data = None
    return flatfile.write_model(model)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (None, "No such file"),
        (lambda content, *_: b"not a model", "is not a .tflite file"),
        (lambda content, *_: content[:-100], "cut short"),
        (
            lambda _, graph, about, words: make_bundle(graph, {**about, "image_size": None}, words),
            "image features",
        ),
        (lambda _, graph, about, words: make_bundle(graph, about, None), "no vocabulary"),
        (
            lambda _, graph, about, words: make_bundle(b"\x08\0\0\0TFL3" + bytes(64), about, words),
            "the runtime cannot load",
        ),
        (lambda *_: (RESOURCES / "silent.tflite").read_bytes(), "no output scores and token_ids"),
        (
            lambda _, graph, about, words: make_bundle(without_weights(graph), about, words),
            "the runtime cannot run",
        ),
    ],
    ids=["absent", "text", "cut short", "features", "no vocabulary", "no model", "no captions", "damaged"],
)
def test_an_unusable_file_gives_one_sentence_and_exit_code_2(change, expected, path, tmp_path, capsys):
    captioner, content, file = TFLiteCaptioner(path), path.read_bytes(), tmp_path / "model.tflite"
    if change is not None:
        graph = content[: content.index(b"PK\x03\x04")]
        file.write_bytes(change(content, graph, captioner.metadata, captioner.vocabulary))
    assert ended(file) == 2
    out, error = capsys.readouterr()
    assert out == ""
    assert error.startswith("error: ") and error.count("\n") == 1
    assert str(file) in error and expected in error
