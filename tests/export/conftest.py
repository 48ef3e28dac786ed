"""Small sparse captioners that describe different images differently, and their exported files."""

import dataclasses
import functools

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import ops
from tfsparsecap_export import CaptionOptions, export_model
from tfsparsecap_export.caption_files import caption_check, caption_graph
from tfsparsecap_export.encode import costs, encodings, int8_weights, sparse
from tfsparsecap_export.encode.costs import SparseCost
from tfsparsecap_export.flatbuffer import model_file as flatfile
from tfsparsecap_export.keras_to_tflite import graph

from tfsparsecap.captioning.data.radix import RadixTokenizer
from tfsparsecap.captioning.data.tokenizers import WordTokenizer
from tfsparsecap.captioning.models import ObjectRelationTransformer, SoftAttention

#: Every encoding of a layer except float32.
LAYER_ENCODINGS = [
    encodings.FLOAT16,
    encodings.SPARSE16,
    encodings.SPARSE32,
    encodings.CSR,
    encodings.BLOCK4,
    encodings.BLOCK16,
    encodings.INT8,
]
IMAGE_SIZE, VOCABULARY_SIZE, MAX_LENGTH, BEAM = 16, 80, 6, 3
#: Maximum number of digits in a caption of four words.
DIGITS_LENGTH = 8


@keras.saving.register_keras_serializable("export_tests")
class PatchEncoder(keras.layers.Layer):
    """One convolution over patches of 4 x 4 pixels."""

    image_size = IMAGE_SIZE
    features_shape = (16, 64)

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.convolution = keras.layers.Conv2D(64, 4, strides=4, activation="relu", name="convolution")
        self.convolution.build((None, IMAGE_SIZE, IMAGE_SIZE, 3))
        self.built = True

    def call(self, image, training=False):
        return ops.reshape(self.convolution(ops.cast(image, "float32") / 127.5 - 1.0), (-1, 16, 64))


def prune(model, block, density=0.2, seed=0):
    """Sets most weights of the decoder's kernels to zero, in blocks of `block` inputs."""
    rng = np.random.default_rng(seed)
    for weight in model.weights:
        rows, columns = (*weight.shape, 0)[:2]
        if len(weight.shape) == 2 and rows % block == 0 and "score" not in weight.path:
            mask = np.repeat(rng.random((rows // block, columns)) < density, block, axis=0)
            weight.assign(np.asarray(weight) * mask * 4)


def small_captioner(block=16, vocabulary_size=VOCABULARY_SIZE, **changes):
    """A captioner with an encoder, pruned in blocks of `block` inputs; 1 means unstructured."""
    keras.utils.set_random_seed(7)
    sizes = {"embedding_size": 32, "rnn_size": 64, "attention_size": 48, "encoder": PatchEncoder()}
    model = SoftAttention(vocabulary_size, **{**sizes, **changes})
    prune(model, block)
    for weight in model.encoder.weights + model.output_layer.weights:
        weight.assign(weight * 8)  # otherwise all images would get the same caption
    return model


def rewritten(dense, encoding, role=sparse.FULLY_CONNECTED):
    """A dense file with all weights of a role in one encoding."""
    model = flatfile.read_model(dense)
    changes = [
        sparse.change(weight, encoding) for weight in sparse.find_weights(model) if weight.role == role
    ]
    assert changes
    sparse.rewrite(model, changes)
    return flatfile.write_model(model)


def quantize_weights(content, samples):
    """A network whose weights are int8, rounded for samples as in a captioner; and a report."""
    rounded = int8_weights.round_layers(content, samples)
    return int8_weights.store_weights(content, rounded, samples=len(samples), multiplied=True)


def sparse_weights(block, density=0.1, shape=(32, 64)):
    """float32 [outputs, inputs] with random zeros in blocks of `block` inputs; `block` 0 is dense."""
    rng = np.random.default_rng(2)
    weights = rng.normal(size=shape).astype(np.float32)
    if block == 0:
        return weights
    return weights * np.repeat(rng.random((shape[0], shape[1] // block)) < density, block, axis=1)


def convert_with_tensorflow(weights, *optimizations, float16=False):
    """A matrix product with these weights, converted to .tflite by TensorFlow's own converter."""
    constant = tf.constant(weights.T)
    function = tf.function(
        lambda x: {"y": tf.matmul(x, constant)},
        input_signature=[tf.TensorSpec((1, weights.shape[1]), tf.float32, name="x")],
    )
    module = tf.Module()
    module.function = function
    converter = tf.lite.TFLiteConverter.from_concrete_functions([function.get_concrete_function()], module)
    converter.optimizations = list(optimizations)
    if float16:
        converter.target_spec.supported_types = [tf.float16]
    return converter.convert()


@pytest.fixture(scope="session")
def converted():
    """Files of TensorFlow's own converter, keyed by how it encoded the weights."""
    default, sparsity = tf.lite.Optimize.DEFAULT, tf.lite.Optimize.EXPERIMENTAL_SPARSITY
    single, blocks4, blocks16 = (sparse_weights(block) for block in (1, 4, 16))
    return {
        "float32": convert_with_tensorflow(single),
        "dynamic range": convert_with_tensorflow(single, default),
        "float16": convert_with_tensorflow(single, default, float16=True),
        "sparse": convert_with_tensorflow(single, sparsity),
        "sparse 1x4": convert_with_tensorflow(blocks4, sparsity),
        "sparse float16": convert_with_tensorflow(single, default, sparsity, float16=True),
        "sparse float16 1x4": convert_with_tensorflow(blocks4, default, sparsity, float16=True),
        "sparse dynamic range": convert_with_tensorflow(single, default, sparsity),
        "sparse dynamic range 1x16": convert_with_tensorflow(blocks16, default, sparsity),
    }


@pytest.fixture
def written(tmp_path):
    """A function that writes the bytes of a .tflite file and returns its path."""

    def write(content):
        (tmp_path / "a.tflite").write_bytes(content)
        return tmp_path / "a.tflite"

    return write


@pytest.fixture(scope="session")
def blocks_captioner():
    return small_captioner(16)


@pytest.fixture(scope="session")
def unstructured_captioner():
    return small_captioner(1)


@pytest.fixture(scope="session")
def objects_captioner():
    """A captioner that finds different objects in different images."""
    model = small_captioner(16, objects=["cat", "dog", "sofa", "person"])
    model.object_scores.kernel.assign(model.object_scores.kernel * 2)
    model.object_scores.bias.assign([-3.5, -2.5, -4.5, -4.0])
    return model


@pytest.fixture(scope="session")
def vocabulary():
    return ["<pad>", "<start>", "<end>", "<unk>"] + [f"word{i}" for i in range(VOCABULARY_SIZE - 4)]


@pytest.fixture(scope="session")
def digits(vocabulary):
    """A tokenizer that writes words as two digits of base 9, with 12 tokens."""
    return RadixTokenizer(WordTokenizer(vocabulary), 9)


@pytest.fixture(scope="session")
def transformer_captioner(digits):
    """A compact Object Relation Transformer over the cells of the encoder's feature map, pruned in blocks."""
    keras.utils.set_random_seed(4)
    model = ObjectRelationTransformer(
        len(digits),
        size=64,
        hidden_size=96,
        layers=2,
        heads=4,
        max_length=DIGITS_LENGTH,
        encoder=PatchEncoder(),
        share_decoder_layers=[0, 0],
        share_encoder_attention="qk",
        share_decoder_attention="kv",
        start_id=digits.start_id,
        end_id=digits.end_id,
        pad_id=digits.pad_id,
    )
    prune(model, 16, density=0.4)
    for weight in model.encoder.weights:
        weight.assign(weight * 8)
    return model


@pytest.fixture(scope="session")
def images():
    rng = np.random.default_rng(3)
    patches = rng.integers(0, 256, (6, 4, 4, 3), np.uint8)
    return [np.kron(patch, np.ones((4, 4, 1), np.uint8)) for patch in patches]


@pytest.fixture(scope="session")
def samples(images):
    return [{"image": image[None]} for image in images]


@pytest.fixture(scope="session")
def export_options(vocabulary, samples):
    captions = CaptionOptions(beam=BEAM, max_length=MAX_LENGTH, vocabulary=vocabulary, search=None)
    return {"captions": captions, "samples": samples}


@pytest.fixture(scope="session")
def once():
    """`once(function)` caches a function of a model by model and arguments."""
    results, models = {}, []

    def wrap(function):
        def call(model, *arguments, **options):
            key = (function.__name__, id(model), repr(arguments), repr(options))
            if key not in results:
                models.append(model)  # keeps a reference, so that no other model gets the same id
                results[key] = function(model, *arguments, **options)
            return results[key]

        return call

    return wrap


@pytest.fixture(scope="session")
def cached_export(once):
    """`export_model` that converts each model, and traces its Keras version, once for all formats."""
    replaced = [(caption_graph, "caption_graph"), (graph, "model_graph"), (caption_check, "Decoder")]
    replaced.append((caption_check, "caption_scorer"))
    replacements = [(module, name, once(getattr(module, name))) for module, name in replaced]

    def export(*arguments, **options):
        with pytest.MonkeyPatch.context() as patch:
            for replacement in replacements:
                patch.setattr(*replacement)
            return export_model(*arguments, **options)

    return export


@pytest.fixture(scope="session")
def exported(tmp_path_factory, blocks_captioner, unstructured_captioner, export_options, cached_export):
    """Files of captioners, made once: `exported("blocks", "auto")` gives the path and the report."""
    folder = tmp_path_factory.mktemp("exported")
    captioners = {"blocks": blocks_captioner, "unstructured": unstructured_captioner}

    @functools.cache
    def get(pattern, format):
        path = folder / f"{pattern}_{format}.tflite"
        return path, cached_export(captioners[pattern], path, format, **export_options)

    return get


@pytest.fixture(scope="session")
def exported_transformer(tmp_path_factory, transformer_captioner, digits, samples, cached_export):
    """Files of the transformer, which return words, made once: `exported_transformer("auto")`."""
    folder = tmp_path_factory.mktemp("transformer")
    captions = CaptionOptions(beam=BEAM, max_length=DIGITS_LENGTH, tokenizer=digits, search=None)

    @functools.cache
    def get(format):
        path = folder / f"{format}.tflite"
        return path, cached_export(
            transformer_captioner, path, format, captions=captions, samples=samples[:2]
        )

    return get


@pytest.fixture(scope="session")
def parts(blocks_captioner):
    """The float32 files of a captioner's encoder and decoder."""
    image = tf.TensorSpec((1, IMAGE_SIZE, IMAGE_SIZE, 3), tf.uint8, name="image")
    features = {"features": tf.TensorSpec((1, 16, 64), tf.float32, name="features")}
    decoder = caption_graph.caption_graph(blocks_captioner, features, BEAM, MAX_LENGTH)
    return caption_graph.encoder_graph(blocks_captioner, image), decoder


@pytest.fixture
def interpreter():
    """Loads the bytes of a .tflite file: `interpreter(content, delegate=True)(**inputs)` runs it."""
    from ai_edge_litert.interpreter import Interpreter, OpResolverType

    def load(content, delegate=True):
        resolver = OpResolverType.AUTO if delegate else OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES
        loaded = Interpreter(model_content=content, experimental_op_resolver_type=resolver)
        return loaded.get_signature_runner(next(iter(loaded.get_signature_list())))

    return load


@pytest.fixture
def check_outputs(interpreter):
    """`check_outputs(content, inputs, expected, tolerance)` runs a file of one output with each kernel.

    `inputs` are arrays by name, or the only one. The tolerance is relative to the largest expected value.
    """

    def check(content, inputs, expected, tolerance):
        for delegate in (True, False):
            run = interpreter(content, delegate)
            (outputs,) = run(
                **(inputs if isinstance(inputs, dict) else {next(iter(run.get_input_details())): inputs})
            ).values()
            np.testing.assert_allclose(outputs, expected, atol=tolerance * np.abs(expected).max())

    return check


def uneven(outputs, inputs, block, seed=0):
    """A matrix [outputs, inputs] whose rows keep between 0 and 30 % of their blocks."""
    rng = np.random.default_rng(seed)
    mask = rng.random((outputs, inputs // block)) < rng.uniform(0, 0.3, (outputs, 1))
    return (rng.normal(size=(outputs, inputs)) * np.repeat(mask, block, axis=1)).astype(np.float32)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item):
    """1x16 blocks cost nothing in these tests, so that their small layers are stored in them.

    Hooks are called for the tests of this folder; a fixture of the session would stay for all others, too.
    """
    arm64_costs = dataclasses.replace(
        costs.kernel_costs("arm64"), block16=SparseCost(0.0, 0.0, 0.0, 0.0, 0.0)
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(costs.TARGETS, "arm64", arm64_costs)
        return (yield)


pytest_runtest_call = pytest_runtest_setup
