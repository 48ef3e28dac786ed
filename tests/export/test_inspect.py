"""What is said of files against what the exporter, the runtime and NumPy say of them; and hostile ones."""

import functools
import io
import json
import random
import re
import struct
import subprocess
import sys
import time
import zipfile

import numpy as np
import pytest
import tensorflow as tf
from ai_edge_litert import schema_py_generated as schema
from ai_edge_litert.interpreter import Interpreter, OpResolverType
from tfsparsecap_export import FORMATS, inspect
from tfsparsecap_export.encode import encodings, sparse
from tfsparsecap_export.flatbuffer import model_file as flatfile
from tfsparsecap_export.flatbuffer.contents import read_contents
from tfsparsecap_export.verify.portability import newest_version, warnings

from tfsparsecap.errors import InputError

INPUTS, OUTPUTS = 64, 32


def sparse_weights(block, kept=0.1, shape=(OUTPUTS, INPUTS)):
    """[outputs, inputs], in TFLite's layout; whole blocks are zero. Block 0 is dense."""
    rng = np.random.default_rng(2)
    weights = rng.normal(size=shape).astype(np.float32)
    if block == 0:
        return weights
    return weights * np.repeat(rng.random((shape[0], shape[1] // block)) < kept, block, axis=1)


def convert(weights, *optimizations, float16=False):
    """What TensorFlow's own converter makes of a product with these weights."""
    constant = tf.constant(weights.T)
    function = tf.function(
        lambda x: {"y": tf.matmul(x, constant)},
        input_signature=[tf.TensorSpec((1, weights.shape[1]), tf.float32, name="x")],
    )
    module = tf.Module()
    module.function = function
    converter = tf.lite.TFLiteConverter.from_concrete_functions([function.get_concrete_function()], module)
    converter.optimizations = list(optimizations)
    if float16:
        converter.target_spec.supported_types = [tf.float16]
    return converter.convert()


def written(tmp_path, content, name="a.tflite"):
    (tmp_path / name).write_bytes(content)
    return tmp_path / name


# --- our own files


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("pattern", ["blocks", "unstructured"])
def test_layers_are_those_that_the_exporter_wrote(exported, pattern, format):
    path, report = exported(pattern, format)
    contents = read_contents(path)
    for layer, same in zip(report.layers, contents.layers, strict=True):
        assert (same.role, same.bytes) == (layer.role, layer.bytes), layer
        # Tables are stored in the blocks that suit them, which the exporter does not say.
        assert re.fullmatch(re.escape(layer.encoding) + "( 1x4| 1x16)?", same.stored), layer
        # The exporter names the shape without padding, and counts what int8 rounds to zero.
        assert same.shape[:-1] == layer.shape[:-1] and same.shape[-1] >= layer.shape[-1], layer
        assert 0.95 * layer.nonzeros <= same.nonzeros <= layer.nonzeros, layer
        once = any(part in layer.name for part in ("initial_", "attention_features", "convolution"))
        assert same.in_loop != once, layer
    assert sum(part.bytes for part in contents.parts) == path.stat().st_size
    assert warnings(contents) == []


def test_description_vocabulary_and_signature_are_shown(exported, vocabulary, capsys):
    path, _ = exported("blocks", "auto")
    assert inspect.main([str(path)]) == 0
    text = " ".join(capsys.readouterr().out.split())
    for expected in (
        "signature caption takes image uint8 [1, 16, 16, 3]",
        "token_ids int32 [3, 6]",
        "model SoftAttention",
        "80 tokens: <pad> <start> <end> <unk> word0",
        "words at most 6",
        "int8 1x16",
        "float16 (DEQUANTIZE)",
        "associated files: captioner.json, vocabulary.txt",
        "FULLY_CONNECTED v8 (6, of them 3 in a loop)",
        "WHILE v1 (1)",
        "known to trouble TFLite 2.16.1",
    ):
        assert expected in text
    contents = read_contents(path)
    assert contents.vocabulary == tuple(vocabulary)
    interpreter = Interpreter(str(path))
    assert interpreter.get_signature_list() == {
        signature.name: {
            "inputs": [value.name for value in signature.inputs],
            "outputs": [value.name for value in signature.outputs],
        }
        for signature in contents.signatures
    }


def test_json_has_everything(exported, tmp_path, capsys):
    path, report = exported("blocks", "int8")
    assert inspect.main([str(path), "--json"]) == 0
    (result,) = json.loads(capsys.readouterr().out)
    assert result["bytes"] == report.bytes == sum(result["parts"].values())
    assert result["description"]["verification"]["samples"] == 6
    assert result["total"]["bytes"] == sum(layer["bytes"] for layer in result["layers"])
    for layer in result["layers"]:
        parts = layer["value_bytes"] + layer["index_bytes"] + layer["scale_bytes"]
        assert layer["bytes"] == parts
        assert layer["weights"] == np.prod(layer["shape"])
        assert layer["sparsity"] == pytest.approx(1 - layer["nonzeros"] / layer["weights"])


@pytest.mark.parametrize("encoding", [sparse.CSR, sparse.BLOCK16])
def test_what_subgraphs_share_counts_once(tmp_path, encoding):
    def layers(functions):
        model = flatfile.read_model(dense((OUTPUTS, INPUTS)))
        for _ in range(functions - 1):
            model.subgraphs += flatfile.read_model(dense((OUTPUTS, INPUTS))).subgraphs
        (weight,) = sparse.find_weights(model)
        assert len(weight.uses) == functions
        encoded = sparse.encode(encoding, sparse_weights(16), weight.role)
        sparse.rewrite(model, [sparse.Change(weight, encoding, encoded)])
        path = written(tmp_path, flatfile.write_model(model))
        contents = read_contents(path)
        assert sum(part.bytes for part in contents.parts) == path.stat().st_size
        return contents.layers

    assert layers(3) == layers(1)


# --- anybody's files, against the runtime


@pytest.fixture(scope="module")
def stock():
    """Files of TensorFlow's converter, each made once."""
    default, sparsity = tf.lite.Optimize.DEFAULT, tf.lite.Optimize.EXPERIMENTAL_SPARSITY
    return {
        "float32": convert(sparse_weights(1)),
        "dynamic range": convert(sparse_weights(1), default),
        "float16": convert(sparse_weights(1), default, float16=True),
        "sparse": convert(sparse_weights(1), sparsity),
        "sparse 1x4": convert(sparse_weights(4), sparsity),
        "sparse float16": convert(sparse_weights(1), default, sparsity, float16=True),
        "sparse float16 1x4": convert(sparse_weights(4), default, sparsity, float16=True),
        "sparse dynamic range": convert(sparse_weights(1), default, sparsity),
        "sparse dynamic range 1x16": convert(sparse_weights(16), default, sparsity),
    }


STORED = {
    "float32": ("float32", ()),
    "dynamic range": ("int8 per channel", ()),
    "float16": ("float16", ("DEQUANTIZE",)),
    "sparse": ("sparse float32", ("DENSIFY",)),
    "sparse 1x4": ("1x4", ()),
    "sparse float16": ("sparse float16", ("DENSIFY", "DEQUANTIZE")),
    "sparse float16 1x4": ("sparse float16 1x4", ("DEQUANTIZE",)),
    "sparse dynamic range": ("sparse int8", ("DENSIFY",)),
    "sparse dynamic range 1x16": ("int8 1x16", ()),
}


@pytest.mark.parametrize("kind", STORED)
def test_constants_are_as_the_runtime_sees_them(stock, tmp_path, kind):
    contents = read_contents(written(tmp_path, stock[kind]))
    (layer,) = contents.layers
    assert (layer.stored, layer.through) == STORED[kind]
    interpreter = Interpreter(
        model_content=stock[kind],
        experimental_op_resolver_type=OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES,
    )
    details = {detail["name"]: detail for detail in interpreter.get_tensor_details()}
    for constant in contents.constants:
        detail = details[constant.name]
        assert constant.shape == tuple(detail["shape"])
        assert constant.dtype == np.dtype(detail["dtype"]).name
        scales = detail["quantization_parameters"]["scales"]
        assert constant.scale_bytes == scales.size * (4 + 8)  # a float32 and an int64 zero point
        sparsity = detail["sparsity_parameters"]
        assert constant.sparse == bool(sparsity)
        if not sparsity:
            values = interpreter.get_tensor(detail["index"])
            assert constant.nonzeros == np.count_nonzero(values)
            assert constant.value_bytes == values.nbytes
            continue
        _, rows, *blocks = sparsity["dim_metadata"]
        # In the file they are of the smallest type that holds them, in memory int32.
        vectors = rows["array_segments"], rows["array_indices"]
        assert constant.index_bytes == sum(v.size * encodings.index_bytes(v.max()) for v in vectors)
        assert constant.block == (blocks[0]["dense_size"] if blocks else 1)
        stored_values = len(rows["array_indices"]) * constant.block
        assert constant.value_bytes == stored_values * np.dtype(detail["dtype"]).itemsize
        assert 0.9 * stored_values < constant.nonzeros <= stored_values
    assert sum(part.bytes for part in contents.parts) == len(stock[kind])


def is_right(content, weights):
    """Whether LiteRT, as it is by default, loads a file and multiplies as NumPy does."""
    inputs = np.random.default_rng(1).normal(size=(1, INPUTS)).astype(np.float32)
    try:
        interpreter = Interpreter(model_content=content)
        runner = interpreter.get_signature_runner(next(iter(interpreter.get_signature_list())))
        (given,) = runner(x=inputs).values()
    except (RuntimeError, ValueError):
        return False
    expected = inputs @ weights.T
    return bool(np.abs(given - expected).max() < 0.03 * np.abs(expected).max())


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
def test_warnings_of_stock_files_are_what_happens_on_the_runtime(stock, tmp_path, kind, block, warning):
    said = " ".join(warnings(read_contents(written(tmp_path, stock[kind]))))
    assert is_right(stock[kind], sparse_weights(block)) == (warning is None)
    assert warning is None or warning in said
    if warning is None:
        assert said == ""


def test_operators_that_android_does_not_have_yet_are_named(stock, tmp_path):
    said = warnings(read_contents(written(tmp_path, stock["dynamic range"])))
    assert len(said) == 1
    assert re.search(r"TFLite 2\.16\.1.*FULLY_CONNECTED up to version 11, here it is version 12", said[0])
    # As the library for Android answers; version 1 of what it has and the table does not name.
    known = {"FULLY_CONNECTED": 11, "DEQUANTIZE": 5, "DENSIFY": 1, "GATHER": 7, "STABLEHLO_COMPOSITE": 0}
    known |= {"STABLEHLO_ADD": 1, "WHILE": 1, "STRIDED_SLICE": 8, "UNKNOWN": 0}
    assert {name: newest_version(name) for name in known} == known


@functools.cache
def dense(shape):
    """A product with dense weights."""
    return convert(np.random.default_rng(5).normal(size=shape).astype(np.float32))


def product(weights, encoding, version, stored=None):
    """A product with sparse weights, in an encoding and an operator version of one's choice."""
    model = flatfile.read_model(dense(weights.shape))
    (weight,) = sparse.find_weights(model)
    encoded = stored or sparse.encode(encoding, weights, weight.role)
    sparse.rewrite(model, [sparse.Change(weight, encoding, encoded)])
    for code in model.operatorCodes:
        if flatfile.code_name(code) == "FULLY_CONNECTED":
            code.version = version
    return flatfile.write_model(model)


@pytest.mark.parametrize("version", [4, 8])
@pytest.mark.parametrize(
    ("encoding", "block", "stored", "supported"),
    [
        (sparse.CSR, 1, None, True),
        (sparse.BLOCK4, 4, None, True),
        (sparse.BLOCK16, 16, None, True),
        (sparse.BLOCK16, 16, lambda w: encodings.sparse_int8(w, 1), False),
        (sparse.BLOCK16, 16, lambda w: encodings.sparse_int8(w, 4), False),
        (sparse.CSR, 16, lambda w: encodings.sparse32(w, 16), False),
        (sparse.CSR, 1, encodings.sparse16, False),
    ],
)
def test_sparse_weights_are_warned_of_where_the_runtime_goes_wrong(
    tmp_path, encoding, block, stored, supported, version
):
    weights = sparse_weights(block, 0.4)
    content = product(weights, encoding, version, stored and stored(weights))
    said = " ".join(warnings(read_contents(written(tmp_path, content))))
    assert is_right(content, weights) == (supported and version == 8)
    assert ("XNNPACK, on by default" in said) == (version != 8)
    assert ("no kernel for sparse" in said) == (not supported)


def test_limits_of_the_int8_kernel_are_warned_of(tmp_path):
    wide = sparse_weights(16, 0.05, (16, 4112))
    full = sparse_weights(16, 1.0, (16, 4096))
    fits = sparse_weights(16, 0.5, (16, 4096))
    for weights, message in ((wide, "4112 inputs"), (full, "256 blocks in a row"), (fits, None)):
        content = product(weights, sparse.BLOCK16, 8)
        said = " ".join(warnings(read_contents(written(tmp_path, content))))
        assert said == "" if message is None else message in said


def test_sparsity_that_does_not_fit_is_warned_of(tmp_path):
    weights = sparse_weights(1)
    for damage in ("indices", "segments", "values"):
        encoded = sparse.encode(sparse.CSR, weights, sparse.FULLY_CONNECTED)
        rows = encoded.sparsity.dimMetadata[1]
        if damage == "indices":
            rows.arrayIndices.values[3] = INPUTS
        elif damage == "segments":
            rows.arraySegments.values[5] = 255
        else:
            encoded = encodings.Encoded(encoded.values[:-1], encoded.tensor_type, encoded.sparsity)
        contents = read_contents(written(tmp_path, product(weights, sparse.CSR, 8, encoded)))
        assert any("is damaged or of no use" in sentence for sentence in warnings(contents)), damage


def test_nan_and_custom_operators_are_warned_of(tmp_path):
    weights = sparse_weights(0)
    weights[3, 4] = np.nan
    model = flatfile.read_model(convert(weights))
    code = schema.OperatorCodeT()
    code.builtinCode, code.deprecatedBuiltinCode = (
        schema.BuiltinOperator.CUSTOM,
        schema.BuiltinOperator.CUSTOM,
    )
    code.customCode = b"FlexErf"
    model.operatorCodes.append(code)
    said = " ".join(warnings(read_contents(written(tmp_path, flatfile.write_model(model)))))
    assert "NaN or infinity" in said and "Flex delegate" in said


def test_quantized_zeros_are_zero_points(tmp_path):
    model = flatfile.read_model(dense((OUTPUTS, INPUTS)))
    (weight,) = sparse.find_weights(model)
    values = np.full(weight.values.shape, 128, np.uint8)
    values[:, :5] = 7
    tensor = next(t for t in model.subgraphs[0].tensors if t.buffer == weight.buffer)
    tensor.type, tensor.quantization = schema.TensorType.UINT8, schema.QuantizationParametersT()
    tensor.quantization.scale, tensor.quantization.zeroPoint = np.ones(1, np.float32), np.array([128])
    model.buffers[weight.buffer].data = values.reshape(-1)
    (layer,) = read_contents(written(tmp_path, flatfile.write_model(model))).layers
    assert (layer.stored, layer.nonzeros) == ("uint8", 5 * OUTPUTS)


# --- the command


def test_command_starts_without_tensorflow(exported, tmp_path):
    path, _ = exported("blocks", "auto")
    code = (
        "import sys; sys.argv[0] = 'tfsparsecap-export'; from tfsparsecap_export import inspect;"
        f" inspect.main([{str(path)!r}, '--json']);"
        " assert not {'tensorflow', 'keras'} & set(sys.modules)"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert json.loads(result.stdout)[0]["path"] == str(path)


def test_a_file_that_is_none_is_said_and_the_others_are_shown(stock, tmp_path, capsys):
    good, absent = written(tmp_path, stock["float16"]), tmp_path / "absent.tflite"
    assert inspect.main([str(absent), str(good)]) == 2
    printed = capsys.readouterr()
    assert printed.err.startswith(f"error: cannot read {absent}") and printed.err.count("\n") == 1
    assert "float16 (DEQUANTIZE)" in printed.out
    assert inspect.main([str(absent), str(good), "--json"]) == 2
    first, second = json.loads(capsys.readouterr().out)
    assert "cannot read" in first["error"] and second["layers"]


def test_help_teaches(capsys):
    with pytest.raises(SystemExit) as ended:
        inspect.main(["--help"])
    assert ended.value.code == 0
    assert "examples:" in capsys.readouterr().out


# --- damaged and hostile files


def bundled(model, members, method=zipfile.ZIP_STORED):
    content = io.BytesIO(model)
    content.seek(0, io.SEEK_END)
    with zipfile.ZipFile(content, "a", method) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return content.getvalue()


DESCRIPTION = {"format_version": 1, "join": "words", "special_ids": {"end": 2}, "input": "image"}


def test_texts_cannot_command_the_terminal(stock, tmp_path, capsys):
    hostile = "\x1b[2J[/bold][red]\ud800"
    description = {
        **DESCRIPTION,
        "model": hostile,
        "trained_on": {"\x1b[1m": [hostile] * 9},
        "run": float("nan"),
    }
    words = "<pad>\n\x1b]0;owned\x07\n[/]\n"
    path = written(
        tmp_path,
        bundled(stock["float32"], {"captioner.json": json.dumps(description), "vocabulary.txt": words}),
    )
    assert inspect.main([str(path)]) == 0
    assert "\x1b" not in capsys.readouterr().out
    assert inspect.main([str(path), "--json"]) == 0
    (result,) = json.loads(capsys.readouterr().out, parse_constant=pytest.fail)
    assert result["description"]["model"] == hostile


@pytest.mark.parametrize(
    ("members", "message"),
    [
        ({"captioner.json": "[1, 2]"}, "no format version"),
        ({"captioner.json": "{"}, "no captioner.json that can be read"),
        ({"captioner.json": "[" * 100_000}, "no captioner.json that can be read"),
        ({"captioner.json": json.dumps(DESCRIPTION), "vocabulary.txt": b"a\xff\n"}, "no UTF-8"),
        ({"captioner.json": b" " * (5 << 20)}, "larger than 4 MB"),
        ({f"{i}": "" for i in range(1500)}, "more than 1000 files"),
    ],
)
def test_hostile_associated_files_are_said(stock, tmp_path, members, message):
    path = written(tmp_path, bundled(stock["float32"], members, zipfile.ZIP_DEFLATED))
    with pytest.raises(InputError, match=message):
        read_contents(path)


def test_a_description_nested_deeply_is_shown_or_said(stock, tmp_path, capsys):
    for depth in (100, 900, 970, 985):
        nested = json.dumps({**DESCRIPTION, "scores": None}).replace(
            "null", '{"a":' * depth + "1" + "}" * depth
        )
        path = written(tmp_path, bundled(stock["float32"], {"captioner.json": nested}))
        assert inspect.main([str(path)]) in (0, 2)
        assert inspect.main([str(path), "--json"]) in (0, 2)
        capsys.readouterr()


def test_a_bundle_cut_short_is_said(exported, tmp_path):
    content = exported("blocks", "auto")[0].read_bytes()
    for cut in (1, 21, 30, 100, 500):
        with pytest.raises(InputError, match=r"a\.tflite is damaged: its associated files"):
            read_contents(written(tmp_path, content[:-cut]))


def damaged(content, rng):
    """One of the things that happen to files, by accident or not."""
    content = bytearray(content)
    match rng.randrange(4):
        case 0:
            return content[: rng.randrange(len(content))]
        case 1:
            for _ in range(rng.choice((1, 2, 8, 64))):
                content[rng.randrange(8, len(content))] = rng.randrange(256)
        case 2:
            place = rng.randrange(8, len(content) - 4) // 4 * 4
            number = rng.choice(
                (0, 1, 0x7FFFFFFF, 0xFFFFFFFF, 0xFFFFFFF0, len(content), rng.randrange(len(content)))
            )
            struct.pack_into("<I", content, place, number)
        case 3:
            start, other = (rng.randrange(8, len(content) - 48) for _ in range(2))
            content[start : start + 48] = content[other : other + 48]
    return content


def test_damaged_files_are_shown_or_said_soon(exported, stock, tmp_path, capsys):
    rng = random.Random(11)
    small = [
        bundled(content, {"captioner.json": json.dumps(DESCRIPTION), "vocabulary.txt": "<pad>\n"})
        for content in stock.values()
    ]
    files = [*(rng.choice(small) for _ in range(300)), *[exported("blocks", "auto")[0].read_bytes()] * 20]
    endings = {0: 0, 2: 0}
    for content in files:
        path = written(tmp_path, damaged(content, rng))
        began = time.process_time()
        endings[inspect.main([str(path)])] += 1
        assert time.process_time() - began < 3
        printed = capsys.readouterr()
        assert "Traceback" not in printed.err and printed.err.count("\n") <= 1
    assert min(endings.values()) > 50
