"""Statistics of the inputs of layers, by which int8 weights are rounded."""

import keras
import numpy as np
import pytest
from tfsparsecap_export.encode import calibration
from tfsparsecap_export.flatbuffer import model_file as flatfile
from tfsparsecap_export.keras_to_tflite import graph

pytestmark = pytest.mark.slow


def test_the_inputs_of_a_layer_times_its_weights_are_its_outputs(mixed_network):
    from ai_edge_litert.interpreter import Interpreter, OpResolverType

    float32, _, inputs = mixed_network
    run = Interpreter(
        model_content=float32,
        experimental_op_resolver_type=OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES,
        experimental_preserve_all_tensors=True,
    )
    run.allocate_tensors()
    run.set_tensor(run.get_input_details()[0]["index"], inputs[:1])
    run.invoke()
    layers = list(calibration.find_layers(flatfile.read_model(float32)))
    assert len(layers) == 9
    for layer in layers:
        operator = layer.operator
        products = layer.inputs(run.get_tensor(layer.source)) @ layer.matrix.transpose(0, 2, 1)
        products = products.transpose(1, 0, 2).reshape(products.shape[1], -1)  # positions, outputs
        if layer.bias is not None:
            products = products + run.get_tensor(int(operator.inputs[layer.bias]))
        limits = {"RELU6": (0, 6), "RELU": (0, None), "NONE": (None, None)}
        kinds = flatfile.schema.ActivationFunctionType
        activation = operator.builtinOptions.fusedActivationFunction
        (limit,) = (limits[name] for name in limits if getattr(kinds, name) == activation)
        products = np.clip(products, *limit)
        outputs = run.get_tensor(int(operator.outputs[0])).reshape(products.shape)
        np.testing.assert_allclose(products, outputs, atol=1e-4 * np.abs(outputs).max())
        np.testing.assert_array_equal(layer.stored(layer.matrix), layer.weights)
        assert layer.weights.shape[layer.channel_axis] == products.shape[1]


def test_statistics_of_a_batch_are_those_of_its_examples(monkeypatch):
    model = keras.Sequential([keras.Input((6, 6, 2)), keras.layers.Conv2D(3, 3)])
    float32 = graph.model_graph(model, batch=None)
    name = model.inputs[0].name
    images = np.random.default_rng(0).normal(size=(4, 6, 6, 2)).astype(np.float32)
    layers = list(calibration.find_layers(flatfile.read_model(float32)))
    ((mean, moments),) = calibration.statistics(float32, layers, [{name: image[None]} for image in images])
    batches = [{name: images[:1]}, {name: images[1:]}]
    ((same_mean, same_moments),) = calibration.statistics(float32, layers, batches)
    np.testing.assert_allclose(same_mean, mean, rtol=1e-6)
    np.testing.assert_allclose(same_moments, moments, rtol=1e-5, atol=1e-6)


def test_few_positions_of_large_maps_have_similar_statistics(monkeypatch):
    model = keras.Sequential([keras.Input((40, 40, 3)), keras.layers.Conv2D(4, 3), keras.layers.Dense(2)])
    float32, name = graph.model_graph(model), model.inputs[0].name
    random = np.random.default_rng(0)
    mixed = random.normal(size=(3, 3))
    samples = [{name: np.float32(random.normal(1, 1, (1, 40, 40, 3)) @ mixed)} for _ in range(4)]
    layers = list(calibration.find_layers(flatfile.read_model(float32)))
    every = list(calibration.statistics(float32, layers, samples))
    monkeypatch.setattr(calibration, "_LEAST_POSITIONS", 1000)
    drawn, same = (list(calibration.statistics(float32, layers, samples)) for _ in range(2))
    for (mean, moments), (other, others), (_, repeated) in zip(every, drawn, same, strict=True):
        assert moments.dtype == np.float32
        np.testing.assert_array_equal(others, repeated)
        assert not np.array_equal(moments, others)
        np.testing.assert_allclose(other, mean, atol=0.2 * np.sqrt(moments.max()))
        np.testing.assert_allclose(others, moments, atol=0.2 * moments.max())
