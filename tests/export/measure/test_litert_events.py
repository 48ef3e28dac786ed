"""LiteRT's own profiler, through its C library in a process of its own."""

import os

import numpy as np
import pytest
from tfsparsecap_export.encode import sparse
from tfsparsecap_export.measure import one_operator
from tfsparsecap_export.verify import probe

from tfsparsecap.errors import InputError


def events(path, samples, runs):
    return probe.in_own_process("tfsparsecap_export.measure.litert_events", path, samples, 1, runs)


def test_each_run_of_each_operation_is_an_event(tmp_path):
    rng = np.random.default_rng(0)
    matrices = [one_operator.sparse_matrix(rng, 512, 512, 0.3) for _ in range(3)]
    path = tmp_path / "a.tflite"
    path.write_bytes(one_operator.fully_connected(matrices, sparse.CSR, 8))
    runs = events(path, [{"input": np.ones((8, 512), np.float32)}], 4)
    assert len(runs) == 4
    for run in runs:
        operations = [event for event in run if event[1] == 2]
        assert [event[0] for event in operations] == ["FULLY_CONNECTED"] * 3
        assert [event[4:] for event in operations] == [[0, 0], [1, 0], [2, 0]], "index and subgraph"
        (whole,) = [event for event in run if event[0] == "Invoke" and event[1] == 1]
        assert 0 < sum(event[3] for event in operations) <= whole[3]
        assert all(whole[2] <= event[2] <= whole[2] + whole[3] for event in operations)


def test_the_library_says_what_the_python_interpreter_says(tmp_path, exported, pictures, interpreter):
    path, _ = exported("blocks", "auto")
    module = tmp_path / "gives_outputs.py"
    module.write_text(
        "import ctypes, json, sys\n"
        "sys.orig_argv = ['python', '-m', 'tfsparsecap_export']  # which does not start Keras\n"
        "from tfsparsecap_export.verify import probe\n"
        "from tfsparsecap_export.measure import litert_events\n"
        "model, found = litert_events.ProfiledModel(sys.argv[1], 1), []\n"
        "for sample in probe.read_samples(sys.argv[2]):\n"
        "    model.run(sample)\n"
        "    scores, address = ctypes.c_void_p(model._outputs[0]), ctypes.c_void_p()\n"
        "    model._call('LiteRtLockTensorBuffer', scores, ctypes.byref(address), 0)\n"
        "    found.append(list((ctypes.c_float * 3).from_address(address.value)))\n"
        "    model._call('LiteRtUnlockTensorBuffer', scores)\n"
        "json.dump(found, sys.stdout)\n"
    )
    monkeypatch = pytest.MonkeyPatch()
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")]))
    scores = probe.in_own_process("gives_outputs", path, [{"image": picture[None]} for picture in pictures])
    monkeypatch.undo()
    run = interpreter(path.read_bytes())
    np.testing.assert_allclose(
        scores, [run(image=picture[None])["scores"] for picture in pictures], rtol=1e-5
    )


def test_what_is_no_file_is_said(tmp_path):
    path = tmp_path / "a.tflite"
    path.write_bytes(b"\x1c\x00\x00\x00TFL3" + bytes(100))
    with pytest.raises(InputError, match=r"the runtime (cannot load|crashes on) .*a\.tflite"):
        events(path, [{"input": np.ones((1, 4), np.float32)}], 1)
