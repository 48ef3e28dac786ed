"""Files of one kind of operation on made-up weights: what kernels cost is measured on them."""

import numpy as np

from tfsparsecap_export.encode import encodings, ordering, sparse
from tfsparsecap_export.flatbuffer import model_file as flatfile
from tfsparsecap_export.flatbuffer.model_file import schema

#: Names of the input and of the outputs, which are numbered.
INPUT, OUTPUT = "input", "output"
#: What is done about the order of a sparse layer's outputs: nothing, the outputs are in order (see
#: `ordering`), or they are put back where they belong afterwards.
AS_GIVEN, ORDERED, RESTORED = "as given", "ordered", "restored"


def sparse_matrix(
    rng: np.random.Generator, outputs: int, inputs: int, kept: float, block: int = 1
) -> np.ndarray:
    """A random matrix float32 [outputs, inputs] of which a share is not zero, in blocks within rows.

    Args:
        rng: random numbers.
        outputs, inputs: its shape; `inputs` a multiple of `block`.
        kept: the share of blocks that are kept, 0 to 1.
        block: neighbouring weights of a row that are kept or zeroed together.
    """
    if kept >= 1:
        return rng.standard_normal((outputs, inputs), np.float32)
    blocks = np.zeros((outputs, inputs // block, block), np.float32)
    mask = rng.random(blocks.shape[:2], np.float32) < kept
    blocks[mask] = rng.standard_normal((np.count_nonzero(mask), block), np.float32)
    return blocks.reshape(outputs, inputs)


def fully_connected(matrices: list[np.ndarray], encoding: str, rows: int, order: str = AS_GIVEN) -> bytes:
    """A .tflite file of FULLY_CONNECTED operations that all read the same input.

    Args:
        matrices: float32 [outputs, inputs] each, of one shape; an operation for each.
        encoding: how they are stored, one of the names in `sparse`.
        rows: rows of the input, float32 [rows, inputs].
        order: `AS_GIVEN`, `ORDERED` or `RESTORED`.

    Returns:
        The bytes of the file; it has one signature, `serving_default`.

    Example:
        >>> file = fully_connected([np.eye(16, dtype=np.float32)], sparse.CSR, rows=1)
    """
    outputs, inputs = matrices[0].shape
    options = schema.FullyConnectedOptionsT()
    model = _model(
        [(rows, inputs), *[(outputs, inputs)] * len(matrices), *[(rows, outputs)] * len(matrices)],
        matrices,
        (schema.BuiltinOperator.FULLY_CONNECTED, 1),
        (schema.BuiltinOptions.FullyConnectedOptions, options),
    )
    if encoding != sparse.DENSE:
        weights, changes, orders = sparse.find_weights(model), [], {}
        products = ordering.products(model, weights)
        for weight in weights:
            values = weight.values
            if order != AS_GIVEN:
                orders[weight.buffer] = ordering.order_of(values, encoding)
                values = values[orders[weight.buffer]]
            changes.append(sparse.Change(weight, encoding, sparse.encode(encoding, values, weight.role)))
        sparse.rewrite(model, changes)
        if order == RESTORED:
            for buffer, places in orders.items():
                ordering.apply(model, products[buffer], places)
    return flatfile.write_model(model)


def convolutions(
    filters: list[np.ndarray], size: int, *, depthwise: bool = False, int8: bool = False
) -> bytes:
    """A .tflite file of convolutions of stride 1, padded to the same size, that all read the same input.

    Args:
        filters: float32 [outputs, k, k, inputs] each, or [1, k, k, channels] depthwise; of one shape.
        size: side of the input, float32 [1, size, size, inputs].
        depthwise: whether they are DEPTHWISE_CONV_2D.
        int8: whether filters are stored as int8 with a scale a channel, which the runtime multiplies with
            float inputs that it quantizes as they come (dynamic range); else as float32.
    """
    shape = filters[0].shape
    axis = 3 if depthwise else 0
    pixels = (1, size, size)
    if depthwise:
        builtin = schema.BuiltinOperator.DEPTHWISE_CONV_2D
        kind, options = schema.BuiltinOptions.DepthwiseConv2DOptions, schema.DepthwiseConv2DOptionsT()
        options.depthMultiplier = 1
    else:
        builtin = schema.BuiltinOperator.CONV_2D
        kind, options = schema.BuiltinOptions.Conv2DOptions, schema.Conv2DOptionsT()
    options.padding, options.strideW, options.strideH = schema.Padding.SAME, 1, 1
    # The versions that the converter gives convolutions of float inputs and int8 filters.
    version = {(False, False): 1, (True, False): 1, (False, True): 5, (True, True): 6}[depthwise, int8]
    model = _model(
        [(*pixels, shape[3]), *[shape] * len(filters), *[(*pixels, shape[axis])] * len(filters)],
        filters,
        (builtin, version),
        (kind, options),
    )
    if int8:
        for tensor, values in zip(model.subgraphs[0].tensors[1:], filters, strict=False):
            rows = np.moveaxis(values, axis, 0).reshape(shape[axis], -1)
            quantized, quantization = encodings.quantize(rows, by_row=True)
            quantized = np.moveaxis(quantized.reshape(np.moveaxis(values, axis, 0).shape), 0, axis)
            quantization.quantizedDimension = axis
            tensor.type, tensor.quantization = schema.TensorType.INT8, quantization
            model.buffers[tensor.buffer].data = np.frombuffer(quantized.tobytes(), np.uint8)
    return flatfile.write_model(model)


def _model(shapes: list[tuple[int, ...]], constants: list[np.ndarray], code: tuple, options: tuple):
    """Input, constants, outputs and a bias of zeros for all; an operation for each constant."""
    graph, model = schema.SubGraphT(), schema.ModelT()
    count = len(constants)
    shapes = [*shapes, (shapes[-1][-1],)]
    model.buffers = [schema.BufferT() for _ in range(count + 2)]
    model.buffers[-1].data = np.zeros(4 * shapes[-1][0], np.uint8)
    graph.tensors = []
    for index, shape in enumerate(shapes):
        tensor = schema.TensorT()
        tensor.shape, tensor.hasRank = np.array(shape, np.int32), True
        tensor.type, tensor.name = schema.TensorType.FLOAT32, f"tensor{index}".encode()
        if 1 <= index <= count:
            tensor.buffer = index
            values = np.ascontiguousarray(constants[index - 1], np.float32)
            model.buffers[index].data = values.reshape(-1).view(np.uint8)
        elif index == len(shapes) - 1:
            tensor.buffer = count + 1
        graph.tensors.append(tensor)
    graph.operators = []
    for index in range(1, count + 1):
        operator = schema.OperatorT()
        operator.inputs = np.array([0, index, len(shapes) - 1], np.int32)
        operator.outputs = np.array([count + index], np.int32)
        operator.builtinOptionsType, operator.builtinOptions = options
        graph.operators.append(operator)
    graph.inputs = np.array([0], np.int32)
    graph.outputs = np.arange(count + 1, 2 * count + 1, dtype=np.int32)
    model.version, model.subgraphs, model.operatorCodes = 3, [graph], []
    flatfile.operator_code(model, *code)
    model.signatureDefs = [_signature(graph)]
    return model


def _signature(graph: schema.SubGraphT) -> schema.SignatureDefT:
    def names(tensors, name):
        maps = []
        for number, tensor in enumerate(tensors):
            entry = schema.TensorMapT()
            entry.name, entry.tensorIndex = f"{name}{number}" if len(tensors) > 1 else name, int(tensor)
            maps.append(entry)
        return maps

    signature = schema.SignatureDefT()
    signature.signatureKey, signature.subgraphIndex = "serving_default", 0
    signature.inputs, signature.outputs = names(graph.inputs, INPUT), names(graph.outputs, OUTPUT)
    return signature
