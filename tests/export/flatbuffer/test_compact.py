"""What no runtime reads is left out of a file, and the file computes the same."""

import numpy as np
import pytest
from tfsparsecap_export.flatbuffer import compact
from tfsparsecap_export.flatbuffer import model_file as flatfile
from tfsparsecap_export.flatbuffer.model_file import schema

from .test_model_file import tiny_model

WEIGHTS = np.random.default_rng(0).normal(size=(32, 64)).astype(np.float32)


def wasteful_model():
    """`tiny_model` as the converter writes it: a buffer for each tensor, and what is left of other layers."""
    model = tiny_model(WEIGHTS)
    graph = model.subgraphs[0]
    unused = flatfile.add_constant(model, graph, np.ones(500, np.float32), "unused")
    graph.tensors = [graph.tensors[unused], *graph.tensors[:unused]]
    operator, (signature,) = graph.operators[0], model.signatureDefs
    bias = flatfile.add_constant(model, graph, np.ones(32, np.float32), "bias")
    operator.inputs, operator.outputs = np.array([1, 2, bias], np.int32), np.array([3], np.int32)
    graph.inputs, graph.outputs = np.array([1], np.int32), np.array([3], np.int32)
    for index, entry in ((1, signature.inputs[0]), (3, signature.outputs[0])):
        entry.tensorIndex = index
        graph.tensors[index].buffer = len(model.buffers)
        model.buffers.append(schema.BufferT())
    for tensor in graph.tensors:
        tensor.quantization = schema.QuantizationParametersT()
    metadata = schema.MetadataT()
    metadata.name, metadata.buffer = b"note", flatfile.add_buffer(model, np.arange(3, dtype=np.int32))
    model.metadata = [metadata]
    return model


def test_what_is_not_used_is_dropped_and_the_outputs_stay(interpreter):
    inputs = np.random.default_rng(1).normal(size=(1, 64)).astype(np.float32)
    before = flatfile.write_model(wasteful_model())
    model = flatfile.read_model(before)
    compact.drop_unused(model)
    after = flatfile.write_model(model)
    np.testing.assert_array_equal(interpreter(after)(x=inputs)["y"], interpreter(before)(x=inputs)["y"])
    np.testing.assert_allclose(interpreter(after)(x=inputs)["y"], inputs @ WEIGHTS.T + 1, atol=1e-4)
    graph = model.subgraphs[0]
    assert [tensor.name for tensor in graph.tensors] == [b"x", b"weights", b"y", b"bias"]
    assert all(tensor.quantization is None for tensor in graph.tensors)
    sizes = [0 if buffer.data is None else buffer.data.size for buffer in model.buffers]
    assert sizes == [0, WEIGHTS.nbytes, 32 * 4, 3 * 4]
    assert model.buffers[model.metadata[0].buffer].data.view(np.int32).tolist() == [0, 1, 2]
    assert len(before) - len(after) > 500 * 4


def test_quantization_parameters_that_are_used_stay():
    model = tiny_model()
    quantization = model.subgraphs[0].tensors[1].quantization = schema.QuantizationParametersT()
    quantization.scale, quantization.zeroPoint = np.full(1, 0.5, np.float32), np.zeros(1, np.int64)
    compact.drop_unused(model)
    assert model.subgraphs[0].tensors[1].quantization is quantization


def test_names_of_inputs_outputs_and_matrices_stay():
    model = wasteful_model()
    model.subgraphs[0].tensors[2].name = b"kernel;fused/kernel"
    compact.drop_names(model)
    assert [tensor.name for tensor in model.subgraphs[0].tensors] == [b"", b"x", b"kernel", b"y", b""]


def test_each_tensor_gets_a_name_of_its_own_after_its_layer():
    model = wasteful_model()
    compact.drop_unused(model)
    (graph,) = model.subgraphs
    graph.tensors[1].name, graph.tensors[3].name = b"net/dense/MatMul", b"arith.constant4"
    rows = flatfile.add_constant(model, graph, np.ones((1, 32), np.float32), "arith.constant4")
    total = flatfile.add_tensor(graph, 2, "sum")
    graph.tensors[total].name = b"net/add/Add;net/dense/MatMul"
    graph.operators.append(flatfile.new_operator(model, schema.BuiltinOperator.ADD, 1, [2, rows], [total]))
    again, quantized = flatfile.add_tensor(graph, total, "b"), flatfile.add_tensor(graph, total, "c")
    graph.tensors[again].name, graph.tensors[quantized].name = b"y", b"tfl.quantize"
    for result in (again, quantized):
        graph.operators.append(
            flatfile.new_operator(model, schema.BuiltinOperator.QUANTIZE, 1, [total], [result])
        )
    graph.tensors.append(schema.TensorT())
    before = flatfile.write_model(model)
    compact.complete_names(model)
    names = [tensor.name.decode() for tensor in graph.tensors]
    assert names == [
        *("x", "net/dense/MatMul", "y", "net/dense/bias", "net/add/Add/input_1"),
        *("net/add/Add;net/dense/MatMul", "y_1", "net/add/Add/quantize", "tensor"),
    ]
    compact.complete_names(model)
    assert [tensor.name.decode() for tensor in graph.tensors] == names
    for tensor, old in zip(graph.tensors, flatfile.read_model(before).subgraphs[0].tensors, strict=True):
        tensor.name = old.name
    assert flatfile.write_model(model) == before


def test_zero_bytes_in_names_are_replaced():
    model = wasteful_model()
    _, _, weights, output, bias = model.subgraphs[0].tensors
    weights.name, output.name, bias.name = b"a\0b/kernel;c\0d", b"a_b", b"a\0b"
    compact.complete_names(model)
    assert (weights.name, output.name, bias.name) == (b"a_b/kernel;c_d", b"a_b", b"a_b/bias")
    weights.name = b"a\0b/kernel"  # of the Keras model
    compact.drop_names(model)
    assert weights.name == b"a_b/kernel"


def test_equal_vectors_and_names_are_written_once():
    repeated = 20

    def size(count, distinct):
        model = tiny_model()
        graph = model.subgraphs[0]
        for i in range(count):
            tensor = schema.TensorT()
            tensor.name, tensor.shape = f"{i * distinct:0999}".encode(), np.array([250], np.int32)
            tensor.quantization = schema.QuantizationParametersT()
            tensor.quantization.scale = np.full(250, 1 + i * distinct, np.float32)
            tensor.quantization.zeroPoint = np.full(250, i * distinct, np.int64)
            graph.tensors.append(tensor)
        content = flatfile.write_model(model)
        for i, tensor in enumerate(flatfile.read_model(content).subgraphs[0].tensors[3:]):
            assert int(tensor.name) == i * distinct
            np.testing.assert_array_equal(tensor.quantization.scale, np.full(250, 1 + i * distinct))
            np.testing.assert_array_equal(tensor.quantization.zeroPoint, np.full(250, i * distinct))
        return len(content)

    saved = size(repeated, distinct=1) - size(repeated, distinct=0)
    assert saved == pytest.approx((repeated - 1) * (1000 + 4 * 250 + 8 * 250), rel=0.02)


def test_vectors_of_equal_bytes_but_different_types_are_both_read():
    model = tiny_model()
    tensor = model.subgraphs[0].tensors[1]
    tensor.quantization = schema.QuantizationParametersT()
    tensor.quantization.zeroPoint = np.zeros(4, np.int64)
    tensor.quantization.scale = np.zeros(8, np.float32)
    again = flatfile.read_model(flatfile.write_model(model)).subgraphs[0].tensors[1].quantization
    assert again.zeroPoint.tolist() == [0] * 4 and again.scale.tolist() == [0.0] * 8
