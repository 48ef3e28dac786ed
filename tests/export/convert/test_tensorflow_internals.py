"""Private names of TensorFlow, Keras and LiteRT: a failing test names what an upgrade removed."""

import pytest
import tensorflow as tf
from tfsparsecap_export.convert import tensorflow_internals as internals
from tfsparsecap_export.flatbuffer.model_file import schema


def test_the_converter_still_has_the_option_for_per_tensor_quantization():
    converter = tf.lite.TFLiteConverter.from_concrete_functions([])
    assert getattr(converter, internals.PER_TENSOR_QUANTIZATION) is False  # default of TensorFlow 2.21


@pytest.mark.parametrize(
    "name",
    [
        *("ModelT", "BufferT", "SubGraphT", "TensorT", "OperatorT", "OperatorCodeT", "SignatureDefT"),
        *("TensorMapT", "SparsityParametersT", "QuantizationParametersT", "DimensionMetadataT"),
        *("Uint8VectorT", "Uint16VectorT", "Int32VectorT", "FullyConnectedOptionsT", "DensifyOptionsT"),
        *("DequantizeOptionsT", "GatherOptionsT", "SplitVOptionsT", "PadOptionsT", "TransposeOptionsT"),
        *("AddOptionsT", "BuiltinOperator", "TensorType"),
    ],
)
def test_the_generated_schema_still_has_a_class(name):
    assert hasattr(schema, name)
