"""Expected time of a whole .tflite file on a target, from the costs of its operations."""

import math
import mmap
from typing import Any

import numpy as np

from tfsparsecap.model_summary.storage import SMALLEST_ENCODED
from tfsparsecap_export.encode import encodings
from tfsparsecap_export.encode.costs import KernelCosts
from tfsparsecap_export.flatbuffer import model_file as flatfile
from tfsparsecap_export.flatbuffer.model_file import schema
from tfsparsecap_export.flatbuffer.subgraph_runs import runs_of_subgraphs

#: Steps of loops whose number of steps the file does not tell.
STEPS = 10
#: Instructions per element of the output, on arm64, of operations that are no products, with float values and
#: with int8 values. Int8 operations that are not listed run in TFLite's portable kernels.
_FLOAT = {"GELU": 81.0, "SOFTMAX": 10.6, "EXP": 10.0, "LOGISTIC": 9.7, "TANH": 6.7, "RESHAPE": 0.0}
_INT8 = {
    **{"SOFTMAX": 9.3, "ADD": 2.4, "MUL": 2.4, "SUB": 2.4, "CONCATENATION": 1.0, "PAD": 1.0, "RESHAPE": 0.0},
    **{"LOGISTIC": 1.0, "TANH": 1.0, "GELU": 2.0, "HARD_SWISH": 2.0, "DEQUANTIZE": 1.5},
}
_OTHER_FLOAT, _OTHER_INT8 = 1.5, 40.0
#: These take time per element of the input, in both types.
_REDUCTIONS = {"MEAN": 0.7, "SUM": 0.7, "REDUCE_MAX": 0.7, "AVERAGE_POOL_2D": 0.7, "MAX_POOL_2D": 0.7}
_REDUCTIONS |= {"QUANTIZE": 1.5, "ARG_MAX": 2.0, "TOPK_V2": 3.0}
#: TensorFlow Lite's kernel of transposed 3D convolutions takes so many times as long per multiply-add as one
#: of 2D convolutions; that of 3D convolutions takes 1.0 to 1.3 times as long.
_SPREAD_3D = 2.0
_CALLS = ("WHILE", "IF", "CALL_ONCE")


def network_ms(
    content: bytes | mmap.mmap,
    costs: KernelCosts,
    steps: int = STEPS,
    *,
    int8: bool = False,
    convolutions: bool = True,
    zeros: float = 0.0,
) -> float:
    """Milliseconds that one run of a file is expected to take.

    Axes of any size count as 1, and the branches of a condition all count. The body of a loop, such as a
    recurrent layer, counts as often as it runs.

    Args:
        content: the bytes of the file.
        costs: costs of the target's kernels.
        steps: number of steps of loops whose number of steps the file does not tell, such as a search.
        int8: whether products and convolutions with float32 weights count as int8, with dense weights.
        convolutions: whether `int8` concerns convolutions, too.
        zeros: share of zeros that int8 products are assumed to have, in blocks, where blocks are faster.
    """
    model = flatfile.read_model(content)
    total = 0.0
    for graph, runs in zip(model.subgraphs, runs_of_subgraphs(model, steps), strict=True):
        constant = {
            i for i, tensor in enumerate(graph.tensors) if model.buffers[tensor.buffer].data is not None
        }
        for operator in graph.operators:
            name = flatfile.builtin_name(model, operator)
            if name in ("DENSIFY", "DEQUANTIZE") and int(operator.inputs[0]) in constant:
                constant.update(map(int, operator.outputs))  # done once, when the file is loaded
            elif name not in _CALLS:
                as_int8 = int8 and (convolutions or name == "FULLY_CONNECTED")
                total += runs * _nanoseconds(model, graph, operator, name, costs, as_int8, zeros)
    return total / 1e6


def _nanoseconds(
    model: schema.ModelT,
    graph: schema.SubGraphT,
    operator,
    name: str,
    costs: KernelCosts,
    int8: bool,
    zeros: float,
) -> float:
    tensors: list[Any] = [graph.tensors[int(i)] if i >= 0 else None for i in operator.inputs]
    result = graph.tensors[int(operator.outputs[0])] if len(operator.outputs) else None
    if result is None or not tensors or tensors[0] is None:
        return costs.call * costs.nanoseconds
    # The first input of a transposed convolution is the shape of its result.
    first, elements = tensors[2 if name == "TRANSPOSE_CONV" else 0], _size(result)
    is_int8 = first.type == schema.TensorType.INT8
    if name == "FULLY_CONNECTED" and not is_int8:
        return _product(model, tensors[1], elements, costs, int8, zeros)
    if name in ("FULLY_CONNECTED", "BATCH_MATMUL"):
        multiply_adds = elements * int(first.shape[-1])
        units = multiply_adds * (costs.convolution_int8 if is_int8 else costs.convolution)
    elif name == "DEPTHWISE_CONV_2D":
        per_output = math.prod(int(size) for size in tensors[1].shape[1:3])
        units = elements * per_output * (costs.depthwise_int8 if is_int8 or int8 else costs.depthwise)
    elif name in ("CONV_2D", "TRANSPOSE_CONV"):
        filters = tensors[1].shape
        transposed = name == "TRANSPOSE_CONV"
        positions = _size(first) / int(filters[3]) if transposed else elements / int(filters[0])
        cost = costs.convolution_int8 if is_int8 or int8 else costs.convolution
        units = positions * _size(tensors[1]) * cost
    elif name in ("CONV_3D", "CONV_3D_TRANSPOSE"):
        filters, transposed = tensors[1].shape, name == "CONV_3D_TRANSPOSE"
        positions = _size(tensors[2]) / int(filters[4]) if transposed else elements / int(filters[4])
        units = positions * _size(tensors[1]) * costs.convolution * (_SPREAD_3D if transposed else 1.0)
    elif name in _REDUCTIONS:
        units = _size(first) * _REDUCTIONS[name] * costs.element
    else:
        of_type, other = (_INT8, _OTHER_INT8) if is_int8 else (_FLOAT, _OTHER_FLOAT)
        units = elements * of_type.get(name, other) * costs.element
    return (costs.call + units) * costs.nanoseconds


def _product(
    model: schema.ModelT, weights, elements: int, costs: KernelCosts, int8: bool, zeros: float
) -> float:
    """Nanoseconds of a FULLY_CONNECTED with float inputs."""
    outputs, inputs = map(int, weights.shape)
    encoding, stored = encodings.DENSE, 0
    is_int8 = weights.type == schema.TensorType.INT8
    if weights.sparsity is not None:
        stored = len(model.buffers[weights.buffer].data) // (1 if is_int8 else 4)
        blocks = weights.sparsity.blockMap is not None and len(weights.sparsity.blockMap)
        encoding = encodings.BLOCK16 if is_int8 else encodings.BLOCK4 if blocks else encodings.CSR
    elif is_int8 or (int8 and outputs * inputs >= SMALLEST_ENCODED):
        encoding = encodings.INT8
    size: dict[str, int] = {"rows": max(1, elements // outputs), "outputs": outputs, "inputs": inputs}
    cost = costs.product(encoding, **size, stored=stored)
    if zeros and encoding == encodings.INT8:
        stored = round((1 - zeros) * outputs * inputs)
        cost = min(cost, costs.product(encodings.BLOCK16, **size, stored=stored))
    return cost


def _size(tensor) -> int:
    """Number of elements, of which an axis of any size has one."""
    return int(np.prod([max(1, int(n)) for n in tensor.shape])) if tensor.shape is not None else 1
