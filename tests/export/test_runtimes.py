"""Every file says the same on LiteRT and on TFLite 2.16.1 for Android, its x86_64 and its arm64 library."""

import dataclasses
import functools

import keras
import numpy as np
import pytest
import tensorflow as tf
from ai_edge_litert.interpreter import Interpreter
from tfsparsecap_export import FORMATS, export_model, exporter
from tfsparsecap_export.convert import graph
from tfsparsecap_export.encode import int8_encoder as encoder
from tfsparsecap_export.encode import sparse
from tfsparsecap_export.encode.costs import Costs
from tfsparsecap_export.encode.file import encode_file
from tfsparsecap_export.flatbuffer import model_file as flatfile

from tfsparsecap.models import SoftAttention

from ..runtimes import tflite_2_16
from .conftest import BEAM, LAYER_ENCODINGS, MAX_LENGTH, prune, rewritten

#: Nats by which two runtimes' scores of a caption may differ. Runtimes add up float32 products in different
#: orders: 1.4e-5 was the most seen. A layer of int8 weights rounds what comes in to int8 first, and another
#: last digit may round the other way: one such step moved scores by up to 0.05. Weights that are misread move
#: them by several nats.
FLOAT, INT8 = 1e-3, 0.1
#: LiteRT's XNNPACK takes dense int8 layers, and rounds what comes in to 256 steps between its least and its
#: largest value; TFLite 2.16.1 rounds to 255 around zero. 0.12 was the most seen.
DENSE_INT8 = 0.3
#: The same in a transformer, whose twelve digits go through ten such layers each: 0.54.
DENSE_INT8_DEEP = 1.0
#: An int8 convolution's results are themselves int8, and the kernels round halves differently: 0.08.
INT8_ENCODER = 0.3
#: The same for other outputs, as shares of the largest one: 1e-6 was the most seen, and 0.003 a step of int8;
#: 0.013 where dense int8 layers follow each other.
FLOAT_SHARE, INT8_SHARE, DENSE_INT8_SHARE = 1e-4, 0.01, 0.03

# Not `SPARSE16`, which no format chooses for a table: where an operation that XNNPACK leaves alone, such as
# GATHER, reads it, LiteRT 2.3 and TFLite 2.16.1 with XNNPACK forget to expand it, and it reads garbage.
TABLES = [sparse.FLOAT16, sparse.SPARSE32, sparse.SPARSE_INT8, sparse.INT8]


@pytest.fixture
def litert(interpreter):
    """Runs a file on LiteRT: with XNNPACK, as every program does, or without."""

    def run(path, samples, xnnpack=True):
        loaded = interpreter(path.read_bytes(), xnnpack)
        return [loaded(**sample) for sample in samples]

    return run


@pytest.fixture(
    params=[("LiteRT", False), *((abi, xnnpack) for abi in tflite_2_16.ABIS for xnnpack in (True, False))],
    ids=lambda runtime: f"{runtime[0]}{'' if runtime[1] else '-plain'}",
)
def runtime(request, litert):
    """Runs a file on each runtime that is to say what LiteRT says: `runtime(path, samples)`."""
    name, xnnpack = request.param
    if name == "LiteRT":
        return functools.partial(litert, xnnpack=xnnpack)
    tflite_2_16.require(name)
    return functools.partial(tflite_2_16.run_each, abi=name, xnnpack=xnnpack)


@pytest.fixture(scope="module")
def samples(pictures):
    return [{"image": picture[None]} for picture in pictures]


@pytest.fixture(scope="module")
def captioner_file(tmp_path_factory, blocks_captioner, unstructured_captioner, export_options, exported):
    """Captioners' files, made once: `captioner_file("blocks", 1, "auto")` gives the path."""
    folder = tmp_path_factory.mktemp("beams")
    captioners = {"blocks": blocks_captioner, "unstructured": unstructured_captioner}
    options = {**export_options, "samples": export_options["samples"][:1]}

    @functools.cache
    def get(pattern, beam, format):
        if beam == BEAM:
            return exported(pattern, format)[0]
        path = folder / f"{pattern}_{beam}_{format}.tflite"
        export_model(captioners[pattern], path, format, **{**options, "beam": beam})
        return path

    return get


@pytest.fixture(scope="module")
def dense_file(blocks_captioner):
    inputs = exporter.caption_inputs(blocks_captioner)
    return graph.caption_graph(blocks_captioner, inputs, BEAM, MAX_LENGTH)


@pytest.fixture(scope="module")
def model_file(tmp_path_factory):
    """Files of a model that is no captioner, made once: `model_file("auto")` gives the path."""
    folder = tmp_path_factory.mktemp("model")
    model = other_model()

    @functools.cache
    def get(format):
        path = folder / f"{format}.tflite"
        export_model(model, path, format)
        return path

    return get


def other_model():
    """Products that int8 blocks need padded and split, recurrent layers, a table, a convolution."""
    keras.utils.set_random_seed(2)
    wide, image = keras.Input((4200,), name="wide"), keras.Input((8, 8, 4), name="image")
    ids = keras.Input((5,), dtype="int32", name="ids")
    rows = keras.layers.Embedding(100, 32)(ids)
    parts = [
        keras.layers.Dense(40, activation="relu")(wide),
        keras.layers.GlobalAveragePooling2D()(keras.layers.Conv2D(16, 3, activation="relu")(image)),
        keras.layers.LSTM(32)(rows),
        keras.layers.GRU(32)(rows),
    ]
    hidden = keras.layers.Dense(72, activation="tanh")(keras.layers.Concatenate()(parts))
    model = keras.Model([wide, image, ids], [keras.layers.Dense(50)(hidden), rows])
    rng = np.random.default_rng(2)
    for weight in model.weights:
        if len(weight.shape) == 2:
            inputs, outputs = weight.shape
            kept = np.repeat(rng.random((-(-inputs // 16), outputs)) < 0.3, 16, axis=0)[:inputs]
            weight.assign(np.asarray(weight) * kept)
    return model


def other_samples():
    rng = np.random.default_rng(3)
    return [
        {
            "wide": rng.normal(size=(1, 4200)).astype(np.float32),
            "image": rng.normal(size=(1, 8, 8, 4)).astype(np.float32),
            "ids": rng.integers(0, 100, (1, 5), np.int32),
        }
        for _ in range(2)
    ]


def assert_same_captions(given, expected, tolerance):
    """Same words in all beams and same scores; where int8 is rounded, one of the captions may be another."""
    different = 0
    for one, other in zip(given, expected, strict=True):
        np.testing.assert_allclose(one["scores"], other["scores"], atol=tolerance, rtol=0)
        if tolerance == FLOAT:
            np.testing.assert_array_equal(one["token_ids"], other["token_ids"])
        different += not np.array_equal(one["token_ids"][0], other["token_ids"][0])
    assert different <= 1


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("beam", [1, BEAM])
@pytest.mark.parametrize("pattern", ["blocks", "unstructured"])
def test_a_captioner_says_the_same_in_every_format(
    pattern, beam, format, runtime, litert, captioner_file, samples
):
    path = captioner_file(pattern, beam, format)
    tolerance = {"auto": INT8, "int8": DENSE_INT8, "dense-int8": DENSE_INT8}.get(format, FLOAT)
    assert_same_captions(runtime(path, samples), litert(path, samples), tolerance)


@pytest.mark.parametrize("format", FORMATS)
def test_any_other_model_gives_the_same_in_every_format(format, runtime, litert, model_file):
    path, samples = model_file(format), other_samples()
    for one, other in zip(runtime(path, samples), litert(path, samples), strict=True):
        assert one.keys() == other.keys() == {"output_0", "output_1"}
        for name, expected in other.items():
            shares = {"auto": INT8_SHARE, "int8": DENSE_INT8_SHARE, "dense-int8": DENSE_INT8_SHARE}
            share = shares.get(format, FLOAT_SHARE)
            np.testing.assert_allclose(one[name], expected, atol=share * np.abs(expected).max(), rtol=0)


@pytest.mark.parametrize(
    ("role", "encoding"),
    [*((sparse.FULLY_CONNECTED, one) for one in LAYER_ENCODINGS), *((sparse.TABLE, one) for one in TABLES)],
)
def test_every_encoding_is_read_the_same_inside_the_word_loop(
    role, encoding, tmp_path, runtime, litert, dense_file, samples
):
    path = tmp_path / "rewritten.tflite"
    path.write_bytes(rewritten(dense_file, encoding, role))
    tolerance = {sparse.INT8: DENSE_INT8, sparse.BLOCK16: INT8}.get(encoding, FLOAT)
    assert_same_captions(
        runtime(path, samples), litert(path, samples), FLOAT if role == sparse.TABLE else tolerance
    )


@pytest.fixture(scope="module")
def padded_file(tmp_path_factory):
    """A captioner of features whose layers' inputs are no multiples of 16."""
    keras.utils.set_random_seed(7)
    captioner = SoftAttention(
        80, cell="gru", embedding_size=20, rnn_size=72, attention_size=40, feature_size=24
    )
    prune(captioner, 8)
    inputs = exporter.caption_inputs(captioner, {"features": (5, 24)})
    dense = graph.caption_graph(captioner, inputs, BEAM, MAX_LENGTH)
    path = tmp_path_factory.mktemp("padded") / "int8.tflite"
    path.write_bytes(encode_file(dense, "int8", words=MAX_LENGTH)[0])
    return path


def test_layers_that_are_padded_at_every_word(runtime, litert, padded_file):
    rng = np.random.default_rng(4)
    samples = [{"features": rng.normal(size=(1, 5, 24)).astype(np.float32)} for _ in range(6)]
    assert_same_captions(runtime(padded_file, samples), litert(padded_file, samples), INT8)


@pytest.fixture(scope="module")
def transformer_file(tmp_path_factory, transformer_captioner, digits, samples):
    """A transformer's files that give words for digits: `transformer_file("auto", 3)` gives the path."""
    folder = tmp_path_factory.mktemp("transformer")

    @functools.cache
    def get(format, beam):
        path = folder / f"{format}_{beam}.tflite"
        length = 2 * MAX_LENGTH
        options = {"beam": beam, "max_length": length, "tokenizer": digits, "samples": samples[:1]}
        export_model(transformer_captioner, path, format, **options)
        return path

    return get


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("beam", [1, BEAM])
def test_a_transformer_says_the_same_in_every_format(
    beam, format, runtime, litert, transformer_file, samples
):
    path = transformer_file(format, beam)
    tolerances = {"auto": INT8, "int8": DENSE_INT8_DEEP, "dense-int8": DENSE_INT8_DEEP}
    tolerance = tolerances.get(format, FLOAT)
    assert_same_captions(runtime(path, samples), litert(path, samples), tolerance)


@pytest.fixture(scope="module")
def ordered_file(tmp_path_factory):
    """A captioner's files whose layers' outputs are in order, and put back where that has to be."""
    folder = tmp_path_factory.mktemp("ordered")
    always = dataclasses.replace(Costs(), restore=0.0, restore_row=0.0, guess=1e3)

    @functools.cache
    def get(block, beam):
        keras.utils.set_random_seed(8)
        captioner = SoftAttention(
            600, embedding_size=32, rnn_size=80, attention_size=48, feature_size=32, cell="lstm"
        )
        prune(captioner, block, kept=0.06)
        captioner.output_layer.kernel.assign(captioner.output_layer.kernel * 4)
        inputs = exporter.caption_inputs(captioner, {"features": (5, 32)})
        dense = graph.caption_graph(captioner, inputs, beam, MAX_LENGTH)
        path = folder / f"{block}_{beam}.tflite"
        format = "auto" if block == 16 else "fast"
        path.write_bytes(encode_file(dense, format, words=MAX_LENGTH, costs=always)[0])
        return path

    return get


@pytest.mark.parametrize("beam", [1, BEAM])
@pytest.mark.parametrize("block", [1, 16])
def test_outputs_in_order_are_the_same_words(runtime, litert, ordered_file, block, beam):
    path = ordered_file(block, beam)
    graphs = flatfile.read_model(path.read_bytes()).subgraphs
    names = {tensor.name for subgraph in graphs for tensor in subgraph.tensors}
    assert {b"word_of_row", b"places"} <= names
    rng = np.random.default_rng(5)
    samples = [{"features": rng.normal(size=(1, 5, 32)).astype(np.float32)} for _ in range(6)]
    assert_same_captions(runtime(path, samples), litert(path, samples), FLOAT if block == 1 else INT8)


@pytest.fixture(scope="module")
def int8_encoder_file(tmp_path_factory, blocks_captioner, pictures):
    image = exporter.caption_inputs(blocks_captioner)["image"]
    quantized = graph.encoder_graph(blocks_captioner, image, [picture[None] for picture in pictures])
    features = {"features": tf.TensorSpec((1, 16, 64), tf.float32, name="features")}
    decoder = graph.caption_graph(blocks_captioner, features, BEAM, MAX_LENGTH)
    path = tmp_path_factory.mktemp("int8") / "encoder.tflite"
    path.write_bytes(encoder.joined(quantized, decoder))
    return path


def test_an_int8_encoder_sees_the_same(runtime, litert, int8_encoder_file, samples):
    expected = litert(int8_encoder_file, samples)
    assert_same_captions(runtime(int8_encoder_file, samples), expected, INT8_ENCODER)


@pytest.mark.parametrize("abi", tflite_2_16.ABIS)
def test_what_only_newer_runtimes_read_is_refused(abi, tmp_path, dense_file, samples):
    # Else the runtime under test would not be the old one.
    tflite_2_16.require(abi)
    model = flatfile.read_model(dense_file)
    for code in model.operatorCodes:
        if code.builtinCode == flatfile.schema.BuiltinOperator.FULLY_CONNECTED:
            code.version = 12
    path = tmp_path / "new.tflite"
    path.write_bytes(flatfile.write_model(model))
    Interpreter(model_path=str(path)).allocate_tensors()
    with pytest.raises(tflite_2_16.RuntimeFailure, match=r"FULLY_CONNECTED' version '12'"):
        tflite_2_16.run(path, samples[0], abi)


@pytest.mark.parametrize("abi", tflite_2_16.ABIS)
def test_inputs_that_the_file_does_not_take_are_named(abi, tmp_path, dense_file, samples):
    tflite_2_16.require(abi)
    path = tmp_path / "dense.tflite"
    path.write_bytes(dense_file)
    with pytest.raises(tflite_2_16.RuntimeFailure, match="no input picture"):
        tflite_2_16.run(path, {"picture": samples[0]["image"]}, abi)
    with pytest.raises(tflite_2_16.RuntimeFailure, match="type 3 and 768 bytes, given were type 1 and 3072"):
        tflite_2_16.run(path, {"image": samples[0]["image"].astype(np.float32)}, abi)


def test_what_is_missing_is_said_with_the_packages_that_bring_it(monkeypatch):
    monkeypatch.setattr(tflite_2_16.shutil, "which", lambda tool: None)
    sentence = tflite_2_16.missing.__wrapped__("arm64")
    assert "without aarch64-linux-gnu-gcc and qemu-aarch64:" in sentence
    assert sentence.endswith("gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user")
