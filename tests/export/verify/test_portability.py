"""Warnings about files, compared with what LiteRT and TFLite 2.16.1 for Android do with them."""

import re

import numpy as np
import pytest
from ai_edge_litert.interpreter import Interpreter
from tfsparsecap_export.encode import encodings, sparse
from tfsparsecap_export.flatbuffer import model_file as flatfile
from tfsparsecap_export.flatbuffer.contents import read_contents
from tfsparsecap_export.flatbuffer.model_file import schema
from tfsparsecap_export.verify.portability import newest_version, warnings

from ...runtimes import tflite_2_16
from ..conftest import sparse_weights
from ..flatbuffer.test_model_file import tiny_model

OPERATORS = {name: code for name, code in vars(schema.BuiltinOperator).items() if isinstance(code, int)}
INPUTS = {"x": np.random.default_rng(1).normal(size=(1, 64)).astype(np.float32)}
# How weights are stored, size of their blocks of zeros, and whether FULLY_CONNECTED has a kernel for them.
KINDS = [
    (lambda w: encodings.store(w, np.float32, 1), 1, True),
    (lambda w: encodings.store(w, np.float32, 4), 4, True),
    (lambda w: encodings.encode(encodings.BLOCK16, w), 16, True),
    (lambda w: encodings.store(w, np.float32, 16), 16, False),
    (lambda w: encodings.store(w, np.int8, 1), 1, False),
    (lambda w: encodings.store(w, np.int8, 4), 4, False),
    (lambda w: encodings.store(w, np.float16, 1), 1, False),
]


def sparse_layer(weights, encoded, version):
    """A file of one FULLY_CONNECTED operation of a version, with sparse weights."""
    model = tiny_model(weights)
    outputs, inputs = weights.shape
    for tensor, shape in zip(
        model.subgraphs[0].tensors, ((1, inputs), weights.shape, (1, outputs)), strict=True
    ):
        tensor.shape = np.array(shape, np.int32)
    (weight,) = sparse.find_weights(model)
    sparse.rewrite(model, [sparse.Change(weight, encodings.CSR, encoded)])
    for code in model.operatorCodes:
        code.version = version
    return flatfile.write_model(model)


def warnings_of(path):
    return " ".join(warnings(read_contents(path)))


def is_right(run, weights):
    """Whether a runtime loads a file and computes the same product as NumPy."""
    try:
        (output,) = run().values()
    except (RuntimeError, ValueError, tflite_2_16.RuntimeFailure):
        return False
    expected = INPUTS["x"] @ weights.T
    return bool(np.abs(output - expected).max() < 0.03 * np.abs(expected).max())


def is_right_on_litert(content, weights):
    def run():
        interpreter = Interpreter(model_content=content)
        return interpreter.get_signature_runner(next(iter(interpreter.get_signature_list())))(**INPUTS)

    return is_right(run, weights)


@pytest.mark.parametrize(
    ("kind", "block", "warning"),
    [
        ("float32", 1, None),
        ("float16", 1, None),
        ("sparse", 1, None),
        ("sparse 1x4", 4, None),
        ("sparse float16", 1, None),
        ("sparse float16 1x4", 4, "DEQUANTIZE reads sparse weights as if they were dense"),
        ("sparse dynamic range", 1, "int8 weights behind DENSIFY"),
        ("sparse dynamic range 1x16", 16, "FULLY_CONNECTED of version 12: XNNPACK"),
    ],
)
def test_files_of_tensorflows_converter_are_warned_about_if_litert_is_wrong(
    converted, written, kind, block, warning
):
    text = warnings_of(written(converted[kind]))
    assert is_right_on_litert(converted[kind], sparse_weights(block)) == (warning is None)
    assert text == "" if warning is None else warning in text


@pytest.mark.parametrize("version", [4, 8])
@pytest.mark.parametrize(("store", "block", "supported"), KINDS)
def test_sparse_layers_are_warned_about_if_a_runtime_is_wrong(written, store, block, supported, version):
    weights = sparse_weights(block, 0.4)
    content = sparse_layer(weights, store(weights), version)
    path = written(content)
    text = warnings_of(path)
    assert ("XNNPACK, on by default" in text) == (version != 8)
    assert ("no kernel for sparse" in text) == (not supported)
    assert is_right_on_litert(content, weights) == (supported and version == 8)
    for xnnpack in (True, False):
        right = is_right(lambda: tflite_2_16.run(path, INPUTS, xnnpack=xnnpack), weights)  # noqa: B023
        if version == 8 or not supported:
            assert right == supported
        elif xnnpack and block < 16:
            assert not right  # only LiteRT's XNNPACK is wrong for int8 blocks, too


def test_layers_beyond_the_limits_of_the_int8_kernel_are_warned_about(written):
    wide, full, fits = (
        sparse_weights(16, density, (16, inputs))
        for density, inputs in ((0.05, 4112), (1.0, 4096), (0.5, 4096))
    )
    for weights, message in ((wide, "4112 inputs"), (full, "256 blocks in a row"), (fits, None)):
        text = warnings_of(written(sparse_layer(weights, encodings.encode(encodings.BLOCK16, weights), 8)))
        assert text == "" if message is None else message in text


@pytest.mark.parametrize("damage", ["indices", "segments", "values"])
def test_sparsity_that_does_not_fit_the_shape_is_warned_about(written, damage):
    weights = sparse_weights(1)
    encoded = encodings.store(weights, np.float32, 1)
    rows = encoded.sparsity.dimMetadata[1]
    if damage == "indices":
        rows.arrayIndices.values[3] = weights.shape[1]
    elif damage == "segments":
        rows.arraySegments.values[5] = 255
    else:
        encoded = encodings.Encoded(encoded.values[:-1], encoded.sparsity)
    assert "is damaged or unusable" in warnings_of(written(sparse_layer(weights, encoded, 8)))


def test_nan_and_custom_operators_are_warned_about(written):
    weights = sparse_weights(0)
    weights[3, 4] = np.nan
    model = tiny_model(weights)
    for name in (b"FlexErf", b"MyOperator"):
        code = schema.OperatorCodeT()
        code.builtinCode = code.deprecatedBuiltinCode = schema.BuiltinOperator.CUSTOM
        code.customCode = name
        model.operatorCodes.append(code)
    text = warnings_of(written(flatfile.write_model(model)))
    assert "NaN or infinity" in text
    assert "must include TFLite's Flex delegate" in text and "MyOperator is a custom operator" in text


def test_operator_versions_that_android_lacks_are_warned_about(converted, written):
    messages = warnings(read_contents(written(converted["dynamic range"])))
    assert len(messages) == 1
    assert re.search(
        r"TFLite 2\.16\.1.*FULLY_CONNECTED up to version 11, the file has version 12", messages[0]
    )


def test_the_android_library_accepts_each_operator_up_to_its_newest_version(written):
    def run(operators):
        """Runs a file that also lists operators and versions, all of which the library must support."""
        model = tiny_model()
        for name, version in operators.items():
            flatfile.operator_code(model, OPERATORS[name], version)
        tflite_2_16.run(written(flatfile.write_model(model)), INPUTS)

    newest = {name: newest_version(name) for name in OPERATORS if name != "CUSTOM"}
    supported = {name: version for name, version in newest.items() if version}
    assert len(supported) > 150
    run(supported)
    for name, version in newest.items():
        if version == 1 and len(name) % 4:
            continue  # a sample of the operators with a single version is enough
        with pytest.raises(tflite_2_16.RuntimeFailure, match=f"'{name}' version|out of range"):
            run({name: version + 1})
