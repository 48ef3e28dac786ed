"""Writes files of weights: torch.save's, with pickles made instruction by instruction, and ONNX."""

import struct
import zipfile

import numpy as np

from tfsparsecap.core.weight_files.onnx_file import message_class
from tfsparsecap.core.weight_files.torch_archive import read_checkpoint


def text(value: str) -> bytes:
    return b"X" + struct.pack("<I", len(value.encode())) + value.encode()


def number(value: int) -> bytes:
    content = value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True)
    return b"\x8a" + bytes([len(content)]) + content


def numbers(values) -> bytes:
    return group(*map(number, values))


def group(*items: bytes) -> bytes:
    return b"(" + b"".join(items) + b"t"


def name(dotted: str) -> bytes:
    module, _, last = dotted.rpartition(".")
    return f"c{module}\n{last}\n".encode()


def call(dotted: str, *arguments: bytes) -> bytes:
    return name(dotted) + group(*arguments) + b"R"


def mapping(items: dict[str, bytes]) -> bytes:
    return b"}(" + b"".join(text(key) + value for key, value in items.items()) + b"u"


def storage(key: str, length: int, kind: str = "Float") -> bytes:
    return group(text("storage"), name(f"torch.{kind}Storage"), text(key), text("cpu"), number(length)) + b"Q"


def tensor(held: bytes, size, stride, offset=0, *more: bytes) -> bytes:
    hooks = call("collections.OrderedDict")
    place = [number(offset), numbers(size), numbers(stride)]
    return call("torch._utils._rebuild_tensor_v2", held, *place, b"\x89", hooks, *more)


def sparse(indices: bytes, values: bytes, size, layout="torch.sparse_coo") -> bytes:
    layout = call("torch.serialization._get_layout", text(layout))
    size = call("torch.Size", numbers(size))
    return call("torch._utils._rebuild_sparse_tensor", layout, group(indices, values, size))


def write(path, program: bytes, storages=None, method=zipfile.ZIP_STORED, **others: bytes):
    """Writes an archive in the layout of torch.save around any pickle."""
    with zipfile.ZipFile(path, "w", method) as file:
        file.writestr("archive/data.pkl", b"\x80\x02" + program + b".")
        for key, value in others.items():
            file.writestr(f"archive/{key.replace('_', '.')}", value)
        for key, value in (storages or {}).items():
            file.writestr(f"archive/data/{key}", value if isinstance(value, bytes) else value.tobytes())
    return path


def write_state_dict(path, arrays: dict[str, np.ndarray]):
    """Writes a checkpoint of float arrays; equal ones share a storage, like parameters used twice."""
    keys, entries, storages = {}, {}, {}
    for key, array in arrays.items():
        array = np.ascontiguousarray(array, "<f4")
        storage_key = keys.setdefault((array.shape, array.tobytes()), str(len(keys)))
        storages[storage_key] = array
        strides = [stride // array.itemsize for stride in array.strides]
        entries[key] = tensor(storage(storage_key, array.size), array.shape, strides)
    return write(path, mapping(entries), storages)


SIX = np.arange(6, dtype="<f4")
PLAIN = mapping({"w": tensor(storage("0", 6), (2, 3), (3, 1))})


def read(tmp_path, program, storages=None, **options):
    """The weights in a file with this pickle."""
    return read_checkpoint(write(tmp_path / "a.pth", program, {"0": SIX, **(storages or {})}, **options))


def coo(indices, values, size, **options) -> tuple[bytes, dict[str, np.ndarray]]:
    """The pickle and storages of a sparse tensor `w`."""
    indices, values = np.array(indices, "<i8"), np.array(values, "<f4")
    parts = [
        tensor(storage(key, array.size, kind), array.shape, [n // array.itemsize for n in array.strides])
        for key, kind, array in (("i", "Long", indices), ("v", "Float", values))
    ]
    return mapping({"w": sparse(*parts, size, **options)}), {"i": indices, "v": values}


def weight(size, stride, offset=0, length=6, key="0") -> bytes:
    return mapping({"core.w": tensor(storage(key, length), size, stride, offset)})


def write_legacy(path, arrays: dict[str, np.ndarray], magic=0x1950A86A20F9469CFC6C, count=None):
    """Writes a checkpoint of float arrays as PyTorch did before version 1.6; `count` is a wrong length."""
    entries, keys, content = {}, [], b""
    for place, (name_of, array) in enumerate(arrays.items()):
        array = np.ascontiguousarray(array, "<f4")
        keys.append(text(f"1{place}"))
        reference = [text("storage"), name("torch.FloatStorage"), keys[-1], text("cpu"), number(array.size)]
        strides = [stride // array.itemsize for stride in array.strides]
        entries[name_of] = tensor(group(*reference, b"N") + b"Q", array.shape, strides)
        content += struct.pack("<q", array.size if count is None else count) + array.tobytes()
    system = mapping({"protocol_version": number(1001), "little_endian": b"\x88"})
    pickles = [number(magic), number(1001), system, mapping(entries), b"](" + b"".join(keys) + b"e"]
    path.write_bytes(b"".join(b"\x80\x02" + program + b"." for program in pickles) + content)
    return path


def write_onnx(path, tensors, nodes):
    """Writes an ONNX file of tensors, by name, and of nodes: operator, name and names of its inputs."""
    model = message_class("Model")()
    for key, values in tensors.items():
        entry = model.graph.initializer.add(name=key, dims=values.shape)
        entry.data_type = {"float32": 1, "float16": 10, "int64": 7}[values.dtype.name]
        entry.raw_data = values.tobytes()
    for kind, title, inputs in nodes:
        model.graph.node.add(op_type=kind, name=title, input=inputs)
    path.write_bytes(model.SerializeToString())
    return path
