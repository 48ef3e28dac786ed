"""Files of captioners whose captions differ from the Keras model's are rejected."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from tfsparsecap_export import export_model
from tfsparsecap_export.caption_files import caption_check, caption_graph
from tfsparsecap_export.encode import sparse
from tfsparsecap_export.flatbuffer import model_file as flatfile

from tfsparsecap.captioning.models import SoftAttention, UpDown
from tfsparsecap.errors import InputError

pytestmark = pytest.mark.slow


def damaged(content, change):
    """The same file with all values of its largest fully connected layer changed."""
    model = flatfile.read_model(content)
    weights = [w for w in sparse.find_weights(model) if w.role == sparse.FULLY_CONNECTED]
    largest = max(weights, key=lambda weight: weight.values.size)
    model.buffers[largest.buffer].data = np.frombuffer(
        change(largest.values).astype(np.float32).tobytes(), np.uint8
    )
    return flatfile.write_model(model)


@pytest.fixture(autouse=True)
def traced_once(monkeypatch, once):
    for name in ("Decoder", "caption_scorer"):
        monkeypatch.setattr(caption_check, name, once(getattr(caption_check, name)))


@pytest.fixture(scope="module")
def dense(exported):
    return exported("blocks", "dense")[0].read_bytes()


def check(content, captioner, export_options, **options):
    samples = export_options["samples"]
    return caption_check.verify_captions(
        captioner, content, samples, beam=3, max_length=6, **{"all_float": True, **options}
    )


def test_a_correct_file_passes(dense, blocks_captioner, export_options):
    verification = check(dense, blocks_captioner, export_options, source="images")
    assert verification.equal == verification.equal_beams == 1.0
    assert (verification.samples, verification.source) == (6, "images")
    assert verification.error < 1e-3 and verification.runtime.startswith("LiteRT 2.")


@pytest.mark.parametrize("all_float", [True, False])
@pytest.mark.parametrize(
    ("change", "message"),
    [(lambda values: values * np.nan, "NaN"), (lambda values: np.roll(values, 7), "score")],
)
def test_wrong_scores_are_rejected_whatever_the_tolerance(
    dense, blocks_captioner, export_options, all_float, change, message
):
    content = damaged(dense, change)
    with pytest.raises(InputError, match=message):
        check(content, blocks_captioner, export_options, all_float=all_float, tolerance=1.0)
    with pytest.raises(InputError, match="does not load"):
        check(b"no model at all", blocks_captioner, export_options)


def test_wrong_probabilities_of_objects_are_rejected():
    keras.utils.set_random_seed(0)
    sizes = {"embedding_size": 8, "rnn_size": 8, "attention_size": 8, "feature_size": 6}
    captioner = UpDown(30, **sizes, objects=["cat", "dog"])
    bias = captioner.object_scores.bias
    bias.assign([-2.5, -3.0])
    random = np.random.default_rng(0)
    samples = [{"features": random.normal(size=(1, 5, 6)).astype("float32")} for _ in range(2)]
    content = caption_graph.caption_graph(captioner, {"features": tf.TensorSpec((1, 5, 6), tf.float32)}, 3, 6)
    verification = check(content, captioner, {"samples": samples})
    assert verification.equal == 1 and verification.objects_error < 1e-5
    # Its objects do not change an Up-Down's captions.
    for change, all_float in ((0.6, True), (2.5, False), (np.nan, False)):
        bias.assign([-2.5 + change, -3.0])
        with pytest.raises(InputError, match=r"probabilities of objects .* differ from the Keras"):
            check(content, captioner, {"samples": samples}, all_float=all_float, tolerance=1.0)
    bias.assign([-2.5 + 0.6, -3.0])
    assert 0.05 < check(content, captioner, {"samples": samples}, all_float=False).objects_error < 0.3


def test_more_different_captions_than_tolerated_are_rejected(
    dense, blocks_captioner, export_options, monkeypatch
):
    monkeypatch.setitem(caption_check.SCORE_ERROR, True, 100.0)
    content = damaged(dense, lambda values: values * 0.5)
    with pytest.raises(caption_check.CaptionsDiffer, match="of 6 captions"):
        check(content, blocks_captioner, export_options)
    assert check(content, blocks_captioner, export_options, tolerance=1.0).equal < 1


def test_a_captioner_that_is_random_at_inference_is_rejected(tmp_path):
    class Noisy(SoftAttention):
        def encode(self, inputs, training=False):
            memory = super().encode(inputs, training)
            return {**memory, "features": memory["features"] + keras.random.normal((1, 4, 7))}

    captioner = Noisy(30, embedding_size=6, rnn_size=8, attention_size=5, feature_size=7)
    with pytest.raises(InputError, match="different outputs for the same input"):
        export_model(captioner, tmp_path / "a.tflite", inputs={"features": (4, 7)})
    assert not list(tmp_path.iterdir())
