"""A finished run, loaded from its folder."""

import shutil

import numpy as np
import pytest

from tfsparsecap.data.images import read_image
from tfsparsecap.errors import InputError
from tfsparsecap.inference.finished_run import FinishedRun, describe
from tfsparsecap.settings.build import load_data, make_captioner
from tfsparsecap.settings.files import load_config
from tfsparsecap.summary.nonzeros import weight_counts


def test_a_run_captions_an_image_best_first(tiny_run):
    trained = FinishedRun.load(tiny_run)
    path = load_data(trained.config).records[0].image
    captions = trained.caption(read_image(path, trained.image_size), beam=3)
    scores = [score for _, score in captions]
    assert len(captions) == 3 and scores == sorted(scores, reverse=True)
    (greedy,) = trained.caption(read_image(path, trained.image_size))
    assert greedy[1] <= scores[0] + 1e-5


def test_evaluation_captions_every_image_of_the_split_as_one_by_one(tiny_run):
    trained = FinishedRun.load(tiny_run)
    data = load_data(trained.config)
    scores, captions = trained.evaluate(data, "test", progress=False)
    assert scores["images"] == len(captions) == 4 and scores["beam"] == 1
    for record, caption in zip(data.split("test"), captions, strict=True):
        assert caption.image_id == record.image_id and caption.references == record.captions
        ((text, score),) = trained.caption(read_image(record.image, trained.image_size))
        assert text == caption.caption and score == pytest.approx(caption.score, abs=1e-4)
    assert dict(describe(scores))["captions"] == "test, 4 images, beam 1"
    # So that they can be counted beside captioners whose encoder is pruned.
    kernels = [v for v in trained.captioner.encoder.variables if v.path.endswith("kernel")]
    assert scores["encoder_weights"] == sum(np.prod(kernel.shape) for kernel in kernels)
    assert scores["encoder_nonzero_weights"] == sum(np.count_nonzero(kernel.numpy()) for kernel in kernels)


def test_weights_are_counted_without_the_encoder_and_biases(tiny_run):
    captioner = FinishedRun.load(tiny_run).captioner
    counts = weight_counts(captioner)
    kernels = [np.array(v) for v in captioner.variables if v.path.endswith(("kernel", "embeddings"))]
    encoder = [np.array(v) for v in captioner.encoder.variables if v.path.endswith("kernel")]
    expected = sum(kernel.size for kernel in kernels) - sum(kernel.size for kernel in encoder)
    assert counts == {"weights": expected, "nonzero_weights": expected, "sparsity": 0.0}
    first = captioner.output_layer.kernel
    first.assign(np.zeros(first.shape))
    assert weight_counts(captioner)["nonzero_weights"] == expected - np.prod(first.shape)


def test_the_bias_of_a_gru_is_no_weight(tiny_settings):
    config = load_config(None, [*tiny_settings, "model.cell=gru"])
    captioner = make_captioner(config, 12)
    assert captioner.cell.bias.shape == (2, 48)
    expected = sum(v.shape[0] * v.shape[1] for v in captioner.cell.weights if "bias" not in v.path)
    others = [captioner.embedding, captioner.initial_hidden, captioner.output_layer]
    others += [captioner.attention_features, captioner.attention_query, captioner.attention_score]
    expected += sum(layer.weights[0].shape[0] * layer.weights[0].shape[1] for layer in others)
    assert weight_counts(captioner)["weights"] == expected


def test_folders_that_cannot_be_used_are_named(tiny_run, tmp_path):
    with pytest.raises(InputError, match="is no run folder"):
        FinishedRun.load(tmp_path)
    copy = tmp_path / "copy"
    shutil.copytree(tiny_run, copy)
    (copy / "model.keras").write_bytes(b"no model")
    with pytest.raises(InputError, match=r"cannot read .*model\.keras"):
        FinishedRun.load(copy)
    (copy / "model.keras").unlink()
    with pytest.raises(InputError, match=r"has no model\.keras yet: finish it with --resume"):
        FinishedRun.load(copy)


def test_an_empty_split_is_named(tiny_run):
    trained = FinishedRun.load(tiny_run)
    data = load_data(trained.config)
    data.records[:] = data.split("train")
    with pytest.raises(InputError, match="the test split of scenes has no images"):
        trained.evaluate(data, "test")


def test_the_table_says_what_is_absent_and_what_is_odd():
    scores = {
        "split": "given",
        "images": 9,
        "beam": None,
        "CIDEr": 0.5,
        "exact_match": 0.25,
        "distinct": 1.0,
        "mean_length": 4.2,
        "vocabulary_used": 30,
        "empty_captions": 2,
        "references_without_caption": 7,
        "without_references": ["a", "b"],
        "not_computed": {"SPICE": "there is no Java"},
    }
    table = dict(describe(scores))
    assert table["captions"] == (
        "given, 9 images; 2 that have no word in a reference left out (a, b); 2 captions without a word,"
        " which score 0; 7 more images have references and no caption"
    )
    assert table["CIDEr"] == "0.500" and table["SPICE"] == "not computed: there is no Java"
    assert table["words"] == "4.2 a caption, 30 different ones" and "METEOR" not in table
