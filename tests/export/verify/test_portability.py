"""What is said of TFLite 2.16.1 for Android against its own library; LiteRT's part is in test_inspect."""

import numpy as np
import pytest
from ai_edge_litert import schema_py_generated as schema
from tfsparsecap_export.encode import encodings, sparse
from tfsparsecap_export.flatbuffer import model_file as flatfile
from tfsparsecap_export.verify.portability import newest_version

from ...runtimes import tflite_2_16
from ..flatbuffer.test_model_file import tiny_model

OPERATORS = {name: code for name, code in vars(schema.BuiltinOperator).items() if isinstance(code, int)}
INPUTS = {"x": np.random.default_rng(1).normal(size=(1, 64)).astype(np.float32)}


def written(tmp_path, model):
    path = tmp_path / "a.tflite"
    path.write_bytes(flatfile.write_model(model))
    return path


def naming(operators):
    """A product in a file that names other operators and versions, too: the library looks for them all."""
    model = tiny_model()
    for name, version in operators.items():
        flatfile.operator_code(model, OPERATORS[name], version)
    return model


def test_the_library_takes_every_operator_up_to_the_version_that_is_said(tmp_path):
    newest = {name: newest_version(name) for name in OPERATORS if name != "CUSTOM"}
    known = {name: version for name, version in newest.items() if version}
    assert len(known) > 150
    tflite_2_16.run(written(tmp_path, naming(known)), INPUTS)
    for name in newest:
        if newest[name] == 1 and len(name) % 4:
            continue  # of those with a single version a part will do
        with pytest.raises(tflite_2_16.RuntimeFailure, match=f"'{name}' version|out of range"):
            tflite_2_16.run(written(tmp_path, naming({name: newest[name] + 1})), INPUTS)


@pytest.mark.parametrize("xnnpack", [True, False])
@pytest.mark.parametrize(
    ("store", "block", "supported"),
    [
        (lambda w: encodings.sparse32(w, 1), 1, True),
        (lambda w: encodings.sparse32(w, 4), 4, True),
        (encodings.blocks_int8, 16, True),
        (lambda w: encodings.sparse32(w, 16), 16, False),
        (lambda w: encodings.sparse_int8(w, 1), 1, False),
        (lambda w: encodings.sparse_int8(w, 4), 4, False),
        (encodings.sparse16, 1, False),
    ],
)
@pytest.mark.parametrize("version", [8, 4])
def test_sparse_weights_are_right_where_no_warning_is_given(
    tmp_path, store, block, supported, version, xnnpack
):
    rng = np.random.default_rng(0)
    weights = rng.normal(size=(32, 64)).astype(np.float32)
    weights *= np.repeat(rng.random((32, 64 // block)) < 0.4, block, axis=1)
    model = tiny_model(weights)
    (weight,) = sparse.find_weights(model)
    sparse.rewrite(model, [sparse.Change(weight, sparse.CSR, store(weights))])
    for code in model.operatorCodes:
        code.version = version
    expected = INPUTS["x"] @ weights.T
    try:
        given = tflite_2_16.run(written(tmp_path, model), INPUTS, xnnpack=xnnpack)["y"]
    except tflite_2_16.RuntimeFailure:
        right = False
    else:
        right = bool(np.abs(given - expected).max() < 0.03 * np.abs(expected).max())
    if version == 8 or not supported:
        assert right == supported
    elif xnnpack and block < 16:
        assert not right  # LiteRT's XNNPACK gets the int8 blocks wrong, too; see test_inspect
