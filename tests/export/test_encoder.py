"""An int8 encoder in front of a float decoder: one file, and what it computes."""

import numpy as np
import pytest
import tensorflow as tf
from tfsparsecap_export import encoder, flatfile, graph, sparse

from .conftest import BEAM, IMAGE_SIZE, MAX_LENGTH

IMAGE = tf.TensorSpec((1, IMAGE_SIZE, IMAGE_SIZE, 3), tf.uint8, name="image")
FEATURES = {"features": tf.TensorSpec((1, 16, 64), tf.float32, name="features")}


@pytest.fixture(scope="module")
def files(blocks_captioner, pictures):
    """The int8 encoder, the decoder, and both in one."""
    quantized = graph.encoder_graph(blocks_captioner, IMAGE, [picture[None] for picture in pictures])
    decoder = graph.caption_graph(blocks_captioner, FEATURES, BEAM, MAX_LENGTH)
    return quantized, decoder, encoder.joined(quantized, decoder)


def test_features_are_those_of_keras_to_int8s_steps(files, blocks_captioner, pictures, interpreter):
    run = interpreter(files[0])
    for picture in pictures:
        expected = np.asarray(blocks_captioner.encoder(picture[None]))
        given = run(image=picture[None])["features"]
        np.testing.assert_allclose(given, expected, atol=0.03 * np.abs(expected).max())


@pytest.mark.parametrize("delegate", [True, False])
def test_one_file_says_what_the_two_say_one_after_the_other(files, pictures, interpreter, delegate):
    quantized, decoder, joined = (interpreter(content, delegate) for content in files)
    for picture in pictures:
        features = quantized(image=picture[None])["features"]
        expected = decoder(features=features)
        given = joined(image=picture[None])
        np.testing.assert_array_equal(given["token_ids"], expected["token_ids"])
        np.testing.assert_allclose(given["scores"], expected["scores"], atol=1e-5)


def test_one_file_has_the_encoders_input_and_the_decoders_outputs(files, interpreter):
    run = interpreter(files[2])
    (details,) = run.get_input_details().values()
    assert tuple(details["shape"]) == IMAGE.shape and details["dtype"] == np.uint8
    assert set(run.get_output_details()) == {"token_ids", "scores"}


def test_weights_of_the_decoder_can_still_be_found_and_the_encoders_are_int8_already(files):
    _, decoder, joined = (flatfile.read_model(content) for content in files)
    found = sparse.find_weights(joined)
    assert {weight.name for weight in found} == {weight.name for weight in sparse.find_weights(decoder)}
    assert all(weight.role != sparse.CONVOLUTION for weight in found)


def test_the_report_counts_the_encoders_weights(files, blocks_captioner):
    row = encoder.report_of(files[0], calibration=6)
    kernels = [weight for weight in blocks_captioner.encoder.weights if len(weight.shape) > 1]
    assert row.weights == sum(int(np.prod(weight.shape)) for weight in kernels)
    assert row.weights <= row.bytes < len(files[0])
    assert (row.name, row.encoding) == ("encoder", sparse.INT8) and "6 pictures" in row.reason
