"""How the weights of a .tflite file are stored, compared with the runtime's and with NumPy."""

import numpy as np
import pytest
from ai_edge_litert.interpreter import Interpreter, OpResolverType
from tfsparsecap_export.flatbuffer import stored
from tfsparsecap_export.flatbuffer.contents import read_contents
from tfsparsecap_export.flatbuffer.model_file import schema

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
def test_constants_are_as_the_runtime_reads_them(converted, written, kind):
    contents = read_contents(written(converted[kind]))
    (layer,) = contents.layers
    assert (layer.stored, layer.behind) == STORED[kind]
    interpreter = Interpreter(
        model_content=converted[kind],
        experimental_op_resolver_type=OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES,
    )
    details = {detail["name"]: detail for detail in interpreter.get_tensor_details()}
    for constant in contents.constants:
        detail = details[constant.name]
        assert constant.shape == tuple(detail["shape"])
        assert constant.dtype == np.dtype(detail["dtype"]).name
        scales = detail["quantization_parameters"]["scales"]
        assert constant.scale_bytes == scales.size * 4  # its zero points are 0
        sparsity = detail["sparsity_parameters"]
        assert constant.sparse == bool(sparsity)
        if not sparsity:
            values = interpreter.get_tensor(detail["index"])
            assert constant.nonzeros == np.count_nonzero(values)
            assert constant.value_bytes == values.nbytes
            continue
        _, rows, *blocks = sparsity["dim_metadata"]
        # The file stores indices in the smallest type that holds them, the runtime as int32.
        vectors = rows["array_segments"], rows["array_indices"]
        assert constant.index_bytes == sum(v.size * np.min_scalar_type(v.max()).itemsize for v in vectors)
        assert constant.block == (blocks[0]["dense_size"] if blocks else 1)
        stored_values = len(rows["array_indices"]) * constant.block
        assert constant.value_bytes == stored_values * np.dtype(detail["dtype"]).itemsize
        assert 0.9 * stored_values < constant.nonzeros <= stored_values
    assert sum(contents.parts.values()) == len(converted[kind])


@pytest.mark.parametrize(
    ("tensor_type", "data", "count", "nonzeros"),
    [
        ("INT4", np.array([0x10, 0x02, 0x33], np.uint8), 6, 4),
        ("BFLOAT16", np.array([0x8000, 0, 0x3F80], np.uint16), 3, 1),  # -0, 0, 1
        ("FLOAT32", np.array([0.0, -0.0, 2.0], np.float32), 3, 1),
        ("UINT8", np.array([7, 7, 9, 0], np.uint8), 4, 2),
    ],
)
def test_zeros_are_counted_in_every_type(tensor_type, data, count, nonzeros):
    tensor = schema.TensorT()
    tensor.type, tensor.shape = getattr(schema.TensorType, tensor_type), np.array([count], np.int32)
    if tensor_type == "UINT8":  # the zero point, 7, represents zero
        tensor.quantization = schema.QuantizationParametersT()
        tensor.quantization.scale, tensor.quantization.zeroPoint = np.ones(1, np.float32), np.array([7])
    description = stored.describe(
        [tensor], data.view(np.uint8), role=stored.OTHER, behind=(), in_loop=False, counted=set()
    )
    assert (description.nonzeros, description.weights, description.problem) == (nonzeros, count, "")
    assert description.sparsity == pytest.approx(1 - nonzeros / count)
