"""Other tools open exported files and pruned models: Google's, Keras's own, KerasHub."""

import json

import keras
import numpy as np
import pytest
import tensorflow as tf
from tfsparsecap_export import export_model
from tfsparsecap_export.encode import encodings
from tfsparsecap_export.flatbuffer.contents import read_contents

import tfsparsecap as sc

pytestmark = pytest.mark.slow

RNG = np.random.default_rng(0)
#: Each encoding is in one of these; the other formats mix the same ones.
FORMATS = ("auto", "fast", "dense", "dense-int8")
#: Kind of a model -> its inputs.
KINDS = {
    "convolutional": RNG.normal(size=(8, 24, 24, 3)).astype(np.float32),
    "recurrent": RNG.integers(0, 200, (8, 6)).astype(np.int32),
    "attention": RNG.integers(0, 200, (8, 6)).astype(np.int32),
    "dense": RNG.normal(size=(8, 64)).astype(np.float32),
}


def small_model(kind):
    """A model whose dense layers have zeros in blocks."""
    layers = keras.layers
    x = inputs = keras.Input(KINDS[kind].shape[1:], dtype=KINDS[kind].dtype.name, name="x")
    if kind == "convolutional":
        x = layers.Conv2D(32, 3, strides=2, name="stem")(x)
        x = layers.ReLU(name="stem_relu")(layers.BatchNormalization(name="stem_norm")(x))
        x = layers.Conv2D(128, 1, name="mix")(layers.DepthwiseConv2D(3, name="window")(x))
        x = layers.GlobalAveragePooling2D(name="pool")(x)
    elif kind != "dense":
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
        mask = np.repeat(RNG.random((rows // 16, columns)) < 0.2, 16, axis=0)
        layer.kernel.assign(np.asarray(layer.kernel) * mask)
    return model


@pytest.fixture(scope="module", params=KINDS)
def exported(request, tmp_path_factory, cached_export):
    """A model, its inputs, and format -> its file and the report."""
    keras.utils.set_random_seed(0)
    model, folder = small_model(request.param), tmp_path_factory.mktemp(request.param)
    files = {}
    for format in FORMATS:
        path = folder / f"{format}.tflite"
        files[format] = path, cached_export(model, path, format, samples=KINDS[request.param])
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
        expected = interpreter(path.read_bytes())(x=inputs[:1])["output_0"]
        output = interpreter(content)(x=inputs[:1])["output_0"]
        assert np.abs(output - expected).max() < 0.1 * np.abs(expected).max(), format
        if format == "dense":
            assert len(content) < 0.7 * path.stat().st_size


def test_layers_may_have_names_that_tensorflow_refuses(tmp_path, interpreter):
    explorer = pytest.importorskip("ai_edge_model_explorer_adapter")
    quantizer = pytest.importorskip("litert_quantizer.quantizer")
    recipe = pytest.importorskip("litert_quantizer.recipe")
    layers = [keras.layers.Dense(64, name=name) for name in ("my layer", "größe", "a;b", "_x", "a\0b")]
    inputs = np.random.default_rng(0).normal(size=(4, 64)).astype(np.float32)
    model = keras.Sequential([keras.Input((64,), name="x"), *layers], name="net")
    export_model(model, tmp_path / "a.tflite", "dense", samples=inputs)
    assert {"net/my layer/kernel", "net/größe/kernel", "net/a_b/kernel"} < set(
        names_of(tmp_path / "a.tflite")
    )
    tool = quantizer.Quantizer(str(tmp_path / "a.tflite"))
    tool.load_quantization_recipe(recipe.weight_only_wi8_afp32())
    output = interpreter(bytes(tool.quantize().quantized_model))(x=inputs[:1])["output_0"]
    np.testing.assert_allclose(output, model(inputs[:1]), atol=0.1)
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
        layer_names = {layer.name for layer in model.layers}
        without = [place for place in places if not place & layer_names]
        assert len(places) > 3 and len(without) <= 2, (format, without)  # what has the names of the ends


def stripped(kind):
    """A pruned model without its gates, and a model that never had gates, with the same weights."""
    model, stock = (small_model(kind) for _ in range(2))
    inputs = KINDS[kind]
    model = sc.prune(model, sc.Supermask(0.5, total_steps=2))
    model.compile("sgd", "mse", run_eagerly=True)
    model.fit(inputs, np.ones((len(inputs), 64)), batch_size=4, verbose=0)
    model = sc.strip_pruning(model)
    stock.set_weights(model.get_weights())
    return model, stock


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.filterwarnings("ignore:Layer .* does not have a `quantize` method")
def test_keras_exports_and_quantizes_a_model_without_its_gates(kind, tmp_path, interpreter):
    model, stock = stripped(kind)
    inputs, expected = KINDS[kind], np.asarray(model(KINDS[kind]))
    files = [tmp_path / "a.tflite", tmp_path / "stock.tflite"]
    for network, path in zip((model, stock), files, strict=True):
        network.export(path, format="litert", verbose=False)
    assert len({tuple(operation.name for operation in read_contents(path).operators) for path in files}) == 1
    if kind != "recurrent":  # whose file needs TensorFlow's own operations
        run = interpreter(files[0].read_bytes())
        outputs = np.concatenate([run(x=inputs[i : i + 1])["output_0"] for i in range(2)])
        np.testing.assert_allclose(outputs, expected[:2], atol=1e-4)
    for network in (model, stock):
        network.quantize("int8")
    quantized = np.asarray(model(inputs))
    np.testing.assert_array_equal(quantized, stock(inputs))
    assert np.abs(quantized - expected).max() < 0.1 * np.abs(expected).max()
    kernel = model.get_layer("hidden").kernel
    assert kernel.dtype == "int8" and np.mean(np.asarray(kernel) == 0) > 0.4
    model.export(tmp_path / "saved", format="tf_saved_model", verbose=False)
    saved = tf.saved_model.load(str(tmp_path / "saved"))
    np.testing.assert_allclose(saved.serve(inputs), quantized, atol=1e-5)


def image_task():
    hub = pytest.importorskip("keras_hub")
    backbone = hub.models.ResNetBackbone(
        input_conv_filters=[64],
        input_conv_kernel_sizes=[3],
        stackwise_num_filters=[64, 32],
        stackwise_num_blocks=[1, 1],
        stackwise_num_strides=[1, 2],
        block_type="basic_block",
        image_shape=(24, 24, 3),
    )
    converter = hub.layers.ResNetImageConverter(image_size=(24, 24), scale=1 / 255)
    preprocessor = hub.models.ResNetImageClassifierPreprocessor(converter)
    task = hub.models.ImageClassifier(backbone=backbone, num_classes=4, preprocessor=preprocessor)
    return task, np.random.default_rng(0).integers(0, 256, (8, 40, 30, 3)).astype(np.float32)


def text_task():
    hub = pytest.importorskip("keras_hub")
    words = [
        "[PAD]",
        "[UNK]",
        "[CLS]",
        "[SEP]",
        "[MASK]",
        *["a", "cat", "dog", "sat", "on", "the", "mat", "ran", "far", "away"],
    ]
    tokenizer = hub.models.BertTokenizer(vocabulary=words)
    preprocessor = hub.models.BertTextClassifierPreprocessor(tokenizer, sequence_length=12)
    backbone = hub.models.BertBackbone(
        vocabulary_size=len(words),
        num_layers=1,
        num_heads=2,
        hidden_dim=64,
        intermediate_dim=128,
        max_sequence_length=12,
    )
    for weight in backbone.weights:
        weight.assign(weight * (10 if len(weight.shape) > 1 else 1))
    task = hub.models.BertTextClassifier(backbone=backbone, num_classes=4, preprocessor=preprocessor)
    return task, ["the cat sat on the mat", "a dog ran far", "the dog sat", "a cat ran away"] * 2


@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize("make", [image_task, text_task])
def test_tasks_of_keras_hub_are_pruned_slimmed_and_exported(make, tmp_path, interpreter):
    def outputs_of(path, samples):
        run = interpreter(path.read_bytes())
        dtypes = {name: details["dtype"] for name, details in run.get_input_details().items()}
        arrays = samples if isinstance(samples, dict) else dict.fromkeys(dtypes, samples)
        rows = [
            {name: np.asarray(arrays[name])[i : i + 1].astype(dtypes[name]) for name in dtypes}
            for i in (0, 1)
        ]
        return np.concatenate([run(**row)["output_0"] for row in rows])

    task, raw = make()
    kind = type(task)
    labels, samples = np.arange(8) % 4, task.preprocessor(raw)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    sc.check_exportable(task, inputs=samples)
    task = sc.prune(task, sc.Supermask(0.5, total_steps=8))
    task.compile("sgd", loss)
    history = task.fit(raw, labels, 2, epochs=2, verbose=0)  # batch_size, as PipelineModel orders it
    assert len(history.epoch) == 2
    task = sc.strip_pruning(task)
    assert type(task) is kind
    kernels = [np.asarray(w) for w in task.backbone.weights if w.path.endswith("kernel")]
    assert np.mean([np.mean(kernel == 0) for kernel in kernels]) > 0.3
    sc.export_model(task, tmp_path / "a.tflite", inputs=samples)
    expected = task.predict(raw, verbose=0)[:2]
    outputs = outputs_of(tmp_path / "a.tflite", samples)
    np.testing.assert_allclose(outputs, expected, atol=0.15 * np.abs(expected).max())

    small = sc.slim(task, 0.5)
    assert small.count_params() < 0.8 * task.count_params()
    small.compile("sgd", loss)
    small.fit(samples, labels, verbose=0)
    small.save(tmp_path / "small.keras")
    expected = keras.saving.load_model(tmp_path / "small.keras").predict(samples, verbose=0)[:2]
    report = sc.export_model(small, tmp_path / "small.tflite", inputs=samples)
    assert report.bytes < (tmp_path / "a.tflite").stat().st_size
    outputs = outputs_of(tmp_path / "small.tflite", samples)
    np.testing.assert_allclose(outputs, expected, atol=0.15 * np.abs(expected).max())
