"""Layers with sorted outputs, on the runtime, compared with NumPy and with unsorted files."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf
from tfsparsecap_export.caption_files import caption_graph
from tfsparsecap_export.encode import encodings, formats, ordering
from tfsparsecap_export.encode.costs import Sparse, of_target
from tfsparsecap_export.encode.encoded_file import encode_file
from tfsparsecap_export.flatbuffer import model_file as flatfile
from tfsparsecap_export.keras_to_tflite import graph

from ..conftest import BEAM, IMAGE_SIZE, MAX_LENGTH, small_captioner, uneven

pytestmark = pytest.mark.slow

IMAGE = tf.TensorSpec((1, IMAGE_SIZE, IMAGE_SIZE, 3), tf.uint8, name="image")


@pytest.mark.parametrize(
    ("encoding", "block"), [(encodings.CSR, 1), (encodings.BLOCK4, 4), (encodings.BLOCK16, 16)]
)
def test_rows_are_sorted_by_their_number_of_blocks(encoding, block):
    values = uneven(300, 64, 16)
    values[7, 3] = values[9, 40] = 1.0
    counts = [sum(row[i : i + block].any() for i in range(0, 64, block)) for row in values]
    order = ordering.order_of(values, encoding)
    assert sorted(order) == list(range(300)) and order.dtype == np.int32
    assert [counts[i] for i in order] == sorted(counts)


def names(content):
    model = flatfile.read_model(content)
    return [flatfile.builtin_name(model, operator) for g in model.subgraphs for operator in g.operators]


@pytest.mark.parametrize(("block", "beam"), [(1, 1), (16, BEAM)])
def test_words_keep_their_ids(beam, block, interpreter, monkeypatch):
    captioner = small_captioner(block, vocabulary_size=400)
    rng = np.random.default_rng(4)
    kernel = np.asarray(captioner.output_layer.kernel)
    captioner.output_layer.kernel.assign(kernel * np.repeat(rng.random((64 // block, 400)) < 0.5, block, 0))
    captioner.output_layer.bias.assign(rng.normal(size=400) * 0.1)
    free = dataclasses.replace(of_target("arm64"), csr=Sparse(0.0, 0.0, 0.0, 0.0, 0.0))
    dense = caption_graph.caption_graph(captioner, {"image": IMAGE}, beam, MAX_LENGTH)
    format = "auto" if block == 16 else "fast"
    ordered, layers = encode_file(dense, format, words=5, sources=graph.weight_sources(captioner), costs=free)
    output = next(layer for layer in layers if layer.name.endswith("output/kernel"))
    assert output.encoding == {1: encodings.CSR, 16: encodings.BLOCK16}[block]
    monkeypatch.setattr(formats, "MIN_SORTED_OUTPUTS", 401)
    plain, _ = encode_file(dense, format, words=5, costs=free)
    assert names(ordered).count("GATHER") > names(plain).count("GATHER")
    for delegate in (True, False):
        runs = [interpreter(content, delegate) for content in (ordered, plain)]
        captions = set()
        for seed in range(6):
            image = np.random.default_rng(seed).integers(0, 256, (1, *IMAGE.shape[1:]), np.uint8)
            found, expected = (run(image=image) for run in runs)
            np.testing.assert_array_equal(found["token_ids"], expected["token_ids"])
            np.testing.assert_allclose(found["scores"], expected["scores"], atol=1e-4)
            captions.add(tuple(found["token_ids"][0]))
        assert len(captions) > 1
