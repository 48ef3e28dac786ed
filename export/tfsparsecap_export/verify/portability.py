"""Finds what runtimes on phones reject in a .tflite file, or compute wrongly without an error.

Everything here was tested with a small layer of each kind of weights, on LiteRT 2.3 with and without XNNPACK,
which is on by default, and on the library of TFLite 2.16.1 for Android.
"""

import collections

import numpy as np

from tfsparsecap_export.encode import encodings, sparse
from tfsparsecap_export.flatbuffer import model_file as flatfile
from tfsparsecap_export.flatbuffer import stored
from tfsparsecap_export.flatbuffer.contents import Contents
from tfsparsecap_export.flatbuffer.model_file import schema
from tfsparsecap_export.flatbuffer.stored import Constant

#: The newest TFLite for Android on Maven Central, the one that apps use.
ANDROID_RUNTIME = "TFLite 2.16.1"
#: The newest version of each operator that its library accepts: version 1 for operators that are not listed;
#: STABLEHLO operators that are not listed are missing.
_NEWEST = {
    name: version
    for version, names in {
        1: "STABLEHLO_ADD STABLEHLO_GATHER STABLEHLO_MAXIMUM STABLEHLO_MINIMUM STABLEHLO_MULTIPLY"
        " STABLEHLO_PAD STABLEHLO_REDUCE_WINDOW STABLEHLO_RNG_BIT_GENERATOR STABLEHLO_SCATTER",
        2: "DEPTH_TO_SPACE DIV EXP FAKE_QUANT FLOOR_MOD GELU GREATER L2_NORMALIZATION LEAKY_RELU"
        " LESS_EQUAL LOG LOG_SOFTMAX RANGE REDUCE_PROD SELECT_V2 SIGN SPACE_TO_DEPTH SPLIT_V"
        " SQUARED_DIFFERENCE SQUEEZE SUM WHERE",
        3: "ARG_MAX ARG_MIN AVERAGE_POOL_2D BIDIRECTIONAL_SEQUENCE_LSTM BIDIRECTIONAL_SEQUENCE_RNN"
        " BROADCAST_TO EMBEDDING_LOOKUP FLOOR_DIV GREATER_EQUAL LESS LOGISTIC MAX_POOL_2D MEAN"
        " MIRROR_PAD NOT_EQUAL QUANTIZE REDUCE_MAX REDUCE_MIN RELU RELU6 REVERSE_V2 RNN RSQRT"
        " SOFTMAX SPARSE_TO_DENSE TANH TILE TOPK_V2 UNIDIRECTIONAL_SEQUENCE_RNN",
        4: "BATCH_MATMUL BATCH_TO_SPACE_ND CONCATENATION EQUAL FILL LSTM MAXIMUM MINIMUM PACK PAD"
        " PADV2 RESIZE_BILINEAR RESIZE_NEAREST_NEIGHBOR SELECT SPACE_TO_BATCH_ND SPLIT SVDF"
        " UNIDIRECTIONAL_SEQUENCE_LSTM UNPACK",
        5: "ABS ADD DEQUANTIZE GATHER_ND SUB TRANSPOSE_CONV",
        6: "CAST SLICE TRANSPOSE",
        7: "DEPTHWISE_CONV_2D GATHER MUL",
        8: "CONV_2D STRIDED_SLICE",
        11: "FULLY_CONNECTED",
    }.items()
    for name in names.split()
}
_MISSING = {"CALL", "CONCAT_EMBEDDINGS", "DELEGATE", "PLACEHOLDER_FOR_GREATER_OP_CODES", "UNKNOWN"}
#: The version of FULLY_CONNECTED that XNNPACK leaves to TFLite's own kernel, which supports sparse weights.
_SPARSE_VERSION = sparse.SPARSE_OPERATOR_VERSION
#: Types of sparse weights, with the size of their blocks, that this kernel supports.
_SUPPORTED = {
    (np.dtype(encoding.dtype).name, encoding.block)
    for encoding in encodings.ENCODINGS.values()
    if encoding.multiplied
}


def newest_version(operator: str) -> int:
    """The newest version of a builtin operator that `ANDROID_RUNTIME` accepts; 0 if it lacks the operator."""
    if operator in _MISSING:
        return 0
    return _NEWEST.get(operator, 0 if operator.startswith("STABLEHLO_") else 1)


def warnings(contents: Contents) -> list[str]:
    """Sentences about what will fail or be wrong on a phone; empty if no problem is known.

    Examples:
        >>> from tfsparsecap.captioning.captioners import captioner_path
        >>> from tfsparsecap_export.flatbuffer.contents import read_contents
        >>> warnings(read_contents(captioner_path("small")))
        []
    """
    sentences = [_operator_warning(operator.name, operator.version) for operator in contents.operators]
    sentences += [
        f"{constant.name} is damaged or unusable: {constant.problem}"
        for constant in contents.constants
        if constant.problem
    ]
    for problem, names in _sparse_weight_problems(contents).items():
        more = f" and {len(names) - 3} more" if len(names) > 3 else ""
        sentences.append(f"{', '.join([*names][:3])}{more}: {problem}")
    if contents.model.externalBuffers:
        sentences.append("some of its weights are in other files, which must be in the same folder")
    return [sentence for sentence in sentences if sentence]


def _operator_warning(name: str, version: int) -> str:
    rejects = f"{ANDROID_RUNTIME}, the newest for Android on Maven Central, rejects this file"
    if name.startswith("CUSTOM "):
        custom = name.removeprefix("CUSTOM ")
        if custom.startswith("Flex"):
            return f"{custom} is an operator of TensorFlow: an app must include TFLite's Flex delegate"
        return f"{custom} is a custom operator: an app must register it"
    newest = newest_version(name)
    if newest == 0:
        return f"{rejects}: it has no {name}"
    if version <= newest:
        return ""
    sentence = f"{rejects}: it supports {name} up to version {newest}, the file has version {version}"
    if name == "FULLY_CONNECTED":
        sentence += (
            " (int8 weights with a scale for each row): export it with tfsparsecap-export, or convert it with"
            " _experimental_disable_per_channel_quantization_for_dense_layers"
        )
    return sentence


def _sparse_weight_problems(contents: Contents) -> dict[str, dict[str, None]]:
    """Problem with reading sparse weights -> names of the weights."""
    model = contents.model
    weights: dict[str, dict[str, None]] = collections.defaultdict(dict)
    constants = {buffer: constant for constant in contents.constants for buffer in constant.buffers}
    for graph in model.subgraphs:
        expanded: dict[int, int] = {}
        for operator in graph.operators:
            name = flatfile.builtin_name(model, operator)
            if name == "DENSIFY":
                expanded.update(zip(operator.outputs.tolist(), operator.inputs.tolist(), strict=False))
                continue
            for position, index in enumerate(operator.inputs.tolist()):
                tensor = graph.tensors[expanded.get(index, index)]
                constant = constants.get(tensor.buffer) if index >= 0 else None
                if constant is None or not constant.sparse:
                    continue
                problems = []
                if name == "FULLY_CONNECTED" and position == 1:
                    version = model.operatorCodes[operator.opcodeIndex].version
                    inputs = stored.type_name(graph.tensors[operator.inputs[0]])
                    problems = _layer_problems(constant, tensor.sparsity, version, inputs, index in expanded)
                elif index not in expanded:
                    problems = [
                        f"{name} reads sparse weights as if they were dense, which gives NaN or garbage"
                        " (TensorFlow's converter does this for float16 and blocks): a DENSIFY is missing"
                    ]
                for problem in problems:
                    weights[problem][constant.name] = None
    return weights


def _layer_problems(
    constant: Constant, sparsity: schema.SparsityParametersT, version: int, inputs: str, expanded: bool
) -> list[str]:
    """Problems of sparse weights that FULLY_CONNECTED reads.

    Args:
        constant: the weights.
        sparsity: their positions.
        version: of the operator.
        inputs: type of the values that the weights are multiplied with.
        expanded: whether a DENSIFY is in between.
    """
    problems = []
    if expanded:
        if constant.dtype == "int8" and version != _SPARSE_VERSION and inputs == "float32":
            problems.append(
                "int8 weights behind DENSIFY are multiplied with float inputs: LiteRT 2.3 does not load this"
                " unless its delegate is switched off; store them dense or in 1x16 blocks"
            )
        return problems
    if version != _SPARSE_VERSION:
        problems.append(
            f"sparse weights in FULLY_CONNECTED of version {version}: XNNPACK, on by default, reads them as"
            f" dense and gives garbage unless the version is {_SPARSE_VERSION}"
        )
    if (constant.dtype, constant.block) not in _SUPPORTED:
        how = "single weights" if constant.block == 1 else f"1x{constant.block} blocks"
        problems.append(
            f"FULLY_CONNECTED has no kernel for sparse {constant.dtype} weights in {how}: it rejects the file"
            " or gives wrong results without an error"
        )
    elif constant.dtype == "int8":
        for what, count, most in (
            ("inputs", constant.shape[-1], encodings.BLOCK16_MAX_INPUTS),
            ("blocks in a row", stored.most_blocks_a_row(sparsity), encodings.BLOCK16_MAX_BLOCKS_PER_ROW),
        ):
            if count > most:
                problems.append(
                    f"{count} {what}: the kernel for int8 1x16 blocks supports {most} and gives wrong results"
                    " beyond that without an error"
                )
    return problems
