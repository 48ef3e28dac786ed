"""Files whose outputs differ from the Keras model's are rejected."""

import keras
import numpy as np
import pytest
from tfsparsecap_export import export_model
from tfsparsecap_export.keras_to_tflite import graph
from tfsparsecap_export.verify import outputs as verify
from tfsparsecap_export.verify.outputs import Differences, IntegerDifferences, OutputsDiffer

from tfsparsecap.core.model_call import model_call
from tfsparsecap.errors import InputError

pytestmark = pytest.mark.slow


def words():
    lookup = keras.layers.StringLookup(vocabulary=["a", "b"], invert=True)
    return keras.Sequential([keras.Input((3,), dtype="int64"), lookup], name="words")


def unknown():
    inputs = keras.Input((4,))
    return keras.Model(inputs, keras.ops.log(-1.0 - keras.ops.relu(keras.layers.Dense(2)(inputs))))


def quantized():
    model = keras.Sequential([keras.Input((64,)), keras.layers.Dense(8, name="head")])
    model.quantize("int8")
    return model


def bfloat16():
    return keras.Sequential([keras.Input((4,)), keras.layers.Dense(2, dtype="bfloat16", name="head")])


class BatchStatistics(keras.layers.Layer):
    def build(self, shape):
        self.norm = keras.layers.BatchNormalization(name="norm")
        self.norm.build(shape)

    def call(self, x):
        return self.norm(x, training=True)


def with_batch_statistics():
    return keras.Sequential([keras.Input((4,)), BatchStatistics()], name="net")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (bfloat16, r'weight \S*head/kernel of \S* is bfloat16, .*: create the model with dtype="float32"'),
        (
            with_batch_statistics,
            r"net changes \S*norm/moving_mean when it is called, but a file keeps no state",
        ),
        (lambda: "model.keras", "export_model takes a Keras 3 model, not a builtins.str"),
        (words, "an output of words is text, .*: export the part of the model"),
        (unknown, "returns NaN for these inputs"),
        (quantized, r"was quantized by Keras \(head\)"),
    ],
)
def test_models_that_cannot_be_compared_are_rejected(make, message, tmp_path):
    model = make()
    weights = [np.array(weight) for weight in getattr(model, "weights", ())]
    with pytest.raises(InputError, match=message):
        export_model(model, tmp_path / "a.tflite")
    assert not list(tmp_path.iterdir())
    for weight, before in zip(getattr(model, "weights", ()), weights, strict=True):
        np.testing.assert_array_equal(weight, before)


def test_a_mask_of_infinity_is_no_weight_of_a_diverged_training(tmp_path):
    x = keras.Input((2,))
    norm = keras.layers.Rescaling(1.0)
    model = keras.Model(x, keras.layers.Add()([x, keras.layers.Dense(2, name="mask")(norm(x))]))
    mask = model.get_layer("mask")
    mask.kernel.assign(np.zeros((2, 2)))
    mask.bias.assign([0, -np.inf])
    with pytest.raises(InputError, match="mask/bias contains NaN or infinity because training diverged"):
        export_model(model, tmp_path / "a.tflite")
    mask.trainable = False
    assert export_model(model, tmp_path / "a.tflite").verification.error < 1e-6


def test_a_sample_for_which_the_model_is_nan_is_named(classifier):
    model, content = classifier
    samples = [{"x": np.zeros((1, 4), np.float32)}, {"x": np.full((1, 4), np.nan, np.float32)}]
    with pytest.raises(InputError, match=r"the output .* of the model is NaN for sample 1: give samples"):
        verify.verify_outputs(model_call(model), content, samples, all_float=True)


def test_each_output_must_agree(monkeypatch):
    x, y = keras.Input((4,), name="x"), keras.Input((500, 4), name="y")
    model = keras.Model([x, y], {"few": keras.ops.softmax(x), "many": keras.ops.softmax(y)})
    content, call = graph.model_graph(model), model_call(model)
    random = np.random.default_rng(0)
    samples = [
        {
            "x": random.normal(size=(1, 4)).astype("float32"),
            "y": random.normal(size=(1, 500, 4)).astype("float32"),
        }
        for _ in range(20)
    ]
    assert verify.verify_outputs(call, content, samples, all_float=False).same_class == 1.0
    monkeypatch.setattr(verify, "INT8_OUTPUT_ERROR", 10)
    monkeypatch.setattr(verify, "INT8_RMS_ERROR", 10)
    original = type(call).__call__

    def wrong(self, sample):
        results = original(self, sample)
        return {**results, "few": results["few"][:, ::-1]}

    monkeypatch.setattr(type(call), "__call__", wrong)
    with pytest.raises(verify.OutputsDiffer, match=r"of the most probable classes \(few\)"):
        verify.verify_outputs(call, content, samples, all_float=False)


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
    verification = compare(classifier, small)
    assert verification.rms_error > 0.01 and verification.same_class >= 0.9
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

    verification = compare(1, int8=False)
    assert (verification.error, verification.same_class) == (pytest.approx(0.01), pytest.approx(0.99))
    with pytest.raises(verify.OutputsDiffer, match=r"2.0% of the integers of output_0"):
        compare(2, int8=False)
    assert compare(15, int8=True).same_class == pytest.approx(0.85)
    with pytest.raises(verify.OutputsDiffer, match=r"20.0% of the most probable classes"):
        compare(20, int8=True)


def test_infinite_values_must_be_at_the_same_places():
    differences = Differences()
    masked = np.array([1, -np.inf, -1e9], np.float32)
    differences.add(np.nan_to_num(masked, neginf=float(np.finfo(np.float32).min)), masked)  # as in files
    assert differences.largest == differences.rms == 0
    for other in ([1, 0, -1e9], [-np.inf, -np.inf, -1e9], [1, np.inf, -1e9], [1, np.nan, -1e9]):
        differences = Differences()
        differences.add(np.array(other, np.float32), masked)
        assert differences.largest == differences.rms == np.inf
    assert "by infinite values: nothing was written" in str(OutputsDiffer(np.inf, "the outputs"))


@pytest.mark.parametrize(
    ("given", "expected", "classes", "difference"),
    [
        ([0, 9, 3, 4], [9, 9, 3, 4], True, 0.25),  # one of four classes
        ([100, 201, 49], [101, 200, 50], False, 1 / 200),  # all grey values differ a little
        ([True, False], [True, False], False, 0),
    ],
)
def test_integers_are_numbers_or_classes(given, expected, classes, difference):
    labels = IntegerDifferences()
    labels.add(np.array(given), np.array(expected))
    assert labels.are_classes == classes
    assert (labels.different if classes else labels.largest) == pytest.approx(difference)
