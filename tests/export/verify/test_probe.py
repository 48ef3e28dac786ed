"""A file in a separate process: memory, load time, and files that the runtime cannot run."""

import sys

import numpy as np
import pytest
from tfsparsecap_export.encode import encodings
from tfsparsecap_export.flatbuffer import model_file as flatfile
from tfsparsecap_export.verify import probe

from benchmarks import one_layer
from tfsparsecap.errors import InputError


@pytest.fixture(scope="module")
def four_megabytes():
    matrix = one_layer.sparse_matrix(np.random.default_rng(0), 1024, 1024, 1.0)
    return one_layer.fully_connected([matrix], encodings.DENSE, 1)


@pytest.fixture
def path(tmp_path, four_megabytes):
    (tmp_path / "a.tflite").write_bytes(four_megabytes)
    return tmp_path / "a.tflite"


@pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="other systems do not report memory like this"
)
def test_memory_is_that_of_the_weights_and_their_packed_copy(path):
    result = probe.probe(path)
    # 4 MiB in the file and 4 MiB packed by XNNPACK; the runtime's code and its graph are some megabytes.
    assert 8 << 20 < result.peak_bytes < 24 << 20
    assert result.load_ms > 0


def test_a_file_that_the_runtime_does_not_load_is_an_input_error(path, four_megabytes):
    model = flatfile.read_model(four_megabytes)
    model.operatorCodes[0].builtinCode = flatfile.schema.BuiltinOperator.CUSTOM
    model.operatorCodes[0].deprecatedBuiltinCode = flatfile.schema.BuiltinOperator.CUSTOM
    model.operatorCodes[0].customCode = b"NoSuchOperation"
    path.write_bytes(flatfile.write_model(model))
    with pytest.raises(InputError, match=r"cannot load .*a\.tflite \(.*NoSuchOperation"):
        probe.probe(path)


@pytest.mark.parametrize(
    ("program", "error", "message"),
    [
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", InputError, r"crashes on .* \(SIGSEGV\)"),
        ("raise KeyError('a bug')", RuntimeError, "a bug"),
    ],
)
def test_a_crash_is_an_input_error_and_a_bug_is_not(path, monkeypatch, program, error, message):
    monkeypatch.setattr(probe, "_COMMAND", (sys.executable, "-c", program))
    with pytest.raises(error, match=message):
        probe.probe(path)
