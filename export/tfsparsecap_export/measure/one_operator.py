"""Files of a single kind of operation with random weights, for measuring kernels."""

import time

import numpy as np

from tfsparsecap_export.encode import encodings, sparse
from tfsparsecap_export.flatbuffer import model_file as flatfile
from tfsparsecap_export.flatbuffer.model_file import schema


def sparse_matrix(
    rng: np.random.Generator, outputs: int, inputs: int, kept: float, block: int = 1
) -> np.ndarray:
    """A random matrix float32 [outputs, inputs] with random zeros in blocks within rows.

    Args:
        rng: random numbers.
        outputs, inputs: its shape; `inputs` is a multiple of `block`.
        kept: share of the blocks that are not zero, 0 to 1.
        block: neighbouring weights of a row that are zero together.
    """
    if kept >= 1:
        return rng.standard_normal((outputs, inputs), np.float32)
    blocks = np.zeros((outputs, inputs // block, block), np.float32)
    mask = rng.random(blocks.shape[:2], np.float32) < kept
    blocks[mask] = rng.standard_normal((np.count_nonzero(mask), block), np.float32)
    return blocks.reshape(outputs, inputs)


def fully_connected(matrices: list[np.ndarray], encoding: str, rows: int) -> bytes:
    """A .tflite file of FULLY_CONNECTED operations that all read the same input.

    Args:
        matrices: float32 [outputs, inputs], all of one shape; an operation for each.
        encoding: how they are stored, one of the names in `sparse`.
        rows: rows of the input, float32 [rows, inputs].

    Returns:
        The bytes of the file; it has one signature with `input` and `output0`, `output1`, ….

    Examples:
        >>> file = fully_connected([np.eye(16, dtype=np.float32)], encodings.CSR, rows=1)
    """
    outputs, inputs = matrices[0].shape
    model = _model(
        matrices, (rows, inputs), (rows, outputs), schema.BuiltinOperator.FULLY_CONNECTED, version=1
    )
    if encoding != encodings.DENSE:
        sparse.rewrite(model, [sparse.change(weight, encoding) for weight in sparse.find_weights(model)])
    return flatfile.write_model(model)


def convolution(filters: np.ndarray, size: int, *, depthwise: bool = False, int8: bool = False) -> bytes:
    """A .tflite file of a convolution of stride 1 whose output has the size of its input.

    Args:
        filters: float32 [outputs, k, k, inputs], or [1, k, k, channels] if depthwise.
        size: height and width of the input, float32 [1, size, size, inputs].
        depthwise: whether it is a DEPTHWISE_CONV_2D.
        int8: whether filters are stored as int8 with a scale for each channel, which the runtime multiplies
            with inputs that it quantizes at run time (dynamic range); else as float32.
    """
    axis = 3 if depthwise else 0
    operators = schema.BuiltinOperator
    builtin = operators.DEPTHWISE_CONV_2D if depthwise else operators.CONV_2D
    # The versions that the converter uses for float inputs and int8 filters.
    version = (6 if depthwise else 5) if int8 else 1
    pixels = (1, size, size)
    model = _model([filters], (*pixels, filters.shape[3]), (*pixels, filters.shape[axis]), builtin, version)
    options = model.subgraphs[0].operators[0].builtinOptions
    options.padding, options.strideW, options.strideH = schema.Padding.SAME, 1, 1
    if depthwise:
        options.depthMultiplier = 1
    if int8:
        graph = model.subgraphs[0]
        tensor = graph.tensors[graph.operators[0].inputs[1]]
        by_channel = np.moveaxis(filters, axis, 0)
        values, quantization = encodings.quantize(by_channel.reshape(len(by_channel), -1), by_row=True)
        values = np.moveaxis(values.reshape(by_channel.shape), 0, axis)
        quantization.quantizedDimension = axis
        tensor.type, tensor.quantization = schema.TensorType.INT8, quantization
        model.buffers[tensor.buffer].data = np.frombuffer(values.tobytes(), np.uint8)
    return flatfile.write_model(model)


def load(content: bytes, inputs: dict[int, np.ndarray] | None = None, threads: int = 1):
    """An interpreter of a file that has run once.

    Args:
        content: the bytes of the file.
        inputs: index of an input tensor -> its value; ones by default.
        threads: CPU threads that kernels may use.

    Raises:
        ValueError, RuntimeError: the runtime does not load or run the file.
    """
    from ai_edge_litert.interpreter import Interpreter

    interpreter = Interpreter(model_content=content, num_threads=threads)
    interpreter.allocate_tensors()
    if inputs is None:
        details = interpreter.get_input_details()
        inputs = {detail["index"]: np.ones(detail["shape"], detail["dtype"]) for detail in details}
    for index, value in inputs.items():
        interpreter.set_tensor(index, value)
    interpreter.invoke()
    return interpreter


def load_smallest():
    """An interpreter whose runs take hardly more time than calling it."""
    return load(fully_connected([np.ones((4, 4), np.float32)], encodings.DENSE, 1))


def run_seconds(interpreter) -> float:
    """Seconds of a run."""
    start = time.perf_counter()
    interpreter.invoke()
    return time.perf_counter() - start


def _model(
    constants: list[np.ndarray],
    input_shape: tuple[int, ...],
    output_shape: tuple[int, ...],
    builtin: int,
    version: int,
) -> schema.ModelT:
    """An operation for each constant, all with the same input and a bias of zeros."""
    graph, model, signature = schema.SubGraphT(), schema.ModelT(), schema.SignatureDefT()
    model.version, model.subgraphs, model.operatorCodes = 3, [graph], []
    model.buffers, model.signatureDefs = [schema.BufferT()], [signature]
    graph.tensors, graph.operators = [], []
    signature.signatureKey, signature.subgraphIndex = "serving_default", 0

    def variables(names, shape):
        """Adds an input, or outputs; returns their indices, and their entries in the signature."""
        entries = []
        for name in names:
            entry, tensor = schema.TensorMapT(), schema.TensorT()
            entry.name, entry.tensorIndex = name, len(graph.tensors)
            tensor.shape, tensor.hasRank = np.array(shape, np.int32), True
            tensor.type, tensor.name = schema.TensorType.FLOAT32, name.encode()
            entries.append(entry)
            graph.tensors.append(tensor)
        return np.array([entry.tensorIndex for entry in entries], np.int32), entries

    graph.inputs, signature.inputs = variables(["input"], input_shape)
    names = [f"output{i}" for i in range(len(constants))]
    graph.outputs, signature.outputs = variables(names, output_shape)
    bias = flatfile.add_constant(model, graph, np.zeros(output_shape[-1], np.float32), "bias")
    for number, (values, output) in enumerate(zip(constants, graph.outputs, strict=True)):
        constant = flatfile.add_constant(model, graph, np.asarray(values, np.float32), f"weights{number}")
        graph.operators.append(
            flatfile.new_operator(model, builtin, version, [0, constant, bias], [int(output)])
        )
    return model
