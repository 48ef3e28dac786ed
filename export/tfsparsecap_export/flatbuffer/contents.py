"""What a .tflite file holds, ours or anybody's, read without running it."""

import collections
import dataclasses
import json
import os
import zipfile
from pathlib import Path

import numpy as np

from tfsparsecap.errors import InputError
from tfsparsecap.inference.bundle import ARCHIVE_DAMAGE, DESCRIPTION, open_archive, read_bundle
from tfsparsecap_export.flatbuffer import model_file as flatfile
from tfsparsecap_export.flatbuffer import stored
from tfsparsecap_export.flatbuffer.model_file import schema
from tfsparsecap_export.flatbuffer.stored import CONVOLUTION, FULLY_CONNECTED, OTHER, Constant, readable

#: What each operator does with the constant at a position among its inputs, the first being the one that
#: names a constant with several.
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
#: Operators that only turn a stored constant into what others read.
EXPANDING = ("DENSIFY", "DEQUANTIZE")
_TENSOR_TYPES = {
    value: name.lower() for name, value in vars(schema.TensorType).items() if isinstance(value, int)
}
#: What the bytes of layers are.
_LAYER_PARTS = {"layers": "value_bytes", "their indices": "index_bytes", "their scales": "scale_bytes"}
_ARCHIVE, _LOCAL_FILE = "its associated files", b"PK\x03\x04"


@dataclasses.dataclass(frozen=True)
class Value:
    """An input or output: its name, its shape (-1 where any size is taken) and its type."""

    name: str
    shape: tuple[int, ...]
    dtype: str

    def __str__(self) -> str:
        return f"{self.name} {self.dtype} [{', '.join('any' if n < 0 else str(n) for n in self.shape)}]"


@dataclasses.dataclass(frozen=True)
class Signature:
    """A function of the file; without a name where the file has no signatures but its main graph."""

    name: str
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]


@dataclasses.dataclass(frozen=True)
class Operator:
    """An operator in one of its versions: how often it is in the graph, and how often of that in a loop."""

    name: str
    version: int
    count: int
    in_loop: int


@dataclasses.dataclass(frozen=True)
class Part:
    """A piece of the file and its bytes."""

    name: str
    bytes: int


@dataclasses.dataclass(frozen=True)
class Contents:
    """What `read_contents` found.

    Attributes:
        path: the file.
        bytes: its size.
        description: the content of `captioner.json`, None where the file is no bundle of this package.
        vocabulary: the tokens in the order of their ids; none where it is not in the file.
        signatures: the functions that a program can call.
        constants: every constant with its role, in the order of the file's buffers; each once.
        parts: what the bytes of the file are, adding up to all of them.
        files: associated files with their sizes in the file.
        metadata: names and sizes of what the converter or others left in the graph.
        operators: what the graph is made of, and operator codes that nothing uses (count 0).
        model: the schema's objects, for a closer look.
    """

    path: Path
    bytes: int
    description: dict | None
    vocabulary: tuple[str, ...]
    signatures: tuple[Signature, ...]
    constants: tuple[Constant, ...]
    parts: tuple[Part, ...]
    files: tuple[Part, ...]
    metadata: tuple[Part, ...]
    operators: tuple[Operator, ...]
    model: schema.ModelT = dataclasses.field(repr=False, compare=False)

    @property
    def layers(self) -> tuple[Constant, ...]:
        """The constants that multiply, convolve or are looked up: not the biases, shapes and the like."""
        return tuple(constant for constant in self.constants if constant.role != OTHER)


def read_contents(path: str | os.PathLike) -> Contents:
    """What a .tflite file holds. Nothing in it is run, and constants are not copied.

    Raises:
        InputError: the file is absent, is no .tflite file, or is damaged, in its graph or in its associated
            files.

    Example:
        >>> contents = read_contents("scenes.tflite")
        >>> {layer.stored for layer in contents.layers if layer.role == "fully connected"}
        {'int8 1x16'}
    """
    path = Path(path)
    content = flatfile.map_file(path)
    model = flatfile.read_model(content, str(path))
    files, archive_bytes, description, vocabulary = _associated(path, content)
    looped = _looped(model)
    try:
        constants = _constants(model, looped)
    except (ValueError, TypeError, OverflowError) as error:
        raise InputError(f"{path} is a damaged .tflite file ({error}): export it again") from error
    metadata = tuple(
        Part(readable(entry.name), len(_data(model, entry.buffer))) for entry in model.metadata or []
    )
    known = {
        **{
            name: sum(getattr(constant, size) for constant in constants if constant.role != OTHER)
            for name, size in _LAYER_PARTS.items()
        },
        "other constants": sum(constant.bytes for constant in constants if constant.role == OTHER),
        "metadata": sum(part.bytes for part in metadata),
        "associated files": archive_bytes,
    }
    parts = {**known, "graph": max(0, len(content) - sum(known.values()))}
    return Contents(
        path=path,
        bytes=len(content),
        description=description,
        vocabulary=tuple(vocabulary),
        signatures=_signatures(model),
        constants=constants,
        parts=tuple(Part(name, size) for name, size in parts.items()),
        files=files,
        metadata=metadata,
        operators=_operators(model, looped),
        model=model,
    )


def _associated(path: Path, content) -> tuple[tuple[Part, ...], int, dict | None, list[str]]:
    """The files behind the graph, the bytes of all that, and what a bundle of ours has in them."""
    end = flatfile.flatbuffer_end(content)
    try:
        with path.open("rb") as file:
            if not zipfile.is_zipfile(file):
                if content.find(_LOCAL_FILE, end) >= 0:
                    raise zipfile.BadZipFile("no directory at the end")
                return (), 0, None, []
            with open_archive(file) as archive:
                members = archive.infolist()
    except (OSError, *ARCHIVE_DAMAGE) as error:
        raise InputError(
            f"{path} is damaged: {_ARCHIVE} cannot be read ({error}, cut short?); export it again"
        ) from error
    start = min((member.header_offset for member in members), default=len(content))
    if not end <= start <= len(content):
        raise InputError(f"{path} is damaged: {_ARCHIVE} lie inside its graph; export it again")
    files = tuple(Part(readable(member.filename), member.compress_size) for member in members)
    if DESCRIPTION not in (member.filename for member in members):
        return files, len(content) - start, None, []
    description, vocabulary = read_bundle(path)
    return files, len(content) - start, _plain(description, path), vocabulary


def _plain(description: dict, path: Path) -> dict:
    """A description that can be printed as JSON again, inside of something larger: NaN becomes null."""
    try:
        return json.loads(json.dumps([[[[description]]]]), parse_constant=lambda _: None)[0][0][0][0]
    except RecursionError as error:
        raise InputError(f"{DESCRIPTION} in {path} is nested too deeply: export the run again") from error


def _data(model: schema.ModelT, buffer: int) -> np.ndarray:
    """The bytes of a buffer, none where it has no data."""
    data = model.buffers[buffer].data
    return np.empty(0, np.uint8) if data is None else data


def _looped(model: schema.ModelT) -> set[int]:
    """Subgraphs that run more than once: what a WHILE runs, and what that runs in turn."""
    calls = [
        [
            (flatfile.builtin_name(model, operator), flatfile.called_subgraphs(operator))
            for operator in graph.operators
        ]
        for graph in model.subgraphs
    ]
    waiting = [g for graph in calls for name, called in graph if "WHILE" in name for g in called]
    looped: set[int] = set()
    while waiting:
        graph = waiting.pop()
        if graph not in looped:
            looped.add(graph)
            waiting.extend(g for _, called in calls[graph] for g in called)
    return looped


def _reads(model: schema.ModelT, graph: schema.SubGraphT) -> list[set[tuple[str, tuple[str, ...]]]]:
    """For each tensor the roles in which it is read, and the operators that expand it on the way there."""
    reads: list[set[tuple[str, tuple[str, ...]]]] = [set() for _ in graph.tensors]
    for operator in reversed(graph.operators):  # they stand in the order in which they run
        name = flatfile.builtin_name(model, operator)
        if name in EXPANDING and operator.inputs.size and operator.outputs.size:
            behind = reads[operator.outputs[0]] or {(OTHER, ())}
            reads[operator.inputs[0]] |= {(role, (name, *through)[:2]) for role, through in behind}
            continue
        for position, index in enumerate(operator.inputs):
            if index >= 0:
                reads[index].add((_ROLES.get((name, position), OTHER), ()))
    return reads


def _constants(model: schema.ModelT, looped: set[int]) -> tuple[Constant, ...]:
    """Every constant of the file; what several tensors or buffers share is one."""
    places = collections.defaultdict(list)
    for g, graph in enumerate(model.subgraphs):
        reads = _reads(model, graph)
        for tensor, read in zip(graph.tensors, reads, strict=True):
            data = _data(model, tensor.buffer)
            if data.size:
                where = data.__array_interface__["data"][0], data.size
                places[where].append((tensor, read, g in looped and bool(read)))
    constants, counted = [], set()
    for copies in sorted(places.values(), key=lambda copies: copies[0][0].buffer):
        tensor = copies[0][0]
        reads = set().union(*(read for _, read, _ in copies))
        shape = stored.shape_of(tensor)
        roles = {OTHER if role == "table" and len(shape) < 2 else role for role, _ in reads} or {OTHER}
        role = min(roles, key=_PRIORITY.index)
        constants.append(
            stored.describe(
                [copy for copy, _, _ in copies],
                _data(model, tensor.buffer),
                dtype=_TENSOR_TYPES.get(tensor.type, f"type {tensor.type}"),
                role=role,
                through=max((how for as_role, how in reads if as_role == role), key=len, default=()),
                in_loop=any(loop for _, _, loop in copies),
                counted=counted,
            )
        )
    return tuple(constants)


def _operators(model: schema.ModelT, looped: set[int]) -> tuple[Operator, ...]:
    counts = collections.Counter()
    in_loop = collections.Counter()
    for g, graph in enumerate(model.subgraphs):
        for operator in graph.operators:
            counts[operator.opcodeIndex] += 1
            in_loop[operator.opcodeIndex] += g in looped
    merged: dict[tuple[str, int], list[int]] = {}
    for index, code in enumerate(model.operatorCodes):
        name = flatfile.code_name(code)
        if name == "CUSTOM":
            name = f"CUSTOM {readable(code.customCode)}"
        total = merged.setdefault((name, code.version), [0, 0])
        total[0] += counts[index]
        total[1] += in_loop[index]
    return tuple(Operator(*key, *total) for key, total in sorted(merged.items()))


def _signatures(model: schema.ModelT) -> tuple[Signature, ...]:
    def value(graph, index, name=None):
        tensor = graph.tensors[index]
        shape = tensor.shape if tensor.shapeSignature is None else tensor.shapeSignature
        return Value(
            readable(tensor.name if name is None else name),
            () if shape is None else tuple(int(size) for size in shape),
            _TENSOR_TYPES.get(tensor.type, f"type {tensor.type}"),
        )

    found = []
    for signature in model.signatureDefs or []:
        graph = model.subgraphs[signature.subgraphIndex]
        inputs, outputs = (
            tuple(value(graph, entry.tensorIndex, entry.name) for entry in entries or [])
            for entries in (signature.inputs, signature.outputs)
        )
        found.append(Signature(readable(signature.signatureKey), inputs, outputs))
    if not found:
        graph = model.subgraphs[0]
        inputs, outputs = (
            tuple(value(graph, i) for i in indices) for indices in (graph.inputs, graph.outputs)
        )
        found.append(Signature("", inputs, outputs))
    return tuple(found)
