"""Exported files give the outputs of the Keras model in every format, or are not written."""

import errno
import os
import zipfile

import keras
import numpy as np
import pytest
from keras import layers, ops
from tfsparsecap_export import FORMATS, CaptionOptions, check_exportable, export_model
from tfsparsecap_export.caption_files import caption_check
from tfsparsecap_export.encode import encodings
from tfsparsecap_export.flatbuffer.contents import read_contents

import tfsparsecap as sc
from tfsparsecap.captioning.inference.bundle import TFLiteCaptioner, read_bundle
from tfsparsecap.captioning.inference.confidence import likely_objects
from tfsparsecap.captioning.models import ObjectRelationTransformer, SoftAttention, UpDown
from tfsparsecap.captioning.search.beam_search import Decoder
from tfsparsecap.captioning.search.search_options import SearchOptions
from tfsparsecap.captioning.search.sentence_rules import SearchRules
from tfsparsecap.errors import InputError

from .conftest import BEAM, DIGITS_LENGTH, MAX_LENGTH, prune

INT8 = ("int8", "dense-int8")


def default_rules(captioner):
    """The search of files without a vocabulary."""
    return SearchRules(captioner, SearchOptions())


@pytest.mark.parametrize("pattern", ["blocks", pytest.param("unstructured", marks=pytest.mark.slow)])
def test_every_format_gives_the_captions_of_the_keras_model(pattern, request, exported, samples, once):
    captioner = request.getfixturevalue(f"{pattern}_captioner")
    decode = once(Decoder)(captioner, BEAM, MAX_LENGTH, None)
    expected = [[values.numpy()[0] for values in decode(sample)] for sample in samples]
    # The comparison would be weak if all images had the same caption.
    assert len({tuple(token_ids[0]) for token_ids, _ in expected}) > 3
    for format in FORMATS:
        path, report = exported(pattern, format)
        assert report.bytes == path.stat().st_size
        has_int8 = any("int8" in layer.encoding for layer in report.layers)
        assert has_int8 == (format in INT8 or (format == "auto" and pattern == "blocks"))
        file = TFLiteCaptioner(path)
        equal = 0
        for sample, (token_ids, scores) in zip(samples, expected, strict=True):
            file_ids, file_scores = file.token_ids(sample["image"][0])
            equal += (file_ids[0] == token_ids[0]).all() / len(samples)
            if has_int8:
                np.testing.assert_allclose(file_scores[0], scores[0], atol=1.5, err_msg=format)
            else:
                np.testing.assert_allclose(file_scores, scores, atol=0.05, err_msg=format)
        assert report.verification.equal == pytest.approx(equal)
        assert equal > 0.3 if has_int8 else equal == pytest.approx(1)


def test_files_of_sparse_formats_are_smaller(exported):
    sizes = {format: exported("blocks", format)[1].bytes for format in FORMATS}
    assert sizes["auto"] < sizes["compact"] < sizes["fast"] < sizes["dense"]
    assert sizes["int8"] < sizes["dense-int8"] < sizes["dense"]


@pytest.mark.slow
def test_the_same_model_gives_the_same_bytes(tmp_path, blocks_captioner, export_options, exported):
    export_model(blocks_captioner, tmp_path / "again.tflite", **export_options)
    assert (tmp_path / "again.tflite").read_bytes() == exported("blocks", "auto")[0].read_bytes()


def test_a_captioners_file_contains_vocabulary_and_description(exported, vocabulary):
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
    names = [tensor.name for tensor in read_contents(path).model.subgraphs[0].tensors]
    assert names.count(b"") > len(names) / 2  # other files keep them


def test_the_report_names_layers_and_reasons(exported, blocks_captioner):
    _, report = exported("blocks", "auto")
    layers = {layer.name.partition("/")[2]: layer for layer in report.layers}
    output = layers["output/kernel"]
    assert (output.shape, output.pattern, output.encoding) == ((80, 64), "1x16 blocks", encodings.BLOCK16)
    assert output.nonzeros == np.count_nonzero(blocks_captioner.output_layer.kernel)
    assert report.as_dict()["layers"][0]["reason"]
    assert any("Without validation images the encoder stays float" in note for note in report.notes)
    assert sum(layer.bytes for layer in report.layers) < report.bytes


@pytest.mark.slow
def test_the_file_returns_the_probabilities_of_objects(
    objects_captioner, samples, vocabulary, tmp_path, cached_export
):
    captions = CaptionOptions(beam=BEAM, max_length=MAX_LENGTH, vocabulary=vocabulary)
    expected = [objects_captioner.encode(sample)["objects"].numpy()[0] for sample in samples]
    assert np.ptp(expected, axis=0).min() > 0.1, "images must differ"
    for format in ("auto", "dense"):
        path = tmp_path / f"{format}.tflite"
        report = cached_export(objects_captioner, path, format, captions=captions, samples=samples)
        assert report.verification.objects_error < 0.01
        file = TFLiteCaptioner(path)
        assert file.objects == objects_captioner.objects and file.metadata["objects"] == list(file.objects)
        for sample, probabilities in zip(samples, expected, strict=True):
            result = file.caption(sample["image"][0])
            likely = likely_objects(file.objects, probabilities)
            assert [name for name, _ in result.objects] == [name for name, _ in likely]
            np.testing.assert_allclose([p for _, p in result.objects], [p for _, p in likely], atol=0.01)
    assert {"object_scores", "object_hidden"} <= {layer.name.split("/")[-2] for layer in report.layers}


@pytest.mark.slow
def test_additional_inputs_of_a_captioner_are_inputs_of_the_file(tmp_path):
    keras.utils.set_random_seed(2)
    captioner = UpDown(30, embedding_size=16, rnn_size=16, attention_size=16, feature_size=6)
    with pytest.raises(InputError, match="the input size of up_down"):
        export_model(captioner, tmp_path / "a.tflite")
    inputs = {"features": (4, 6), "pooled": (6,)}
    captions = CaptionOptions(max_length=5)
    report = export_model(captioner, tmp_path / "a.tflite", inputs=inputs, captions=captions)
    assert report.verification.equal == 1 and "No layer of the model is sparse" in report.sentences()[0]
    file = TFLiteCaptioner(tmp_path / "a.tflite")
    assert file.metadata["input"] == "features" and file.metadata["other_inputs"] == {"pooled": [1, 6]}
    rng = np.random.default_rng(0)
    regions, pooled = rng.normal(size=(4, 6)).astype("float32"), rng.normal(size=6).astype("float32")
    token_ids, scores = file.token_ids(features=regions, pooled=pooled)
    decode = Decoder(captioner, 3, 5, default_rules(captioner))
    expected_ids, expected = decode({"features": regions[None], "pooled": pooled[None]})
    np.testing.assert_array_equal(token_ids, expected_ids[0])
    np.testing.assert_allclose(scores, expected[0], atol=0.01)
    with pytest.raises(InputError, match="takes image or features, and pooled, mask, not features and boxes"):
        export_model(captioner, tmp_path / "b.tflite", inputs={"features": (4, 6), "boxes": (4, 4)})


@pytest.mark.slow
def test_a_transformer_that_predicts_digits_returns_words(
    exported_transformer, transformer_captioner, digits, samples, tmp_path, once
):
    decode = once(Decoder)(transformer_captioner, BEAM, DIGITS_LENGTH, None)
    expected = [[values.numpy()[0] for values in decode(sample)] for sample in samples[:2]]
    weights = {weight.path: np.asarray(weight) for weight in transformer_captioner.weights}
    for format in FORMATS:
        path, report = exported_transformer(format)
        file = TFLiteCaptioner(path)
        assert file.vocabulary == digits.vocabulary
        assert file.metadata["special_ids"] == {"pad": 0, "start": 1, "end": 2}
        captions = set()
        for sample, (token_ids, scores) in zip(samples[:2], expected, strict=True):
            file_captions = file.caption(sample["image"][0])
            captions.add(file_captions[0][0])
            if format not in ("auto", *INT8):
                assert [caption.text for caption in file_captions] == [
                    digits.decode(row) for row in token_ids
                ]
                np.testing.assert_allclose([caption.score for caption in file_captions], scores, atol=0.05)
                words, _ = file.token_ids(sample["image"][0])
                np.testing.assert_array_equal(words, digits.to_words(token_ids))
        assert len(captions) > 1
        # The table of positions is a constant of the file, but not a weight of the model.
        counted = [layer for layer in report.layers if layer.role != "convolution" and layer.weights]
        assert report.sparsity == pytest.approx(
            1
            - sum(np.count_nonzero(weights[layer.name]) for layer in counted)
            / sum(weights[layer.name].size for layer in counted)
        )
        others = [layer.name.rpartition("/")[2] for layer in report.layers if not layer.weights]
        assert others in ([], ["positions"])
    with pytest.raises(InputError, match="the vocabulary has 80 tokens, the model 12"):
        captions = CaptionOptions(vocabulary=digits.vocabulary)
        export_model(transformer_captioner, tmp_path / "b.tflite", captions=captions)


@pytest.mark.slow
def test_fewer_regions_with_boxes_are_padded(tmp_path):
    keras.utils.set_random_seed(3)
    shared = {"share_encoder_layers": [0, 0], "share_decoder_layers": [0, 0], "shared_caches": True}
    captioner = ObjectRelationTransformer(
        40, size=16, hidden_size=24, layers=2, heads=2, max_length=5, feature_size=6, **shared
    )
    inputs = {"features": (9, 6), "boxes": (9, 4)}
    captions = CaptionOptions(max_length=5)
    report = export_model(captioner, tmp_path / "a.tflite", "dense", inputs=inputs, captions=captions)
    assert report.verification.equal == 1 and report.verification.error < 1e-3
    file = TFLiteCaptioner(tmp_path / "a.tflite")
    assert (file.features_shape, file.image_size) == ((9, 6), None)
    rng = np.random.default_rng(0)
    regions = rng.normal(size=(4, 6)).astype("float32")
    boxes = np.sort(rng.random((4, 2, 2)), axis=1).reshape(4, 4).astype("float32")
    token_ids, scores = file.token_ids(features=regions, boxes=boxes)
    decode = Decoder(captioner, 3, 5, default_rules(captioner))
    expected = decode({"features": regions[None], "boxes": boxes[None]})
    np.testing.assert_array_equal(token_ids, expected[0][0])
    np.testing.assert_allclose(scores, expected[1][0], atol=1e-4)
    with pytest.raises(InputError, match=r"takes features of shape \[9, 6\]"):
        file.token_ids(features=np.zeros((10, 6), "float32"), boxes=np.zeros((9, 4), "float32"))


@pytest.mark.slow
def test_a_model_that_is_not_a_captioner(tmp_path, interpreter, cached_export):
    rng = np.random.default_rng(0)
    inputs = [keras.Input((64,), name="left"), keras.Input((8, 8, 4), name="right")]
    convolved = keras.layers.GlobalAveragePooling2D()(keras.layers.Conv2D(8, 3)(inputs[1]))
    dense = keras.layers.Dense(96)
    hidden = dense(keras.layers.Concatenate()([inputs[0], convolved]))
    model = keras.Model(inputs, [keras.layers.Dense(3)(hidden), hidden])
    dense.kernel.assign(np.asarray(dense.kernel) * (rng.random(dense.kernel.shape) < 0.1))
    values = {"left": rng.normal(size=(1, 64)), "right": rng.normal(size=(1, 8, 8, 4))}
    values = {name: value.astype(np.float32) for name, value in values.items()}
    expected = model([values["left"], values["right"]])
    for format in FORMATS:
        cached_export(model, tmp_path / "model.tflite", format)
        outputs = interpreter((tmp_path / "model.tflite").read_bytes())(**values)
        for i, output in enumerate(expected):
            atol = 0.1 if "int8" in format else 0.01
            np.testing.assert_allclose(outputs[f"output_{i}"], output, atol=atol, err_msg=format)
    with pytest.raises(InputError, match="options for captioners"):
        export_model(model, tmp_path / "b.tflite", captions=CaptionOptions())


@pytest.mark.slow
def test_a_subclassed_model_with_dictionaries(tmp_path, interpreter):
    class Text(keras.Model):
        def __init__(self):
            super().__init__(name="text")
            self.table, self.cell = keras.layers.Embedding(40, 8), keras.layers.GRU(8)

        def call(self, x):
            features = self.cell(self.table(x["ids"]))
            return {"features": features, "scaled": features * x["scale"]}

    model = Text()
    ids, scale = np.arange(12, dtype=np.int32).reshape(2, 6), np.array([[2.0], [3.0]], np.float32)
    expected = model({"ids": ids, "scale": scale})
    report = export_model(model, tmp_path / "a.tflite")
    assert "are assumed to be float32" in report.notes[0]
    inputs = {"ids": ids, "scale": scale}
    report = export_model(model, tmp_path / "a.tflite", inputs=inputs)
    assert (report.verification.samples, report.verification.source) == (2, "given inputs")
    outputs = interpreter((tmp_path / "a.tflite").read_bytes())(ids=ids[1:], scale=scale[1:])
    for name, values in expected.items():
        np.testing.assert_allclose(outputs[name], values[1:], atol=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("block", [1, 16])
def test_any_batch_size(block, tmp_path, interpreter, cached_export):
    keras.utils.set_random_seed(0)
    layers = [keras.layers.Dense(304, "relu"), keras.layers.Dense(10)]
    model = keras.Sequential([keras.Input((80,)), *layers])
    prune(model, block)
    inputs = np.random.default_rng(1).normal(size=(7, 80)).astype("float32")
    expected = np.asarray(model(inputs))
    for format in FORMATS:
        cached_export(model, tmp_path / "a.tflite", format, batch=None)
        for delegate in (True, False):
            run = interpreter((tmp_path / "a.tflite").read_bytes(), delegate)
            (name,) = run.get_input_details()
            for batch in (7, 1, 5):
                outputs = run(**{name: inputs[:batch]})["output_0"]
                atol = 0.06 * np.abs(expected).max()
                np.testing.assert_allclose(outputs, expected[:batch], atol=atol, err_msg=format)


@pytest.mark.slow
def test_recurrent_layers_need_a_fixed_batch_size(tmp_path):
    model = keras.Sequential([keras.Input((5, 16)), keras.layers.LSTM(16)])
    with pytest.raises(InputError, match="needs a fixed batch size"):
        export_model(model, tmp_path / "a.tflite", batch=None)
    assert not list(tmp_path.iterdir())
    assert export_model(model, tmp_path / "a.tflite", batch=4).verification.error < 0.01
    with pytest.raises(InputError, match="batch is 0"):
        export_model(model, tmp_path / "a.tflite", batch=0)


@pytest.mark.slow
def test_recurrent_layers_with_dropout(tmp_path, interpreter):
    layers = [
        keras.layers.LSTM(8, dropout=0.1, recurrent_dropout=0.1, return_sequences=True),
        keras.layers.Bidirectional(keras.layers.GRU(8, dropout=0.1, return_sequences=True)),
        keras.layers.SimpleRNN(8, recurrent_dropout=0.1),
    ]
    model = keras.Sequential([keras.Input((6, 4)), *layers, keras.layers.Dense(2)])
    export_model(model, tmp_path / "model.tflite", format="dense")
    x = np.random.default_rng(0).normal(size=(1, 6, 4)).astype("float32")
    run = interpreter((tmp_path / "model.tflite").read_bytes())
    (outputs,) = run(**dict.fromkeys(run.get_input_details(), x)).values()
    np.testing.assert_allclose(outputs, model(x), atol=1e-5)


@pytest.mark.slow
def test_short_texts_of_which_a_mask_hides_some_words(tmp_path):
    embedding = keras.layers.Embedding(100, 16, mask_zero=True)
    layers = [keras.layers.GlobalAveragePooling1D(), keras.layers.Dense(2)]
    model = keras.Sequential([keras.Input((3,), dtype="int32"), embedding, *layers])
    assert export_model(model, tmp_path / "model.tflite").verification.error < 0.01


@pytest.mark.slow
def test_mixed_precision_is_exported_in_float32_and_restored(tmp_path):
    model = SoftAttention(
        40, embedding_size=16, rnn_size=32, attention_size=16, feature_size=24, dtype="mixed_bfloat16"
    )
    options = {"inputs": {"features": (5, 24)}, "captions": CaptionOptions(max_length=5)}
    export_model(model, tmp_path / "a.tflite", **options)
    assert model.compute_dtype == model.cell.compute_dtype == "bfloat16"


@pytest.mark.slow
@pytest.mark.parametrize(("rejected", "note"), [(1, "only the convolutions"), (2, "stored as float32")])
def test_rounding_that_changes_captions_is_reduced(
    rejected, note, tmp_path, monkeypatch, unstructured_captioner, export_options, cached_export
):
    original = caption_check.verify_captions
    calls = []

    def different_at_first(*args, **kwargs):
        calls.append(kwargs)
        if len(calls) <= rejected:
            raise caption_check.CaptionsDiffer("differ")
        return original(*args, **kwargs)

    monkeypatch.setattr(caption_check, "verify_captions", different_at_first)
    report = cached_export(unstructured_captioner, tmp_path / "a.tflite", "fast", **export_options)
    float16 = {layer.role for layer in report.layers if "float16" in layer.encoding}
    assert float16 <= ({"convolution"} if rejected == 1 else set())
    assert note in report.notes[0]
    assert [call["rounded"] for call in calls] == [True, True, False][: rejected + 1]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"format": "sparse"}, "no export format"),
        ({"path": "absent/a.tflite"}, "does not exist"),
        ({"path": "a.h5"}, "cannot write .*a.h5 as a .tflite file: give a name that ends in .tflite"),
        ({"captions": CaptionOptions(vocabulary=["<pad>"])}, "1 tokens"),
        ({"captions": CaptionOptions(beam=0)}, "at least 1"),
        ({"inputs": {"sound": (3,)}}, "not sound"),
        ({"batch": 2}, "takes one image"),
        ({"path": "", "progress": pytest.fail}, "it is a folder; choose another name"),
        (
            {"samples": [{"image": np.zeros((1, 16, 16, 3), np.float32)}], "progress": pytest.fail},
            r"image of sample 0 is float32 \[1, 16, 16, 3\]: give uint8",
        ),
        (
            {"samples": [{"image": np.zeros((1, 8, 8, 3), np.uint8)}], "progress": pytest.fail},
            r"image of sample 0 is uint8 \[1, 8, 8, 3\]: give uint8 \[1, 16, 16, 3\]",
        ),
    ],
)
def test_unusable_arguments_are_rejected(tmp_path, blocks_captioner, export_options, changes, message):
    options = {"path": "a.tflite", **export_options, **changes}
    with pytest.raises(InputError, match=message):
        export_model(blocks_captioner, tmp_path / options.pop("path"), **options)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"description": {"scores": {1.5, 2.5}}}, "the entry 'scores' of description"),
        ({"tolerance": 20}, "from 0 to 1"),
        ({"vocabulary": ["<pad>", "a\nb"]}, "token 1 of the vocabulary contains a line break"),
    ],
)
def test_unusable_options_of_captioners_are_rejected(options, message):
    with pytest.raises(InputError, match=message):
        CaptionOptions(**options)


def test_a_full_disk_leaves_the_old_file(
    tmp_path, monkeypatch, blocks_captioner, export_options, cached_export
):
    path = tmp_path / "captioner.tflite"
    path.write_bytes(b"old")

    def full(descriptor):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(InputError, match="disk is full"):
        cached_export(blocks_captioner, path, **export_options)
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["captioner.tflite"]


def test_progress_says_which_share_of_a_step_is_done(tmp_path):
    keras.utils.set_random_seed(0)
    layers = [keras.Input((8, 8, 3)), *(keras.layers.Conv2D(16, 3) for _ in range(2))]
    network, seen = keras.Sequential([*layers, keras.layers.GlobalAveragePooling2D()]), []
    samples = np.random.default_rng(0).random((4, 8, 8, 3), np.float32)
    export_model(network, tmp_path / "a.tflite", samples=samples, progress=lambda *step: seen.append(step))
    rounding = "rounding the weights of 2 layers to int8"
    assert [step for step in seen if step[0] == rounding] == [(rounding, 0.0), (rounding, 0.5)]
    assert ("converting", None) in seen


def test_a_printed_report_is_the_table_of_the_command(exported, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    report = exported("blocks", "auto")[1]
    lines = str(report).splitlines()
    assert lines[0].startswith(f"{report.path}: format auto") and "1x16 blocks" in str(report)
    assert [line for line in lines if line.startswith("Expected on arm64")]
    assert not str(report).endswith("\n") and "LayerReport(" not in str(report)


def test_messages_of_tensorflow_are_not_printed(tmp_path, capfd):
    """With int8 activations the converter prints "fully_quantize"; the runtime prints its delegate."""
    keras.utils.set_random_seed(0)
    layers = [keras.layers.Conv2D(units, 3, activation="relu") for units in (32, 64)]
    model = keras.Sequential([keras.Input((16, 16, 3)), *layers, keras.layers.GlobalAveragePooling2D()])
    samples = np.random.default_rng(0).normal(size=(6, 16, 16, 3)).astype("float32")
    report = export_model(model, tmp_path / "a.tflite", samples=samples)
    assert any("int8 activations" in layer.reason for layer in report.layers)
    captured = capfd.readouterr()
    leaked = [text for text in ("fully_quantize", "XNNPACK", "MLIR", "Ignored") if text in captured.err]
    assert captured.out == "" and not leaked


class Fourier(layers.Layer):
    def call(self, x):
        return ops.fft((x, ops.zeros_like(x)))[0]


class Noise(layers.Layer):
    def call(self, x):
        return x + keras.random.normal(ops.shape(x))


class Branches(keras.Model):
    def __init__(self):
        super().__init__(name="branches")
        self.dense = layers.Dense(2)

    def call(self, x):
        return self.dense(x) if float(ops.sum(x)) > 0 else -self.dense(x)


def around(layer, shape=(8,), dtype="float32"):
    """A model with `layer` between its input and a dense layer."""
    return keras.Sequential([keras.Input(shape, dtype=dtype), layer, layers.Dense(2)], name="net")


@pytest.mark.slow
def test_a_model_that_can_be_exported(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = check_exportable(around(layers.Dense(16, "swish")))
    assert result.error < 1e-4 and result.samples > 1
    assert check_exportable(around(layers.Dense(2)), np.ones((64, 8), "float32")).samples == 8
    assert not list(tmp_path.iterdir())


def branches():
    model = Branches()
    model(ops.ones((2, 8)))
    return model


@pytest.mark.parametrize(
    ("make", "message"),
    [
        pytest.param(
            lambda: around(Fourier(name="fourier")),
            r"tf\.FFT: replace fourier of net",
            marks=pytest.mark.slow,
        ),
        (lambda: around(Noise()), "random at inference"),
        (lambda: around(layers.IntegerLookup(vocabulary=[1], name="ids"), dtype="int32"), "table in ids"),
        (branches, "branches runs Python code that depends on the values of tensors"),
    ],
    ids=["fourier", "noise", "lookup", "branches"],
)
def test_what_is_not_supported_is_named(make, message):
    with pytest.raises(InputError, match=message):
        check_exportable(make(), keras.Input((8,)) if make is branches else None)


def test_a_pruned_model_is_not_checked():
    model = sc.prune(around(layers.Dense(16)), "supermask", sparsity=0.5, total_steps=2)
    with pytest.raises(InputError, match=r"net has gates already: check a model before sc\.prune"):
        check_exportable(model)
