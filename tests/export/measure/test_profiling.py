"""Operations and layers of a file are told apart, against what is in the file. No time is compared."""

import keras
import numpy as np
import pytest
from tfsparsecap_export.convert import graph
from tfsparsecap_export.encode import sparse
from tfsparsecap_export.flatbuffer import model_file as flatfile
from tfsparsecap_export.measure import one_operator, profiling
from tfsparsecap_export.measure.profiling import TFLITE, XNNPACK

from tfsparsecap.errors import InputError

from ..conftest import LAYER_ENCODINGS, MAX_LENGTH

CALL, OPERATION, DELEGATED = 1, 2, 8


def a_matrix(encoding, count=1, rows=1):
    matrices = [one_operator.sparse_matrix(np.random.default_rng(0), 32, 64, 0.3, 16)] * count
    return flatfile.read_model(one_operator.fully_connected(matrices, encoding, rows))


@pytest.mark.parametrize("encoding", [sparse.DENSE, *LAYER_ENCODINGS])
def test_how_a_layer_is_stored_is_told(encoding):
    layers = profiling._Layers(a_matrix(encoding))
    ((name, shape, told),) = layers.described.values()
    assert (name, shape, told) == ("tensor1", (32, 64), encoding)


def test_events_are_added_up_by_layer_and_a_median_is_taken():
    model = a_matrix(sparse.CSR, count=2)
    events = [["Invoke", CALL, 100, 50, 0, 0], ["FULLY_CONNECTED", OPERATION, 101, 10, 0, 0]]
    events += [["FULLY_CONNECTED", OPERATION, 112, 30, 1, 0], ["RESHAPE", OPERATION, 143, 1, 2, 0]]
    disturbed = [[*event[:3], 1000, *event[4:]] for event in events]
    found = profiling.summarise(model, [events, disturbed, events])
    assert [(o.name, o.layer, o.ms) for o in found.operations] == [
        ("FULLY_CONNECTED", "tensor2", 0.03),
        ("FULLY_CONNECTED", "tensor1", 0.01),
        ("RESHAPE", None, 0.001),
    ]
    assert found.ms == pytest.approx(0.041) and found.around_ms == pytest.approx(0.009)
    assert sum(o.share for o in found.operations) == pytest.approx(1)
    assert all(o.calls == 1 and o.kernel == TFLITE and not o.in_loop for o in found.operations)


def test_a_layer_that_the_delegate_runs_is_told_only_where_the_order_is_known():
    model = a_matrix(sparse.DENSE, count=2)
    invoke = ["Invoke", CALL, 100, 50, 0, 0]
    layer = ["Fully Connected (NC, F32) GEMM", DELEGATED, 0, 10, 0, 0]
    found = profiling.summarise(model, [[invoke, layer, [*layer[:4], 1, 0]]])
    assert [o.layer for o in found.operations] == ["tensor1", "tensor2"]
    # One more than the file has: which is which is anybody's guess.
    found = profiling.summarise(model, [[invoke, layer, layer, layer]])
    assert [(o.layer, o.calls) for o in found.operations] == [(None, 3)]


def test_layers_of_both_kernels_are_told_apart_on_the_runtime(tmp_path):
    rng = np.random.default_rng(0)
    inputs = keras.Input((64,))
    x = keras.layers.Dense(96, use_bias=False)(inputs)
    x = keras.layers.Dense(80, use_bias=False, name="sparse")(x)
    model = keras.Model(inputs, keras.layers.Dense(48, use_bias=False)(keras.ops.tanh(x)))
    kernel = model.get_layer("sparse").kernel
    kernel.assign(np.asarray(kernel) * (rng.random(kernel.shape) < 0.1))
    dense = flatfile.read_model(graph.model_graph(model))
    (weight,) = [w for w in sparse.find_weights(dense) if w.shape == (80, 96)]
    encoded = sparse.encode(sparse.CSR, weight.values, weight.role)
    sparse.rewrite(dense, [sparse.Change(weight, sparse.CSR, encoded)])
    path = tmp_path / "a.tflite"
    path.write_bytes(flatfile.write_model(dense))
    name = next(iter(flatfile.read_model(path.read_bytes()).signatureDefs[0].inputs)).name.decode()
    found = profiling.profile(path, [{name: np.ones((1, 64), np.float32)}], runs=3)
    layers = {(o.kernel, o.shape, o.encoding, o.calls) for o in found.operations if o.shape}
    assert layers == {
        (XNNPACK, (96, 64), sparse.DENSE, 1),
        (TFLITE, (80, 96), sparse.CSR, 1),
        (XNNPACK, (48, 80), sparse.DENSE, 1),
    }
    assert any(o.name.startswith("TanH") and o.kernel == XNNPACK for o in found.operations)


@pytest.mark.parametrize("format", ["dense", "auto"])
def test_a_captioners_layers_run_once_a_word_or_once(exported, pictures, format):
    path, _ = exported("blocks", format)
    found = profiling.profile(path, [{"image": pictures[0][None]}], runs=2)
    layers = {o.shape: o for o in found.operations if o.shape}
    # At each word, one looks for the best words of each beam, and one for the best beams.
    words = sum(o.calls for o in found.operations if o.name == "TOPK_V2") / 2
    assert 1 < words <= MAX_LENGTH
    # LSTM of 64 units on words of 32 and features of 64; attention of 48; 80 words.
    assert layers[256, 160].in_loop and layers[256, 160].calls == words
    assert layers[80, 64].in_loop and layers[80, 64].calls == words
    assert layers[256, 160].encoding == (sparse.DENSE if format == "dense" else sparse.BLOCK16)
    assert layers[256, 160].kernel == (XNNPACK if format == "dense" else TFLITE)
    once = [o for o in found.operations if o.shape == (64, 64)]
    assert once and not any(o.in_loop for o in once) and all(o.calls == 1 for o in once)
    assert not any(o.name == "WHILE" for o in found.operations)


def test_a_profiler_that_fails_is_said(tmp_path, monkeypatch):
    path = tmp_path / "a.tflite"
    path.write_bytes(one_operator.fully_connected([np.eye(16, dtype=np.float32)], sparse.CSR, 1))

    def refuses(*arguments):
        raise InputError("the runtime cannot load a.tflite (undefined symbol): export it again")

    monkeypatch.setattr(profiling, "in_own_process", refuses)
    with pytest.raises(InputError, match=r"profiler fails .*undefined symbol.*ai-edge-litert 2\.3"):
        profiling.profile(path, [{"input": np.ones((1, 16), np.float32)}])
    with pytest.raises(InputError, match=r"absent\.tflite"):
        profiling.profile(tmp_path / "absent.tflite", [])
