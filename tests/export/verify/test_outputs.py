"""Files whose outputs differ from the Keras model's are rejected."""

import dataclasses

import keras
import numpy as np
import pytest
import tensorflow as tf
from tfsparsecap_export import export_model
from tfsparsecap_export.encode import sparse
from tfsparsecap_export.flatbuffer import model_file as flatfile
from tfsparsecap_export.keras_to_tflite import graph
from tfsparsecap_export.verify import expected
from tfsparsecap_export.verify import outputs as verify

from tfsparsecap.captioning.models import SoftAttention, UpDown
from tfsparsecap.core.model_call import model_call
from tfsparsecap.errors import InputError

pytestmark = pytest.mark.slow


def damaged(content, change):
    """The same file with all values of its largest fully connected layer changed."""
    model = flatfile.read_model(content)
    weights = [w for w in sparse.find_weights(model) if w.role == sparse.FULLY_CONNECTED]
    largest = max(weights, key=lambda weight: weight.values.size)
    model.buffers[largest.buffer].data = np.frombuffer(
        change(largest.values).astype(np.float32).tobytes(), np.uint8
    )
    return flatfile.write_model(model)


@pytest.fixture(scope="module")
def dense(exported):
    return exported("blocks", "dense")[0].read_bytes()


def check(content, captioner, export_options, **options):
    samples = export_options["samples"]
    return verify.verify_captions(
        captioner, content, samples, beam=3, max_length=6, **{"all_float": True, **options}
    )


def test_a_correct_file_passes(dense, blocks_captioner, export_options):
    found = check(dense, blocks_captioner, export_options, source="images")
    assert (found.equal, found.equal_beams, found.samples, found.source) == (1.0, 1.0, 6, "images")
    assert found.error < 1e-3 and found.runtime.startswith("LiteRT 2.")


@pytest.mark.parametrize("all_float", [True, False])
def test_nan_is_rejected(dense, blocks_captioner, export_options, all_float):
    content = damaged(dense, lambda values: values * np.nan)
    with pytest.raises(InputError, match="NaN"):
        check(content, blocks_captioner, export_options, all_float=all_float, tolerance=1.0)


def test_wrong_probabilities_of_objects_are_rejected():
    keras.utils.set_random_seed(0)
    sizes = {"embedding_size": 8, "rnn_size": 8, "attention_size": 8, "feature_size": 6}
    captioner = UpDown(30, **sizes, objects=["cat", "dog"])
    bias = captioner.object_scores.bias
    bias.assign([-2.5, -3.0])
    random = np.random.default_rng(0)
    samples = [{"features": random.normal(size=(1, 5, 6)).astype("float32")} for _ in range(2)]
    content = graph.caption_graph(captioner, {"features": tf.TensorSpec((1, 5, 6), tf.float32)}, 3, 6)
    found = check(content, captioner, {"samples": samples})
    assert found.equal == 1 and found.objects_error < 1e-5
    # Its objects do not change an Up-Down's captions.
    for change, all_float in ((0.6, True), (2.5, False), (np.nan, False)):
        bias.assign([-2.5 + change, -3.0])
        with pytest.raises(InputError, match=r"probabilities of objects .* differ from the Keras"):
            check(content, captioner, {"samples": samples}, all_float=all_float, tolerance=1.0)
    bias.assign([-2.5 + 0.6, -3.0])
    assert 0.05 < check(content, captioner, {"samples": samples}, all_float=False).objects_error < 0.3


@pytest.mark.parametrize("all_float", [True, False])
def test_wrong_scores_are_rejected_whatever_the_tolerance(dense, blocks_captioner, export_options, all_float):
    content = damaged(dense, lambda values: np.roll(values, 7))
    with pytest.raises(InputError, match="score"):
        check(content, blocks_captioner, export_options, all_float=all_float, tolerance=1.0)


def test_more_different_captions_than_tolerated_are_rejected(
    dense, blocks_captioner, export_options, monkeypatch
):
    monkeypatch.setitem(verify.SCORE_ERROR, True, 100.0)
    content = damaged(dense, lambda values: values * 0.5)
    with pytest.raises(verify.CaptionsDiffer, match="of 6 captions"):
        check(content, blocks_captioner, export_options)
    assert check(content, blocks_captioner, export_options, tolerance=1.0).equal < 1


def test_a_file_that_does_not_load_is_rejected(blocks_captioner, export_options):
    with pytest.raises(InputError, match="does not load"):
        check(b"no model at all", blocks_captioner, export_options)


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


def test_a_captioner_that_is_random_at_inference_is_rejected(tmp_path):
    class Noisy(SoftAttention):
        def encode(self, inputs, training=False):
            memory = super().encode(inputs, training)
            return {**memory, "features": memory["features"] + keras.random.normal((1, 4, 7))}

    captioner = Noisy(30, embedding_size=6, rnn_size=8, attention_size=5, feature_size=7)
    with pytest.raises(InputError, match="different outputs for the same input"):
        export_model(captioner, tmp_path / "a.tflite", inputs={"features": (4, 7)})
    assert not list(tmp_path.iterdir())


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

    monkeypatch.setattr(verify, "_runners", lambda *_: [fail])
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
