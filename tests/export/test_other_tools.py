"""Other tools open exported files: Google's quantizer, Model Explorer, and a schema from another package."""

import json

import keras
import numpy as np
import pytest
from tfsparsecap_export import FORMATS, export_model
from tfsparsecap_export.encode import encodings

pytestmark = pytest.mark.slow

RNG = np.random.default_rng(0)
#: Kind of a model -> its inputs.
KINDS = {
    "convolutional": RNG.normal(size=(8, 24, 24, 3)).astype(np.float32),
    "recurrent": RNG.integers(0, 200, (8, 6)).astype(np.int32),
    "attention": RNG.integers(0, 200, (8, 6)).astype(np.int32),
}


def small_model(kind):
    """A model whose dense layers have zeros in blocks."""
    layers = keras.layers
    x = inputs = keras.Input(KINDS[kind].shape[1:], dtype=KINDS[kind].dtype.name, name="given")
    if kind == "convolutional":
        x = layers.Conv2D(32, 3, strides=2, name="stem")(x)
        x = layers.ReLU(name="stem_relu")(layers.BatchNormalization(name="stem_norm")(x))
        x = layers.Conv2D(128, 1, name="mix")(layers.DepthwiseConv2D(3, name="window")(x))
        x = layers.GlobalAveragePooling2D(name="pool")(x)
    else:
        x = layers.Embedding(200, 32, name="words")(x)
        if kind == "recurrent":
            x = layers.GRU(48, name="gru")(layers.LSTM(32, return_sequences=True, name="lstm")(x))
        else:
            x = layers.Add(name="residual")([x, layers.MultiHeadAttention(2, 16, name="attend")(x, x)])
            x = layers.GlobalAveragePooling1D(name="pool")(layers.LayerNormalization(name="norm")(x))
    x = layers.Dense(64, activation="relu", name="hidden")(x)
    model = keras.Model(inputs, layers.Dense(64, name="scores")(x), name="net")
    for layer in (model.get_layer("hidden"), model.get_layer("scores")):
        rows, columns = layer.kernel.shape
        kept = np.repeat(RNG.random((rows // 16, columns)) < 0.2, 16, axis=0)
        layer.kernel.assign(np.asarray(layer.kernel) * kept)
    return model


@pytest.fixture(scope="module", params=KINDS)
def exported(request, tmp_path_factory):
    """A model, its inputs, and format -> its file and the report."""
    keras.utils.set_random_seed(0)
    model, folder = small_model(request.param), tmp_path_factory.mktemp(request.param)
    files = {}
    for format in FORMATS:
        path = folder / f"{format}.tflite"
        files[format] = path, export_model(model, path, format, samples=KINDS[request.param])
    return model, KINDS[request.param], files


def names_of(path):
    """Names of all tensors, as the package `tflite` reads them."""
    tflite = pytest.importorskip("tflite")
    model = tflite.Model.GetRootAs(path.read_bytes(), 0)
    graphs = [model.Subgraphs(number) for number in range(model.SubgraphsLength())]
    return [graph.Tensors(i).Name().decode() for graph in graphs for i in range(graph.TensorsLength())]


def test_each_tensor_has_a_name_of_its_own_and_each_layer_is_named(exported):
    model, _, files = exported
    for format, (path, report) in files.items():
        names = names_of(path)
        assert len(names) == len(set(names)) and all(names), format
        places = {part for name in names for part in name.split(";")[0].split("/")}
        weighted = {layer.name for layer in model.layers if layer.weights and "norm" not in layer.name}
        assert weighted <= places, format
        assert {layer.name for layer in report.layers} <= {name.split("/int8")[0] for name in names}, format
        assert not [name for name in names if name.startswith(("arith.", "tfl."))], format


def test_googles_quantizer_takes_files_and_leaves_quantized_weights_as_they_are(exported, interpreter):
    quantizer = pytest.importorskip("litert_quantizer.quantizer")
    recipe = pytest.importorskip("litert_quantizer.recipe")
    _, inputs, files = exported
    for format, (path, report) in files.items():
        tool = quantizer.Quantizer(str(path))
        tool.load_quantization_recipe(recipe.dynamic_wi8_afp32())
        sparse = [layer for layer in report.layers if layer.encoding in (encodings.CSR, encodings.BLOCK4)]
        assert not sparse or format in ("auto", "fast")
        if sparse:
            # It reads weights without their zeros as if they were complete: leave these layers out.
            names = "|".join([*(layer.name.split("/")[-2] for layer in sparse), "PartitionedCall"])
            dense = recipe.TFLOperationName.FULLY_CONNECTED
            tool.update_quantization_recipe(f".*({names}).*", dense, algorithm_key="no_quantize")
        content = bytes(tool.quantize().quantized_model)
        expected = interpreter(path.read_bytes())(given=inputs[:1])["output_0"]
        found = interpreter(content)(given=inputs[:1])["output_0"]
        assert np.abs(found - expected).max() < 0.1 * np.abs(expected).max(), format
        if format == "dense":
            assert len(content) < 0.7 * path.stat().st_size


def test_layers_may_have_names_that_tensorflow_refuses(tmp_path, interpreter):
    explorer = pytest.importorskip("ai_edge_model_explorer_adapter")
    quantizer = pytest.importorskip("litert_quantizer.quantizer")
    recipe = pytest.importorskip("litert_quantizer.recipe")
    layers = [keras.layers.Dense(64, name=name) for name in ("my layer", "größe", "a;b", "_x")]
    inputs = np.random.default_rng(0).normal(size=(4, 64)).astype(np.float32)
    model = keras.Sequential([keras.Input((64,), name="given"), *layers], name="net")
    export_model(model, tmp_path / "a.tflite", "dense", samples=inputs)
    assert {"net/my layer/kernel", "net/größe/kernel"} < set(names_of(tmp_path / "a.tflite"))
    tool = quantizer.Quantizer(str(tmp_path / "a.tflite"))
    tool.load_quantization_recipe(recipe.weight_only_wi8_afp32())
    found = interpreter(bytes(tool.quantize().quantized_model))(given=inputs[:1])["output_0"]
    np.testing.assert_allclose(found, model(inputs[:1]), atol=0.1)
    text = explorer.ConvertFlatbufferDirectlyToJson(explorer.VisualizeConfig(), str(tmp_path / "a.tflite"))
    assert "net/my_layer" in text


def test_model_explorer_shows_each_operation_under_its_layer(exported):
    explorer = pytest.importorskip("ai_edge_model_explorer_adapter")
    model, _, files = exported
    for format, (path, _) in files.items():
        text = explorer.ConvertFlatbufferDirectlyToJson(explorer.VisualizeConfig(), str(path))
        nodes = [node for file in json.loads(text) for graph in file["subgraphs"] for node in graph["nodes"]]
        ends = ("GraphInputs", "GraphOutputs")
        places = [set(node["namespace"].split("/")) for node in nodes if node["label"] not in ends]
        known = {layer.name for layer in model.layers}
        without = [place for place in places if not place & known]
        assert len(places) > 8 and len(without) <= 2, (format, without)  # what has the names of the ends
