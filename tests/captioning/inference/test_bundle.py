"""Exported files: reading them, refusing damaged and malicious ones, joining tokens."""

import io
import json
import tracemalloc
import zipfile
from types import SimpleNamespace

import numpy as np
import pytest

from tfsparsecap import caption
from tfsparsecap.captioning.inference import load
from tfsparsecap.captioning.inference.bundle import TFLiteCaptioner, check_trust, has_digest, read_bundle
from tfsparsecap.captioning.inference.description import ChangedFile, digests
from tfsparsecap.errors import InputError

DESCRIPTION = {"format_version": 1, "join": "words", "special_ids": {"pad": 0, "start": 1, "end": 2}}
VOCABULARY = ["<pad>", "<start>", "<end>", "<unk>", "a", "dog\u2028s", "\U0001f436"]
MODEL = b"\x1c\0\0\0TFL3" + bytes(56)


def bundle(path, model=MODEL, description=DESCRIPTION, vocabulary=VOCABULARY, with_digests=True):
    words = None if vocabulary is None else ("\n".join(vocabulary) + "\n").encode()
    if with_digests and isinstance(description, dict):
        description = {**description, **digests(model, words)}
    content = io.BytesIO()
    content.write(model)
    with zipfile.ZipFile(content, "a") as archive:
        if description is not None:
            text = description if isinstance(description, str) else json.dumps(description)
            archive.writestr("captioner.json", text)
        if words is not None:
            archive.writestr("vocabulary.txt", words)
    path.write_bytes(content.getvalue())
    return path


def test_description_and_vocabulary_are_read(tmp_path):
    older = bundle(tmp_path / "a.tflite", with_digests=False)
    assert read_bundle(older) == (DESCRIPTION, VOCABULARY) and not has_digest(older)
    file = bundle(tmp_path / "b.tflite", vocabulary=None)
    assert read_bundle(file) == ({**DESCRIPTION, **digests(MODEL, None)}, []) and has_digest(file)
    (tmp_path / "c.tflite").write_bytes(MODEL)
    assert not has_digest(tmp_path / "c.tflite")


@pytest.mark.parametrize("path", ["older.tflite", "other.tflite"])
def test_files_without_a_digest_run_only_if_they_are_trusted(tmp_path, without_graph, path):
    path = bundle(tmp_path / path, MODEL, IN_PIECES, PIECES, with_digests=False)
    if path.name == "other.tflite":  # not a captioner
        path.write_bytes(MODEL)
        check_trust(path, True)
    else:
        assert load(path, trust=True).text([4, 5, 3]) == "a dog"
    for read in (load, TFLiteCaptioner, lambda path: check_trust(path, False)):
        with pytest.raises(InputError, match=r"no digest that .* runtime is no sandbox|is not a captioner"):
            read(path)


def test_the_command_runs_files_without_a_digest_only_with_trust(tmp_path, without_graph, capsys):
    path = bundle(tmp_path / "a.tflite", MODEL, IN_PIECES, PIECES, with_digests=False)
    (tmp_path / "cocobu_att").mkdir()
    np.save(tmp_path / "cocobu_att" / "a.npy", REGIONS)
    without_graph["token_ids"], without_graph["scores"] = np.array([[4, 5, 3]], np.int32), np.array([-1.0])
    argv = [str(path), "--features", str(tmp_path), "a"]
    with pytest.raises(InputError, match="give --trust"):
        caption.main(argv)
    assert caption.main([*argv, "--trust"]) == 0 and capsys.readouterr().out == "a dog\n"


def test_changed_graphs_and_vocabularies_are_refused(tmp_path):
    content = bundle(tmp_path / "a.tflite").read_bytes()
    for place in (8, 20, len(MODEL) - 1):
        changed = bytearray(content)
        changed[place] ^= 1
        (tmp_path / "b.tflite").write_bytes(changed)
        for read in (read_bundle, has_digest, TFLiteCaptioner):
            with pytest.raises(ChangedFile, match=r"the graph of .*b\.tflite was changed after its export"):
                read(tmp_path / "b.tflite")
    longer = bundle(
        tmp_path / "c.tflite", MODEL + bytes(1), {**DESCRIPTION, **digests(MODEL, None)}, None, False
    )
    with pytest.raises(ChangedFile, match="the graph of"):
        read_bundle(longer)
    described = {**DESCRIPTION, **digests(MODEL, b"dog\n")}
    for vocabulary in (["cat"], None):
        path = bundle(tmp_path / "d.tflite", MODEL, described, vocabulary, with_digests=False)
        with pytest.raises(ChangedFile, match="the vocabulary of"):
            read_bundle(path)
    for value in (7, [], {"a": 1}, ""):
        path = bundle(tmp_path / "e.tflite", MODEL, {**DESCRIPTION, "graph_sha256": value}, None, False)
        with pytest.raises(ChangedFile, match="the graph of"):
            read_bundle(path)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"model": b"text, not a model"}, "is not a .tflite file"),
        ({"description": None}, "has no readable captioner.json"),
        ({"description": "{"}, "has no readable captioner.json"),
        ({"description": "[1]"}, "no format version"),
        ({"description": {"format_version": "1"}}, "no format version"),
        ({"description": {"format_version": 99}}, "newer format than 1"),
    ],
)
def test_files_that_are_not_bundles_are_refused(tmp_path, options, message):
    with pytest.raises(InputError, match=message):
        read_bundle(bundle(tmp_path / "a.tflite", **options))


def test_missing_truncated_and_foreign_files_are_refused(tmp_path):
    with pytest.raises(InputError, match="cannot read"):
        read_bundle(tmp_path / "absent.tflite")
    with pytest.raises(InputError, match="cannot read"):
        read_bundle(tmp_path)
    content = bundle(tmp_path / "a.tflite").read_bytes()
    (tmp_path / "cut.tflite").write_bytes(content[:-30])
    with pytest.raises(InputError, match="cut short"):
        read_bundle(tmp_path / "cut.tflite")
    (tmp_path / "foreign.tflite").write_bytes(MODEL)
    with pytest.raises(InputError, match="is not a captioner"):
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
        (
            {"captioner.json": json.dumps(DESCRIPTION), "vocabulary.txt": b"dog\n\xff\n"},
            "not UTF-8 text .byte 4",
        ),
        ({"captioner.json": "[" * 100_000}, "has no readable captioner.json"),
        ({"captioner.json": '{"format_version": ' + "1" * 5000 + "}"}, "has no readable captioner.json"),
        ({"captioner.json": '{"format_version": ' + "1" * 4000 + "}"}, "newer format than 1"),
    ],
)
def test_archives_that_would_fill_the_memory_are_refused(tmp_path, members, message):
    path = archive(tmp_path / "bomb.tflite", members)
    tracemalloc.start()
    with pytest.raises(InputError, match=message):
        read_bundle(path)
    assert tracemalloc.get_traced_memory()[1] < 20e6
    tracemalloc.stop()


@pytest.fixture
def without_graph(monkeypatch):
    """A runtime that loads anything and returns `outputs`: joining tokens needs no graph."""
    from ai_edge_litert import interpreter

    outputs = dict.fromkeys(("token_ids", "scores"))

    class Runner:
        get_output_details = staticmethod(lambda: outputs)
        __call__ = staticmethod(lambda features: outputs)

        def get_input_details(self):
            return {"features": {"shape": np.array([1, 2, 3]), "dtype": np.float32}}

    loaded = SimpleNamespace(get_signature_runner=lambda name: Runner(), allocate_tensors=dict)
    monkeypatch.setattr(interpreter, "Interpreter", lambda **options: loaded)
    return outputs


REGIONS = np.ones((2, 3), np.float32)
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
def test_sentencepieces_are_joined(tmp_path, without_graph, token_ids, text):
    description = {**IN_PIECES, "unknown_id": 1}
    captioner = TFLiteCaptioner(bundle(tmp_path / "a.tflite", MODEL, description, PIECES))
    assert captioner.text(np.array(token_ids, np.int32)) == text


@pytest.mark.parametrize("no_caption", [-np.inf, np.finfo(np.float32).min])
def test_beams_without_a_caption_are_left_out(tmp_path, without_graph, no_caption):
    captioner = TFLiteCaptioner(bundle(tmp_path / "a.tflite", MODEL, IN_PIECES, PIECES))
    without_graph["token_ids"] = np.array([[4, 5, 3], [3, 0, 0]], np.int32)
    without_graph["scores"] = np.array([-2.5, no_caption], np.float32)
    captions = captioner.caption(features=REGIONS)
    assert captions == [("a dog", -2.5, (), None)] and captions.objects == ()


def test_likely_objects_are_read_and_checked(tmp_path, without_graph):
    description = {**IN_PIECES, "objects": ["cat", "dog", "sofa"]}
    file = bundle(tmp_path / "a.tflite", MODEL, description, PIECES)
    with pytest.raises(InputError, match="is not a captioner: it has no output objects"):
        TFLiteCaptioner(file)
    without_graph["token_ids"], without_graph["scores"] = np.array([[4, 3]], np.int32), np.array([-2.5])
    without_graph["objects"] = np.array([0.5, 0.25, 0.875], np.float32)
    captioner = TFLiteCaptioner(file)
    assert captioner.caption(features=REGIONS).objects == (("sofa", 0.875), ("cat", 0.5))
    for wrong in ([0.5, 0.25], [[0.5, 0.25, 0.875]], [0.5, np.nan, 0.5], [0.5, 0.5, 1.5], [-1, 0, 0]):
        without_graph["objects"] = np.array(wrong, np.float32)
        with pytest.raises(InputError, match="gives no probability for each of its 3 objects: export the"):
            captioner.caption(features=REGIONS)
    # Outputs without names are ignored.
    file = bundle(tmp_path / "b.tflite", MODEL, {**IN_PIECES, "objects": []}, PIECES)
    assert TFLiteCaptioner(file).caption(features=REGIONS).objects == ()


def test_captions_have_a_confidence_if_the_file_is_calibrated(tmp_path, without_graph):
    confidence = {"slope": 2.0, "intercept": 3.0, "length_penalty": 0.5}
    description = {**IN_PIECES, "confidence": confidence}
    captioner = TFLiteCaptioner(bundle(tmp_path / "a.tflite", MODEL, description, PIECES))
    # Two tokens and the end token; four tokens without an end.
    without_graph["token_ids"] = np.array([[4, 5, 3, 0], [4, 5, 4, 5]], np.int32)
    without_graph["scores"] = np.array([-2.5, -4], np.float32)
    best, other = captioner.caption(features=REGIONS)
    assert best.confidence == pytest.approx(1 / (1 + np.exp(5 / np.sqrt(3) - 3)))
    assert other.confidence == pytest.approx(1 / (1 + np.exp(8 / 2 - 3)))
    broken = bundle(tmp_path / "b.tflite", MODEL, {**IN_PIECES, "confidence": {"slope": None}}, PIECES)
    with pytest.raises(InputError, match="no slope and intercept: export the run again"):
        TFLiteCaptioner(broken)


def test_the_unknown_token_is_left_out_if_the_file_names_it(tmp_path, without_graph):
    token_ids = np.array([1, 4, 3, 5, 3, 6, 2, 4], np.int32)
    all_words = "a <unk> dog\u2028s <unk> \U0001f436"
    # Older files do not name it.
    for more, text in (
        ({"unknown_id": 3}, "a dog\u2028s \U0001f436"),
        ({"unknown_id": 4}, "<unk> dog\u2028s <unk> \U0001f436"),
        ({"unknown_id": None}, all_words),
        ({}, all_words),
    ):
        captioner = TFLiteCaptioner(bundle(tmp_path / "a.tflite", description={**DESCRIPTION, **more}))
        assert captioner.text(token_ids) == text
    with pytest.raises(InputError, match=r"gives token 7, but its vocabulary.txt has 7 lines"):
        captioner.text([4, 7])


def test_sentencepiece_captions_equal_those_of_the_original_implementation(tmp_path, without_graph, fixtures):
    folder = fixtures / "updown_smp975"
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
        ({"join": ["words"]}, "does not say how to join tokens"),
        ({"join": "syllables"}, "does not say how to join tokens"),
        ({"image_size": 10**9}, "gives the image size 1000000000"),
        ({"unknown_id": 2**31}, "gives unknown_id as 2147483648"),
        ({"beam": "three"}, "gives beam as 'three'"),
        ({"objects": [{"cat": 1}]}, "not a list of names"),
        ({"confidence": {"slope": 10**4000, "intercept": 0, "length_penalty": 0}}, "no slope and intercept"),
        ({"confidence": {"slope": 1, "intercept": 0, "length_penalty": 1e300}}, "no slope and intercept"),
    ],
)
def test_incomplete_descriptions_are_refused(tmp_path, change, message):
    path = bundle(tmp_path / "a.tflite", description={**DESCRIPTION, **change})
    with pytest.raises(InputError, match=message):
        TFLiteCaptioner(path)
