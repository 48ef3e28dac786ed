"""python -m tfsparsecap_export.inspect: tables, JSON, and damaged or hostile files."""

import json
import subprocess
import sys
import zipfile

import numpy as np
import pytest
from tfsparsecap_export import inspect

from .flatbuffer.test_contents import DESCRIPTION, bundle


def test_tables_show_description_vocabulary_signature_and_layers(exported, capsys):
    path, _ = exported("blocks", "auto")
    assert inspect.main([str(path)]) == 0
    text = " ".join(capsys.readouterr().out.split())
    for expected in (
        "signature caption inputs image uint8 [1, 16, 16, 3]",
        "token_ids int32 [3, 6]",
        "model SoftAttention",
        "80 tokens: <pad> <start> <end> <unk> word0",
        "max length 6",
        "int8 1x16",
        "float16 (DEQUANTIZE)",
        "associated files: captioner.json, vocabulary.txt",
        "FULLY_CONNECTED v8 (6, 3 in a loop)",
        "WHILE v1 (1)",
        "No known problems on TFLite 2.16.1",
    ):
        assert expected in text


def test_json_has_all_values(exported, capsys):
    path, report = exported("blocks", "int8")
    assert inspect.main([str(path), "--json"]) == 0
    (result,) = json.loads(capsys.readouterr().out)
    assert result["bytes"] == report.bytes == sum(result["parts"].values())
    assert result["description"]["verification"]["samples"] == 6
    (signature,) = result["signatures"]
    assert signature["inputs"] == [{"name": "image", "shape": [1, 16, 16, 3], "dtype": "uint8"}]
    assert result["total"]["bytes"] == sum(layer["bytes"] for layer in result["layers"])
    assert {"FULLY_CONNECTED", "WHILE"} <= {operator["name"] for operator in result["operators"]}
    for layer in result["layers"]:
        assert layer["bytes"] == layer["value_bytes"] + layer["index_bytes"] + layer["scale_bytes"]
        assert layer["weights"] == np.prod(layer["shape"])
        assert layer["sparsity"] == pytest.approx(1 - layer["nonzeros"] / layer["weights"])
        assert {"name", "role", "dtype", "stored", "behind", "sparse", "block", "in_loop"} <= layer.keys()


def test_the_command_starts_without_tensorflow(exported):
    path, _ = exported("blocks", "auto")
    code = (
        "import sys; sys.argv[0] = 'tfsparsecap-export'; from tfsparsecap_export import inspect;"
        f" inspect.main([{str(path)!r}, '--json']);"
        " assert not {'tensorflow', 'keras'} & set(sys.modules)"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert json.loads(result.stdout)[0]["path"] == str(path)


def test_an_unreadable_file_is_reported_and_the_others_are_shown(converted, written, tmp_path, capsys):
    good, absent = written(converted["float16"]), tmp_path / "absent.tflite"
    assert inspect.main([str(absent), str(good)]) == 2
    printed = capsys.readouterr()
    assert printed.err.startswith(f"error: cannot read {absent}") and printed.err.count("\n") == 1
    assert "float16 (DEQUANTIZE)" in printed.out
    assert inspect.main([str(absent), str(good), "--json"]) == 2
    first, second = json.loads(capsys.readouterr().out)
    assert "cannot read" in first["error"] and second["layers"]


@pytest.mark.parametrize(
    ("members", "message"),
    [
        ({"captioner.json": "[1, 2]"}, "no format version"),
        ({"captioner.json": "{"}, "readable captioner.json"),
        ({"captioner.json": "[" * 100_000}, "readable captioner.json"),
        ({"captioner.json": json.dumps(DESCRIPTION), "vocabulary.txt": b"a\xff\n"}, "UTF-8"),
        ({"captioner.json": b" " * (5 << 20)}, "larger than 4 MB"),
    ],
)
def test_hostile_associated_files_are_reported(converted, written, capsys, members, message):
    path = written(bundle(converted["float32"], members, zipfile.ZIP_DEFLATED))
    assert inspect.main([str(path)]) == 2
    assert message in " ".join(capsys.readouterr().err.split())


def test_control_characters_in_a_file_do_not_reach_the_terminal(converted, written, capsys):
    hostile = "\x1b[2J[/bold][red]\ud800"
    description = {
        **DESCRIPTION,
        "model": hostile,
        "trained_on": {"\x1b[1m": [hostile] * 9},
        "scores": {"CIDEr": 0.616},
        "run": float("nan"),
    }
    members = {"captioner.json": json.dumps(description), "vocabulary.txt": "<pad>\n\x1b]0;owned\x07\n[/]\n"}
    path = written(bundle(converted["float32"], members))
    assert inspect.main([str(path)]) == 0
    printed = capsys.readouterr().out
    assert "\x1b" not in printed and "scores of the Keras model  CIDEr 0.616" in printed
    assert inspect.main([str(path), "--json"]) == 0
    (result,) = json.loads(capsys.readouterr().out, parse_constant=pytest.fail)
    assert result["description"]["model"] == hostile


def test_captioners_of_the_package_have_names(capsys):
    assert inspect.main(["small", "--json"]) == 0
    (result,) = json.loads(capsys.readouterr().out)
    assert result["path"].endswith("small.tflite") and not result["warnings"]


def test_a_deeply_nested_description_is_shown_or_reported(converted, written, capsys):
    for depth in (100, 985):
        scores = '{"a":' * depth + "1" + "}" * depth
        nested = json.dumps({**DESCRIPTION, "scores": None}).replace("null", scores)
        path = written(bundle(converted["float32"], {"captioner.json": nested}))
        assert inspect.main([str(path)]) in (0, 2)
        assert inspect.main([str(path), "--json"]) in (0, 2)
        capsys.readouterr()
