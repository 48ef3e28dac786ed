"""A file in a separate process: memory, load time, and files that the runtime cannot run."""

import json
import sys

import numpy as np
import pytest
from tfsparsecap_export.encode import encodings
from tfsparsecap_export.flatbuffer import model_file as flatfile
from tfsparsecap_export.measure import one_operator
from tfsparsecap_export.verify import probe

from tfsparsecap.errors import InputError

SAMPLES = [{"input": np.ones((1, 1024), np.float32)}, {"input": np.zeros((1, 1024), np.float32)}]


@pytest.fixture(scope="module")
def four_megabytes():
    matrix = one_operator.sparse_matrix(np.random.default_rng(0), 1024, 1024, 1.0)
    return one_operator.fully_connected([matrix], encodings.DENSE, 1)


@pytest.fixture
def path(tmp_path, four_megabytes):
    (tmp_path / "a.tflite").write_bytes(four_megabytes)
    return tmp_path / "a.tflite"


@pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="other systems do not report memory like this"
)
def test_memory_is_that_of_the_weights_and_their_packed_copy(path):
    found = probe.probe(path, SAMPLES)
    # 4 MiB in the file and 4 MiB packed by XNNPACK; the runtime's code and its graph are some megabytes.
    assert 8 << 20 < found.peak_bytes < 24 << 20
    assert found.load_ms > 0


def test_the_process_gets_the_same_samples(path, monkeypatch):
    given = [{"b/c": np.uint8([1, 2]), "a": np.float32([[0.5]])}] * 11 + [{"a": np.zeros((1, 0))}]
    received = []

    def run(command, **options):
        received.extend(probe._read_samples(command[-2]))
        return probe.subprocess.CompletedProcess(command, 0, json.dumps({"peak_bytes": 1, "load_ms": 2.0}))

    monkeypatch.setattr(probe.subprocess, "run", run)
    assert probe.probe(path, given) == probe.Probe(1, 2.0)
    assert len(received) == 12
    for mine, theirs in zip(given, received, strict=True):
        assert mine.keys() == theirs.keys()
        for name in mine:
            np.testing.assert_array_equal(mine[name], theirs[name], strict=True)


def test_a_file_that_the_runtime_does_not_load_is_an_input_error(path, four_megabytes):
    model = flatfile.read_model(four_megabytes)
    model.operatorCodes[0].builtinCode = flatfile.schema.BuiltinOperator.CUSTOM
    model.operatorCodes[0].deprecatedBuiltinCode = flatfile.schema.BuiltinOperator.CUSTOM
    model.operatorCodes[0].customCode = b"NoSuchOperation"
    path.write_bytes(flatfile.write_model(model))
    with pytest.raises(InputError, match=r"cannot load .*a\.tflite \(.*NoSuchOperation"):
        probe.probe(path, SAMPLES)


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
        probe.probe(path, SAMPLES)
