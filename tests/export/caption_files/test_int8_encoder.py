"""An int8 encoder in front of a float decoder in one file."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from tfsparsecap_export import CaptionOptions
from tfsparsecap_export.caption_files import caption_graph
from tfsparsecap_export.caption_files import int8_encoder as encoder
from tfsparsecap_export.encode import encodings, int8_activations, int8_weights, sparse
from tfsparsecap_export.encode.costs import kernel_costs
from tfsparsecap_export.flatbuffer import model_file as flatfile

from tfsparsecap.captioning.inference.bundle import TFLiteCaptioner
from tfsparsecap.captioning.models import (
    ApplicationsEncoder,
    EfficientNetLiteEncoder,
    InceptionV1Encoder,
    KerasHubEncoder,
    SoftAttention,
    TinyViTEncoder,
)
from tfsparsecap.captioning.search.beam_search import Decoder
from tfsparsecap.pruning import prune, strip_pruning

from ...conftest import save_preset
from ..conftest import BEAM, IMAGE_SIZE, MAX_LENGTH, quantize_weights

pytestmark = pytest.mark.slow

IMAGE = tf.TensorSpec((1, IMAGE_SIZE, IMAGE_SIZE, 3), tf.uint8, name="image")


@pytest.fixture(scope="module")
def quantized(parts, samples):
    """The int8 encoder, and the reports on its layers."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(int8_weights, "SMALL_LAYER", 1000)
        return quantize_weights(parts[0], samples)


@pytest.fixture(scope="module")
def files(parts, quantized):
    """The int8 encoder, the decoder, and both in one."""
    return quantized[0], parts[1], encoder.join_encoder(quantized[0], parts[1])


@pytest.mark.parametrize("delegate", [True, False])
def test_the_joined_file_gives_the_results_of_encoder_and_decoder(files, images, interpreter, delegate):
    quantized, decoder, joined = (interpreter(content, delegate) for content in files)
    (details,) = joined.get_input_details().values()
    assert tuple(details["shape"]) == IMAGE.shape and details["dtype"] == np.uint8
    assert set(joined.get_output_details()) == {"token_ids", "scores"}
    for image in images:
        features = quantized(image=image[None])["features"]
        expected = decoder(features=features)
        results = joined(image=image[None])
        np.testing.assert_array_equal(results["token_ids"], expected["token_ids"])
        np.testing.assert_allclose(results["scores"], expected["scores"], atol=1e-5)


def test_only_the_decoders_weights_of_a_joined_file_can_be_encoded(files):
    _, decoder, joined = (flatfile.read_model(content) for content in files)
    weights = sparse.find_weights(joined)
    assert {weight.name for weight in weights} == {weight.name for weight in sparse.find_weights(decoder)}
    assert all(weight.role != sparse.CONVOLUTION for weight in weights)


def test_the_report_counts_the_encoders_weights(files, blocks_captioner, quantized):
    row = encoder.encoder_report("encoder", quantized[1], calibration=6)
    kernels = [weight for weight in blocks_captioner.encoder.weights if len(weight.shape) > 1]
    assert row.weights == sum(int(np.prod(weight.shape)) for weight in kernels)
    assert row.weights <= row.bytes < len(files[0])
    assert (row.name, row.encoding) == ("encoder", encodings.INT8) and "6 images" in row.reason


@pytest.fixture(scope="module")
def inception_captioner():
    """A captioner with a pruned Inception-V1 whose weights are frozen."""
    keras.utils.set_random_seed(3)
    encoder = InceptionV1Encoder("Mixed_3c", image_size=64)
    captioner = SoftAttention(30, embedding_size=8, rnn_size=16, attention_size=8, encoder=encoder)
    prune(captioner, "magnitude", sparsity=0.5, allocation="uniform", prune_frozen=True)
    strip_pruning(captioner)
    random = np.random.default_rng(4)
    for layer in encoder.backbone.layers:
        if isinstance(layer, keras.layers.BatchNormalization):
            layer.moving_mean.assign(random.normal(0, 0.3, layer.moving_mean.shape))
            layer.moving_variance.assign(random.uniform(0.5, 2, layer.moving_variance.shape))
            layer.beta.assign(random.normal(0, 0.3, layer.beta.shape))
    for weight in captioner.output_layer.weights:
        weight.assign(weight * 8)  # otherwise all images would get the same caption
    return captioner


@pytest.fixture(scope="module")
def photos():
    patches = np.random.default_rng(5).integers(0, 256, (4, 4, 4, 3), np.uint8)
    return [np.kron(patch, np.ones((16, 16, 1), np.uint8)) for patch in patches]


def test_a_file_with_inception_gives_the_captions_of_keras(
    inception_captioner, photos, tmp_path, cached_export, once
):
    path = tmp_path / "inception.tflite"
    samples = [{"image": photo[None]} for photo in photos]
    options = CaptionOptions(beam=2, max_length=5, search=None)
    kernels = [weight for weight in inception_captioner.encoder.weights if len(weight.shape) == 4]
    decode = once(Decoder)(inception_captioner, 2, 5, None)
    report = cached_export(inception_captioner, path, "compact", captions=options, samples=samples)
    assert report.verification.equal == 1.0
    stored = [layer for layer in report.layers if layer.role == sparse.CONVOLUTION]
    assert sorted(layer.weights for layer in stored) == sorted(np.prod(x.shape) for x in kernels)
    assert sum(layer.nonzeros for layer in stored) == sum(map(np.count_nonzero, kernels))
    file, captions = TFLiteCaptioner(path), set()
    for photo, sample in zip(photos, samples, strict=True):
        expected_ids, expected_scores = decode(sample)
        token_ids, scores = file.token_ids(photo)
        np.testing.assert_array_equal(token_ids[0], expected_ids[0][0])
        np.testing.assert_allclose(scores, expected_scores[0], atol=0.05)
        captions.add(tuple(token_ids[0]))
    assert len(captions) > 1


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(
            lambda folder: EfficientNetLiteEncoder(layer="blocks.10", image_size=64, weights=None), id="lite"
        ),
        pytest.param(
            lambda folder: TinyViTEncoder("stages.1.blocks.1", image_size=64, weights=None), id="tiny_vit"
        ),
        pytest.param(
            lambda folder: ApplicationsEncoder("MobileNetV3Small", image_size=64, weights=None),
            id="applications",
        ),
        pytest.param(lambda folder: KerasHubEncoder(save_preset(folder), image_size=64), id="keras_hub"),
    ],
)
def test_each_kind_of_encoder_is_pruned_and_quantized(make, tmp_path, photos, interpreter):
    keras.utils.set_random_seed(3)
    encoder = make(tmp_path / "preset")
    encoder.trainable = True
    model = keras.Sequential([keras.Input((64, 64, 3)), encoder])
    prune(model, "magnitude", sparsity=0.5, allocation="uniform")
    strip_pruning(model)
    kernels = [np.asarray(weight) for weight in encoder.weights if len(weight.shape) > 1]
    zeros = sum(np.count_nonzero(kernel == 0) for kernel in kernels)
    assert zeros > 0.45 * sum(kernel.size for kernel in kernels)

    captioner = SoftAttention(30, embedding_size=8, rnn_size=16, attention_size=8, encoder=encoder)
    image = tf.TensorSpec((1, 64, 64, 3), tf.uint8, name="image")
    float32 = caption_graph.encoder_graph(captioner, image)
    content, _ = quantize_weights(float32, [{"image": photo[None]} for photo in photos])
    assert len(content) < 0.5 * len(float32)
    run = interpreter(content)
    for photo in photos:
        expected = np.asarray(encoder(photo[None]))
        error = run(image=photo[None])["features"] - expected
        assert np.sqrt(np.mean(error**2)) < 0.1 * np.std(expected)


@pytest.fixture
def encoders(parts, images, monkeypatch):
    """`encoders(milliseconds)`: the networks, if those with int8 weights and activations take these."""

    def run(milliseconds=(2.0, 1.0), activations=True):
        times = iter(milliseconds)
        monkeypatch.setattr(encoder, "network_ms", lambda content, costs: next(times))
        samples = [{"image": image[None]} for image in images]
        costs = kernel_costs("arm64")
        return encoder.files_with_int8_encoder(
            *parts, samples, costs=costs, activations=activations, keep_zeros=False
        )

    return run


def test_a_captioners_encoder_has_int8_activations_if_they_are_faster(
    encoders, blocks_captioner, images, interpreter
):
    networks, notes = encoders()
    assert list(networks) == ["encoder/activations", "encoder"] and not notes
    content, (report,) = networks["encoder/activations"]
    assert (report.name, report.encoding) == ("encoder/activations", encodings.INT8)
    model = flatfile.read_model(content)
    inputs = [
        model.subgraphs[0].tensors[operator.inputs[0]].type
        for operator in model.subgraphs[0].operators
        if flatfile.builtin_name(model, operator) == "CONV_2D"
    ]
    assert inputs == [flatfile.schema.TensorType.INT8]
    decode = Decoder(blocks_captioner, BEAM, MAX_LENGTH)
    run = interpreter(content)
    for image in images:
        expected = np.asarray(decode({"image": image[None]})[1])[0, 0]
        assert run(image=image[None])["scores"][0] == pytest.approx(expected, abs=0.3)


def test_the_activations_of_an_encoder_may_stay_float(encoders, monkeypatch):
    assert list(encoders(activations=False)[0]) == list(encoders((1.0, 1.0))[0]) == ["encoder"]

    def refuse(*arguments, **options):
        raise int8_activations.CannotQuantize("the network has loops")

    monkeypatch.setattr(int8_activations, "prepare", refuse)
    networks, notes = encoders()
    assert list(networks) == ["encoder"]
    assert notes == ["The encoder's activations stay float: the network has loops."]
