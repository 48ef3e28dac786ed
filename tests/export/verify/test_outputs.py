"""Files whose outputs differ from the Keras model's are rejected."""

import dataclasses

import keras
import numpy as np
import pytest
from tfsparsecap_export import export_model
from tfsparsecap_export.keras_to_tflite import graph
from tfsparsecap_export.verify import expected
from tfsparsecap_export.verify import outputs as verify

from tfsparsecap.core.model_call import model_call
from tfsparsecap.errors import InputError

pytestmark = pytest.mark.slow


def test_a_model_that_is_random_at_inference_is_rejected(tmp_path):
    @keras.saving.register_keras_serializable("export_tests")
    class NoisyLayer(keras.layers.Layer):
        def call(self, inputs):
            return inputs + keras.random.normal(keras.ops.shape(inputs))

    model = keras.Sequential([keras.Input((8,)), NoisyLayer(), keras.layers.Dense(4)])
    with pytest.raises(InputError, match="different outputs for the same input"):
        export_model(model, tmp_path / "a.tflite")
    assert not list(tmp_path.iterdir())


def test_outputs_that_are_text_are_rejected(tmp_path):
    words = keras.layers.StringLookup(vocabulary=["a", "b"], invert=True)
    model = keras.Sequential([keras.Input((3,), dtype="int64"), words], name="words")
    with pytest.raises(InputError, match=r"an output of words is text, .*: export the part of the model"):
        export_model(model, tmp_path / "a.tflite")


def test_a_model_that_returns_nan_and_one_quantized_by_keras_are_rejected(tmp_path):
    inputs = keras.Input((4,))
    unknown = keras.Model(inputs, keras.ops.log(-1.0 - keras.ops.relu(keras.layers.Dense(2)(inputs))))
    with pytest.raises(InputError, match="returns NaN for these inputs"):
        export_model(unknown, tmp_path / "a.tflite")
    quantized = keras.Sequential([keras.Input((64,)), keras.layers.Dense(8, name="head")])
    quantized.quantize("int8")
    with pytest.raises(InputError, match=r"was quantized by Keras \(head\)"):
        export_model(quantized, tmp_path / "a.tflite")


@pytest.fixture(scope="module")
def classifier():
    """A model of four probabilities, whose input are their logarithms; and its file."""
    keras.utils.set_random_seed(0)
    model = keras.Sequential([keras.Input((4,), name="x"), keras.layers.Dense(4), keras.layers.Softmax()])
    return model, graph.model_graph(model)


def compare(classifier, shift, int8=True, count=20):
    """The check of a file whose model's biases are then changed."""
    model, content = classifier
    bias = model.layers[0].bias
    bias.assign(shift)
    try:
        random = np.random.default_rng(0)
        samples = [{"x": random.normal(0, 3, (1, 4)).astype(np.float32)} for _ in range(count)]
        return verify.verify_outputs(model_call(model), content, samples, all_float=not int8)
    finally:
        bias.assign(np.zeros(4, np.float32))


def test_probabilities_are_compared_before_the_softmax(classifier):
    small = np.array([0.1, 0, 0, -0.1], np.float32)
    found = compare(classifier, small)
    assert found.rms_error > 0.01 and found.same_class >= 0.9
    with pytest.raises(verify.OutputsDiffer, match="of the largest output"):
        compare(classifier, small, int8=False)
    with pytest.raises(
        verify.OutputsDiffer, match=r"of the (largest output|root mean square of the outputs)"
    ):
        compare(classifier, np.array([3, 0, 0, -3], np.float32))


def test_the_most_probable_classes_must_be_the_same(classifier, monkeypatch):
    monkeypatch.setattr(verify, "INT8_OUTPUT_ERROR", 10)
    monkeypatch.setattr(verify, "INT8_RMS_ERROR", 10)
    with pytest.raises(verify.OutputsDiffer, match="of the most probable classes"):
        compare(classifier, np.array([9, 0, 0, -9], np.float32))


@pytest.mark.parametrize("int8", [True, False])
@pytest.mark.parametrize("mask", [-np.inf, -1e9])
def test_masks_do_not_hide_differences(mask, int8):
    x = keras.Input((4,), name="x")
    dense = keras.layers.Dense(4)
    model = keras.Model(x, keras.ops.where(x > 0.5, dense(x), mask))
    content = graph.model_graph(model)
    samples = [{"x": np.array([[1, 0, 2, 0]], np.float32)}]
    correct = verify.verify_outputs(model_call(model), content, samples, all_float=not int8)
    assert correct.error < 1e-3 and (correct.rms_error or 0) < 1e-3
    dense.kernel.assign(-dense.kernel)
    with pytest.raises(verify.OutputsDiffer, match=r"by 200.0% of the largest output"):
        verify.verify_outputs(model_call(model), content, samples, all_float=not int8)


def test_outputs_of_the_model_are_computed_once(classifier):
    model, content = classifier
    called, call = [], model_call(model)

    def counted(tensors):
        called.append(tensors)
        return call(tensors)

    outputs = verify.ExpectedOutputs(counted)
    random = np.random.default_rng(0)
    samples = [{"x": random.normal(0, 3, (1, 4)).astype(np.float32)} for _ in range(10)]
    first = verify.verify_outputs(outputs, content, samples, all_float=True)
    again = verify.verify_outputs(outputs, content, samples, all_float=True, source="photographs")
    assert again == dataclasses.replace(first, source="photographs")
    other = verify.verify_outputs(outputs, content, samples, all_float=False)
    assert len(called) == 2  # the first time, and when it is compiled
    assert other == verify.verify_outputs(call, content, samples, all_float=False)


def test_large_outputs_are_computed_again(classifier, monkeypatch):
    model, content = classifier
    monkeypatch.setattr(expected, "_MOST_KEPT", 0)
    outputs = verify.ExpectedOutputs(model_call(model))
    samples = [{"x": np.full((1, 4), number, np.float32)} for number in range(3)]
    assert verify.verify_outputs(outputs, content, samples, all_float=True).error < 1e-3
    assert verify.verify_outputs(outputs, content, samples, all_float=False).error < 1e-3


def test_a_file_that_fails_is_refused(classifier, monkeypatch):
    def fail(**inputs):
        raise RuntimeError("Node number 3 (DIV) failed to invoke.\n")

    monkeypatch.setattr(verify, "runners", lambda *_: [fail])
    with pytest.raises(
        verify.DoesNotRun, match=r"does not run the exported file \(Node .* invoke\): nothing"
    ):
        compare(classifier, np.zeros(4, np.float32))


def test_classes_may_differ_in_a_few_places(monkeypatch):
    x = keras.Input((100, 4), name="x")
    model = keras.Model(x, keras.ops.argmax(x, -1))
    content = graph.model_graph(model)
    rows = np.eye(4, dtype=np.float32)[np.arange(100) % 4]

    def compare(different, int8):
        call = model_call(model)
        expected = np.arange(100)[None] % 4
        expected[0, :different] = 3 - expected[0, :different]
        monkeypatch.setattr(type(call), "__call__", lambda *_: {"output_0": expected})
        return verify.verify_outputs(call, content, [{"x": rows[None]}], all_float=not int8)

    found = compare(1, int8=False)
    assert (found.error, found.same_class) == (pytest.approx(0.01), pytest.approx(0.99))
    with pytest.raises(verify.OutputsDiffer, match=r"2.0% of the integers of output_0"):
        compare(2, int8=False)
    assert compare(15, int8=True).same_class == pytest.approx(0.85)
    with pytest.raises(verify.OutputsDiffer, match=r"20.0% of the most probable classes"):
        compare(20, int8=True)
