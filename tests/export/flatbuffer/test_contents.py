"""What is read from files, compared with the exporter and the runtime; damaged and hostile files."""

import io
import re
import zipfile

import pytest
from ai_edge_litert.interpreter import Interpreter
from tfsparsecap_export import FORMATS
from tfsparsecap_export.encode import encodings, sparse
from tfsparsecap_export.flatbuffer import model_file as flatfile
from tfsparsecap_export.flatbuffer.contents import read_contents
from tfsparsecap_export.verify.portability import warnings

from tfsparsecap.errors import InputError

from ..conftest import sparse_weights
from .test_model_file import tiny_model

DESCRIPTION = {"format_version": 1, "join": "words", "special_ids": {"end": 2}, "input": "image"}


def bundle(model, members, method=zipfile.ZIP_STORED):
    """A file with associated files."""
    content = io.BytesIO(model)
    content.seek(0, io.SEEK_END)
    with zipfile.ZipFile(content, "a", method) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return content.getvalue()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("pattern", "format"), [*(("blocks", format) for format in FORMATS), ("unstructured", "fast")]
)
def test_layers_are_those_of_the_export_report(exported, pattern, format):
    path, report = exported(pattern, format)
    contents = read_contents(path)
    for layer, same in zip(report.layers, contents.layers, strict=True):
        assert (same.role, same.bytes) == (layer.role, layer.bytes), layer
        # For tables the report does not name the blocks.
        assert re.fullmatch(re.escape(layer.encoding) + "( 1x4| 1x16| per channel)?", same.stored), layer
        # The report names the shape without padding, and counts weights that int8 rounds to zero.
        assert same.shape[:-1] == layer.shape[:-1] and same.shape[-1] >= layer.shape[-1], layer
        assert 0.95 * layer.nonzeros <= same.nonzeros <= layer.nonzeros, layer
        once = any(part in layer.name for part in ("initial_", "attention_features", "convolution"))
        assert same.in_loop != once, layer
    assert sum(contents.parts.values()) == path.stat().st_size
    assert warnings(contents) == []


def test_names_take_the_bytes_that_a_file_without_them_saves(written):
    def parts(names):
        model = tiny_model()
        for tensor, name in zip(model.subgraphs[0].tensors, names, strict=True):
            tensor.name = name
        path = written(flatfile.write_model(model))
        return path.stat().st_size, read_contents(path).parts["names"]

    long, short = parts([b"a" * 400, b"b" * 402, b"b" * 402]), parts([b"", b"", b""])
    assert long[1] == (4 + 404) * 2 and short[1] == 4 + 4
    assert long[0] - short[0] == pytest.approx(long[1] - short[1], abs=16)  # constants are aligned


@pytest.mark.slow
def test_signatures_are_those_of_the_runtime(exported):
    path, _ = exported("blocks", "auto")
    contents = read_contents(path)
    assert Interpreter(str(path)).get_signature_list() == {
        signature.name: {
            "inputs": [value.name for value in signature.inputs],
            "outputs": [value.name for value in signature.outputs],
        }
        for signature in contents.signatures
    }


@pytest.mark.parametrize("encoding", [encodings.CSR, encodings.BLOCK16])
def test_constants_that_subgraphs_share_count_once(written, encoding):
    def layers(functions):
        model = tiny_model()
        for _ in range(functions - 1):
            model.subgraphs += tiny_model().subgraphs
        (weight,) = sparse.find_weights(model)
        assert len(weight.uses) == functions
        sparse.rewrite(model, [sparse.change(weight, encoding, sparse_weights(16))])
        path = written(flatfile.write_model(model))
        contents = read_contents(path)
        assert sum(contents.parts.values()) == path.stat().st_size
        return contents.layers

    assert layers(3) == layers(1)


def test_constants_inside_a_loop_and_in_subgraphs_it_calls_are_marked(exported):
    contents = read_contents(exported("blocks", "dense")[0])
    in_loop = {layer.shape for layer in contents.layers if layer.in_loop}
    assert (256, 160) in in_loop and (80, 64) in in_loop and (64, 64) not in in_loop
    (loop,) = [operator for operator in contents.operators if operator.name == "WHILE"]
    assert (loop.count, loop.in_loop) == (1, 0)


def test_a_truncated_bundle_is_an_input_error(exported, written):
    content = exported("blocks", "auto")[0].read_bytes()
    for cut in (1, 21, 30, 100, 500):
        with pytest.raises(InputError, match=r"a\.tflite is damaged: its associated files"):
            read_contents(written(content[:-cut]))
