"""Files as people get them: every format captions as the Keras model does, or is not written."""

import errno
import os
import zipfile

import keras
import numpy as np
import pytest
from tfsparsecap_export import FORMATS, export_model, exporter
from tfsparsecap_export.encode import sparse

from tfsparsecap.decoding import Decoder, beam_search
from tfsparsecap.errors import InputError
from tfsparsecap.inference.bundle import TFLiteCaptioner, read_bundle
from tfsparsecap.models import ObjectRelationTransformer, SoftAttention, UpDown

from .conftest import MAX_LENGTH, prune


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("pattern", ["blocks", "unstructured"])
def test_every_format_captions_as_the_keras_model(format, pattern, request, exported, pictures):
    captioner = request.getfixturevalue(f"{pattern}_captioner")
    path, report = exported(pattern, format)
    assert report.bytes == path.stat().st_size
    stored = {layer.encoding for layer in report.layers}
    has_int8 = any("int8" in encoding for encoding in stored)
    assert has_int8 == (format in ("int8", "dense-int8") or (format == "auto" and pattern == "blocks"))
    runner = TFLiteCaptioner(path)
    equal = 0
    for picture in pictures:
        token_ids, scores = (np.asarray(x) for x in beam_search(captioner, {"image": picture[None]}, 3, 6))
        given_ids, given_scores = runner.token_ids(picture)
        if has_int8:
            equal += (given_ids[0] == token_ids[0][0]).all() / len(pictures)
            np.testing.assert_allclose(given_scores[0], scores[0][0], atol=1.5)
        else:
            np.testing.assert_array_equal(given_ids[0], token_ids[0][0])
            np.testing.assert_allclose(given_scores, scores[0], atol=0.05)
    if has_int8:
        assert report.verification.equal == pytest.approx(equal) and equal > 0.3
    else:
        assert report.verification.equal == 1.0


def test_pictures_get_different_captions(blocks_captioner, pictures):
    # Else the tests above would show little.
    captions = {
        tuple(beam_search(blocks_captioner, {"image": p[None]}, 1, 6)[0][0, 0].numpy()) for p in pictures
    }
    assert len(captions) > 3


def test_blocks_are_the_smallest_and_dense_the_largest(exported):
    sizes = {format: exported("blocks", format)[1].bytes for format in FORMATS}
    assert sizes["auto"] < sizes["compact"] < sizes["fast"] < sizes["dense"]
    assert sizes["int8"] < sizes["dense-int8"] < sizes["dense"]


def test_the_same_model_gives_the_same_file(tmp_path, blocks_captioner, export_options, exported):
    export_model(blocks_captioner, tmp_path / "again.tflite", **export_options)
    assert (tmp_path / "again.tflite").read_bytes() == exported("blocks", "auto")[0].read_bytes()


def test_the_bundle_is_a_zip_archive_that_says_what_is_in_it(exported, vocabulary):
    path, _ = exported("blocks", "auto")
    with zipfile.ZipFile(path) as archive:
        assert archive.testzip() is None
        assert sorted(archive.namelist()) == ["captioner.json", "vocabulary.txt"]
        assert {info.compress_type for info in archive.infolist()} == {zipfile.ZIP_STORED}
        assert archive.read("vocabulary.txt").decode().splitlines() == vocabulary
    description, tokens = read_bundle(path)
    assert tokens == vocabulary
    assert description["special_ids"] == {"pad": 0, "start": 1, "end": 2}
    assert (description["input"], description["image_size"], description["beam"]) == ("image", 16, 3)
    assert description["max_length"] == 6 and description["vocabulary_size"] == len(vocabulary)
    assert 0.7 < description["sparsity"] < 0.9
    assert description["verification"]["samples"] == 6


def test_report_names_layers_and_reasons(exported, blocks_captioner):
    _, report = exported("blocks", "auto")
    layers = {layer.name.partition("/")[2]: layer for layer in report.layers}
    output = layers["output/kernel"]
    assert (output.shape, output.pattern, output.encoding) == ((80, 64), "1x16 blocks", sparse.BLOCK16)
    assert output.nonzeros == np.count_nonzero(blocks_captioner.output_layer.kernel)
    assert report.as_dict()["layers"][0]["reason"]
    assert sum(layer.bytes for layer in report.layers) < report.bytes


def test_features_go_in_where_there_is_no_encoder(tmp_path):
    keras.utils.set_random_seed(0)
    model = SoftAttention(40, embedding_size=16, rnn_size=32, attention_size=16, feature_size=24)
    with pytest.raises(InputError, match="how large its input is"):
        export_model(model, tmp_path / "a.tflite")
    export_model(model, tmp_path / "a.tflite", inputs={"features": (5, 24)}, max_length=5)
    features = np.random.default_rng(0).normal(size=(5, 24)).astype(np.float32)
    token_ids, _ = TFLiteCaptioner(tmp_path / "a.tflite").token_ids(features=features)
    np.testing.assert_array_equal(token_ids, beam_search(model, {"features": features[None]}, 3, 5)[0][0])


def test_inputs_beside_the_features_are_inputs_of_the_file(tmp_path):
    keras.utils.set_random_seed(2)
    captioner = UpDown(30, embedding_size=16, rnn_size=16, attention_size=16, feature_size=6)
    inputs = {"features": (4, 6), "pooled": (6,)}
    report = export_model(captioner, tmp_path / "a.tflite", inputs=inputs, max_length=5)
    assert report.verification.equal == 1
    file = TFLiteCaptioner(tmp_path / "a.tflite")
    assert file.metadata["input"] == "features" and file.metadata["other_inputs"] == {"pooled": [1, 6]}
    rng = np.random.default_rng(0)
    regions, pooled = rng.normal(size=(4, 6)).astype("float32"), rng.normal(size=6).astype("float32")
    token_ids, scores = file.token_ids(features=regions, pooled=pooled)
    expected_ids, expected = Decoder(captioner, 3, 5)({"features": regions[None], "pooled": pooled[None]})
    np.testing.assert_array_equal(token_ids, expected_ids[0])
    np.testing.assert_allclose(scores, expected[0], atol=0.01)
    with pytest.raises(InputError, match="takes image or features, and pooled, mask, not features and boxes"):
        export_model(captioner, tmp_path / "b.tflite", inputs={"features": (4, 6), "boxes": (4, 4)})


@pytest.mark.parametrize("format", FORMATS)
def test_a_transformer_of_digits_gives_words(format, tmp_path, transformer_captioner, digits, pictures):
    samples = [{"image": picture[None]} for picture in pictures]
    report = export_model(
        transformer_captioner,
        tmp_path / "a.tflite",
        format,
        max_length=2 * MAX_LENGTH,
        tokenizer=digits,
        samples=samples,
    )
    file = TFLiteCaptioner(tmp_path / "a.tflite")
    assert file.vocabulary == digits.vocabulary
    assert file.metadata["special_ids"] == {"pad": 0, "start": 1, "end": 2}
    decode = Decoder(transformer_captioner, 3, 2 * MAX_LENGTH)
    said = set()
    for sample in samples:
        token_ids, scores = (values.numpy()[0] for values in decode(sample))
        found = file.caption(sample["image"][0])
        said.add(found[0][0])
        if format == "auto" or "int8" in format:
            continue
        assert [text for text, _ in found] == [digits.decode(row) for row in token_ids]
        np.testing.assert_allclose([score for _, score in found], scores, atol=0.05)
        words, _ = file.token_ids(sample["image"][0])
        np.testing.assert_array_equal(words, digits.to_words(token_ids))
    # The table of positions is not among the weights.
    known = {weight.path: np.asarray(weight) for weight in transformer_captioner.weights}
    counted = [layer for layer in report.layers if layer.role != "convolution" and layer.weights]
    assert report.sparsity == pytest.approx(
        1
        - sum(np.count_nonzero(known[layer.name]) for layer in counted)
        / sum(known[layer.name].size for layer in counted)
    )
    assert [layer.name.rpartition("/")[2] for layer in report.layers if not layer.weights] in (
        [],
        ["positions"],
    )
    assert len(said) > 1 and report.verification.samples == len(pictures)
    with pytest.raises(InputError, match="the vocabulary has 80 tokens, the model 12"):
        export_model(transformer_captioner, tmp_path / "b.tflite", vocabulary=digits.vocabulary)


def test_regions_with_boxes_are_filled_up_to_what_the_file_takes(tmp_path):
    keras.utils.set_random_seed(3)
    captioner = ObjectRelationTransformer(40, size=16, hidden_size=24, layers=1, heads=2, feature_size=6)
    inputs = {"features": (9, 6), "boxes": (9, 4)}
    export_model(captioner, tmp_path / "a.tflite", inputs=inputs, max_length=5)
    file = TFLiteCaptioner(tmp_path / "a.tflite")
    assert (file.features_shape, file.image_size) == ((9, 6), None)
    rng = np.random.default_rng(0)
    regions = rng.normal(size=(4, 6)).astype("float32")
    boxes = np.sort(rng.random((4, 2, 2)), axis=1).reshape(4, 4).astype("float32")
    token_ids, scores = file.token_ids(features=regions, boxes=boxes)
    expected = Decoder(captioner, 3, 5)({"features": regions[None], "boxes": boxes[None]})
    np.testing.assert_array_equal(token_ids, expected[0][0])
    np.testing.assert_allclose(scores, expected[1][0], atol=1e-4)
    with pytest.raises(InputError, match=r"takes features of shape \[9, 6\]"):
        file.token_ids(features=np.zeros((10, 6), "float32"), boxes=np.zeros((9, 4), "float32"))


def test_caches_that_layers_share_are_checked_as_they_are_decoded(tmp_path):
    keras.utils.set_random_seed(3)
    captioner = ObjectRelationTransformer(
        30,
        size=16,
        hidden_size=16,
        layers=3,
        heads=2,
        max_length=8,
        feature_size=8,
        share_encoder_layers=[0, 0, 0],
        share_decoder_layers=[0, 0, 0],
        shared_caches=True,
    )
    inputs = {"features": (5, 8), "boxes": (5, 4)}
    report = export_model(captioner, tmp_path / "a.tflite", "dense", beam=1, max_length=8, inputs=inputs)
    assert report.verification.equal == 1 and report.verification.error < 1e-3


def test_a_model_without_zeros_becomes_a_dense_file_and_that_is_said(tmp_path):
    model = SoftAttention(40, embedding_size=16, rnn_size=32, attention_size=16, feature_size=24)
    report = export_model(model, tmp_path / "a.tflite", inputs={"features": (5, 24)}, max_length=5)
    assert "No layer of the model is sparse" in report.sentences()[0]


def test_any_other_keras_model(tmp_path, interpreter):
    rng = np.random.default_rng(0)
    inputs = [keras.Input((64,), name="left"), keras.Input((8, 8, 4), name="right")]
    convolved = keras.layers.GlobalAveragePooling2D()(keras.layers.Conv2D(8, 3)(inputs[1]))
    hidden = keras.layers.Dense(96)(keras.layers.Concatenate()([inputs[0], convolved]))
    model = keras.Model(inputs, [keras.layers.Dense(3)(hidden), hidden])
    kernel = model.layers[-2].kernel if model.layers[-2].name.startswith("dense") else model.layers[-1].kernel
    kernel.assign(np.asarray(kernel) * (rng.random(kernel.shape) < 0.1))
    for format in FORMATS:
        export_model(model, tmp_path / "model.tflite", format)
        values = {"left": rng.normal(size=(1, 64)), "right": rng.normal(size=(1, 8, 8, 4))}
        values = {name: value.astype(np.float32) for name, value in values.items()}
        run = interpreter((tmp_path / "model.tflite").read_bytes())
        outputs = run(**values)
        for i, expected in enumerate(model([values["left"], values["right"]])):
            np.testing.assert_allclose(
                outputs[f"output_{i}"], expected, atol=0.1 if "int8" in format else 0.01
            )


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("block", [1, 16])
def test_any_number_of_examples(format, block, tmp_path, interpreter):
    keras.utils.set_random_seed(0)
    layers = [keras.layers.Dense(304, "relu"), keras.layers.Dense(10)]
    model = keras.Sequential([keras.Input((80,)), *layers])
    prune(model, block)
    export_model(model, tmp_path / "a.tflite", format, batch=None)
    given = np.random.default_rng(1).normal(size=(7, 80)).astype("float32")
    expected = np.asarray(model(given))
    for delegate in (True, False):
        run = interpreter((tmp_path / "a.tflite").read_bytes(), delegate)
        (name,) = run.get_input_details()
        for examples in (7, 1, 5):
            found = run(**{name: given[:examples]})["output_0"]
            np.testing.assert_allclose(found, expected[:examples], atol=0.06 * np.abs(expected).max())


def test_a_loop_over_any_number_of_examples_is_refused_and_over_four_is_not(tmp_path):
    model = keras.Sequential([keras.Input((5, 16)), keras.layers.LSTM(16)])
    with pytest.raises(InputError, match="give a batch size"):
        export_model(model, tmp_path / "a.tflite", batch=None)
    assert not list(tmp_path.iterdir())
    assert export_model(model, tmp_path / "a.tflite", batch=4).verification.error < 0.01
    with pytest.raises(InputError, match="batch is 0"):
        export_model(model, tmp_path / "a.tflite", batch=0)


def test_mixed_precision_is_exported_in_float32_and_left_as_it_was(tmp_path):
    model = SoftAttention(
        40, embedding_size=16, rnn_size=32, attention_size=16, feature_size=24, dtype="mixed_bfloat16"
    )
    export_model(model, tmp_path / "a.tflite", inputs={"features": (5, 24)}, max_length=5)
    assert model.compute_dtype == model.cell.compute_dtype == "bfloat16"


@pytest.mark.parametrize(("refused", "note"), [(1, "only the convolutions"), (2, "stored as float32")])
def test_rounding_that_changes_a_caption_is_taken_back_step_by_step(
    refused, note, tmp_path, monkeypatch, unstructured_captioner, export_options
):
    original = exporter.verify.verify_captions
    calls = []

    def differing_at_first(*args, **kwargs):
        calls.append(kwargs)
        if len(calls) <= refused:
            raise exporter.verify.CaptionsDiffer("differ")
        return original(*args, **kwargs)

    monkeypatch.setattr(exporter.verify, "verify_captions", differing_at_first)
    report = export_model(unstructured_captioner, tmp_path / "a.tflite", "fast", **export_options)
    float16 = {layer.role for layer in report.layers if "float16" in layer.encoding}
    assert float16 <= ({"convolution"} if refused == 1 else set())
    assert note in report.notes[0]
    assert [call["tie"] for call in calls] == [0.05, 0.05, 1e-3][: refused + 1]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"format": "sparse"}, "no export format"),
        ({"path": "absent/a.tflite"}, "does not exist"),
        ({"vocabulary": ["<pad>"]}, "1 tokens"),
        ({"beam": 0}, "at least 1"),
        ({"tolerance": 20}, "from 0 to 1"),
        ({"inputs": {"sound": (3,)}}, "not sound"),
    ],
)
def test_what_cannot_be_used_is_said(tmp_path, blocks_captioner, export_options, changes, message):
    options = {"path": "a.tflite", **export_options, **changes}
    with pytest.raises(InputError, match=message):
        export_model(blocks_captioner, tmp_path / options.pop("path"), **options)
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_leaves_the_old_file(tmp_path, monkeypatch, blocks_captioner, export_options):
    path = tmp_path / "captioner.tflite"
    path.write_bytes(b"old")

    def full(descriptor):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(InputError, match="disk is full"):
        export_model(blocks_captioner, path, **export_options)
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["captioner.tflite"]
