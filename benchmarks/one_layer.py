"""Files of one fully connected layer with random weights, for measuring and testing kernels."""

import numpy as np
from tfsparsecap_export.encode import encodings, sparse
from tfsparsecap_export.flatbuffer import model_file as flatfile
from tfsparsecap_export.flatbuffer.model_file import schema


def sparse_matrix(
    rng: np.random.Generator, outputs: int, inputs: int, density: float, block: int = 1
) -> np.ndarray:
    """A random matrix float32 [outputs, inputs] with random zeros in blocks within rows.

    Args:
        rng: random numbers.
        outputs, inputs: its shape; `inputs` is a multiple of `block`.
        density: share of the blocks that are not zero, 0 to 1.
        block: neighbouring weights of a row that are zero together.
    """
    if density >= 1:
        return rng.standard_normal((outputs, inputs), np.float32)
    blocks = np.zeros((outputs, inputs // block, block), np.float32)
    mask = rng.random(blocks.shape[:2], np.float32) < density
    blocks[mask] = rng.standard_normal((np.count_nonzero(mask), block), np.float32)
    return blocks.reshape(outputs, inputs)


def fully_connected(matrices: list[np.ndarray], encoding: str, rows: int) -> bytes:
    """A .tflite file of FULLY_CONNECTED operations that all read the same input.

    Args:
        matrices: float32 [outputs, inputs], all of one shape; an operation for each.
        encoding: how they are stored, one of `encodings.ENCODINGS`.
        rows: rows of the input, float32 [rows, inputs].

    Returns:
        The bytes of the file; it has one signature with `input` and `output0`, `output1`, ….

    Examples:
        >>> file = fully_connected([np.eye(16, dtype=np.float32)], encodings.CSR, rows=1)
    """
    graph, model, signature = schema.SubGraphT(), schema.ModelT(), schema.SignatureDefT()
    model.version, model.subgraphs, model.operatorCodes = 3, [graph], []
    model.buffers, model.signatureDefs = [schema.BufferT()], [signature]
    graph.tensors, graph.operators = [], []
    signature.signatureKey, signature.subgraphIndex = "serving_default", 0

    def variables(names, columns):
        """Adds an input, or outputs; returns their indices, and their entries in the signature."""
        entries = []
        for name in names:
            entry, tensor = schema.TensorMapT(), schema.TensorT()
            entry.name, entry.tensorIndex = name, len(graph.tensors)
            tensor.shape, tensor.hasRank = np.array((rows, columns), np.int32), True
            tensor.type, tensor.name = schema.TensorType.FLOAT32, name.encode()
            entries.append(entry)
            graph.tensors.append(tensor)
        return np.array([entry.tensorIndex for entry in entries], np.int32), entries

    outputs, inputs = matrices[0].shape
    graph.inputs, signature.inputs = variables(["input"], inputs)
    graph.outputs, signature.outputs = variables([f"output{i}" for i in range(len(matrices))], outputs)
    bias = flatfile.add_constant(model, graph, np.zeros(outputs, np.float32), "bias")
    product = schema.BuiltinOperator.FULLY_CONNECTED
    for number, (values, output) in enumerate(zip(matrices, graph.outputs, strict=True)):
        weights = flatfile.add_constant(model, graph, np.asarray(values, np.float32), f"weights{number}")
        graph.operators.append(flatfile.new_operator(model, product, 1, [0, weights, bias], [int(output)]))
    if encoding != encodings.DENSE:
        sparse.rewrite(model, [sparse.change(weight, encoding) for weight in sparse.find_weights(model)])
    return flatfile.write_model(model)
