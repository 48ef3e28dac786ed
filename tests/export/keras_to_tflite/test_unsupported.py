"""Messages of the converter become one sentence."""

import keras
import pytest
from tfsparsecap_export.keras_to_tflite import unsupported

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
    assert unsupported.explanation(message, model) == f"TFLite does not support tf.Abs, tf.RFFT: {end}"


@pytest.mark.parametrize("message", ["x.pb.tmp; No space left on device", "x.pb; File too large"])
def test_a_full_disk_is_not_the_models_fault(model, message):
    assert unsupported.refusal(OSError(message), model).startswith("the disk of temporary files is full (/")


def test_other_messages_are_not_explained(model):
    assert unsupported.explanation("out of memory", model) == ""
