"""Reading and writing .tflite files; damaged and malicious ones are rejected quickly, with one sentence."""

import os
import struct
import threading
import time
import tracemalloc
from concurrent.futures import ThreadPoolExecutor

import flatbuffers
import numpy as np
import pytest
from tfsparsecap_export.flatbuffer import model_file as flatfile
from tfsparsecap_export.flatbuffer.model_file import schema

from tfsparsecap.errors import InputError


def tiny_model(weights=None):
    """A model of one FULLY_CONNECTED with 64 inputs and 32 outputs, built with the schema only."""
    weights = np.eye(32, 64, dtype=np.float32) if weights is None else weights
    model, graph = schema.ModelT(), schema.SubGraphT()
    model.version, model.subgraphs = 3, [graph]
    model.operatorCodes, graph.tensors, model.buffers = [], [], [schema.BufferT()]
    code = flatfile.operator_code(model, schema.BuiltinOperator.FULLY_CONNECTED, 1)
    constant = schema.BufferT()
    constant.data = np.frombuffer(weights.tobytes(), np.uint8)
    model.buffers.append(constant)
    for name, shape, buffer in ((b"x", (1, 64), 0), (b"weights", (32, 64), 1), (b"y", (1, 32), 0)):
        tensor = schema.TensorT()
        tensor.name, tensor.shape, tensor.buffer = name, np.array(shape, np.int32), buffer
        graph.tensors.append(tensor)
    operator = schema.OperatorT()
    operator.opcodeIndex, operator.inputs = code, np.array([0, 1, -1], np.int32)
    operator.outputs = np.array([2], np.int32)
    operator.builtinOptionsType = schema.BuiltinOptions.FullyConnectedOptions
    operator.builtinOptions = schema.FullyConnectedOptionsT()
    graph.operators, graph.inputs = [operator], np.array([0], np.int32)
    graph.outputs = np.array([2], np.int32)
    signature, input_map, output_map = schema.SignatureDefT(), schema.TensorMapT(), schema.TensorMapT()
    input_map.name, input_map.tensorIndex, output_map.name, output_map.tensorIndex = b"x", 0, b"y", 2
    signature.signatureKey, signature.inputs, signature.outputs = b"run", [input_map], [output_map]
    model.signatureDefs = [signature]
    return model


def test_a_written_model_is_read_again():
    weights = np.random.default_rng(0).normal(size=(32, 64)).astype(np.float32)
    content = flatfile.write_model(tiny_model(weights))
    model = flatfile.read_model(content)
    np.testing.assert_array_equal(model.buffers[1].data.view(np.float32).reshape(32, 64), weights)
    assert flatfile.write_model(model) == content
    padded = content + b"something else" * 100
    assert len(content) - 1000 < flatfile.constants_end(flatfile.read_model(padded), padded) <= len(content)


def test_the_runtime_reads_a_written_model(interpreter):
    weights = np.random.default_rng(0).normal(size=(32, 64)).astype(np.float32)
    inputs = np.random.default_rng(1).normal(size=(1, 64)).astype(np.float32)
    output = interpreter(flatfile.write_model(tiny_model(weights)))(x=inputs)["y"]
    np.testing.assert_allclose(output, inputs @ weights.T, atol=1e-4)


def large_model(offset, size, content=b"\1\2\3\4" * 2048):
    """A file whose constant is stored after the FlatBuffer."""
    model = tiny_model()
    model.buffers[1].data, model.buffers[1].offset, model.buffers[1].size = None, offset, size
    builder = flatbuffers.Builder(1024)
    builder.Finish(model.Pack(builder), file_identifier=b"TFL3")
    head = bytes(builder.Output())
    return head.ljust(4096, b"\0") + content


def test_constants_after_the_flatbuffer_are_read_and_written():
    model = flatfile.read_model(large_model(4096, 8192))
    assert model.buffers[1].data.tobytes() == b"\1\2\3\4" * 2048
    again = flatfile.read_model(flatfile.write_model(model))
    assert again.buffers[1].data.tobytes() == b"\1\2\3\4" * 2048


@pytest.mark.parametrize(("offset", "size"), [(4096, 8193), (1 << 60, 8), (8, 1 << 62), ((1 << 64) - 8, 16)])
def test_constants_beyond_the_end_of_the_file_are_rejected(offset, size):
    with pytest.raises(InputError, match=r"damaged .*a constant ends at byte"):
        flatfile.read_model(large_model(offset, size))


def loop(subgraph):
    """Options of a loop over a subgraph."""
    options = schema.WhileOptionsT()
    options.bodySubgraphIndex = subgraph
    return options


@pytest.mark.parametrize(
    ("attribute", "value", "message"),
    [
        ("subgraphs.0.tensors.1.buffer", 7, "buffer 7 of 2"),
        ("subgraphs.0.operators.0.opcodeIndex", 3, "operator code 3 of 1"),
        ("subgraphs.0.operators.0.inputs", np.array([0, 99], np.int32), "tensor 99 of 3"),
        ("subgraphs.0.operators.0.inputs", np.array([0, -2], np.int32), "tensor -2 of 3"),
        ("subgraphs.0.operators.0.outputs", np.array([-1], np.int32), "tensor -1 of 3"),
        ("subgraphs.0.inputs", np.array([3], np.int32), "tensor 3 of 3"),
        ("subgraphs.0.operators.0.builtinOptions", loop(5), "subgraph 5 of 1"),
        ("signatureDefs.0.subgraphIndex", 1, "subgraph 1 of 1"),
        ("signatureDefs.0.outputs.0.tensorIndex", 4, "tensor 4 of 3"),
    ],
)
def test_indices_that_do_not_exist_are_rejected(attribute, value, message):
    model = thing = tiny_model()
    *path, last = attribute.split(".")
    for step in path:
        thing = thing[int(step)] if step.isdigit() else getattr(thing, step)
    setattr(thing, last, value)
    if last == "builtinOptions":
        thing.builtinOptionsType = schema.BuiltinOptions.WhileOptions
    with pytest.raises(InputError, match=f"a.tflite is a damaged .* {message}"):
        flatfile.read_model(flatfile.write_model(model), "a.tflite")


def vector(content, of):
    """Position of the length of the vector of tables in a field of the root table."""
    root = struct.unpack_from("<I", content, 0)[0]
    fields = root - struct.unpack_from("<i", content, root)[0]
    at = root + struct.unpack_from("<H", content, fields + 4 + 2 * of)[0]
    return at + struct.unpack_from("<I", content, at)[0]


def test_many_offsets_to_one_table_are_rejected_quickly():
    """Forty thousand operator codes that share a long name: a small file, but gigabytes of names."""
    builder = flatbuffers.Builder(1 << 20)
    builder.StartVector(1, 60_000, 4)
    builder.head -= 60_000
    builder.vectorNumElems = 60_000
    name = builder.EndVector()
    schema.OperatorCodeStart(builder)
    schema.OperatorCodeAddCustomCode(builder, name)
    code = schema.OperatorCodeEnd(builder)
    schema.ModelStartOperatorCodesVector(builder, 40_000)
    for _ in range(40_000):
        builder.PrependUOffsetTRelative(code)
    codes = builder.EndVector()
    schema.ModelStart(builder)
    schema.ModelAddOperatorCodes(builder, codes)
    builder.Finish(schema.ModelEnd(builder), file_identifier=b"TFL3")
    content = bytes(builder.Output())
    tracemalloc.start()
    began = time.process_time()
    with pytest.raises(InputError, match="its parts overlap"):
        flatfile.read_model(content)
    assert time.process_time() - began < 5
    assert tracemalloc.get_traced_memory()[1] < 50e6
    tracemalloc.stop()


@pytest.mark.parametrize("length", [0x7FFFFFFF, 50_000])
@pytest.mark.parametrize("field", [1, 2, 4, 7])
def test_absurd_lengths_are_rejected_with_little_memory(field, length):
    content = bytearray(flatfile.write_model(tiny_model()))
    struct.pack_into("<I", content, vector(content, field), length)
    tracemalloc.start()
    with pytest.raises(InputError, match="damaged"):
        flatfile.read_model(bytes(content))
    assert tracemalloc.get_traced_memory()[1] < 10e6
    tracemalloc.stop()


def test_every_truncation_is_rejected():
    content = flatfile.write_model(tiny_model())
    for end in range(0, len(content), 61):
        with pytest.raises(InputError, match=r"a\.tflite"):
            flatfile.read_model(content[:end], "a.tflite")


def test_files_can_be_read_by_several_threads():
    original, second_reads, first_is_done = flatbuffers.table.Table, threading.Event(), threading.Event()

    def read_second():
        with flatfile._limited_reading(100):
            second_reads.set()
            first_is_done.wait(10)

    with ThreadPoolExecutor(1) as threads:
        with flatfile._limited_reading(100):
            second = threads.submit(read_second)
            second_reads.wait(0.3)
        first_is_done.set()
        second.result()
    assert flatbuffers.table.Table is original


def test_paths_that_are_not_files_are_rejected(tmp_path):
    (tmp_path / "empty").touch()
    os.mkfifo(tmp_path / "pipe")  # opening it would block
    for name, message in (
        ("absent", r"cannot read .*absent"),
        (".", "is not a file"),
        ("empty", "is empty"),
        ("pipe", "is not a file"),
    ):
        with pytest.raises(InputError, match=message):
            flatfile.map_file(tmp_path / name)
