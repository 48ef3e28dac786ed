"""What a .tflite file contains, read without running it."""

import collections
import dataclasses
import os
import zipfile
from pathlib import Path

import numpy as np

from tfsparsecap.core.files import DAMAGE
from tfsparsecap.errors import InputError
from tfsparsecap_export.flatbuffer import model_file as flatfile
from tfsparsecap_export.flatbuffer import stored
from tfsparsecap_export.flatbuffer.model_file import schema
from tfsparsecap_export.flatbuffer.stored import CONVOLUTION, FULLY_CONNECTED, OTHER, Constant, decoded_text

#: Operator and position among its inputs -> role of a constant there. A constant with several roles gets the
#: first of them.
_ROLES = {
    ("FULLY_CONNECTED", 1): FULLY_CONNECTED,
    ("CONV_2D", 1): CONVOLUTION,
    ("DEPTHWISE_CONV_2D", 1): CONVOLUTION,
    ("CONV_3D", 1): CONVOLUTION,
    ("TRANSPOSE_CONV", 1): CONVOLUTION,
    ("CONV_3D_TRANSPOSE", 1): CONVOLUTION,
    ("BATCH_MATMUL", 0): "matrix product",
    ("BATCH_MATMUL", 1): "matrix product",
    **{(lstm, at): "recurrent" for lstm in ("LSTM", "UNIDIRECTIONAL_SEQUENCE_LSTM") for at in range(1, 9)},
    **{(rnn, at): "recurrent" for rnn in ("RNN", "UNIDIRECTIONAL_SEQUENCE_RNN", "SVDF") for at in (1, 2)},
    ("GATHER", 0): "table",
    ("EMBEDDING_LOOKUP", 1): "table",
}
_PRIORITY = [*dict.fromkeys(_ROLES.values()), OTHER]
#: Operators that only convert a stored constant to the form that others read.
_EXPANDING = ("DENSIFY", "DEQUANTIZE")
_LOCAL_FILE = b"PK\x03\x04"


@dataclasses.dataclass(frozen=True)
class Value:
    """An input or output: its name, its shape (-1 for an axis of any size) and its type."""

    name: str
    shape: tuple[int, ...]
    dtype: str

    def __str__(self) -> str:
        return f"{self.name} {self.dtype} [{', '.join('any' if n < 0 else str(n) for n in self.shape)}]"


@dataclasses.dataclass(frozen=True)
class Signature:
    """A function of the file. The main graph of a file without signatures has an empty name."""

    name: str
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]


@dataclasses.dataclass(frozen=True)
class Operator:
    """An operator in one version, how often it occurs, and how many of these are inside loops."""

    name: str
    version: int
    count: int
    in_loop: int


@dataclasses.dataclass(frozen=True)
class Contents:
    """What a file contains.

    Attributes:
        path: the file.
        bytes: its size.
        signatures: the functions that a program can call.
        constants: all constants, in the order of the file's buffers.
        parts: part of the file -> bytes; they add up to the whole file.
        files: associated file -> bytes in the file.
        metadata: name -> bytes of each entry in the graph's metadata.
        operators: operators of the graph, including operator codes that nothing uses (count 0).
        model: the file's FlatBuffer.
    """

    path: Path
    bytes: int
    signatures: tuple[Signature, ...]
    constants: tuple[Constant, ...]
    parts: dict[str, int]
    files: dict[str, int]
    metadata: dict[str, int]
    operators: tuple[Operator, ...]
    model: schema.ModelT = dataclasses.field(repr=False, compare=False)

    @property
    def layers(self) -> tuple[Constant, ...]:
        """The constants with a role: not biases, shapes and the like."""
        return tuple(constant for constant in self.constants if constant.role != OTHER)

    @property
    def other_constants(self) -> tuple[Constant, ...]:
        """Biases, shapes and the like."""
        return tuple(constant for constant in self.constants if constant.role == OTHER)


def read_contents(path: str | os.PathLike) -> Contents:
    """Reads what a .tflite file contains. Nothing in it is run, and constants are not copied.

    Raises:
        InputError: the file is missing or not a .tflite file, or its graph or associated files are damaged.

    Examples:
        >>> from tfsparsecap.captioning.captioners import captioner_path
        >>> contents = read_contents(captioner_path("small"))
        >>> "int8 1x16" in {layer.stored for layer in contents.layers if layer.role == "fully connected"}
        True
    """
    path = Path(path)
    content = flatfile.map_file(path)
    model = flatfile.read_model(content, str(path))
    files, archive_bytes = _associated(path, content, flatfile.constants_end(model, content))
    looped = flatfile.looped_subgraphs(model)
    try:
        constants = _constants(model, looped)
    except (ValueError, TypeError, OverflowError) as error:
        raise InputError(f"{path} is a damaged .tflite file ({error}): export it again") from error
    metadata = [(decoded_text(entry.name), _data(model, entry.buffer).size) for entry in model.metadata or []]
    layers = [constant for constant in constants if constant.role != OTHER]
    parts = {
        "layers": sum(layer.value_bytes for layer in layers),
        "their indices": sum(layer.index_bytes for layer in layers),
        "their scales": sum(layer.scale_bytes for layer in layers),
        "other constants": sum(constant.bytes for constant in constants if constant.role == OTHER),
        "metadata": sum(size for _, size in metadata),
        "names": _name_bytes(model),
        "associated files": archive_bytes,
    }
    return Contents(
        path=path,
        bytes=len(content),
        signatures=read_signatures(model),
        constants=constants,
        parts={**parts, "graph": max(0, len(content) - sum(parts.values()))},
        files=files,
        metadata=dict(metadata),
        operators=_operators(model, looped),
        model=model,
    )


def read_signatures(model: schema.ModelT) -> tuple[Signature, ...]:
    """The functions of a file, or its main graph if it has none."""

    def value(graph, index, name=None):
        tensor = graph.tensors[index]
        shape = tensor.shape if tensor.shapeSignature is None else tensor.shapeSignature
        return Value(
            decoded_text(tensor.name if name is None else name),
            () if shape is None else tuple(int(size) for size in shape),
            stored.type_name(tensor),
        )

    def values(graph, entries):
        return tuple(value(graph, entry.tensorIndex, entry.name) for entry in entries or [])

    signatures = []
    for signature in model.signatureDefs or []:
        graph = model.subgraphs[signature.subgraphIndex]
        inputs, outputs = values(graph, signature.inputs), values(graph, signature.outputs)
        signatures.append(Signature(decoded_text(signature.signatureKey), inputs, outputs))
    if not signatures:
        graph = model.subgraphs[0]
        inputs, outputs = (tuple(value(graph, i) for i in side) for side in (graph.inputs, graph.outputs))
        signatures.append(Signature("", inputs, outputs))
    return tuple(signatures)


def _associated(path: Path, content, end: int) -> tuple[dict[str, int], int]:
    """The files after the graph, and their total size in bytes.

    Args:
        path: the file.
        content: its bytes.
        end: where its associated files can start.
    """
    try:
        with path.open("rb") as file:
            if not zipfile.is_zipfile(file):
                if content.find(_LOCAL_FILE, end) >= 0:
                    raise zipfile.BadZipFile("no directory at the end")
                return {}, 0
            with zipfile.ZipFile(file) as archive:
                members = archive.infolist()
    except DAMAGE as error:
        raise InputError(
            f"{path} is damaged: its associated files cannot be read ({error}, cut short?); export it again"
        ) from error
    start = min((member.header_offset for member in members), default=len(content))
    if not end <= start <= len(content):
        raise InputError(f"{path} is damaged: its associated files overlap its graph; export it again")
    files = {decoded_text(member.filename): member.compress_size for member in members}
    return files, len(content) - start


def _data(model: schema.ModelT, buffer: int) -> np.ndarray:
    """The bytes of a buffer; empty if it has no data."""
    data = model.buffers[buffer].data
    return np.empty(0, np.uint8) if data is None else data


def _name_bytes(model: schema.ModelT) -> int:
    """Bytes of the names of tensors; equal ones count once, as this package writes them."""
    names = {tensor.name or b"" for graph in model.subgraphs for tensor in graph.tensors}
    # A length of 4 bytes, and a zero byte at the end, aligned to 4 bytes.
    return sum(4 + 4 * (len(name) // 4 + 1) for name in names)


def _reads(model: schema.ModelT, graph: schema.SubGraphT) -> list[set[tuple[str, tuple[str, ...]]]]:
    """For each tensor, the roles in which it is read and the operators that expand it first."""
    reads: list[set[tuple[str, tuple[str, ...]]]] = [set() for _ in graph.tensors]
    for operator in reversed(graph.operators):  # operators are stored in the order of execution
        name = flatfile.builtin_name(model, operator)
        if name in _EXPANDING and operator.inputs.size and operator.outputs.size:
            expanded = reads[operator.outputs[0]] or {(OTHER, ())}
            reads[operator.inputs[0]] |= {(role, (name, *behind)[:2]) for role, behind in expanded}
            continue
        for position, index in enumerate(operator.inputs):
            if index >= 0:
                reads[index].add((_ROLES.get((name, position), OTHER), ()))
    return reads


def _constants(model: schema.ModelT, looped: set[int]) -> tuple[Constant, ...]:
    """All constants of a file; tensors and buffers that share data count as one."""
    places = collections.defaultdict(list)
    for g, graph in enumerate(model.subgraphs):
        for tensor, reads in zip(graph.tensors, _reads(model, graph), strict=True):
            data = _data(model, tensor.buffer)
            if data.size:
                place = data.__array_interface__["data"][0], data.size
                places[place].append((tensor, reads, g in looped and bool(reads)))
    constants: list[Constant] = []
    counted: set[tuple[int, int]] = set()
    for uses in sorted(places.values(), key=lambda uses: uses[0][0].buffer):
        copies = [tensor for tensor, _, _ in uses]
        reads = set().union(*(reads for _, reads, _ in uses))
        rank = len(stored.shape_of(copies[0]))
        roles = {OTHER if role == "table" and rank < 2 else role for role, _ in reads} or {OTHER}
        role = min(roles, key=_PRIORITY.index)
        constants.append(
            stored.describe(
                copies,
                _data(model, copies[0].buffer),
                role=role,
                behind=max((behind for read_as, behind in reads if read_as == role), key=len, default=()),
                in_loop=any(in_loop for _, _, in_loop in uses),
                counted=counted,
            )
        )
    return tuple(constants)


def _operators(model: schema.ModelT, looped: set[int]) -> tuple[Operator, ...]:
    counts: collections.Counter[int] = collections.Counter()
    in_loop: collections.Counter[int] = collections.Counter()
    for g, graph in enumerate(model.subgraphs):
        for operator in graph.operators:
            counts[operator.opcodeIndex] += 1
            in_loop[operator.opcodeIndex] += g in looped
    merged: dict[tuple[str, int], list[int]] = {}
    for index, code in enumerate(model.operatorCodes):
        name = flatfile.code_name(code)
        if name == "CUSTOM":
            name = f"CUSTOM {decoded_text(code.customCode)}"
        total = merged.setdefault((name, code.version), [0, 0])
        total[0] += counts[index]
        total[1] += in_loop[index]
    return tuple(Operator(*key, *total) for key, total in sorted(merged.items()))
