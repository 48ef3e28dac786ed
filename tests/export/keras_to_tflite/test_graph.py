"""Conversion to dense files: outputs of the Keras model, and models that cannot be converted."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from tensorflow.lite.python.convert_phase import ConverterError
from tfsparsecap_export.caption_files import caption_graph
from tfsparsecap_export.keras_to_tflite import graph

from tfsparsecap.captioning.models import SoftAttention
from tfsparsecap.captioning.search.beam_search import beam_search
from tfsparsecap.errors import InputError
from tfsparsecap.layers import GatedDense

FEATURES = {"features": tf.TensorSpec((1, 9, 12), tf.float32)}


@pytest.fixture(scope="module")
def captioner():
    keras.utils.set_random_seed(1)
    model = SoftAttention(30, cell="gru", embedding_size=8, rnn_size=16, attention_size=8, feature_size=12)
    for weight in model.weights:
        weight.assign(weight * 4)
    return model


@pytest.mark.slow
def test_a_captioners_file_gives_the_captions_of_the_keras_model(captioner, interpreter):
    beam = 1  # tests of the exporter have several
    content = caption_graph.caption_graph(captioner, FEATURES, beam, max_length=7)
    run = interpreter(content)
    assert {n: (tuple(d["shape"]), d["dtype"]) for n, d in run.get_input_details().items()} == {
        "features": ((1, 9, 12), np.float32)
    }
    rng = np.random.default_rng(0)
    for _ in range(4):
        features = rng.normal(size=(1, 9, 12)).astype(np.float32)
        outputs = run(features=features)
        token_ids, scores = beam_search(captioner, {"features": features}, beam, 7)
        assert outputs["token_ids"].dtype == np.int32 and outputs["token_ids"].shape == (beam, 7)
        np.testing.assert_array_equal(outputs["token_ids"], token_ids[0])
        np.testing.assert_allclose(outputs["scores"], scores[0], atol=1e-4)


def test_the_most_probable_class_is_an_output(interpreter):
    x = keras.Input((5,), name="x")
    best = [keras.ops.argmax(x, -1), keras.ops.argmin(x, -1, keepdims=True)]
    values = np.array([[3, -1, 5, 0, -2]], np.float32)
    outputs = interpreter(graph.model_graph(keras.Model(x, best)))(x=values)
    assert outputs["output_0"].tolist() == [2] and outputs["output_1"].tolist() == [[4]]


def test_what_tensorflow_cannot_convert_is_one_sentence(monkeypatch):
    x, variable = keras.Input((4,)), tf.Variable(1.0)
    counting = keras.Model(x, keras.layers.Lambda(lambda x: x + variable.assign_add(1.0))(x), name="net")
    with pytest.raises(InputError, match=r"cannot convert net to TFLite \(.*resource\): replace"):
        graph.model_graph(counting)

    def refuse(function):
        raise ConverterError("<unknown>:0: error: no such rank.\nmore")

    monkeypatch.setattr(graph.tensorflow_internals, "freeze_variables", refuse)
    with pytest.raises(InputError, match=r"cannot convert net to TFLite \(no such rank\): replace"):
        graph.model_graph(keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)], name="net"))


def diverged():
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(2, name="output")])
    model.layers[0].kernel.assign(np.full((2, 2), np.nan))
    return model


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (diverged, "output/kernel contains NaN"),
        (lambda: keras.Sequential([keras.Input((8,)), GatedDense(4)]), "strip_pruning"),
        (lambda: keras.Sequential([keras.Input((None, 3)), keras.layers.Dense(2)]), "only the first axis"),
        (lambda: keras.Sequential([keras.layers.Dense(2)]), "call it once"),
        (
            lambda: keras.Sequential([keras.Input((4, 4)), keras.layers.Lambda(tf.linalg.det)]),
            "MatrixDeterminant",
        ),
        (
            lambda: keras.Sequential([keras.Input((10**5,)), keras.layers.Dense(100)], name="net"),
            r"net take 0\.0 GB as float32, but TensorFlow converts less than",
        ),
    ],
    ids=["nan", "gates", "shape", "not built", "operation", "size"],
)
def test_models_that_cannot_be_converted_are_refused(make, message, monkeypatch):
    monkeypatch.setattr(graph, "_MOST_BYTES", 4 * 100 * (10**5 + 1))
    with pytest.raises(InputError, match=message):
        graph.model_graph(make())


def test_activations_with_their_own_gradients(interpreter, caplog):
    parts = [keras.layers.Dense(64, activation) for activation in ("swish", "silu", "gelu", "mish")]
    model = keras.Sequential([keras.Input((8,), name="x"), *parts])
    values = np.linspace(-3, 3, 8, dtype=np.float32)[None]
    content = graph.model_graph(model)
    assert not [record for record in caplog.records if record.name == "absl"]  # that gradients are not saved
    outputs = interpreter(content)(x=values)
    np.testing.assert_allclose(outputs["output_0"], model(values), atol=1e-5)


class ToOwnDtype(keras.layers.Layer):
    def call(self, x):
        return keras.ops.cast(x, self.compute_dtype)


def test_only_floating_point_layers_compute_in_float32():
    dtypes = ("int32", "bool", "mixed_float16", "float64", "float32")
    model = keras.Sequential([keras.Input((2,)), *(ToOwnDtype(dtype=dtype) for dtype in dtypes)])
    with graph.float32_computation(model):
        assert [layer.compute_dtype for layer in model.layers] == ["int32", "bool", *["float32"] * 3]
    assert [layer.dtype_policy.name for layer in model.layers] == [*dtypes]


@pytest.mark.parametrize(
    ("names", "found"), [(("x", "X"), ("x", "X_1")), (("my x", "self"), ("my_x", "input_self"))]
)
def test_inputs_with_names_that_tensorflow_does_not_take(names, found, interpreter):
    inputs = [keras.Input((4,), name=name) for name in names]
    model = keras.Model(inputs, keras.layers.Concatenate()(inputs))
    values = np.arange(8, dtype=np.float32).reshape(2, 1, 4)
    outputs = interpreter(graph.model_graph(model))(**dict(zip(found, values, strict=True)))
    np.testing.assert_array_equal(outputs["output_0"], values.reshape(1, 8))


def test_sources_of_constants_are_found_by_their_values(captioner):
    names = graph.weight_sources(captioner)
    transposed = np.asarray(captioner.output_layer.kernel).T
    assert names[graph.content_key(transposed)].name.endswith("output/kernel")
    table = np.asarray(captioner.embedding.embeddings)
    assert names[graph.content_key(table)].name.endswith("embedding/embeddings")


def test_a_kernel_of_zeros_is_not_mistaken_for_a_bias():
    inputs = keras.Input((8,))
    outputs = keras.layers.Dense(1, kernel_initializer="zeros", name="score")(keras.layers.Dense(8)(inputs))
    names = graph.weight_sources(keras.Model(inputs, outputs))
    assert names[graph.content_key(np.zeros((1, 8), np.float32))].name == "score/kernel"


LINE = 'error: loc(callsite(fused["{0}:", "net_1/{1}/{0}@__inference_7"] at x)): \'tf.{0}\' op is neither'


@pytest.fixture
def model():
    return keras.Sequential([keras.Input((4,)), keras.layers.Dense(2, name="one")], name="net")


@pytest.mark.parametrize(
    ("place", "end"),
    [
        ("one", "replace one of net"),
        ("one_1", "replace one of net"),
        ("one/inner", "replace one of net"),
        ("other", "replace the layer of the model that uses it"),
    ],
)
def test_operations_and_layers_are_named(model, place, end):
    message = "\n".join(LINE.format(name, place) for name in ("RFFT", "Abs", "RFFT"))
    assert (
        graph.missing_operations_message(message, model) == f"TFLite does not support tf.Abs, tf.RFFT: {end}"
    )


@pytest.mark.parametrize("message", ["x.pb.tmp; No space left on device", "x.pb; File too large"])
def test_a_full_disk_is_not_the_models_fault(model, message):
    assert graph.conversion_error_message(OSError(message), model).startswith(
        "the disk of temporary files is full (/"
    )


def test_other_messages_are_not_explained(model):
    assert graph.missing_operations_message("out of memory", model) == ""
