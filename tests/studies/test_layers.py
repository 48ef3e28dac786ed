"""Layer-wise sparsities, against NumPy's counts and the published tables."""

import shutil
from xml.etree import ElementTree

import keras
import numpy as np
import pytest
from PIL import Image

import tfsparsecap as sc
from tfsparsecap.errors import InputError
from tfsparsecap.inference.finished_run import FinishedRun
from tfsparsecap.models.encoders.inception_v1 import inception_v1
from tfsparsecap.studies.layers import (
    Layer,
    by_published_name,
    compare,
    describe,
    layers_figure,
    layers_of_runs,
    layerwise,
    plot_layerwise,
)
from tfsparsecap.studies.published_curves import read_layers

LSTM = "layerwise__Layer-wise_Sparsities_of_Soft-Attention_LSTM_MS-COCO_.tsv"
INCEPTION = "layerwise__Layer-wise_Sparsities_of_Soft-Attention_Inception-V1_MS-COCO_.tsv"
MOBILENET = "layerwise__Layer-wise_Sparsities_of_Soft-Attention_MobileNet-V1_MS-COCO_.tsv"
SIZES = {"embedding_size": 5, "rnn_size": 6, "attention_size": 4, "feature_size": 7}


@pytest.fixture(scope="module")
def curves(shared):
    return shared / "fixtures" / "published_curves"


def set_random_zeros(model):
    """Sets random weights to zero and returns the fraction of zeros of each variable, by path."""
    random, fractions = np.random.default_rng(0), {}
    for variable in model.weights:
        keep = random.random(variable.shape) < random.random()
        variable.assign(np.where(keep, 1 + random.random(variable.shape), 0))
        fractions[variable.path] = float(np.mean(~keep))
    return fractions


@pytest.mark.parametrize("cell", ["lstm", "gru"])
def test_kernels_and_embeddings_are_counted_without_biases(cell):
    model = sc.SoftAttention(11, cell=cell, name="captioner", **SIZES)
    fractions = set_random_zeros(model)
    layers = layerwise(model)
    names = ["embedding/embeddings", "initial_hidden/kernel", "initial_carry/kernel"]
    names += ["attention_features/kernel", "attention_query/kernel", "attention_score/kernel"]
    names += [f"{cell}/kernel", f"{cell}/recurrent_kernel", "output/kernel"]
    assert {layer.name for layer in layers} == {n for n in names if cell == "lstm" or "carry" not in n}
    for layer in layers:
        assert layer.sparsity == pytest.approx(fractions[f"captioner/{layer.name}"])
    sizes = {layer.name: layer.weights for layer in layers}
    assert sizes["embedding/embeddings"] == 55 and sizes["output/kernel"] == 66


@pytest.mark.slow
def test_runs_are_labelled_by_folder_name_or_else_by_path(tiny_run, tmp_path):
    expected = layerwise(FinishedRun.load(tiny_run).captioner, with_encoder=False)
    assert layers_of_runs([tiny_run, tiny_run]) == {tiny_run.name: expected}
    copy = shutil.copytree(tiny_run, tmp_path / tiny_run.name)
    assert list(layers_of_runs([tiny_run, copy])) == [str(tiny_run), str(copy)]
    with pytest.raises(InputError, match=r"config\.yaml"):
        layers_of_runs([tmp_path])


def test_soft_attention_has_the_published_layers(curves):
    model = sc.SoftAttention(30, name="c", value_size=4, **SIZES)
    set_random_zeros(model)
    known = read_layers(curves / LSTM)["Proposed"]
    found = {layer.name: layer for layer in by_published_name(layerwise(model), known)}
    assert set(found) == set(known)
    merged = {
        "basic_lstm_cell/kernel": [model.cell.kernel, model.cell.recurrent_kernel],
        "rnn_initial_state/kernel": [model.initial_hidden.kernel, model.initial_carry.kernel],
        "MultiHeadAdd/query_layer/kernel": [model.attention_query.kernel],
    }
    for name, kernels in merged.items():
        weights = np.concatenate([np.ravel(kernel) for kernel in kernels])
        assert found[name].sparsity == pytest.approx(np.mean(weights == 0))
        assert found[name].weights == weights.size


@pytest.mark.parametrize(
    ("table", "method", "build", "sizes"),
    [
        (
            MOBILENET,
            "Proposed (80% sparse)",
            lambda: keras.applications.MobileNet(weights=None, include_top=False, input_shape=(32, 32, 3)),
            {
                "Conv2d_0/weights": 3 * 3 * 3 * 32,
                "Conv2d_13_pointwise/weights": 1024 * 1024,
                "Conv2d_2_depthwise/depthwise_weights": 3 * 3 * 64,
            },
        ),
        (
            INCEPTION,
            "Proposed",
            lambda: inception_v1(32),
            {
                "Conv2d_1a_7x7/weights": 7 * 7 * 3 * 64,
                "Mixed_5c/Branch_1/Conv2d_0b_3x3/weights": 3 * 3 * 192 * 384,
            },
        ),
    ],
    ids=["mobilenet", "inception"],
)
def test_encoders_have_the_published_layers(curves, table, method, build, sizes):
    known = read_layers(curves / table)[method]
    found = {layer.name: layer.weights for layer in by_published_name(layerwise(build()), known)}
    assert set(found) == set(known) and sizes.items() <= found.items()


def test_without_a_published_table_layers_keep_their_names():
    layers = [Layer("lstm/kernel", 0.5, 4), Layer("lstm/recurrent_kernel", 0.25, 4)]
    assert by_published_name(layers, []) == layers
    assert compare({"x": layers}).names == ["lstm/kernel", "lstm/recurrent_kernel"]


def test_description_ranks_layers_by_sparsity():
    layers = [Layer("a", 0.9, 1), Layer("b", 0.0, 1), Layer("c", 0.99, 1), Layer("d", 0.9, 5)]
    compared = compare({"x": layers, "y": [Layer("a", 0.0, 1)]})
    assert describe(compared) == "x, by increasing sparsity: b 0.0%, a 90.0%, d 90.0%, c 99.0%. y: dense."


def test_bars_are_as_long_as_the_sparsities(curves):
    ours = [Layer("embedding/embeddings", 0.97, 10), Layer("other/kernel", 0.75, 10)]
    (axes,) = layers_figure(compare({"SMP": ours}, curves / LSTM)).axes
    names = [label.get_text() for label in axes.get_yticklabels()]
    published = read_layers(curves / LSTM)
    assert names == [*published["Proposed"], "other/kernel"]
    ends = {}
    for bar in axes.patches:
        place = round(bar.get_y() + bar.get_height() / 2)
        ends.setdefault(names[place], []).append((bar.get_x() + bar.get_width()) / 100)
    expected = {name: [layers[name] for layers in published.values()] for name in published["Proposed"]}
    expected["embedding_map"].insert(0, 0.97)
    expected["other/kernel"] = [0.75]
    assert ends == {name: pytest.approx(values) for name, values in expected.items()}
    assert axes.get_xlim() == (70, 100) and "starts at 70 %" in axes.get_xlabel()


def test_figure_is_written_with_labels_and_numbers(curves, tmp_path):
    ours = [Layer("embedding/embeddings", 0.97, 10), Layer("other/kernel", 0.75, 10)]
    paths = plot_layerwise({"SMP": ours}, tmp_path / "a.png", published=curves / LSTM, title="Layers")
    with Image.open(paths[0]) as image:
        assert image.format == "PNG" and image.info["Description"].startswith("SMP, by increasing sparsity")
    words = {"".join(part.itertext()).strip() for part in ElementTree.parse(paths[1]).getroot().iter()}
    labels = {"SMP", "Proposed, published", "Gradual, published", "Hard-blind, published", "Layers"}
    assert labels | {"embedding_map", "other/kernel", "97.0", "99.2", "75.0"} <= words
    assert sorted(tmp_path.iterdir()) == paths
    with pytest.raises(InputError, match="no layers to plot"):
        plot_layerwise({}, tmp_path / "b.png")
