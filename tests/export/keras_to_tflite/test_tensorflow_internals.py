"""Private names of TensorFlow: a failing test names what an upgrade removed."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from tfsparsecap_export.flatbuffer import model_file as flatfile
from tfsparsecap_export.keras_to_tflite import graph
from tfsparsecap_export.keras_to_tflite import tensorflow_internals as internals


def test_variables_become_constants():
    variable = tf.Variable([2.0])
    function = tf.function(lambda x: {"y": x * variable}).get_concrete_function(
        tf.TensorSpec((1,), tf.float32)
    )
    frozen = internals.freeze_variables(function)
    variable.assign([5.0])
    assert not frozen.variables
    np.testing.assert_array_equal(frozen(tf.constant([3.0]))[0], [6.0])


def test_saved_models_are_converted_as_by_the_public_converter(tmp_path):
    module = tf.Module()
    module.call = tf.function(lambda x: {"y": tf.matmul(x, tf.eye(3)) + 1.0})
    signature = module.call.get_concrete_function(tf.TensorSpec((1, 3), tf.float32, name="x"))
    tf.saved_model.save(module, tmp_path, signatures={"call": signature})
    expected = tf.lite.TFLiteConverter.from_saved_model(str(tmp_path), signature_keys=["call"]).convert()
    converted_model, expected = (
        flatfile.read_model(content)
        for content in (internals.convert_saved_model(str(tmp_path), "call"), expected)
    )
    assert [definition.signatureKey for definition in converted_model.signatureDefs] == [b"call"]
    for mine, other in zip(converted_model.subgraphs[0].tensors, expected.subgraphs[0].tensors, strict=True):
        assert (mine.name, mine.type, mine.shape.tolist()) == (other.name, other.type, other.shape.tolist())
    codes = [[code.builtinCode for code in model.operatorCodes] for model in (converted_model, expected)]
    assert codes[0] == codes[1]


def test_files_without_ranges_stay_float(monkeypatch):
    content = graph.model_graph(keras.Sequential([keras.Input((8,)), keras.layers.Dense(4)]))
    options = {"float_operators": ["SOFTMAX"], "float_results": []}
    assert internals.quantize_activations(content, **options)[4:8] == b"TFL3"

    def refuse(*arguments, **options):
        raise internals.ConverterError("no")

    monkeypatch.setattr(internals, "mlir_quantize", refuse)
    with pytest.raises(ValueError, match="no"):
        internals.quantize_activations(content, **options)
