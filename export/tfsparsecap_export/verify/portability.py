"""What runtimes on phones refuse in a .tflite file, or get wrong without a word.

All of it was tried with a small product of each kind of weights, on LiteRT 2.3 with and without XNNPACK,
which is on by default, and on the library of TFLite 2.16.1 for Android.
"""

import collections

from tfsparsecap_export.encode import encodings
from tfsparsecap_export.flatbuffer import model_file as flatfile
from tfsparsecap_export.flatbuffer import stored
from tfsparsecap_export.flatbuffer.contents import Contents
from tfsparsecap_export.flatbuffer.model_file import schema

#: The newest TFLite for Android on Maven Central, which apps get.
ANDROID_RUNTIME = "TFLite 2.16.1"
#: The newest version of each operator that it takes, as its library answered for each operator and version:
#: version 1 of those that it has and that are not named here.
_NEWEST = {
    name: version
    for version, names in {
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
#: Of the operators with this prefix it has these, the others not.
_PREFIX, _WITH_PREFIX = (
    "STABLEHLO_",
    {
        "ADD",
        "GATHER",
        "MAXIMUM",
        "MINIMUM",
        "MULTIPLY",
        "PAD",
        "REDUCE_WINDOW",
        "RNG_BIT_GENERATOR",
        "SCATTER",
    },
)
_LACKING = {"CALL", "CONCAT_EMBEDDINGS", "DELEGATE", "PLACEHOLDER_FOR_GREATER_OP_CODES", "UNKNOWN"}
#: The version of FULLY_CONNECTED that XNNPACK leaves to TFLite's own kernel, which looks at the sparsity.
_SPARSE_VERSION = 8
#: Kinds of sparse weights, with the size of their blocks, that this kernel multiplies.
_MULTIPLIED = {("float32", 1), ("float32", 4), ("int8", 16)}


def newest_version(operator: str) -> int:
    """The newest version of a builtin operator that `ANDROID_RUNTIME` takes; 0 where it lacks it."""
    lacking = operator.startswith(_PREFIX) and operator.removeprefix(_PREFIX) not in _WITH_PREFIX
    return 0 if lacking or operator in _LACKING else _NEWEST.get(operator, 1)


def warnings(contents: Contents) -> list[str]:
    """Sentences on what will not work on a phone, or not as it should; none where nothing is known.

    Example:
        >>> warnings(read_contents("dynamic_range.tflite"))
        ['TFLite 2.16.1, the newest for Android on Maven Central, refuses this file: it takes …']
    """
    found = [_of_operator(operator.name, operator.version) for operator in contents.operators]
    found += [
        f"{constant.name} is damaged or of no use: {constant.problem}"
        for constant in contents.constants
        if constant.problem
    ]
    for sentence, names in _of_sparse_weights(contents.model).items():
        shown = list(dict.fromkeys(names))
        more = f" and {len(shown) - 3} more" if len(shown) > 3 else ""
        found.append(f"{', '.join(shown[:3])}{more}: {sentence}")
    if contents.model.externalBuffers:
        found.append("some of its weights are in other files, which have to lie beside it")
    return [sentence for sentence in found if sentence]


def _of_operator(name: str, version: int) -> str:
    refuses = f"{ANDROID_RUNTIME}, the newest for Android on Maven Central, refuses this file"
    if name.startswith("CUSTOM "):
        custom = name.removeprefix("CUSTOM ")
        if custom.startswith("Flex"):
            return (
                f"{custom} needs TensorFlow's own operators: an app has to bring along TFLite's Flex delegate"
            )
        return f"{custom} is an operator of somebody's own: an app has to register it"
    newest = newest_version(name)
    if newest == 0:
        return f"{refuses}: it has no {name}"
    if version <= newest:
        return ""
    sentence = f"{refuses}: it takes {name} up to version {newest}, here it is version {version}"
    if name == "FULLY_CONNECTED":
        sentence += (
            " (int8 weights with a scale for each row): export it with tfsparsecap-export, or convert it with"
            " _experimental_disable_per_channel_quantization_for_dense_layers"
        )
    return sentence


def _of_sparse_weights(model: schema.ModelT) -> dict[str, list[str]]:
    """What is wrong with the reading of sparse weights -> the weights where it is."""
    found = collections.defaultdict(list)
    for graph in model.subgraphs:
        expanded = {}
        for operator in graph.operators:
            code = model.operatorCodes[operator.opcodeIndex]
            name = flatfile.code_name(code)
            if name == "DENSIFY":
                expanded.update(zip(operator.outputs.tolist(), operator.inputs.tolist(), strict=False))
                continue
            for position, index in enumerate(operator.inputs):
                if index < 0:
                    continue
                tensor = graph.tensors[expanded.get(int(index), index)]
                multiplied = name == "FULLY_CONNECTED" and position == 1
                if index in expanded:
                    problems = []
                    if multiplied and tensor.type == schema.TensorType.INT8:
                        problems = _of_expanded_int8(graph.tensors[operator.inputs[0]], code.version)
                elif tensor.sparsity is None:
                    continue
                elif multiplied:
                    problems = _of_sparse_filter(tensor, code.version)
                else:
                    problems = [
                        f"{name} reads sparse weights as if they were dense, which gives NaN or garbage"
                        " (TensorFlow's converter does it with float16 and blocks): a DENSIFY belongs between"
                    ]
                for problem in problems:
                    found[problem].append(stored.readable(tensor.name))
    return found


def _of_expanded_int8(inputs: schema.TensorT, version: int) -> list[str]:
    if version == _SPARSE_VERSION or inputs.type != schema.TensorType.FLOAT32:
        return []
    return [
        "int8 weights behind DENSIFY are multiplied with float inputs: LiteRT 2.3 does not load this unless"
        " its delegate is switched off; store them dense or in 1x16 blocks"
    ]


def _of_sparse_filter(tensor: schema.TensorT, version: int) -> list[str]:
    """Problems of sparse weights that FULLY_CONNECTED reads as they are."""
    shape, problems = stored.shape_of(tensor), []
    dimensions, blocks = tensor.sparsity.dimMetadata or [], tensor.sparsity.blockMap
    block = 1 if blocks is None or not blocks.size else int(dimensions[-1].denseSize) if dimensions else 0
    kind = next((k for k, v in vars(schema.TensorType).items() if v == tensor.type), "?").lower()
    if version != _SPARSE_VERSION:
        problems.append(
            f"sparse weights in FULLY_CONNECTED of version {version}: XNNPACK, on by default, takes them for"
            f" dense and gives garbage unless the version is {_SPARSE_VERSION}"
        )
    if (kind, block) not in _MULTIPLIED:
        how = "single weights" if block == 1 else f"1x{block} blocks"
        problems.append(
            f"FULLY_CONNECTED has no kernel for sparse {kind} weights in {how}: it refuses the file or is"
            " silently wrong"
        )
    if kind == "int8" and block == 16 and len(shape) == 2:
        columns, most = shape[1], stored.most_blocks_a_row(tensor.sparsity)
        if columns > encodings.BLOCK16_MAX_INPUTS:
            problems.append(
                f"{columns} inputs: the kernel for int8 1x16 blocks takes {encodings.BLOCK16_MAX_INPUTS} and"
                " is silently wrong beyond"
            )
        if most > encodings.BLOCK16_MAX_BLOCKS_A_ROW:
            problems.append(
                f"{most} blocks in a row: the kernel for int8 1x16 blocks takes"
                f" {encodings.BLOCK16_MAX_BLOCKS_A_ROW} and is silently wrong beyond"
            )
    return problems
