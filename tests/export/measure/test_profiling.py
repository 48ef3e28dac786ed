"""Profiles of files: which operations run how often, on which kernel. No times are compared."""

import numpy as np
import pytest
import tensorflow as tf
from tfsparsecap_export.encode import encodings
from tfsparsecap_export.measure import profiling
from tfsparsecap_export.measure.profiling import TFLITE, XNNPACK

from benchmarks import one_layer

from ..conftest import MAX_LENGTH

STORED = {
    encodings.DENSE: ("float32", XNNPACK),
    encodings.FLOAT16: ("float16", XNNPACK),
    encodings.SPARSE16: ("sparse float16", XNNPACK),
    encodings.SPARSE32: ("sparse float32", XNNPACK),
    encodings.INT8: ("int8 per channel", XNNPACK),
    encodings.CSR: ("csr", TFLITE),
    encodings.BLOCK4: ("1x4", TFLITE),
    encodings.BLOCK16: ("int8 1x16", TFLITE),
}


def profile_of(tmp_path, content, runs=2, **inputs):
    (tmp_path / "a.tflite").write_bytes(content)
    return profiling.profile(tmp_path / "a.tflite", [inputs], runs=runs)


@pytest.mark.parametrize("encoding", STORED)
def test_a_layer_is_reported_with_its_shape_encoding_and_kernel(tmp_path, encoding):
    matrices = [one_layer.sparse_matrix(np.random.default_rng(i), 32, 64, 0.3, 16) for i in range(2)]
    content = one_layer.fully_connected(matrices, encoding, 1)
    found = profile_of(tmp_path, content, input=np.ones((1, 64), np.float32))
    (layers,) = found.operations
    assert (layers.shape, layers.stored, layers.kernel) == ((32, 64), *STORED[encoding])
    assert (layers.layers, layers.calls, layers.in_loop) == (("weights0", "weights1"), 2, False)
    assert layers.ms == found.ms


@pytest.mark.parametrize("format", ["dense", "auto"])
def test_operations_of_a_captioner_run_once_or_once_per_word(exported, images, format):
    path, _ = exported("blocks", format)
    found = profiling.profile(path, [{"image": images[0][None]}], runs=1)
    assert found.not_timed == () and sum(o.share for o in found.operations) == pytest.approx(1)
    layers = {o.shape: o for o in found.operations if o.shape}
    # Each step searches for the best words of each beam, and then for the best beams.
    words = sum(o.calls for o in found.operations if o.name == "TOPK_V2") / 2
    assert 1 < words <= MAX_LENGTH
    # The LSTM has 64 units, word embeddings 32 and features 64 values; there are 80 words.
    assert layers[256, 160].in_loop and layers[256, 160].calls == words
    assert layers[80, 64].in_loop and layers[80, 64].calls == words
    assert layers[256, 160].stored == ("float32" if format == "dense" else "int8 1x16")
    assert layers[256, 160].kernel == (XNNPACK if format == "dense" else TFLITE)
    assert (layers[64, 64].in_loop, layers[64, 64].calls, len(layers[64, 64].layers)) == (False, 2, 2)
    assert not any(o.name == "WHILE" for o in found.operations)


def test_iterations_of_nested_loops_are_multiplied(tmp_path):
    @tf.function(input_signature=[tf.TensorSpec((1, 4), tf.float32, name="x")])
    def nested(x):
        def outer(i, x):
            _, x = tf.while_loop(lambda j, x: j < 2, lambda j, x: (j + 1, tf.exp(x) / 9), (0, x))
            return i + 1, x

        return {"y": tf.while_loop(lambda i, x: i < 3, outer, (0, tf.sin(x)))[1]}

    module = tf.Module()
    module.nested = nested
    converter = tf.lite.TFLiteConverter.from_concrete_functions([nested.get_concrete_function()], module)
    found = profile_of(tmp_path, converter.convert(), x=np.ones((1, 4), np.float32))
    calls = {o.name: o.calls for o in found.operations}
    assert (calls["SIN"], calls["EXP"]) == (1, 3 * 2)
    assert calls["LESS"] == (3 + 1) + 3 * (2 + 1), "a condition is evaluated once more than its loop runs"


def test_operations_that_do_not_run_alone_are_named(tmp_path, monkeypatch):
    def never_computed(trace, graph, tensor):
        raise ValueError("no data")

    monkeypatch.setattr(profiling._Trace, "value", never_computed)
    content = one_layer.fully_connected([np.eye(16, dtype=np.float32)], encodings.CSR, 1)
    found = profile_of(tmp_path, content, input=np.ones((1, 16), np.float32))
    assert (found.operations, found.ms, found.not_timed) == ([], 0, ("FULLY_CONNECTED",))
