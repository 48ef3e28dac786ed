"""Files give the same results on LiteRT and on TFLite 2.16.1 for Android (its x86_64 and arm64 libraries)."""

import dataclasses

import keras
import numpy as np
import pytest
from ai_edge_litert.interpreter import Interpreter
from tfsparsecap_export import FORMATS
from tfsparsecap_export.caption_files import caption_graph, int8_encoder
from tfsparsecap_export.caption_files.export_captioner import caption_inputs
from tfsparsecap_export.encode import encodings, formats, int8_activations, int8_weights, sparse
from tfsparsecap_export.encode.costs import SparseCost, kernel_costs
from tfsparsecap_export.encode.encoded_file import encode_file
from tfsparsecap_export.flatbuffer import model_file as flatfile
from tfsparsecap_export.keras_to_tflite import graph

from tfsparsecap.captioning.models import SoftAttention
from tfsparsecap.captioning.search.search_options import SearchOptions
from tfsparsecap.captioning.search.sentence_rules import SearchRules

from ..runtimes import tflite_2_16
from .conftest import BEAM, LAYER_ENCODINGS, MAX_LENGTH, prune, quantize_weights, rewritten

pytestmark = pytest.mark.slow

#: Largest differences between the scores of two runtimes in nats. Runtimes add float32 products in different
#: orders: 1.4e-5 was the largest difference measured. A layer with int8 weights quantizes its inputs, which
#: may round a last digit differently: one such step changed scores by up to 0.05. Weights that a runtime
#: misreads change them by several nats.
FLOAT, INT8 = 1e-3, 0.1
#: LiteRT's XNNPACK runs dense int8 layers and quantizes inputs to 256 steps between their minimum and their
#: maximum, TFLite 2.16.1 to 255 steps around zero. 0.12 was the largest difference measured.
DENSE_INT8 = 0.3
#: The same for a transformer, in which each of twelve tokens passes ten such layers: 0.54.
DENSE_INT8_TRANSFORMER = 1.0
#: Differences of the outputs of other models, as fractions of the largest output: 1e-6, a step of int8 0.003,
#: and 0.013 for consecutive dense int8 layers were measured.
FLOAT_OUTPUT, INT8_OUTPUT, DENSE_INT8_OUTPUT = 1e-4, 0.01, 0.03
#: Several layers with int8 activations, each of which may round differently.
INT8_ACTIVATIONS_OUTPUT = 0.05

# Without `SPARSE16`, which no format chooses for tables: with XNNPACK, LiteRT 2.3 and TFLite 2.16.1 do not
# expand it for operators that XNNPACK does not run, such as GATHER, which then return garbage.
TABLE_ENCODINGS = [encodings.FLOAT16, encodings.SPARSE32, encodings.SPARSE_INT8, encodings.INT8]

# Android's interpreter uses XNNPACK; under qemu, each run takes seconds.
RUNTIMES = [("LiteRT", False), ("x86_64", True), ("x86_64", False), ("arm64", True)]


@dataclasses.dataclass
class File:
    """A file, its inputs, and its outputs on LiteRT with XNNPACK."""

    name: str
    content: bytes
    samples: list[dict[str, np.ndarray]]
    tolerance: float
    expected: list[dict[str, np.ndarray]] = dataclasses.field(init=False)

    def __post_init__(self):
        self.expected = run_litert(self.content, self.samples)


def run_litert(content, samples, xnnpack=True):
    from ai_edge_litert.interpreter import OpResolverType

    resolver = OpResolverType.AUTO if xnnpack else OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES
    loaded = Interpreter(model_content=content, experimental_op_resolver_type=resolver)
    runner = loaded.get_signature_runner(next(iter(loaded.get_signature_list())))
    return [runner(**sample) for sample in samples]


@pytest.fixture(params=RUNTIMES, ids=lambda runtime: f"{runtime[0]}{'' if runtime[1] else '-plain'}")
def runtime(request, tmp_path):
    """Runs a `File` on each runtime that must agree with LiteRT."""
    name, xnnpack = request.param
    if name == "LiteRT":
        return lambda file: run_litert(file.content, file.samples, xnnpack)
    tflite_2_16.require(name)

    def run(file):
        path = tmp_path / "model.tflite"
        path.write_bytes(file.content)
        return tflite_2_16.run_each(path, file.samples, name, xnnpack=xnnpack)

    return run


@pytest.fixture(scope="module")
def dense_graph(once):
    """`dense_graph(captioner, inputs, beam)`, converted once."""
    convert = once(caption_graph.caption_graph)
    return lambda captioner, inputs, beam: convert(captioner, inputs, beam, MAX_LENGTH)


def random_features(*shape):
    rng = np.random.default_rng(5)
    return [{"features": rng.normal(size=(1, *shape)).astype(np.float32)} for _ in range(4)]


@pytest.fixture(scope="module")
def formats_files(exported, samples):
    """Captioners pruned in blocks and unstructured, in every format."""
    tolerances = {"auto": INT8, "int8": DENSE_INT8, "dense-int8": DENSE_INT8}
    return [
        File(f"{pattern} {format}", path.read_bytes(), samples[:4], tolerances.get(format, FLOAT))
        for pattern in ("blocks", "unstructured")
        for format in FORMATS
        for path, _ in [exported(pattern, format)]
    ]


@pytest.fixture(scope="module")
def encodings_files(exported, samples):
    """Every encoding of layers and tables, read inside the loop over the words."""
    dense = exported("blocks", "dense")[0].read_bytes()
    tolerances = {encodings.INT8: DENSE_INT8, encodings.BLOCK16: INT8}
    layers = [
        File(encoding, rewritten(dense, encoding), samples[:4], tolerances.get(encoding, FLOAT))
        for encoding in LAYER_ENCODINGS
    ]
    tables = [
        File(f"table {encoding}", rewritten(dense, encoding, sparse.TABLE), samples[:4], FLOAT)
        for encoding in TABLE_ENCODINGS
    ]
    return [*layers, *tables]


@pytest.fixture(scope="module")
def padded_files(dense_graph):
    """A captioner whose layers have numbers of inputs that are not multiples of 16."""
    keras.utils.set_random_seed(7)
    captioner = SoftAttention(
        80, cell="gru", embedding_size=20, rnn_size=72, attention_size=40, feature_size=24
    )
    prune(captioner, 8)
    dense = dense_graph(captioner, caption_inputs(captioner, {"features": (5, 24)}), 1)
    content, layers = encode_file(dense, "auto", steps=MAX_LENGTH)
    assert any("padded" in layer.reason for layer in layers)
    return [File("padded", content, random_features(5, 24), INT8)]


def permutations(content):
    """The int32 vectors of a file that contain each number from 0 to their size once, in another order."""
    model = flatfile.read_model(content)
    tensors = (tensor for subgraph in model.subgraphs for tensor in subgraph.tensors)
    kinds = {tensor.buffer: tensor.type for tensor in tensors}
    for index, buffer in enumerate(model.buffers):
        if buffer.data is not None and kinds.get(index) == flatfile.schema.TensorType.INT32:
            values = buffer.data.view(np.int32)
            numbers = np.arange(values.size)
            if (np.sort(values) == numbers).all() and (values != numbers).any():
                yield values


@pytest.fixture(scope="module")
def ordered_files(dense_graph):
    """Captioners with sorted outputs of the layer of the words, compared with unsorted ones."""
    free = dataclasses.replace(kernel_costs("arm64"), csr=SparseCost(0.0, 0.0, 0.0, 0.0, 0.0))
    files = []
    for block, beam, format, tolerance in ((1, 1, "fast", FLOAT), (16, BEAM, "auto", INT8)):
        keras.utils.set_random_seed(8)
        captioner = SoftAttention(
            600, embedding_size=32, rnn_size=80, attention_size=48, feature_size=32, cell="lstm"
        )
        prune(captioner, block, density=0.06)
        captioner.output_layer.kernel.assign(captioner.output_layer.kernel * 4)
        dense = dense_graph(captioner, caption_inputs(captioner, {"features": (5, 32)}), beam)
        content, layers = encode_file(dense, format, steps=MAX_LENGTH, costs=free)
        assert {encodings.CSR, encodings.BLOCK16} & {layer.encoding for layer in layers}
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(formats, "MIN_SORTED_OUTPUTS", 601)
            plain, _ = encode_file(dense, format, steps=MAX_LENGTH, costs=free)
        sizes = [[order.size for order in permutations(file)] for file in (content, plain)]
        assert sizes == [[600], []]
        files.append(File(f"ordered {block}", content, random_features(5, 32), tolerance))
        for outputs, expected in zip(run_litert(plain, files[-1].samples), files[-1].expected, strict=True):
            np.testing.assert_array_equal(outputs["token_ids"], expected["token_ids"])
            np.testing.assert_allclose(outputs["scores"], expected["scores"], atol=1e-4)
    return files


@pytest.fixture(scope="module")
def int8_encoder_files(parts, samples):
    encoder, decoder = parts
    rounded = int8_weights.round_layers(encoder, samples)
    activations, _ = int8_activations.quantized_network(int8_activations.prepare(encoder, rounded, samples))
    weights, _ = quantize_weights(encoder, samples)
    return [
        File(name, int8_encoder.join_encoder(content, decoder), samples[:4], tolerance)
        for name, content, tolerance in [("weights", weights, FLOAT), ("activations", activations, INT8)]
    ]


@pytest.fixture(scope="module")
def search_files(blocks_captioner, vocabulary, samples):
    """The search for complete sentences; every second word is a function word."""
    rules = SearchRules(blocks_captioner, SearchOptions(function_words=vocabulary[4::2]), vocabulary)
    inputs = caption_inputs(blocks_captioner)
    content = caption_graph.caption_graph(blocks_captioner, inputs, BEAM, MAX_LENGTH, rules=rules)
    return [File("search", content, samples[:4], FLOAT)]


@pytest.fixture(scope="module")
def transformer_files(exported_transformer, samples):
    """A transformer that returns words for digits, in every format."""
    tolerances = {"auto": INT8, "int8": DENSE_INT8_TRANSFORMER, "dense-int8": DENSE_INT8_TRANSFORMER}
    return [
        File(format, path.read_bytes(), samples[:2], tolerances.get(format, FLOAT))
        for format in FORMATS
        for path, _ in [exported_transformer(format)]
    ]


@pytest.mark.parametrize(
    "group", ["formats", "encodings", "padded", "ordered", "int8_encoder", "transformer", "search"]
)
def test_all_runtimes_give_the_same_captions(group, request, runtime):
    """Equal captions of all beams and equal scores; int8 rounding may change one caption."""
    for file in request.getfixturevalue(f"{group}_files"):
        different = 0
        for outputs, expected in zip(runtime(file), file.expected, strict=True):
            np.testing.assert_allclose(
                outputs["scores"], expected["scores"], atol=file.tolerance, rtol=0, err_msg=file.name
            )
            if file.tolerance == FLOAT:
                np.testing.assert_array_equal(outputs["token_ids"], expected["token_ids"], file.name)
            different += not np.array_equal(outputs["token_ids"][0], expected["token_ids"][0])
        assert different <= 1, file.name


@pytest.fixture(scope="module")
def other_model_files(tmp_path_factory, cached_export):
    """A model whose layers must be padded and split for int8 blocks, with an LSTM, a GRU and a table."""
    keras.utils.set_random_seed(2)
    wide, image = keras.Input((4200,), name="wide"), keras.Input((8, 8, 4), name="image")
    ids = keras.Input((5,), dtype="int32", name="ids")
    rows = keras.layers.Embedding(100, 32)(ids)
    parts = [
        keras.layers.Dense(40, activation="relu")(wide),
        keras.layers.GlobalAveragePooling2D()(keras.layers.Conv2D(16, 3, activation="relu")(image)),
        keras.layers.LSTM(32)(rows),
        keras.layers.GRU(32)(rows),
    ]
    hidden = keras.layers.Dense(72, activation="tanh")(keras.layers.Concatenate()(parts))
    model = keras.Model([wide, image, ids], [keras.layers.Dense(50)(hidden), rows])
    rng = np.random.default_rng(2)
    for weight in model.weights:
        if len(weight.shape) == 2:
            inputs, outputs = weight.shape
            mask = np.repeat(rng.random((-(-inputs // 16), outputs)) < 0.3, 16, axis=0)[:inputs]
            weight.assign(np.asarray(weight) * mask)
    samples = [
        {
            "wide": rng.normal(size=(1, 4200)).astype(np.float32),
            "image": rng.normal(size=(1, 8, 8, 4)).astype(np.float32),
            "ids": rng.integers(0, 100, (1, 5), np.int32),
        }
        for _ in range(2)
    ]
    path = tmp_path_factory.mktemp("model") / "model.tflite"
    tolerances = {"auto": INT8_OUTPUT, "int8": DENSE_INT8_OUTPUT, "dense-int8": DENSE_INT8_OUTPUT}
    files = []
    for format in FORMATS:
        cached_export(model, path, format)
        files.append(File(format, path.read_bytes(), samples, tolerances.get(format, FLOAT_OUTPUT)))
    return files


@pytest.mark.parametrize("group", ["other_model", "convolution"])
def test_all_runtimes_give_the_same_outputs_of_other_models(group, request, runtime):
    for file in request.getfixturevalue(f"{group}_files"):
        for outputs, expected in zip(runtime(file), file.expected, strict=True):
            assert outputs.keys() == expected.keys()
            for name, output in expected.items():
                atol = file.tolerance * np.abs(output).max()
                np.testing.assert_allclose(outputs[name], output, atol=atol, rtol=0, err_msg=file.name)


@pytest.fixture(scope="module")
def convolution_files():
    """Each kind of convolution in each encoding, with and without zeros."""
    keras.utils.set_random_seed(3)
    layers = keras.layers
    network = keras.Sequential(
        [
            keras.Input((8, 8, 16), name="image"),
            layers.Conv2D(24, 3, strides=2, padding="same", activation="relu"),
            layers.DepthwiseConv2D(3),
            layers.Conv2DTranspose(16, 3, strides=2, activation="relu"),
            layers.Conv2D(32, 3, groups=4),
            layers.Conv2D(24, 1),
        ]
    )
    rng = np.random.default_rng(3)
    samples = [{"image": rng.normal(size=(1, 8, 8, 16)).astype(np.float32)} for _ in range(2)]
    files = []
    for density in (1.0, 0.2):
        for weight in network.weights:
            if len(weight.shape) == 4:
                weight.assign(np.asarray(weight) * (rng.random(weight.shape) < density))
        dense = graph.model_graph(network)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(int8_weights, "SMALL_LAYER", 0)
            content, reports = quantize_weights(dense, samples)
        expected = encodings.INT8 if density == 1 else encodings.SPARSE_INT8
        assert {layer.encoding for layer in reports} == {expected}
        files.append(File(expected, content, samples, FLOAT_OUTPUT))
        rounded = int8_weights.round_layers(dense, samples)
        prepared = int8_activations.prepare(dense, rounded, samples)
        content, reports = int8_activations.quantized_network(prepared)
        assert {layer.encoding for layer in reports} == {expected}
        files.append(File(f"{expected}, int8 activations", content, samples, INT8_ACTIVATIONS_OUTPUT))
        for encoding in (encodings.FLOAT16, encodings.SPARSE16, encodings.SPARSE32):
            content = rewritten(dense, encoding, sparse.CONVOLUTION)
            files.append(File(f"{encoding} {density}", content, samples, FLOAT_OUTPUT))
    return files


@pytest.fixture(scope="module")
def dense_file(exported, tmp_path_factory):
    path = tmp_path_factory.mktemp("dense") / "dense.tflite"
    path.write_bytes(exported("blocks", "dense")[0].read_bytes())
    return path


@pytest.mark.parametrize("abi", tflite_2_16.ABIS)
def test_the_android_runtime_rejects_newer_operator_versions(abi, dense_file, tmp_path, samples):
    # Otherwise the runtime under test would not be the old one.
    tflite_2_16.require(abi)
    model = flatfile.read_model(dense_file.read_bytes())
    for code in model.operatorCodes:
        if code.builtinCode == flatfile.schema.BuiltinOperator.FULLY_CONNECTED:
            code.version = 12
    path = tmp_path / "new.tflite"
    path.write_bytes(flatfile.write_model(model))
    Interpreter(model_path=str(path)).allocate_tensors()
    with pytest.raises(tflite_2_16.RuntimeFailure, match=r"FULLY_CONNECTED' version '12'"):
        tflite_2_16.run(path, samples[0], abi)
