"""A file in a process of its own: memory, load time, and files that the runtime cannot run."""

import os
import sys

import numpy as np
import pytest
from tfsparsecap_export.encode import sparse
from tfsparsecap_export.flatbuffer import model_file as flatfile
from tfsparsecap_export.measure import one_operator
from tfsparsecap_export.verify import probe

from tfsparsecap.errors import InputError

SAMPLES = [{"input": np.ones((1, 1024), np.float32)}, {"input": np.zeros((1, 1024), np.float32)}]


def written(folder, content):
    path = folder / "a.tflite"
    path.write_bytes(content)
    return path


@pytest.fixture(scope="module")
def four_megabytes():
    matrix = one_operator.sparse_matrix(np.random.default_rng(0), 1024, 1024, 1.0)
    return one_operator.fully_connected([matrix], sparse.DENSE, 1)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="what a process grows by is Linux's to tell")
def test_memory_is_that_of_the_weights_and_their_packed_copy(tmp_path, four_megabytes):
    found = probe.probe(written(tmp_path, four_megabytes), SAMPLES)
    # 4 MiB in the file and 4 MiB as XNNPACK has them; the runtime's code and its graph are some megabytes.
    assert 8 << 20 < found.peak_bytes < 24 << 20
    assert found.load_ms > 0


def test_samples_come_through_as_they_are(tmp_path):
    (tmp_path / "keeps.py").write_text(
        "import os, shutil, sys\n"
        "shutil.copy(sys.argv[2], os.path.dirname(sys.argv[1]) + '/kept.npz')\n"
        "print(sys.argv[3:])\n"
    )
    given = [{"b/c": np.uint8([1, 2]), "a": np.float32([[0.5]])}] * 11 + [{"a": np.zeros((1, 0))}]
    assert _run("keeps", tmp_path, given) == []
    kept = probe.read_samples(str(tmp_path / "kept.npz"))
    assert len(kept) == 12
    for mine, theirs in zip(given, kept, strict=True):
        assert mine.keys() == theirs.keys()
        for name in mine:
            np.testing.assert_array_equal(mine[name], theirs[name], strict=True)


def test_a_file_that_the_runtime_refuses_is_said(tmp_path, four_megabytes):
    model = flatfile.read_model(four_megabytes)
    model.operatorCodes[0].builtinCode = flatfile.schema.BuiltinOperator.CUSTOM
    model.operatorCodes[0].deprecatedBuiltinCode = flatfile.schema.BuiltinOperator.CUSTOM
    model.operatorCodes[0].customCode = b"NoSuchOperation"
    path = written(tmp_path, flatfile.write_model(model))
    with pytest.raises(InputError, match=r"cannot load .*a\.tflite \(.*NoSuchOperation"):
        probe.probe(path, SAMPLES)


def test_a_crash_ends_the_other_process_only(tmp_path):
    (tmp_path / "crashes.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)\n")
    with pytest.raises(InputError, match=r"crashes on .*a\.tflite \(SIGSEGV\)"):
        _run("crashes", tmp_path, SAMPLES)


def test_a_bug_of_ours_is_no_input_error(tmp_path):
    (tmp_path / "raises.py").write_text("raise KeyError('a bug')\n")
    with pytest.raises(RuntimeError, match="a bug"):
        _run("raises", tmp_path, SAMPLES)


def _run(module, folder, samples):
    """Runs a module of a test's own as `in_own_process` does."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")]))
        return probe.in_own_process(module, folder / "a.tflite", samples)
